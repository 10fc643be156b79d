//! The messages as documents: that nothing is lost, what they look like, and what is refused with which code and words.

use super::*;
use baton_consensus::configuration::{ConfigurationVersion, Member, MemberId, Settings};
use baton_consensus::{
    Configuration, ElectionReason, Gossip, HeartbeatRequest, HeartbeatResponse, MemberState, Position, PositionUpdate,
    VoteRequest, VoteResponse,
};
use baton_types::{OpTime, Timestamp};
use bson::oid::ObjectId;
use bson::raw::CString;
use bson::{Bson, Document, RawBson, doc};
use proptest::option::of;
use proptest::prelude::*;
use std::time::Duration;

const SET_ID: ObjectId = ObjectId::from_bytes([7; 12]);

// ---- nothing is lost ----

fn any_term() -> impl Strategy<Value = i64> {
    -1..1i64 << 31
}

fn any_optime() -> impl Strategy<Value = OpTime> {
    (any_term(), any::<u64>()).prop_map(|(term, t)| OpTime { term, timestamp: Timestamp::from_u64(t) })
}

fn any_position() -> impl Strategy<Value = Position> {
    [any_optime(), any_optime(), any_optime()].prop_map(|[written, applied, durable]| Position {
        written,
        applied,
        durable,
    })
}

fn any_member() -> impl Strategy<Value = MemberId> {
    (0..=255).prop_map(MemberId)
}

fn any_version() -> impl Strategy<Value = ConfigurationVersion> {
    (any_term(), any::<i64>()).prop_map(|(term, version)| ConfigurationVersion { term, version })
}

fn any_state() -> impl Strategy<Value = MemberState> {
    use MemberState::*;
    prop::sample::select(vec![
        Startup, Primary, Secondary, Recovering, Startup2, Unknown, Arbiter, Down, Rollback, Removed,
    ])
}

fn any_reason() -> impl Strategy<Value = ElectionReason> {
    use ElectionReason::*;
    prop::sample::select(vec![ElectionTimeout, PriorityTakeover, CatchUpTakeover, Handoff, StepUpRequest, SingleMember])
}

fn any_gossip() -> impl Strategy<Value = Gossip> {
    let who = (any_term(), any::<u32>());
    let leadership = of(any::<i64>()).prop_map(|number| number.map(|number| bson::rawdoc! { "sequence": number }));
    let rest = (any_version(), leadership);
    (who, of(any_member()), any_state(), any_position(), any_optime(), of(any_member()), rest).prop_map(
        |((term, protocol_version), primary, state, position, commit_point, sync_source, rest)| {
            let (configuration_version, leadership) = rest;
            Gossip {
                term,
                protocol_version,
                primary,
                state,
                position,
                commit_point,
                sync_source,
                configuration_version,
                leadership,
            }
        },
    )
}

/// A valid one of one to three members.
fn any_configuration() -> impl Strategy<Value = Configuration> {
    let member = (0.0..1000.0, any::<bool>(), prop::collection::btree_map("[a-z]{1,4}", ".{0,4}", 0..3));
    let members = prop::collection::vec(member, 1..=3);
    let settings = (1..1u64 << 31, of(0..1u64 << 31), any::<bool>());
    ("[a-z]{1,8}", 1..1i64 << 31, any_term(), members, settings, any::<[u8; 12]>()).prop_map(
        |(set_name, version, term, members, (election, catch_up, chaining_allowed), set_id)| Configuration {
            set_name,
            version: ConfigurationVersion { term, version },
            members: (0..)
                .zip(members)
                .map(|(id, (priority, newly_added, tags))| Member {
                    // Somebody can be elected.
                    priority: if id == 0 { priority + 0.5_f64.min(1000.0 - priority) } else { priority },
                    newly_added: newly_added && id > 0,
                    tags,
                    ..Member::new(MemberId(id), format!("node{id}:{}", 27017 + id))
                })
                .collect(),
            majority_is_durable: true,
            settings: Settings {
                chaining_allowed,
                election_timeout: Duration::from_millis(election),
                catch_up_timeout: catch_up.map(Duration::from_millis),
                set_id: Some(set_id.into()),
                ..Settings::default()
            },
        },
    )
}

