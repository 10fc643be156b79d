//! The configuration as a document: what is refused, with which code and words, and that writing loses nothing.

use super::*;
use baton_leadership::{Days, Mode, Ranking, TimeOfDay, Window};
use baton_types::{Class, Error, ErrorCode, TaskKind};
use bson::{Bson, Document, RawDocumentBuf, doc, rawdoc};
use proptest::prelude::*;

fn parse(document: &Document) -> Result<Configuration> {
    Configuration::parse(&RawDocumentBuf::try_from(document).unwrap())
}

/// A set `rs0` of these members.
fn set_of(members: Vec<Document>) -> Document {
    doc! { "_id": "rs0", "version": 1, "members": members }
}

/// One member that says `fields` besides its `_id` and `host`.
fn set_with_member(fields: Document) -> Document {
    let mut member = doc! { "_id": 1, "host": "b" };
    member.extend(fields);
    set_of(vec![doc! { "_id": 0, "host": "a" }, member])
}

/// A set that says `fields` besides what it must.
fn set_with(fields: Document) -> Document {
    let mut document = set_of(vec![doc! { "_id": 0, "host": "a", "tags": { "dc": "x" } }]);
    document.extend(fields);
    document
}

fn set_with_settings(settings: Document) -> Document {
    set_with(doc! { "settings": settings })
}

fn validated(document: &Document) -> Result<Configuration> {
    let configuration = parse(document)?;
    configuration.validate()?;
    Ok(configuration)
}

/// `count` members, of which the first `voters` vote.
fn set_of_size(count: i32, voters: i32) -> Document {
    let member = |id| match id < voters {
        true => doc! { "_id": id, "host": format!("node{id}") },
        false => doc! { "_id": id, "host": format!("node{id}"), "votes": 0, "priority": 0 },
    };
    set_of((0..count).map(member).collect())
}

#[track_caller]
fn assert_refused(outcome: Result<Configuration>, code: i32, words: &str) {
    let Error { code: found, message, .. } = outcome.expect_err(words);
    assert!(found == ErrorCode(code) && message.contains(words), "{words} ({code}): {message} ({found:?})");
}

#[track_caller]
fn assert_unparsed(document: &Document, code: i32, words: &str) {
    assert_refused(parse(document), code, words);
}

/// Parses, so that nothing but the rule is broken, and is then refused.
#[track_caller]
fn assert_invalid(document: &Document, words: &str) {
    let configuration = parse(document).expect(words);
    assert_refused(configuration.validate().map(|()| configuration), ErrorCode::BadValue.0, words);
}

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
fn a_field_that_nobody_knows_is_refused_at_every_level() {
    assert_unparsed(&set_with(doc! { "frob": 1 }), 40415, "BSON field 'ReplSetConfig.frob' is an unknown field.");
    assert_unparsed(
        &set_with_settings(doc! { "frob": 1 }),
        40415,
        "'ReplSetConfig.settings.frob' is an unknown field.",
    );
    let member = set_with_member(doc! { "slaveDelay": 1, "priority": 0 });
    assert_unparsed(&member, 40415, "BSON field 'MemberConfig.slaveDelay' is an unknown field.");
    assert_unparsed(&member, 40415, "member: { \"_id\": 1, \"host\": \"b\"");
    let default = set_with_settings(doc! { "getLastErrorDefaults": { "frob": 1 } });
    assert_unparsed(&default, 40415, "BSON field 'writeConcern.frob' is an unknown field.");
}

#[test]
fn a_field_that_is_missing_or_there_twice_is_refused() {
    for name in ["_id", "version", "members"] {
        let mut document = set_with(doc! {});
        document.remove(name);
        let words = format!("BSON field 'ReplSetConfig.{name}' is missing but a required field");
        assert_unparsed(&document, 40414, &words);
    }
    assert_unparsed(&set_of(vec![doc! { "host": "a" }]), 40414, "'MemberConfig._id' is missing");
    assert_unparsed(&set_of(vec![doc! { "_id": 0, "host": null }]), 40414, "'MemberConfig.host' is missing");

    let mut twice = rawdoc! { "_id": "rs0", "version": 1, "members": [] };
    twice.append(bson::raw::cstr!("version"), 2);
    assert_refused(Configuration::parse(&twice), 40413, "BSON field 'ReplSetConfig.version' is a duplicate field");
}

