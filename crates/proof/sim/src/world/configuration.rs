//! The configurations that a world begins with.

use baton_consensus::{Configuration, ConfigurationVersion, Member, MemberId, Settings};
use rand::Rng;
use rand::rngs::StdRng;
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) fn host(id: MemberId) -> String {
    format!("m{}:27017", id.0)
}

pub(super) fn member(id: MemberId, priority: f64, arbiter: bool) -> Member {
    Member {
        id,
        host: host(id),
        arbiter,
        builds_indexes: true,
        hidden: false,
        priority: if arbiter { 0.0 } else { priority },
        tags: BTreeMap::new(),
        delay: Duration::ZERO,
        votes: true,
        newly_added: false,
    }
}

pub(super) fn first_configuration(random: &mut StdRng, count: usize) -> Configuration {
    let arbiter = (count > 2 && random.random_bool(0.2)).then_some(count as i32 - 1);
    let alike = random.random_bool(0.6);
    let mut members: Vec<Member> = (0..count as i32)
        .map(|id| {
            let priority = if alike { 1.0 } else { f64::from(random.random_range(0..4)) };
            member(MemberId(id), priority, arbiter == Some(id))
        })
        .collect();
    if !members.iter().any(Member::is_electable) {
        members[0].priority = 1.0;
    }
    let election_timeout = Duration::from_millis(*[500, 1000, 2000].get(random.random_range(0..3)).unwrap_or(&1000));
    Configuration {
        set_name: super::SET_NAME.to_owned(),
        version: ConfigurationVersion { term: 1, version: 1 },
        members,
        majority_is_durable: true,
        settings: Settings {
            chaining_allowed: random.random_bool(0.8),
            election_timeout,
            heartbeat_timeout: election_timeout,
            catch_up_timeout: random.random_bool(0.5).then_some(Duration::from_millis(800)),
            catch_up_takeover_delay: Some(Duration::from_millis(1500)),
            ..Settings::default()
        },
    }
}