fn any_host() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), ("[a-z]{1,9}", 1..=u16::MAX).prop_map(|(name, port)| format!("{name}:{port}"))]
}

fn any_positions() -> impl Strategy<Value = PositionUpdate> {
    // As far as microseconds go.
    let age = (0..1u64 << 62).prop_map(Duration::from_micros);
    (any_term(), prop::collection::btree_map(any_member(), (any_position(), age), 0..8))
        .prop_map(|(term, positions)| PositionUpdate { term, positions })
}

fn any_request() -> impl Strategy<Value = Request> {
    let heartbeat =
        (".{0,9}", of(any_member()), any_host(), any_gossip()).prop_map(|(set_name, from, from_host, gossip)| {
            HeartbeatRequest { set_name, set_id: Some(SET_ID), from, from_host, gossip }
        });
    let vote = (".{0,9}", any::<bool>(), any_term(), any_member(), any_optime(), any_version(), any_reason()).prop_map(
        |(set_name, dry_run, term, candidate, last_written, configuration_version, reason)| VoteRequest {
            set_id: None,
            set_name,
            dry_run,
            term,
            candidate,
            last_written,
            configuration_version,
            reason,
        },
    );
    prop_oneof![
        heartbeat.prop_map(Request::Heartbeat),
        vote.prop_map(Request::RequestVotes),
        any_positions().prop_map(Request::UpdatePosition),
        (any_term(), any_optime()).prop_map(|(term, last_written)| Request::StepUp { term, last_written }),
    ]
}

fn any_response() -> impl Strategy<Value = Response> {
    let heartbeat = (any_gossip(), of(any_configuration()))
        .prop_map(|(gossip, configuration)| HeartbeatResponse { gossip, configuration: configuration.map(Box::new) });
    let vote = (any_term(), any::<bool>(), any::<bool>(), ".{0,20}", any_optime()).prop_map(
        |(term, dry_run, granted, reason, last_written)| VoteResponse { term, dry_run, granted, reason, last_written },
    );
    prop_oneof![
        heartbeat.prop_map(Response::Heartbeat),
        vote.prop_map(Response::RequestVotes),
        any_term().prop_map(|term| Response::UpdatePosition { term }),
        any_term().prop_map(|term| Response::StepUp { term }),
    ]
}

fn kind_of(response: &Response) -> RequestKind {
    match response {
        Response::Heartbeat(_) => RequestKind::Heartbeat,
        Response::RequestVotes(_) => RequestKind::RequestVotes,
        Response::UpdatePosition { .. } => RequestKind::UpdatePosition,
        Response::StepUp { .. } => RequestKind::StepUp,
    }
}

/// Values that are wrong almost everywhere.
fn any_value() -> impl Strategy<Value = RawBson> {
    prop_oneof![
        any::<i32>().prop_map(RawBson::Int32),
        any::<i64>().prop_map(RawBson::Int64),
        any::<f64>().prop_map(RawBson::Double),
        any::<bool>().prop_map(RawBson::Boolean),
        ".{0,4}".prop_map(RawBson::String),
        Just(RawBson::Null),
        Just(RawBson::Document(RawDocumentBuf::new())),
        Just(RawBson::Array(bson::rawbson!([1, {}]).as_array().unwrap().to_owned())),
    ]
}

