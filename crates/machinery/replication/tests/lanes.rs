//! Lanes to members that are played here, over real sockets: they answer, refuse, are silent, die.
//!
//! Nothing is asserted of the time that something takes, but for this: with a timeout far longer than a test's patience, what
//! arrives did not wait for it.

#![allow(clippy::unwrap_used, clippy::panic)]

use baton_consensus::configuration::{ConfigurationVersion, MemberId};
use baton_consensus::{
    Gossip, HeartbeatRequest, HeartbeatResponse, Input, MemberState, Position, PositionUpdate, Request, RequestKind,
    Response,
};
use baton_replication::Lanes;
use baton_replication::messages::{decode_request, encode_response};
use baton_types::{OpTime, Term};
use baton_wire::client::{decode_reply, encode_command};
use baton_wire::{Flags, Header};
use bson::{RawDocumentBuf, cstr, rawdoc};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// For what is expected to happen; far less than [`TIMEOUT`].
const PATIENCE: Duration = Duration::from_secs(20);
/// For what is expected not to.
const IMPATIENCE: Duration = Duration::from_millis(100);
/// Of requests that are to be answered, or fail otherwise.
const TIMEOUT: Duration = Duration::from_secs(600);

const PEER: MemberId = MemberId(1);
const OTHER_PEER: MemberId = MemberId(2);

// ---- members as they are played ----

/// An address of this machine that no other test uses, so that nobody listens at a port once its member is gone.
fn fresh_address() -> String {
    static LAST: AtomicU8 = AtomicU8::new(1);
    format!("127.0.77.{}:0", LAST.fetch_add(1, SeqCst))
}

/// One connection to a member, as the member has it.
struct Caller(TcpStream);

impl Caller {
    /// The next command and its number; `None` when the caller has hung up.
    fn hear(&mut self) -> Option<(i32, RawDocumentBuf)> {
        let mut message = vec![0; 16];
        self.0.read_exact(&mut message).ok()?;
        let header = Header::read(&message).unwrap();
        message.resize(header.message_length as usize, 0);
        self.0.read_exact(&mut message[16..]).ok()?;
        let command = decode_reply(&message).unwrap();
        Some((header.request_id, command.body.to_owned()))
    }

    fn answer(&mut self, request_id: i32, reply: &RawDocumentBuf) {
        let mut message = Vec::new();
        encode_command(&mut message, 1, Flags(0), reply, None);
        message[8..12].copy_from_slice(&request_id.to_le_bytes());
        let _ = self.0.write_all(&message);
    }
}

