//! Whoever has a build under way says what it is at, again and again: what it waits for, if it waits.

use super::Checker;
use crate::catalog::BuildId;
use crate::world::World;
use baton_consensus::{MemberId, Moment};
use std::collections::BTreeMap;
use std::time::Duration;

/// Longer than anything is waited for before a builder looks around.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// See the file's header.
#[derive(Default)]
pub struct BuildsSayWhy {
    /// Since when each process has had each build.
    since: BTreeMap<(MemberId, BuildId), (u64, Moment)>,
}

impl Checker for BuildsSayWhy {
    fn name(&self) -> &'static str {
        "whoever has an index build under way says what it is at"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        for (id, _) in world.touched_views() {
            let catalog = &world.disk(id).catalog;
            self.since.retain(|(member, build), _| *member != id || catalog.building(*build).is_some());
            for index in catalog.under_way() {
                let (boot, now) = (world.boot(id), world.now());
                let since = self.since.entry((id, index.build)).or_insert((boot, now));
                if since.0 != boot {
                    *since = (boot, now);
                }
                let said = world.builder(id, index.build).map(|builder| builder.said());
                let spoke = said.map_or(since.1, |(_, spoke)| spoke).max(world.late_until(id));
                if now.saturating_sub(spoke) > SILENCE_MAX + world.build_part_max() {
                    return Err(format!("member {id} says nothing of {index:?} since {spoke:?}: {said:?}"));
                }
            }
        }
        Ok(())
    }
}