/// `document` with one of its fields replaced, or left out.
fn with_damage(document: &RawDocument, field: prop::sample::Index, value: Option<&RawBson>) -> RawDocumentBuf {
    let at = field.index(document.iter().count());
    let mut damaged = RawDocumentBuf::new();
    for (i, element) in document.iter().enumerate() {
        let (name, found) = element.unwrap();
        let name = CString::try_from(name.as_str()).unwrap();
        match value {
            _ if i != at => damaged.append(name, found),
            Some(value) => damaged.append(name, value.as_raw_bson_ref()),
            None => {}
        }
    }
    damaged
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_asked_is_what_is_heard(request in any_request()) {
        prop_assert_eq!(decode_request(&encode_request(&request)).unwrap(), request);
    }

    #[test]
    fn what_is_answered_is_what_is_heard(response in any_response()) {
        let mut reply = encode_response(&response);
        prop_assert_eq!(decode_response(kind_of(&response), &reply).unwrap(), response.clone());
        reply.append(cstr!("ok"), 1.0);
        prop_assert_eq!(decode_response(kind_of(&response), &reply).unwrap(), response);
    }

    /// What a damaged message says may still be understood; then it is what the undamaged part says.
    #[test]
    fn a_damaged_message_is_an_error_or_a_message(
        request in any_request(),
        response in any_response(),
        field: prop::sample::Index,
        value in of(any_value()),
    ) {
        let _ = decode_request(&with_damage(&encode_request(&request), field, value.as_ref()));
        let reply = encode_response(&response);
        for kind in [RequestKind::Heartbeat, RequestKind::RequestVotes, RequestKind::UpdatePosition, RequestKind::StepUp] {
            let _ = decode_response(kind, &with_damage(&reply, field, value.as_ref()));
        }
    }
}

#[test]
fn an_age_is_rounded_up_never_down() {
    let member = MemberId(1);
    let update = |age| PositionUpdate { term: 1, positions: [(member, (Position::default(), age))].into() };
    let sent = update(Duration::from_nanos(1_001));
    let Ok(Request::UpdatePosition(heard)) = decode_request(&encode_request(&Request::UpdatePosition(sent))) else {
        panic!("not an update")
    };
    assert_eq!(heard.positions[&member].1, Duration::from_micros(2));
}

// ---- what they look like ----

fn optime(term: i64, seconds: u32) -> OpTime {
    OpTime { term, timestamp: Timestamp { seconds, increment: 1 } }
}

fn shown(term: i64, seconds: u32) -> Document {
    doc! { "ts": bson::Timestamp { time: seconds, increment: 1 }, "t": term }
}

fn gossip() -> Gossip {
    Gossip {
        term: 3,
        protocol_version: 2,
        primary: Some(MemberId(1)),
        state: MemberState::Secondary,
        position: Position { written: optime(3, 30), applied: optime(3, 29), durable: optime(3, 28) },
        commit_point: optime(3, 27),
        sync_source: Some(MemberId(2)),
        configuration_version: ConfigurationVersion { term: 3, version: 5 },
        leadership: None,
    }
}

fn heartbeat() -> Request {
    Request::Heartbeat(HeartbeatRequest {
        set_id: Some(SET_ID),
        set_name: "rs0".into(),
        from: Some(MemberId(0)),
        from_host: "a:27017".into(),
        gossip: gossip(),
    })
}

fn vote() -> Request {
    Request::RequestVotes(VoteRequest {
        set_id: Some(SET_ID),
        set_name: "rs0".into(),
        dry_run: true,
        term: 3,
        candidate: MemberId(2),
        last_written: optime(3, 30),
        configuration_version: ConfigurationVersion { term: 3, version: 5 },
        reason: ElectionReason::PriorityTakeover,
    })
}

fn update() -> Request {
    let positions = [(MemberId(2), (gossip().position, Duration::from_millis(7)))];
    Request::UpdatePosition(PositionUpdate { term: 3, positions: positions.into() })
}

fn step_up() -> Request {
    Request::StepUp { term: 3, last_written: optime(3, 30) }
}

fn document(raw: &RawDocument) -> Document {
    Document::try_from(raw).unwrap()
}