/// A member's process: dropping it closes its port and its connections.
struct Member {
    host: String,
    listener: Option<TcpListener>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Member {
    /// Listens at a free port and has every connection served.
    fn serve(serve: impl Fn(&mut Caller) + Clone + Send + 'static) -> Self {
        Self::serve_at(&fresh_address(), serve)
    }

    fn serve_at(address: &str, serve: impl Fn(&mut Caller) + Clone + Send + 'static) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let connections = Arc::new(Mutex::new(Vec::new()));
        let (accepting, accepted) = (listener.try_clone().unwrap(), Arc::clone(&connections));
        let thread = std::thread::spawn(move || {
            let mut serving = Vec::new();
            while let Ok((stream, _)) = accepting.accept() {
                accepted.lock().unwrap().push(stream.try_clone().unwrap());
                let serve = serve.clone();
                serving.push(std::thread::spawn(move || serve(&mut Caller(stream))));
            }
            for thread in serving {
                thread.join().unwrap();
            }
        });
        Self { host, listener: Some(listener), connections, threads: vec![thread] }
    }

    /// Answers every request as a member in this term.
    fn answering(term: Term) -> Self {
        Self::serve(move |caller| answer_all(caller, term))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(listener) = self.listener.take() {
            // Ends accept in the other thread, and with it the port refuses.
            let _ = rustix::net::shutdown(&listener, rustix::net::Shutdown::Both);
        }
        for stream in self.connections.lock().unwrap().drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

fn answer_all(caller: &mut Caller, term: Term) {
    while let Some((id, command)) = caller.hear() {
        caller.answer(id, &reply_to(&command, term));
    }
}

fn reply_to(command: &RawDocumentBuf, term: Term) -> RawDocumentBuf {
    let mut reply = encode_response(&response_to(&decode_request(command).unwrap(), term));
    reply.append(cstr!("ok"), 1.0);
    reply
}

fn response_to(request: &Request, term: Term) -> Response {
    match request {
        Request::Heartbeat(_) => Response::Heartbeat(HeartbeatResponse { gossip: gossip(term), configuration: None }),
        Request::UpdatePosition(_) => Response::UpdatePosition { term },
        Request::StepUp { .. } => Response::StepUp { term },
        Request::RequestVotes(_) => panic!("nobody stands here"),
    }
}

fn gossip(term: Term) -> Gossip {
    Gossip {
        protocol_version: baton_consensus::PROTOCOL_VERSION,
        term,
        primary: None,
        state: MemberState::Secondary,
        position: Position::default(),
        commit_point: OpTime::ZERO,
        sync_source: None,
        configuration_version: ConfigurationVersion { term, version: 1 },
        leadership: None,
    }
}

// ---- the lanes under test ----

fn lanes() -> (Lanes, Receiver<Input>) {
    let (inputs, received): (Sender<Input>, _) = channel();
    (Lanes::new(Arc::new(move |input| _ = inputs.send(input))), received)
}

fn heartbeat(term: Term) -> Request {
    Request::Heartbeat(HeartbeatRequest {
        set_id: None,
        set_name: "rs0".into(),
        from: Some(MemberId(0)),
        from_host: "a:27017".into(),
        gossip: gossip(term),
    })
}

fn update(term: Term) -> Request {
    Request::UpdatePosition(PositionUpdate { term, positions: [].into() })
}

#[track_caller]
fn expect_response(received: &Receiver<Input>, expected_from: MemberId, expected: &Response) {
    match received.recv_timeout(PATIENCE).unwrap() {
        Input::Response { from, response, round_trip } => {
            assert_eq!((from, &response), (expected_from, expected));
            assert!(round_trip > Duration::ZERO && round_trip < PATIENCE, "{round_trip:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn expect_unreachable(received: &Receiver<Input>, expected_gone: bool, expected: RequestKind) {
    match received.recv_timeout(PATIENCE).unwrap() {
        Input::Unreachable { to, gone, request } => {
            assert_eq!((to, gone, request), (PEER, expected_gone, expected));
        }
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn expect_nothing(received: &Receiver<Input>) {
    match received.recv_timeout(IMPATIENCE) {
        Err(RecvTimeoutError::Timeout) => {}
        other => panic!("{other:?}"),
    }
}

/// A port where nobody listens.
fn deserted_host() -> String {
    TcpListener::bind(fresh_address()).unwrap().local_addr().unwrap().to_string()
}

// ---- answers ----

#[test]
fn every_request_brings_its_answer() {
    let member = Member::answering(7);
    let (lanes, received) = lanes();
    for _ in 0..3 {
        for request in [heartbeat(7), update(7), Request::StepUp { term: 7, last_written: OpTime::ZERO }] {
            let expected = response_to(&request, 7);
            lanes.send(PEER, &member.host, request, TIMEOUT).unwrap();
            expect_response(&received, PEER, &expected);
        }
    }
    assert_eq!(member.connections.lock().unwrap().len(), 2, "one connection for each lane");
    drop(lanes);
}

#[test]
fn an_error_for_an_answer_is_a_failure_of_a_member_that_lives() {
    let member = Member::serve(|caller| {
        while let Some((id, _)) = caller.hear() {
            caller.answer(id, &rawdoc! { "ok": 0.0, "code": 108, "errmsg": "another set" });
        }
    });
    let (lanes, received) = lanes();
    lanes.send(PEER, &member.host, heartbeat(1), TIMEOUT).unwrap();
    expect_unreachable(&received, false, RequestKind::Heartbeat);
    drop(lanes);
}

#[test]
fn what_is_no_answer_at_all_is_a_failure_too() {
    let member = Member::serve(|caller| {
        while let Some((id, _)) = caller.hear() {
            caller.answer(id + 1, &rawdoc! { "ok": 1.0 });
        }
    });
    let (lanes, received) = lanes();
    lanes.send(PEER, &member.host, update(1), TIMEOUT).unwrap();
    expect_unreachable(&received, false, RequestKind::UpdatePosition);
    drop(lanes);
}

// ---- no way ----

#[test]
fn where_nobody_listens_the_process_is_gone() {
    let host = deserted_host();
    let (lanes, received) = lanes();
    lanes.send(PEER, &host, heartbeat(1), TIMEOUT).unwrap();
    expect_unreachable(&received, true, RequestKind::Heartbeat);
    lanes.send(PEER, &host, Request::StepUp { term: 1, last_written: OpTime::ZERO }, TIMEOUT).unwrap();
    expect_unreachable(&received, true, RequestKind::StepUp);
}

#[test]
fn a_host_that_nobody_knows_is_no_sign_of_death_and_keeps_nothing_from_others() {
    let member = Member::answering(1);
    let (lanes, received) = lanes();
    // Not even a name service is asked about a host without a port.
    lanes.send(PEER, "nowhere", heartbeat(1), TIMEOUT).unwrap();
    expect_unreachable(&received, false, RequestKind::Heartbeat);
    lanes.send(OTHER_PEER, &member.host, heartbeat(1), TIMEOUT).unwrap();
    expect_response(&received, OTHER_PEER, &response_to(&heartbeat(1), 1));
    drop(lanes);
}

#[test]
fn a_silent_member_is_unreachable_in_time_and_not_gone() {
    let member = Member::serve(|caller| while caller.hear().is_some() {});
    let (lanes, received) = lanes();
    lanes.send(PEER, &member.host, heartbeat(1), IMPATIENCE).unwrap();
    expect_unreachable(&received, false, RequestKind::Heartbeat);
    drop(lanes);
}

#[test]
fn a_silent_member_keeps_nothing_from_another_and_a_hanging_update_no_heartbeat() {
    let silent = Member::serve(|caller| while caller.hear().is_some() {});
    let hanging = Member::serve(|caller| {
        while let Some((id, command)) = caller.hear() {
            if matches!(decode_request(&command), Ok(Request::Heartbeat(_))) {
                caller.answer(id, &reply_to(&command, 1));
            }
        }
    });
    let (lanes, received) = lanes();
    lanes.send(OTHER_PEER, &silent.host, heartbeat(1), TIMEOUT).unwrap();
    lanes.send(PEER, &hanging.host, update(1), TIMEOUT).unwrap();
    for _ in 0..3 {
        lanes.send(PEER, &hanging.host, heartbeat(1), TIMEOUT).unwrap();
        expect_response(&received, PEER, &response_to(&heartbeat(1), 1));
    }
    drop(lanes);
}

// ---- death ----

#[test]
fn the_death_of_a_process_is_known_without_asking() {
    let member = Member::answering(1);
    let (lanes, received) = lanes();
    lanes.send(PEER, &member.host, heartbeat(1), TIMEOUT).unwrap();
    expect_response(&received, PEER, &response_to(&heartbeat(1), 1));
    lanes.send(PEER, &member.host, update(1), TIMEOUT).unwrap();
    expect_response(&received, PEER, &response_to(&update(1), 1));
    drop(member);
    expect_unreachable(&received, true, RequestKind::Heartbeat);
    // Once is enough.
    expect_nothing(&received);
}

#[test]
fn the_death_of_a_process_ends_the_heartbeat_that_waits_for_it() {
    let (heard, hears) = channel();
    let member = Member::serve(move |caller| {
        while caller.hear().is_some() {
            heard.send(()).unwrap();
        }
    });
    let (lanes, received) = lanes();
    lanes.send(PEER, &member.host, heartbeat(1), TIMEOUT).unwrap();
    hears.recv_timeout(PATIENCE).unwrap();
    drop(member);
    // The first may come while the dying process still listened; then it is not certain yet.
    match received.recv_timeout(PATIENCE).unwrap() {
        Input::Unreachable { to: PEER, gone: true, request: RequestKind::Heartbeat } => {}
        Input::Unreachable { to: PEER, gone: false, request: RequestKind::Heartbeat } => {
            expect_unreachable(&received, true, RequestKind::Heartbeat);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_connection_closed_by_a_process_that_lives_is_made_again_and_nobody_is_told() {
    let (accepted, accepts) = channel();
    let member = Member::serve(move |caller| {
        accepted.send(()).unwrap();
        let Some((id, command)) = caller.hear() else { return };
        caller.answer(id, &reply_to(&command, 1));
        caller.0.shutdown(std::net::Shutdown::Both).unwrap();
    });
    let (lanes, received) = lanes();
    for _ in 0..3 {
        lanes.send(PEER, &member.host, heartbeat(1), TIMEOUT).unwrap();
        expect_response(&received, PEER, &response_to(&heartbeat(1), 1));
    }
    // Three were asked for; the one that follows the last answer was not.
    for _ in 0..4 {
        accepts.recv_timeout(PATIENCE).unwrap();
    }
    expect_nothing(&received);
    drop(lanes);
}

#[test]
fn a_process_started_anew_is_asked_over_a_new_connection() {
    let member = Member::answering(1);
    let host = member.host.clone();
    let (lanes, received) = lanes();
    lanes.send(PEER, &host, update(1), TIMEOUT).unwrap();
    expect_response(&received, PEER, &response_to(&update(1), 1));
    drop(member);
    let member = Member::serve_at(&host, |caller| answer_all(caller, 2));
    lanes.send(PEER, &host, update(1), TIMEOUT).unwrap();
    expect_response(&received, PEER, &response_to(&update(1), 2));
    drop((lanes, member));
}

#[test]
fn a_member_that_has_moved_is_asked_where_it_is() {
    let (before, after) = (Member::answering(1), Member::answering(2));
    let (lanes, received) = lanes();
    lanes.send(PEER, &before.host, heartbeat(1), TIMEOUT).unwrap();
    expect_response(&received, PEER, &response_to(&heartbeat(1), 1));
    lanes.send(PEER, &after.host, heartbeat(1), TIMEOUT).unwrap();
    expect_response(&received, PEER, &response_to(&heartbeat(1), 2));
    drop(before);
    expect_nothing(&received);
    drop(lanes);
}

// ---- queues and ends ----

#[test]
fn what_waits_gives_way_to_what_is_newer() {
    let (heard, hears) = channel();
    let (release, released) = channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let member = Member::serve(move |caller| {
        while let Some((id, command)) = caller.hear() {
            let Ok(Request::UpdatePosition(update)) = decode_request(&command) else { panic!("{command:?}") };
            heard.send(update.term).unwrap();
            released.lock().unwrap().recv().unwrap();
            caller.answer(id, &reply_to(&command, update.term));
        }
    });
    let (lanes, received) = lanes();
    lanes.send(PEER, &member.host, update(1), TIMEOUT).unwrap();
    assert_eq!(hears.recv_timeout(PATIENCE), Ok(1));
    for term in 2..=100 {
        lanes.send(PEER, &member.host, update(term), TIMEOUT).unwrap();
    }
    release.send(()).unwrap();
    release.send(()).unwrap();
    expect_response(&received, PEER, &Response::UpdatePosition { term: 1 });
    expect_response(&received, PEER, &Response::UpdatePosition { term: 100 });
    assert_eq!(hears.recv_timeout(PATIENCE), Ok(100));
    expect_nothing(&received);
    drop(lanes);
}

#[test]
fn dropping_the_lanes_ends_their_threads_whatever_they_wait_for() {
    let (heard, hears) = channel();
    let silent = Member::serve(move |caller| {
        while caller.hear().is_some() {
            heard.send(()).unwrap();
        }
    });
    let idle = Member::answering(1);
    let (lanes, received) = lanes();
    lanes.send(OTHER_PEER, &idle.host, heartbeat(1), TIMEOUT).unwrap();
    expect_response(&received, OTHER_PEER, &response_to(&heartbeat(1), 1));
    lanes.send(PEER, &silent.host, heartbeat(1), TIMEOUT).unwrap();
    hears.recv_timeout(PATIENCE).unwrap();
    drop(lanes);
    // The last thread took the sender along, and nothing was told of what was cut off.
    assert!(matches!(received.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected)));
}

#[test]
fn members_that_are_not_kept_are_hung_up_on() {
    let (ended, ends) = channel();
    let leaver = Member::serve(move |caller| {
        answer_all(caller, 1);
        ended.send(()).unwrap();
    });
    let stayer = Member::answering(1);
    let (lanes, received) = lanes();
    lanes.send(PEER, &leaver.host, heartbeat(1), TIMEOUT).unwrap();
    expect_response(&received, PEER, &response_to(&heartbeat(1), 1));
    lanes.send(OTHER_PEER, &stayer.host, heartbeat(1), TIMEOUT).unwrap();
    expect_response(&received, OTHER_PEER, &response_to(&heartbeat(1), 1));
    lanes.retain(|id| id == OTHER_PEER);
    ends.recv_timeout(PATIENCE).unwrap();
    expect_nothing(&received);
    lanes.send(OTHER_PEER, &stayer.host, heartbeat(1), TIMEOUT).unwrap();
    expect_response(&received, OTHER_PEER, &response_to(&heartbeat(1), 1));
    drop(lanes);
}
