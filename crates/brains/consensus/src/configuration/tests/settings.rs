//! The sections of `settings`: write modes, defaults, the policies of leadership and of priority.

use super::*;

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
fn a_set_has_a_name_and_its_id_is_not_all_zeros() {
    assert_unparsed(&set_with(doc! { "_id": "" }), 2, "must have non-empty _id field");
    let zeros = ObjectId::from_bytes([0; 12]);
    assert_unparsed(&set_with_settings(doc! { "replicaSetId": zeros }), 2, "replicaSetId field value cannot be null");
}