#[test]
fn a_wrong_type_is_named() {
    let cases = [
        (set_with(doc! { "_id": 1 }), "'ReplSetConfig._id' is the wrong type 'int', expected type 'string'"),
        (set_with(doc! { "version": "1" }), "Expected a number, got value of type string for field version"),
        (set_with(doc! { "version": null }), "Expected a number, got value of type null for field version"),
        (set_with(doc! { "term": true }), "Expected a number, got value of type bool for field term"),
        (
            set_with(doc! { "members": "a" }),
            "'ReplSetConfig.members' is the wrong type 'string', expected type 'array'",
        ),
        (
            set_with(doc! { "members": ["a"] }),
            "'ReplSetConfig.members.0' is the wrong type 'string', expected type 'object'",
        ),
        (set_with(doc! { "configsvr": 1 }), "Field 'configsvr' should be a boolean value, but found: int"),
        (
            set_with(doc! { "protocolVersion": "1" }),
            "'ReplSetConfig.protocolVersion' is the wrong type 'string', expected types '[long, int, decimal, double']",
        ),
        (
            set_with(doc! { "writeConcernMajorityJournalDefault": "yes" }),
            "is the wrong type 'string', expected types '[bool, long, int, decimal, double']",
        ),
        (
            set_with(doc! { "settings": [] }),
            "'ReplSetConfig.settings' is the wrong type 'array', expected type 'object'",
        ),
        (
            set_with_settings(doc! { "heartbeatTimeoutSecs": "no" }),
            "got value of type string for field heartbeatTimeoutSecs",
        ),
        (
            set_with_settings(doc! { "replicaSetId": "x" }),
            "'ReplSetConfig.settings.replicaSetId' is the wrong type 'string'",
        ),
        (
            set_with_settings(doc! { "getLastErrorModes": 1 }),
            "Expected getLastErrorModes to be an Object, it actually had type int",
        ),
        (
            set_with_settings(doc! { "getLastErrorModes": { "m": 1 } }),
            "Expected getLastErrorModes.m to be an Object, not int",
        ),
        (
            set_with_settings(doc! { "getLastErrorModes": { "m": { "dc": "1" } } }),
            "Expected getLastErrorModes.m.dc to be a number, not string",
        ),
        (set_with_member(doc! { "_id": "1" }), "Element for MemberId was not a number: _id: \"1\""),
        (set_with_member(doc! { "host": 1 }), "'MemberConfig.host' is the wrong type 'int', expected type 'string'"),
        (set_with_member(doc! { "votes": true }), "'MemberConfig.votes' is the wrong type 'bool'"),
        (
            set_with_member(doc! { "newlyAdded": 1 }),
            "'MemberConfig.newlyAdded' is the wrong type 'int', expected type 'bool'",
        ),
        (
            set_with_member(doc! { "tags": "x" }),
            "'MemberConfig.tags' is the wrong type 'string', expected type 'object'",
        ),
        (set_with_member(doc! { "tags": { "dc": 1 } }), "tags.dc field has non-string value of type int"),
    ];
    for (document, words) in cases {
        assert_unparsed(&document, ErrorCode::TypeMismatch.0, words);
    }
}

