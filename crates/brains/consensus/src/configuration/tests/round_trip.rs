//! What a document says is read, written again with MongoDB's defaults, order and types, and read as the same.

use super::*;

#[test]
fn a_minimal_configuration_gets_mongodbs_defaults_in_mongodbs_order_and_types() {
    let document = validated(&set_of(vec![doc! { "_id": 0, "host": "a" }])).unwrap().to_document();
    let expected = doc! {
        "_id": "rs0",
        "version": 1,
        "members": [{
            "_id": 0,
            "host": "a:27017",
            "arbiterOnly": false,
            "buildIndexes": true,
            "hidden": false,
            "priority": 1.0,
            "tags": {},
            "secondaryDelaySecs": 0_i64,
            "votes": 1,
        }],
        "protocolVersion": 1_i64,
        "writeConcernMajorityJournalDefault": true,
        "settings": {
            "chainingAllowed": true,
            "heartbeatIntervalMillis": 2000,
            "heartbeatTimeoutSecs": 10,
            "electionTimeoutMillis": 10000,
            "catchUpTimeoutMillis": -1,
            "catchUpTakeoverDelayMillis": 30000,
            "getLastErrorModes": {},
            "getLastErrorDefaults": { "w": 1, "wtimeout": 0 },
            "leadership": {
                "mode": "costBased",
                "ranking": "mrc",
                "maxPostponeSecs": 600,
                "maxDebtBytes": 8_589_934_592_i64,
                "cooldownSecs": 120,
                "minTenureSecs": 60,
                "maxMovesPerHour": 12,
                "minGainSecs": 0.5,
                "minGainRatio": 2.0,
                "refusalBound": 0.3,
                "windows": [],
            },
            "priority": { "mode": "full", "rules": [], "worstWaitMs": 1000, "shedAbove": { "low": 64 } },
        },
    };
    // As bytes: the fields' order and types count.
    let bytes = |document: &Document| RawDocumentBuf::try_from(document).unwrap().into_bytes();
    assert_eq!(bytes(&document), bytes(&expected), "{document}");
}

#[test]
fn every_field_is_read_and_written_again() {
    let set_id = ObjectId::from_bytes([7; 12]);
    let written = doc! {
        "_id": "rs0",
        "version": 1234,
        "term": 5,
        "members": [
            { "_id": 0, "host": "a:1", "priority": 2.5, "tags": { "dc": "x", "rack": "1" } },
            { "_id": 3, "host": "b:1", "hidden": true, "priority": 0, "secondaryDelaySecs": 3600, "votes": 0 },
            { "_id": 9, "host": "c:1", "arbiterOnly": true },
            { "_id": 4, "host": "d:1", "newlyAdded": true, "tags": { "dc": "y" } },
            { "_id": 5, "host": "e:1", "buildIndexes": false, "priority": 0 },
        ],
        "writeConcernMajorityJournalDefault": false,
        "settings": {
            "chainingAllowed": false,
            "heartbeatIntervalMillis": 100,
            "heartbeatTimeoutSecs": 1,
            "electionTimeoutMillis": 500,
            "catchUpTimeoutMillis": 0,
            "catchUpTakeoverDelayMillis": -1,
            "getLastErrorModes": { "twoSites": { "dc": 2 } },
            "leadership": {
                "mode": "always",
                "ranking": "random",
                "maxPostponeSecs": 86_400,
                "maxDebtBytes": 1,
                "cooldownSecs": 0,
                "minTenureSecs": 5.0,
                "maxMovesPerHour": 3,
                "minGainSecs": 1,
                "minGainRatio": 1.5,
                "refusalBound": 1,
                "windows": [
                    { "kind": "backup", "days": ["sat", "sun"], "from": "22:30", "to": "04:00" },
                    { "from": "00:00", "to": "24:00" },
                ],
                "isLab": true,
            },
            "replicaSetId": set_id,
        },
    };
    let configuration = validated(&written).unwrap();
    assert_eq!(configuration.version, ConfigurationVersion { term: 5, version: 1234 });
    assert!(!configuration.majority_is_durable);
    let [a, b, c, d, e] = &configuration.members[..] else { panic!("{configuration:?}") };
    assert_eq!((a.priority, a.tags["rack"].as_str()), (2.5, "1"));
    assert!(b.hidden && !b.votes && b.delay == Duration::from_secs(3600));
    assert!(c.arbiter && c.priority == 0.0, "an arbiter need not give its priority");
    assert!(d.newly_added && d.votes && !d.is_voter());
    assert!(!e.builds_indexes);
    let settings = &configuration.settings;
    assert_eq!(settings.catch_up_timeout, Some(Duration::ZERO));
    assert_eq!(settings.catch_up_takeover_delay, None);
    assert_eq!(settings.write_modes["twoSites"]["dc"], 2);
    assert_eq!(settings.set_id, Some(set_id));
    let leadership = &settings.leadership;
    assert_eq!((leadership.mode, leadership.ranking), (Mode::Always, Ranking::Random));
    assert_eq!((leadership.postpone_max, leadership.tenure_min), (Duration::from_secs(86_400), Duration::from_secs(5)));
    assert_eq!((leadership.debt_bytes_max, leadership.moves_per_hour_max, leadership.is_lab), (1, 3, true));
    let [backups, all] = &leadership.windows[..] else { panic!("{leadership:?}") };
    assert_eq!((backups.kind, all.kind), (Some(TaskKind::Backup), None));
    assert_eq!((backups.days.names().collect::<Vec<_>>(), all.days), (vec!["sat", "sun"], Days::ALL));

    let document = configuration.to_document();
    assert_eq!(document.get("term"), Some(&Bson::Int32(5)));
    let members = document.get_array("members").unwrap();
    let is_marked = |member: &Bson| member.as_document().unwrap().get("newlyAdded").cloned();
    assert_eq!(is_marked(&members[3]), Some(Bson::Boolean(true)));
    assert_eq!(is_marked(&members[0]), None, "only where it is true");
    assert_eq!(parse(&document).unwrap(), configuration);
}