#[test]
fn requests_are_mongodbs_commands() {
    let expected = doc! {
        "replSetHeartbeat": "rs0", "hbv": 1, "replicaSetId": SET_ID, "from": "a:27017", "fromId": 0, "configVersion": 5, "configTerm": 3,
        "state": 2, "term": 3_i64, "protocolVersion": 2, "primaryId": 1_i64, "writtenOpTime": shown(3, 30), "opTime": shown(3, 29),
        "durableOpTime": shown(3, 28), "commitPoint": shown(3, 27), "syncSource": 2_i64, "$db": "admin",
    };
    assert_eq!(document(&encode_request(&heartbeat())), expected);
    let expected = doc! {
        "replSetRequestVotes": 1, "setName": "rs0", "replicaSetId": SET_ID, "dryRun": true, "term": 3_i64, "candidateId": 2,
        "configVersion": 5, "configTerm": 3, "lastWrittenOpTime": shown(3, 30), "reason": "priorityTakeover",
        "$db": "admin",
    };
    assert_eq!(document(&encode_request(&vote())), expected);
    let expected = doc! {
        "replSetUpdatePosition": 1,
        "optimes": [{
            "durableOpTime": shown(3, 28), "appliedOpTime": shown(3, 29), "writtenOpTime": shown(3, 30), "memberId": 2,
            "ageMicros": 7_000_i64,
        }],
        "term": 3_i64, "$db": "admin",
    };
    assert_eq!(document(&encode_request(&update())), expected);
    let expected = doc! {
        "replSetStepUp": 1, "skipDryRun": true, "term": 3_i64, "lastWrittenOpTime": shown(3, 30), "$db": "admin",
    };
    assert_eq!(document(&encode_request(&step_up())), expected);
}

#[test]
fn responses_are_mongodbs_replies() {
    let configuration = Configuration::initial("rs0", "a", [7; 12].into()).unwrap();
    let shown_configuration = configuration.to_document();
    let response = HeartbeatResponse {
        gossip: Gossip { primary: None, sync_source: None, ..gossip() },
        configuration: Some(Box::new(configuration)),
    };
    let expected = doc! {
        "v": 5, "t": 3, "state": 2, "term": 3_i64, "protocolVersion": 2, "primaryId": -1_i64, "writtenOpTime": shown(3, 30),
        "opTime": shown(3, 29), "durableOpTime": shown(3, 28), "commitPoint": shown(3, 27), "config": shown_configuration,
    };
    assert_eq!(document(&encode_response(&Response::Heartbeat(response))), expected);
    let last_written = gossip().position.written;
    let vote = VoteResponse { term: 4, dry_run: false, granted: false, reason: "no".into(), last_written };
    let expected = doc! {
        "term": 4_i64, "voteGranted": false, "reason": "no", "dryRun": false, "lastWrittenOpTime": shown(3, 30),
    };
    assert_eq!(document(&encode_response(&Response::RequestVotes(vote))), expected);
    assert_eq!(document(&encode_response(&Response::UpdatePosition { term: 4 })), doc! { "term": 4_i64 });
    assert_eq!(document(&encode_response(&Response::StepUp { term: 4 })), doc! { "term": 4_i64 });
}

// ---- what is refused ----

/// The error of `request` with `field` changed, or left out.
#[track_caller]
fn refusal(request: &Request, field: &str, value: Option<Bson>) -> (i32, String) {
    let mut command = document(&encode_request(request));
    match value {
        Some(value) => _ = command.insert(field, value),
        None => _ = command.remove(field),
    }
    let error = decode_request(&RawDocumentBuf::try_from(&command).unwrap()).expect_err(field);
    (error.code.0, error.message)
}

#[track_caller]
fn assert_refused(request: &Request, field: &str, value: impl Into<Bson>, code: i32, words: &str) {
    let (found, message) = refusal(request, field, Some(value.into()));
    assert!(found == code && message == words, "{found}: {message}");
}

