//! Whatever configuration is valid writes a document that parses to itself.

use super::*;

fn any_member() -> impl Strategy<Value = Member> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let tags = prop::collection::btree_map("[a-c]", "[x-z]{0,2}", 0..3);
    (flags, 0..=31_622_400_u64, 0.0..=1000.0_f64, tags, 1..=u16::MAX).prop_map(
        |(flags, delay, priority, tags, port)| {
            let (arbiter, builds_indexes, hidden, votes, newly_added) = flags;
            let is_plain = builds_indexes && !hidden && votes && !arbiter;
            let mut member = Member::new(MemberId(0), String::new());
            member.host = port.to_string();
            member.arbiter = arbiter;
            member.builds_indexes = builds_indexes;
            member.hidden = hidden;
            member.votes = votes || arbiter;
            member.newly_added = newly_added && !arbiter;
            member.priority = if is_plain { priority } else { 0.0 };
            member.delay = if is_plain && priority != 0.0 { Duration::ZERO } else { Duration::from_secs(delay) };
            if !arbiter {
                member.tags = tags;
            }
            member
        },
    )
}

fn any_settings() -> impl Strategy<Value = Settings> {
    let timers = (1..i64::from(i32::MAX), 1..i64::from(i32::MAX), 1..i64::from(i32::MAX));
    let or_never = || prop::option::of((0..i64::from(i32::MAX)).prop_map(millis));
    let set_id = prop::option::of(prop::array::uniform12(1_u8..));
    (any::<bool>(), timers, or_never(), or_never(), any_leadership(), any_priority(), set_id).prop_map(
        |(chaining_allowed, timers, catch_up_timeout, catch_up_takeover_delay, leadership, priority, set_id)| {
            let (interval, timeout, election) = timers;
            Settings {
                chaining_allowed,
                heartbeat_interval: millis(interval),
                heartbeat_timeout: millis(timeout) * 1000,
                election_timeout: millis(election),
                catch_up_timeout,
                catch_up_takeover_delay,
                write_modes: BTreeMap::new(),
                leadership,
                priority,
                set_id: set_id.map(ObjectId::from_bytes),
            }
        },
    )
}

fn any_priority() -> impl Strategy<Value = baton_admission::Settings> {
    let pattern = || prop::option::of("[a-z*]{1,8}");
    let class = prop::sample::select(vec![Class::Low, Class::Normal, Class::High]);
    let when = (pattern(), pattern(), pattern()).prop_map(|(app_name, ns, comment)| baton_admission::Match {
        app_name,
        ns,
        comment,
        ..baton_admission::Match::default()
    });
    let rule = (when, class).prop_map(|(when, class)| baton_admission::Rule { when, class });
    let weight = || 1..=baton_admission::Weights::MAX;
    let weights =
        (weight(), weight(), weight()).prop_map(|(high, normal, low)| baton_admission::Weights { high, normal, low });
    let modes = prop::sample::select(baton_admission::Mode::ALL.to_vec());
    let shed_above = prop::option::of((17..=100_u32, prop::option::of(100..=10_000_u32)));
    (
        modes,
        prop::collection::vec(rule, 0..4),
        prop::option::of(weights),
        any::<Option<bool>>(),
        10..=60_000_u64,
        shed_above,
    )
        .prop_map(|(mode, rules, weights, work_conserving, ms, shed_above)| baton_admission::Settings {
            mode,
            rules,
            weights,
            work_conserving,
            worst_wait: Duration::from_millis(ms),
            shed_above: shed_above.map_or_else(baton_admission::ShedAbove::default, |(low, normal)| {
                baton_admission::ShedAbove { high: None, normal, low: Some(low) }
            }),
        })
}

fn any_leadership() -> impl Strategy<Value = baton_leadership::Settings> {
    let secs = || (0..=86_400_u64).prop_map(Duration::from_secs);
    let kind = prop::option::of(prop::sample::select(TaskKind::ALL.to_vec()));
    let window = (kind, prop::sample::select(Days::NAMES.to_vec()), 0..720_u16, 721..=1440_u16).prop_map(
        |(kind, day, from, to)| Window {
            kind,
            days: Days::NONE.with(day).unwrap(),
            from: TimeOfDay::from_minutes(from).unwrap(),
            to: TimeOfDay::from_minutes(to).unwrap(),
        },
    );
    let numbers = (1..=i64::MAX as u64, 1..=3600_u32, 0.01..=3600.0_f64, 1.0..=1000.0_f64, 0.0..=1.0_f64);
    let names = (prop::sample::select(Mode::ALL.to_vec()), prop::sample::select(Ranking::ALL.to_vec()));
    (names, (secs(), secs(), secs()), numbers, prop::collection::vec(window, 0..3)).prop_map(
        |((mode, ranking), (postpone_max, cooldown, tenure_min), numbers, windows)| {
            let (debt_bytes_max, moves_per_hour_max, gain_secs_min, gain_ratio_min, refusal_bound) = numbers;
            baton_leadership::Settings {
                mode,
                ranking,
                postpone_max,
                debt_bytes_max,
                cooldown,
                tenure_min,
                moves_per_hour_max,
                gain_secs_min,
                gain_ratio_min,
                refusal_bound,
                windows,
                is_lab: true,
            }
        },
    )
}

fn millis(number: i64) -> Duration {
    Duration::from_millis(number.unsigned_abs())
}

/// A valid configuration: the first member is electable, the first seven at most vote.
fn any_configuration() -> impl Strategy<Value = Configuration> {
    let members = prop::collection::vec(any_member(), 0..12);
    let version = (-1..=i64::from(i32::MAX), 1..=i64::from(i32::MAX));
    ("[a-zé]{1,8}", version, members, any::<bool>(), any_settings()).prop_map(
        |(set_name, (term, version), mut members, majority_is_durable, mut settings)| {
            members.insert(0, Member::new(MemberId(0), "1".into()));
            for (i, member) in members.iter_mut().enumerate() {
                member.id = MemberId(i as i32 * 3);
                member.host = format!("node{i}:{}", member.host);
                if i >= VOTERS_MAX {
                    (member.votes, member.priority, member.arbiter) = (false, 0.0, false);
                }
            }
            // One value of each tag that there is can always be had.
            let tags = members.iter().flat_map(|member| member.tags.keys());
            settings.write_modes = tags.map(|tag| (format!("any {tag}"), [(tag.clone(), 1)].into())).collect();
            let version = ConfigurationVersion { term, version };
            Configuration { set_name, version, members, majority_is_durable, settings }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_valid_configuration_writes_a_document_that_parses_to_itself(configuration in any_configuration()) {
        configuration.validate().unwrap();
        let document = configuration.to_document();
        let again = parse(&document).unwrap();
        prop_assert_eq!(&again, &configuration);
        prop_assert_eq!(again.to_document(), document);
    }

    #[test]
    fn a_host_that_parses_has_one_way_to_be_written(text in "[\\[\\]:a0 .%,é/+-]{0,12}") {
        if let Ok(host) = HostAndPort::parse(&text) {
            prop_assert_eq!(HostAndPort::parse(&host.to_string()).unwrap(), host);
        }
    }
}