#[test]
fn the_first_configuration_of_a_set_names_its_one_member() {
    let set_id = ObjectId::from_bytes([1; 12]);
    let configuration = Configuration::initial("rs0", "localhost", set_id).unwrap();
    assert_eq!(configuration.version, ConfigurationVersion { term: 1, version: 1 });
    assert_eq!(configuration.member_at("localhost:27017").unwrap().id, MemberId(0));
    assert_eq!(configuration.settings.set_id, Some(set_id));
    assert_eq!(validated(&configuration.to_document()).unwrap(), configuration);

    assert_refused(Configuration::initial("rs0", "localhost:", set_id), 9, "Empty string");
    assert_refused(Configuration::initial("", "localhost", set_id), 2, "non-empty _id");
}

#[test]
fn numbers_and_truths_are_read_as_leniently_as_mongodb_reads_them() {
    let member = set_with_member(doc! {
        "votes": 0.9, "priority": 0_i64, "hidden": 1.0, "buildIndexes": 0, "tags": null, "secondaryDelaySecs": 1.9,
    });
    let member = validated(&member).unwrap().members.remove(1);
    assert!(!member.votes && member.hidden && !member.builds_indexes && member.tags.is_empty());
    assert_eq!(member.delay, Duration::from_secs(1));

    let decimal = |text: &str| Bson::Decimal128(text.parse().unwrap());
    let set = set_with(
        doc! { "version": decimal("3"), "term": 2.0, "settings": { "electionTimeoutMillis": decimal("1E+3") } },
    );
    let set = validated(&set).unwrap();
    assert_eq!(set.version, ConfigurationVersion { term: 2, version: 3 });
    assert_eq!(set.settings.election_timeout, Duration::from_secs(1));
}

#[test]
fn without_a_term_it_is_unknown_and_not_written() {
    for document in [set_with(doc! {}), set_with(doc! { "term": -1 })] {
        let configuration = validated(&document).unwrap();
        assert_eq!(configuration.version.term, UNKNOWN_TERM);
        assert!(!configuration.to_document().contains_key("term"));
    }
}