#[test]
fn settings_of_the_leadership_policy_that_mean_nothing_are_refused_by_name() {
    let with = |leadership: Document| set_with_settings(doc! { "leadership": leadership });
    let window = |window: Document| with(doc! { "windows": [{ "from": "02:00", "to": "04:00" }, window] });
    let unparsed = [
        (
            set_with_settings(doc! { "leadership": 1 }),
            14,
            "'ReplSetConfig.settings.leadership' is the wrong type 'int'",
        ),
        (with(doc! { "frob": 1 }), 40415, "'ReplSetConfig.settings.leadership.frob' is an unknown field."),
        (with(doc! { "mode": "sometimes" }), 2, "settings.leadership.mode must be off, always or costBased, but is"),
        (with(doc! { "mode": true }), 14, "'ReplSetConfig.settings.leadership.mode' is the wrong type 'bool'"),
        (with(doc! { "ranking": "best" }), 2, "settings.leadership.ranking must be mrc, lsp, preferred or score"),
        (with(doc! { "maxPostponeSecs": -1 }), 2, "settings.leadership.maxPostponeSecs must be 0 to 86400"),
        (with(doc! { "maxPostponeSecs": 1.5 }), 4708900, "exactly representable"),
        (with(doc! { "cooldownSecs": "1" }), 14, "got value of type string for field cooldownSecs"),
        (with(doc! { "maxDebtBytes": -1 }), 2, "settings.leadership.maxDebtBytes must be 1 to"),
        (with(doc! { "maxMovesPerHour": 1_i64 << 40 }), 2, "settings.leadership.maxMovesPerHour must be 1 to 3600"),
        (with(doc! { "minGainSecs": "much" }), 14, "leadership.minGainSecs' is the wrong type 'string'"),
        (with(doc! { "isLab": 1 }), 14, "leadership.isLab' is the wrong type 'int', expected type 'bool'"),
        (with(doc! { "windows": {} }), 14, "leadership.windows' is the wrong type 'object', expected type 'array'"),
        (with(doc! { "windows": [1] }), 14, "leadership.windows.0' is the wrong type 'int', expected type 'object'"),
        (window(doc! { "from": "01:00" }), 40414, "settings.leadership.windows.1 :: caused by :: BSON field"),
        (window(doc! { "from": "1:00", "to": "02:00" }), 2, "windows.from must be a time of day in UTC, written HH:MM"),
        (window(doc! { "from": "01:00", "to": "24:01" }), 2, "windows.to must be a time of day in UTC"),
        (window(doc! { "from": 1, "to": "02:00" }), 14, "leadership.windows.from' is the wrong type 'int'"),
        (
            window(doc! { "kind": "lunch", "from": "01:00", "to": "02:00" }),
            2,
            "windows.kind must be one of flush, comp",
        ),
        (
            window(doc! { "days": ["someday"], "from": "01:00", "to": "02:00" }),
            2,
            "windows.days must be an array of mon",
        ),
        (
            window(doc! { "zone": "CET", "from": "01:00", "to": "02:00" }),
            40415,
            "leadership.windows.zone' is an unknown",
        ),
    ];
    for (document, code, words) in unparsed {
        assert_unparsed(&document, code, words);
    }
    let out_of_range = [
        (with(doc! { "ranking": "random" }), "settings.leadership.ranking must be mrc, lsp, preferred or score"),
        (with(doc! { "maxPostponeSecs": 86_401 }), "maxPostponeSecs must be 0 to 86400, but is 86401"),
        (with(doc! { "maxDebtBytes": 0 }), "maxDebtBytes must be 1 to"),
        (with(doc! { "maxMovesPerHour": 0 }), "maxMovesPerHour must be 1 to 3600, but is 0"),
        (with(doc! { "minGainRatio": f64::NAN }), "minGainRatio must be 1 to 1000, but is NaN"),
        (with(doc! { "refusalBound": -0.1 }), "refusalBound must be 0 to 1, but is -0.1"),
        (
            window(doc! { "from": "05:00", "to": "05:00" }),
            "windows.1.to must be another time than from, or the window never",
        ),
        (
            window(doc! { "from": "24:00", "to": "05:00" }),
            "windows.1.from must be before 24:00, or the window never opens",
        ),
        (window(doc! { "days": [], "from": "04:00", "to": "05:00" }), "windows.1.days must be some day, or the window"),
    ];
    for (document, words) in out_of_range {
        assert_unparsed(&document, ErrorCode::BadValue.0, words);
    }
    // Made by code, it is refused all the same.
    let mut configuration = parse(&set_with(doc! {})).unwrap();
    configuration.settings.leadership.moves_per_hour_max = 0;
    assert_refused(configuration.validate().map(|()| configuration), 2, "maxMovesPerHour must be 1 to 3600");
}

