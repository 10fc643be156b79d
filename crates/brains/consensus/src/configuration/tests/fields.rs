//! A field by itself: unknown, missing, of the wrong type, out of its range, or of something that Baton does not do.

use super::*;

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
fn what_baton_does_not_do_is_refused_rather_than_ignored() {
    let not_implemented = ErrorCode::NotImplemented.0;
    assert_unparsed(&set_with(doc! { "configsvr": true }), not_implemented, "configsvr");
    validated(&set_with(doc! { "configsvr": false })).unwrap();
    assert_unparsed(&set_with_member(doc! { "horizons": { "out": "b.example.net" } }), not_implemented, "horizons");
    assert_unparsed(&set_with(doc! { "repaired": true }), 270, "Replicated data has been repaired");
}

#[test]
fn a_long_member_does_not_make_a_long_message() {
    let member = set_with_member(doc! { "frob": "é".repeat(1 << 20) });
    let error = parse(&member).unwrap_err();
    assert!(error.message.len() < 2048 && error.message.ends_with("'MemberConfig.frob' is an unknown field."));
}