#[test]
fn a_missing_field_is_no_such_key_with_its_name() {
    let required: [(Request, &[&str]); 4] = [
        (
            heartbeat(),
            &["from", "configVersion", "state", "term", "writtenOpTime", "opTime", "durableOpTime", "commitPoint"],
        ),
        (vote(), &["setName", "dryRun", "term", "candidateId", "configVersion", "lastWrittenOpTime", "reason"]),
        (update(), &["optimes", "term"]),
        (step_up(), &["term", "lastWrittenOpTime"]),
    ];
    for (request, fields) in required {
        for field in fields {
            assert_eq!(refusal(&request, field, None), (4, format!("Missing expected field \"{field}\"")));
        }
    }
}

#[test]
fn a_wrong_type_is_named() {
    let words = "\"setName\" had the wrong type. Expected string, found int";
    assert_refused(&vote(), "setName", 1, 14, words);
    assert_refused(&vote(), "dryRun", 1, 14, "\"dryRun\" had the wrong type. Expected bool, found int");
    assert_refused(&vote(), "term", "3", 14, "Expected field \"term\" to have numeric type, but found string");
    let words = "\"lastWrittenOpTime\" had the wrong type. Expected object, found null";
    assert_refused(&vote(), "lastWrittenOpTime", Bson::Null, 14, words);
    let words = "\"ts\" had the wrong type. Expected timestamp, found int";
    assert_refused(&heartbeat(), "opTime", doc! { "ts": 1, "t": 1 }, 14, words);
    assert_refused(&heartbeat(), "opTime", doc! {}, 4, "Missing expected field \"ts\"");
    let words = "\"optimes\" had the wrong type. Expected array, found object";
    assert_refused(&update(), "optimes", doc! {}, 14, words);
    assert_refused(&update(), "optimes", vec![1], 14, "Expected \"optimes\" to hold objects, but found int");
    let words = "Expected boolean or number type for field \"skipDryRun\", found string";
    assert_refused(&step_up(), "skipDryRun", "yes", 14, words);
    let words =
        "Expected \"state\" field in replSetHeartbeat to have type NumberInt or NumberLong, but found type double";
    assert_refused(&heartbeat(), "state", 1.0, 14, words);
}

#[test]
fn a_number_that_makes_no_sense_is_refused() {
    let words =
        "Expected field \"term\" to have a value exactly representable as a 64-bit integer, but found term: 1.5";
    assert_refused(&vote(), "term", 1.5, 2, words);
    // From here on terms could no longer be counted up.
    let words = "BSON field 'term' value must be < 2147483648, actual value '9223372036854775807'";
    assert_refused(&vote(), "term", i64::MAX, 51024, words);
    let words = "BSON field 'term' value must be >= -1, actual value '-2'";
    assert_refused(&heartbeat(), "term", -2, 51024, words);
    assert_refused(&vote(), "candidateId", 256, 2, "candidateId field value of 256 is out of range.");
    assert_refused(&vote(), "candidateId", -1, 2, "candidateId field value of -1 is out of range.");
    assert_refused(&heartbeat(), "hbv", 2, 40666, "Found invalid value for field hbv: 2");
    for state in [4, 11, -1] {
        let words = format!("Value for \"state\" in replSetHeartbeat is no member's state: {state}");
        assert_refused(&heartbeat(), "state", state, 2, &words);
    }
    let entry = document(&encode_request(&update())).get_array("optimes").unwrap()[0].clone();
    let words = "Found two positions of member 2 in \"optimes\"";
    assert_refused(&update(), "optimes", vec![entry.clone(), entry.clone()], 2, words);
    let mut young = entry.as_document().unwrap().clone();
    young.insert("ageMicros", -1);
    let words = "BSON field 'ageMicros' value must be >= 0, actual value '-1'";
    assert_refused(&update(), "optimes", vec![young], 51024, words);
}