#[test]
fn a_number_out_of_its_range_is_refused() {
    let timers = ["heartbeatIntervalMillis", "heartbeatTimeoutSecs", "electionTimeoutMillis"];
    for timer in timers {
        let words = format!("BSON field '{timer}' value must be > 0, actual value '0'");
        assert_unparsed(&set_with_settings(doc! { timer: 0 }), 51024, &words);
        assert_unparsed(&set_with_settings(doc! { timer: i64::MAX }), 51024, "value must be < 2147483648");
        assert_unparsed(&set_with_settings(doc! { timer: 1.5 }), 4708900, "exactly representable as a 64-bit integer");
    }
    for timer in ["catchUpTimeoutMillis", "catchUpTakeoverDelayMillis"] {
        assert_unparsed(&set_with_settings(doc! { timer: -2 }), 51024, "value must be >= -1, actual value '-2'");
        validated(&set_with_settings(doc! { timer: -1 })).unwrap();
    }
    assert_unparsed(
        &set_with(doc! { "version": 0 }),
        51024,
        "BSON field 'version' value must be > 0, actual value '0'",
    );
    let too_new = set_with(doc! { "version": 2_147_483_648_i64 });
    assert_unparsed(&too_new, 51024, "BSON field 'version' value must be < 2147483648, actual value '2147483648'");
    validated(&set_with(doc! { "version": 2_147_483_647.0 })).unwrap();
    assert_unparsed(&set_with(doc! { "version": f64::NAN }), 4708900, "exactly representable");
    assert_unparsed(&set_with(doc! { "term": -2 }), 51024, "BSON field 'term' value must be >= -1");
    assert_unparsed(&set_with(doc! { "protocolVersion": 0 }), 51024, "'protocolVersion' value must be >= 1");
    assert_unparsed(&set_with(doc! { "protocolVersion": 2 }), 51024, "'protocolVersion' value must be <= 1");

    let cases = [
        (doc! { "votes": 2 }, 51024, "BSON field 'votes' value must be <= 1, actual value '2'"),
        (doc! { "votes": -1 }, 51024, "BSON field 'votes' value must be >= 0, actual value '-1'"),
        (doc! { "priority": 1000.5 }, 51024, "BSON field 'priority' value must be <= 1000, actual value '1000.5'"),
        (doc! { "priority": -1 }, 51024, "BSON field 'priority' value must be >= 0, actual value '-1'"),
        (doc! { "priority": f64::NAN }, 51024, "BSON field 'priority' value must be >= 0, actual value 'NaN'"),
        (doc! { "secondaryDelaySecs": -1 }, 51024, "BSON field 'secondaryDelaySecs' value must be >= 0"),
        (doc! { "secondaryDelaySecs": 31_622_401 }, 51024, "BSON field 'secondaryDelaySecs' value must be <= 31622400"),
        (doc! { "_id": 256 }, 2, "_id field value of 256 is out of range."),
        (doc! { "_id": -1 }, 2, "_id field value of -1 is out of range."),
        (doc! { "_id": 1_i64 << 32 }, 2, "_id field value of 4294967296 is out of range."),
    ];
    for (fields, code, words) in cases {
        assert_unparsed(&set_with_member(fields), code, words);
    }
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

#[test]
fn a_host_is_a_name_and_a_port() {
    let cases = [
        ("a", "a:27017"),
        (" a:1 ", "a:1"),
        ("a.example.net:65535", "a.example.net:65535"),
        ("10.0.0.1:27018", "10.0.0.1:27018"),
        ("[::1]", "[::1]:27017"),
        ("[fe80::1]:5", "[fe80::1]:5"),
        ("[a]:5", "a:5"),
        ("a:+05", "a:5"),
    ];
    for (text, expected) in cases {
        let host = HostAndPort::parse(text).unwrap();
        assert_eq!(host.to_string(), expected);
        assert_eq!(HostAndPort::parse(expected).unwrap(), host);
    }
    let refused = [
        ("", "Empty host component parsing HostAndPort from \"\""),
        (":1", "Empty host component"),
        ("[]:1", "Empty host component"),
        ("a:", "Empty string"),
        ("a:-", "No digits"),
        ("a:zabc", "Bad digit \"z\" while parsing zabc"),
        ("a:1é", "Bad digit \"é\""),
        ("a:0", "Port number 0 out of range parsing HostAndPort from \"a:0\""),
        ("a:-1", "Port number -1 out of range"),
        ("a:65536", "Port number 65536 out of range"),
        ("a:99999999999999999999", "out of range"),
        ("::1", "More than one ':' detected"),
        ("a:1:2", "it needs to be surrounded by '[' and ']'; a:1:2"),
        ("a[::1]", "'[' present, but not first character in a[::1]"),
        ("a]", "']' present without '[' in a]"),
        ("[::1", "ipv6 address is missing closing ']' in hostname in [::1"),
        ("[::1]2", "missing colon after ']' before the port in [::1]2"),
        ("[::1]2:3", "Extraneous characters between ']' and pre-port ':' in [::1]2:3"),
        ("[::1]:2:3", "Extraneous characters"),
        ("a b:1", "Character ' ' cannot be part of a host"),
        ("a,b:1", "Character ',' cannot be part of a host"),
        ("/tmp/mongodb-1.sock", "Character '/' cannot be part of a host"),
    ];
    for (text, words) in refused {
        let error = HostAndPort::parse(text).expect_err(text);
        assert_eq!(error.code, ErrorCode::FailedToParse);
        assert!(error.message.contains(words), "{text}: {}", error.message);
    }
    assert_unparsed(&set_with_member(doc! { "host": "b:zabc" }), 9, "caused by :: Bad digit \"z\"");
}

#[test]
fn a_member_must_not_contradict_itself() {
    let cases = [
        (doc! { "votes": 0 }, "priority must be 0 when non-voting (votes:0)"),
        (doc! { "hidden": true }, "priority must be 0 when hidden=true"),
        (doc! { "secondaryDelaySecs": 1 }, "priority must be 0 when secondaryDelaySecs is used"),
        (doc! { "buildIndexes": false }, "priority must be 0 when buildIndexes=false"),
        (doc! { "arbiterOnly": true, "votes": 0 }, "Arbiter must vote (cannot have 0 votes)"),
        (doc! { "arbiterOnly": true, "newlyAdded": true }, "Arbiter cannot have newlyAdded field set"),
        (doc! { "arbiterOnly": true, "tags": { "dc": "x" } }, "Cannot set tags on arbiters."),
    ];
    for (fields, words) in cases {
        assert_unparsed(&set_with_member(fields.clone()), ErrorCode::BadValue.0, words);
        // The same rule for a configuration that was not read from a document.
        let mut configuration = parse(&set_with_member(doc! {})).unwrap();
        let member = &mut configuration.members[1];
        member.votes = !fields.contains_key("votes");
        member.hidden = fields.contains_key("hidden");
        member.delay = Duration::from_secs(u64::from(fields.contains_key("secondaryDelaySecs")));
        member.builds_indexes = !fields.contains_key("buildIndexes");
        member.arbiter = fields.contains_key("arbiterOnly");
        member.newly_added = fields.contains_key("newlyAdded");
        if fields.contains_key("tags") {
            member.tags.insert("dc".into(), "x".into());
        }
        assert_refused(configuration.validate().map(|()| configuration), 2, words);
    }
    let marked = set_with_member(doc! { "newlyAdded": false });
    assert_unparsed(&marked, ErrorCode::InvalidReplicaSetConfig.0, "Value must be true if specified");
}

#[test]
fn an_arbiters_priority_is_zero_or_left_out() {
    for fields in [doc! {}, doc! { "priority": 0 }, doc! { "priority": 1 }] {
        let mut arbiter = doc! { "arbiterOnly": true };
        arbiter.extend(fields);
        assert_eq!(validated(&set_with_member(arbiter)).unwrap().members[1].priority, 0.0);
    }
    let arbiter = set_with_member(doc! { "arbiterOnly": true, "priority": 2 });
    let words = "Member b:27017 is an arbiter but has priority 2. Arbiter priority must be 0.";
    assert_refused(validated(&arbiter), ErrorCode::InvalidReplicaSetConfig.0, words);
}

#[test]
fn a_set_has_1_to_50_members_and_1_to_7_voters() {
    validated(&set_of_size(1, 1)).unwrap();
    validated(&set_of_size(50, 7)).unwrap();
    let words = "contains 0 members, but must have at least 1 and no more than  50";
    assert_invalid(&set_of(vec![]), words);
    assert_invalid(&set_of_size(51, 7), "contains 51 members");
    assert_invalid(&set_of_size(8, 8), "contains 8 voting members, but must be at least 1 and no more than 7");
    assert_invalid(&set_of_size(2, 0), "contains 0 voting members");

    // One that is to vote later counts as if it did.
    let mut configuration = parse(&set_of_size(8, 8)).unwrap();
    configuration.members[7].newly_added = true;
    assert_refused(configuration.validate().map(|()| configuration), 2, "contains 8 voting members");
}

#[test]
fn a_member_can_be_elected() {
    let words = "must contain at least one non-arbiter member with priority > 0";
    assert_invalid(&set_of(vec![doc! { "_id": 0, "host": "a", "priority": 0 }]), words);
    assert_invalid(&set_of(vec![doc! { "_id": 0, "host": "a", "arbiterOnly": true }]), words);
    let new = doc! { "_id": 0, "host": "a", "newlyAdded": true };
    assert_invalid(&set_of(vec![new, doc! { "_id": 1, "host": "b", "priority": 0 }]), words);
}

#[test]
fn no_two_members_share_an_id_or_a_host() {
    let words = "Found two member configurations with same _id field, members.0._id == members.2._id == 0";
    let members = [(0, "a"), (1, "b"), (0, "c")].map(|(id, host)| doc! { "_id": id, "host": host });
    assert_invalid(&set_of(members.into()), words);
    let words = "with same host field, members.0.host == members.1.host == a:27017";
    let members = [(0, "a"), (1, "a:27017")].map(|(id, host)| doc! { "_id": id, "host": host });
    assert_invalid(&set_of(members.into()), words);
}

#[test]
fn all_members_are_on_localhost_or_none() {
    let set = |hosts: [&str; 3]| {
        set_of(hosts.iter().zip(0..).map(|(host, id)| doc! { "_id": id, "host": *host }).collect::<Vec<_>>())
    };
    validated(&set(["localhost:1", "127.0.0.1:2", "[::1]:3"])).unwrap();
    validated(&set(["a", "b", "localhost.example.net"])).unwrap();
    let words = "must be localhost references, or none must be; found 1 out of 3";
    assert_invalid(&set(["localhost:1", "a", "b"]), words);
}

#[test]
fn a_write_mode_counts_tags_that_members_have() {
    let members = [("a", "x"), ("b", "y"), ("c", "y")].iter().zip(0..);
    let members: Vec<_> =
        members.map(|((host, dc), id)| doc! { "_id": id, "host": *host, "tags": { "dc": *dc } }).collect();
    let set = |modes: Document| {
        let mut set = set_of(members.clone());
        set.insert("settings", doc! { "getLastErrorModes": modes });
        set
    };
    let modes = validated(&set(doc! { "one": { "dc": 1.9 }, "both": { "dc": 2_i64 } })).unwrap().settings.write_modes;
    assert_eq!((modes["one"]["dc"], modes["both"]["dc"]), (1, 2));

    assert_unparsed(&set(doc! { "m": { "rack": 1 } }), 4, "No replica set tag key rack in config");
    let words = "Value of getLastErrorModes.m.dc must be positive, but found 0";
    assert_unparsed(&set(doc! { "m": { "dc": 0 } }), 2, words);
    assert_invalid(&set(doc! { "m": { "dc": 3 } }), "getLastErrorModes.m.dc asks for 3 values of the tag");
    assert_invalid(&set(doc! { "m": { "dc": i64::MAX } }), "getLastErrorModes.m.dc asks for");

    let mut twice = rawdoc! { "m": { "dc": 1 } };
    twice.append(bson::raw::cstr!("m"), rawdoc! { "dc": 2 });
    let settings = rawdoc! { "getLastErrorModes": twice };
    let raw = rawdoc! { "_id": "rs0", "version": 1, "members": [{ "_id": 0, "host": "a" }], "settings": settings };
    assert_refused(Configuration::parse(&raw), 51001, "getLastErrorModes contains multiple fields named m");
}

#[test]
fn get_last_error_defaults_may_only_be_the_default() {
    let with = |default: Document| set_with_settings(doc! { "getLastErrorDefaults": default });
    for default in [doc! {}, doc! { "w": 1 }, doc! { "w": 1, "wtimeout": 0 }, doc! { "w": 1_i64, "wtimeout": 0.0 }] {
        validated(&with(default)).unwrap();
    }
    let customized = [
        doc! { "w": 2 },
        doc! { "w": "majority" },
        doc! { "w": { "dc": 1 } },
        doc! { "w": 1, "wtimeout": 5 },
        doc! { "w": 1, "j": true },
        doc! { "w": 1, "j": false },
    ];
    for default in customized {
        assert_unparsed(&with(default), 5_624_102, "contains customized getLastErrorDefaults");
    }
    for default in [doc! { "w": 0 }, doc! { "w": "" }] {
        assert_unparsed(&with(default), 2, "Default write concern mode must wait for at least 1 member");
    }
    assert_unparsed(&with(doc! { "w": true }), 9, "w has to be a number, string, or object; found: bool");
    assert_unparsed(&with(doc! { "w": 51 }), 9, "w has to be a non-negative number and not greater than 50");
}

#[test]
fn what_baton_does_not_do_is_refused_rather_than_ignored() {
    let not_implemented = ErrorCode::NotImplemented.0;
    assert_unparsed(&set_with(doc! { "configsvr": true }), not_implemented, "configsvr");
    validated(&set_with(doc! { "configsvr": false })).unwrap();
    assert_unparsed(&set_with_member(doc! { "horizons": { "out": "b.example.net" } }), not_implemented, "horizons");
    assert_unparsed(&set_with(doc! { "repaired": true }), 270, "Replicated data has been repaired");
}

#[test]
fn a_set_has_a_name_and_its_id_is_not_all_zeros() {
    assert_unparsed(&set_with(doc! { "_id": "" }), 2, "must have non-empty _id field");
    let zeros = ObjectId::from_bytes([0; 12]);
    assert_unparsed(&set_with_settings(doc! { "replicaSetId": zeros }), 2, "replicaSetId field value cannot be null");
}

#[test]
fn code_cannot_make_what_a_document_could_not_say() {
    let valid = parse(&set_with(doc! {})).unwrap();
    valid.validate().unwrap();
    type Change = fn(&mut Configuration);
    let cases: [(Change, i32, &str); 9] = [
        (|c| c.set_name.clear(), 2, "non-empty _id"),
        (|c| c.version.version = 1 << 31, 51024, "'version' value must be < 2147483648"),
        (|c| c.version.term = -2, 51024, "'term' value must be >= -1"),
        (|c| c.members[0].id = MemberId(-1), 2, "_id field value of -1 is out of range."),
        (|c| c.members[0].host = "a".into(), 2, "\"a\" is not written as name:port"),
        (|c| c.members[0].priority = f64::NAN, 51024, "'priority' value must be >= 0"),
        (|c| c.settings.election_timeout = Duration::ZERO, 51024, "'electionTimeoutMillis' value must be > 0"),
        (|c| c.settings.heartbeat_timeout = Duration::from_millis(1500), 2, "heartbeatTimeoutSecs cannot be 1.5s"),
        (
            |c| c.settings.catch_up_timeout = Some(Duration::MAX),
            51024,
            "'catchUpTimeoutMillis' value must be < 2147483648",
        ),
    ];
    for (change, code, words) in cases {
        let mut configuration = valid.clone();
        change(&mut configuration);
        assert_refused(configuration.validate().map(|()| configuration), code, words);
    }
}

#[test]
fn a_long_member_does_not_make_a_long_message() {
    let member = set_with_member(doc! { "frob": "é".repeat(1 << 20) });
    let error = parse(&member).unwrap_err();
    assert!(error.message.len() < 2048 && error.message.ends_with("'MemberConfig.frob' is an unknown field."));
}

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
    (modes, prop::collection::vec(rule, 0..4), prop::option::of(weights), 10..=60_000_u64, shed_above).prop_map(
        |(mode, rules, weights, ms, shed_above)| baton_admission::Settings {
            mode,
            rules,
            weights,
            worst_wait: Duration::from_millis(ms),
            shed_above: shed_above.map_or_else(baton_admission::ShedAbove::default, |(low, normal)| {
                baton_admission::ShedAbove { high: None, normal, low: Some(low) }
            }),
        },
    )
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
