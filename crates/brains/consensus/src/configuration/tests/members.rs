//! Members by themselves and together: hosts, votes, who can be elected.

use super::*;

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