#[test]
fn what_is_not_done_is_not_promised() {
    let words = "replSetHeartbeat with checkEmpty is not implemented";
    assert_refused(&heartbeat(), "checkEmpty", true, 238, words);
    let words = "replSetStepUp with a term must have skipDryRun: true";
    assert_refused(&step_up(), "skipDryRun", false, 2, words);
    assert_refused(&vote(), "reason", "boredom", 2, "\"boredom\" is no reason of an election");
    let (code, message) = refusal(&heartbeat(), "from", Some("a:b:c".into()));
    assert!(code == 9 && message.starts_with("More than one ':' detected"), "{code}: {message}");
    let error = decode_request(&bson::rawdoc! { "find": "x" }).unwrap_err();
    assert_eq!((error.code.0, &*error.message), (59, "no such command: 'find'"));
    assert_eq!(decode_request(&RawDocumentBuf::new()).unwrap_err().code.0, 59);
}

#[test]
fn fields_of_the_envelope_are_passed_over_and_optional_ones_may_be_absent() {
    let mut command = document(&encode_request(&heartbeat()));
    command.insert("lsid", doc! { "id": 1 });
    for optional in ["hbv", "fromId", "configTerm", "primaryId", "syncSource"] {
        command.remove(optional);
    }
    let decoded = decode_request(&RawDocumentBuf::try_from(&command).unwrap()).unwrap();
    let expected = HeartbeatRequest {
        set_id: Some(SET_ID),
        set_name: "rs0".into(),
        from: None,
        from_host: "a:27017".into(),
        gossip: Gossip {
            primary: None,
            sync_source: None,
            configuration_version: ConfigurationVersion { term: -1, version: 5 },
            ..gossip()
        },
    };
    assert_eq!(decoded, Request::Heartbeat(expected));
}

#[test]
fn what_a_member_says_of_its_tasks_is_a_document_of_bounded_size() {
    let mut command = document(&encode_request(&heartbeat()));
    command.insert("leadership", doc! { "tasks": [] });
    let decode = |command: &Document| decode_request(&RawDocumentBuf::try_from(command).unwrap());
    let Ok(Request::Heartbeat(heard)) = decode(&command) else { panic!("refused") };
    assert_eq!(heard.gossip.leadership, Some(bson::rawdoc! { "tasks": [] }));
    command.insert("leadership", doc! { "tasks": "x".repeat(20_000) });
    assert_eq!(decode(&command).unwrap_err().code.0, 2);
    command.insert("leadership", 1);
    assert_eq!(decode(&command).unwrap_err().code.0, 14);
}

#[test]
fn a_failure_is_that_of_the_other_member() {
    let reply =
        bson::rawdoc! { "ok": 0.0, "errmsg": "another set", "code": 108, "codeName": "InconsistentReplicaSetNames" };
    let error = decode_response(RequestKind::Heartbeat, &reply).unwrap_err();
    assert_eq!((error.code.0, &*error.message), (108, "another set"));
    let error = decode_response(RequestKind::StepUp, &bson::rawdoc! { "term": 1, "ok": "yes" }).unwrap_err();
    assert_eq!(error.code, ErrorCode::UnknownError);
}

#[test]
fn a_configuration_that_makes_no_sense_does_not_arrive() {
    let configuration = Configuration::initial("rs0", "a", [7; 12].into()).unwrap();
    let response = HeartbeatResponse { gossip: gossip(), configuration: Some(Box::new(configuration.clone())) };
    let mut reply = document(&encode_response(&Response::Heartbeat(response)));
    let mut broken = configuration;
    broken.members[0].priority = 0.0;
    reply.insert("config", broken.to_document());
    let refused = decode_response(RequestKind::Heartbeat, &RawDocumentBuf::try_from(&reply).unwrap());
    assert_eq!(refused.unwrap_err().code.0, 2);
    reply.insert("config", 1);
    let refused = decode_response(RequestKind::Heartbeat, &RawDocumentBuf::try_from(&reply).unwrap());
    assert_eq!(refused.unwrap_err().code.0, 14);
}
