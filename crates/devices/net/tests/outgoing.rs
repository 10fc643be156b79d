//! A connection to another member, over real sockets: to peers that answer, and to such as do everything else.

#![allow(clippy::unwrap_used, clippy::panic)]

use baton_net::{After, CallError, ConnectionInfo, Handler, Idle, Options, Outgoing, Server, Service, Waker};
use baton_wire::client::encode_command;
use baton_wire::frame::Header;
use baton_wire::{Flags, ReplyBuilder, Request};
use bson::{RawDocumentBuf, cstr, rawdoc};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// For what is expected to happen.
const PATIENCE: Duration = Duration::from_secs(20);
/// For what is expected not to.
const IMPATIENCE: Duration = Duration::from_millis(50);

/// Answers `{n: 0}`; to `stream` three times, counting.
#[derive(Default)]
struct Counting {
    streamed: i32,
}

struct Peer;

impl Service for Peer {
    type Handler = Counting;

    fn opened(&self, _connection: ConnectionInfo) -> Counting {
        Counting::default()
    }
}

impl Handler for Counting {
    fn handle(&mut self, request: &Request<'_>, out: &mut Vec<u8>) -> After {
        self.streamed = 0;
        let more = request.command_name() == "stream" && request.flags.exhaust_allowed();
        answer(request, out, 0, more)
    }

    fn resume(&mut self, request: &Request<'_>, out: &mut Vec<u8>) -> After {
        self.streamed += 1;
        answer(request, out, self.streamed, self.streamed < 2)
    }
}

fn answer(request: &Request<'_>, out: &mut Vec<u8>, n: i32, more: bool) -> After {
    let mut builder = ReplyBuilder::new(out, request);
    if more {
        builder.more_to_come();
    }
    builder.body().append(cstr!("n"), n);
    builder.finish();
    if more { After::Exhaust } else { After::Reply }
}

fn serve() -> (Server, String) {
    let server = Server::start(&Options { port: 0, ..Options::default() }, Arc::new(Peer)).unwrap();
    let host = server.addresses()[0].to_string();
    (server, host)
}

/// A peer that reads the first request and then does what the test says.
fn misbehave(act: impl FnOnce(TcpStream, Header) + Send + 'static) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut message = vec![0; 16];
        stream.read_exact(&mut message).unwrap();
        let header = Header::read(&message).unwrap();
        message.resize(header.message_length as usize, 0);
        stream.read_exact(&mut message[16..]).unwrap();
        act(stream, header);
    });
    (host, thread)
}

/// A whole reply to message `response_to`.
fn reply(response_to: i32, body: &RawDocumentBuf) -> Vec<u8> {
    let mut message = Vec::new();
    encode_command(&mut message, 77, Flags(0), body, None);
    message[8..12].copy_from_slice(&response_to.to_le_bytes());
    message
}

fn connect(host: &str) -> Outgoing {
    Outgoing::connect(host, PATIENCE).unwrap()
}

fn number(reply: &RawDocumentBuf) -> i32 {
    reply.get_i32("n").unwrap()
}

#[test]
fn one_command_after_another_is_answered() {
    let (_server, host) = serve();
    let mut connection = connect(&host);
    for _ in 0..3 {
        assert_eq!(number(&connection.call(&rawdoc! { "ping": 1 }, PATIENCE).unwrap()), 0);
    }
    assert!(!connection.is_closed_by_peer());
}

#[test]
fn a_name_and_an_address_in_brackets_are_resolved() {
    let (server, host) = serve();
    let port = server.addresses()[0].port();
    assert!(Outgoing::connect(&format!("localhost:{port}"), PATIENCE).is_ok(), "{host}");
    let Ok(listener) = TcpListener::bind("[::1]:0") else { return };
    let port = listener.local_addr().unwrap().port();
    assert!(Outgoing::connect(&format!("[::1]:{port}"), PATIENCE).is_ok());
}

#[test]
fn what_is_no_host_is_not_a_refusal() {
    for host in ["", "127.0.0.1", "127.0.0.1:port", "127.0.0.1:65536", "[::1:27017"] {
        let error = Outgoing::connect(host, IMPATIENCE).unwrap_err();
        assert!(matches!(CallError::from(error), CallError::Unreachable(_)), "{host}");
    }
}

#[test]
fn where_nobody_listens_the_connection_is_refused() {
    // No other test listens at this address, and so none at the port that is given back.
    let listener = TcpListener::bind("127.0.77.1:0").unwrap();
    let host = listener.local_addr().unwrap().to_string();
    drop(listener);
    let error = Outgoing::connect(&host, PATIENCE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(CallError::from(error), CallError::Refused);
}

#[test]
fn a_peer_that_dies_before_or_within_its_reply_has_closed_and_stays_so() {
    for length_bytes in [0, 3, 20] {
        let (host, peer) = misbehave(move |mut stream, header| {
            let whole = reply(header.request_id, &rawdoc! { "n": 1 });
            stream.write_all(&whole[..length_bytes]).unwrap();
        });
        let mut connection = connect(&host);
        assert_eq!(connection.call(&rawdoc! { "ping": 1 }, PATIENCE), Err(CallError::Closed));
        assert_eq!(connection.call(&rawdoc! { "ping": 1 }, PATIENCE), Err(CallError::Closed));
        assert!(connection.is_closed_by_peer());
        peer.join().unwrap();
    }
}

#[test]
fn after_a_silent_peer_the_connection_is_given_up_so_that_no_late_reply_is_taken_for_another() {
    let (heard, wait) = std::sync::mpsc::channel::<()>();
    let (host, peer) = misbehave(move |mut stream, header| {
        wait.recv().unwrap();
        let _ = stream.write_all(&reply(header.request_id, &rawdoc! { "n": 1 }));
    });
    let mut connection = connect(&host);
    assert_eq!(connection.call(&rawdoc! { "ping": 1 }, IMPATIENCE), Err(CallError::TimedOut));
    heard.send(()).unwrap();
    assert_eq!(connection.call(&rawdoc! { "ping": 1 }, PATIENCE), Err(CallError::Closed));
    peer.join().unwrap();
}

#[test]
fn a_drop_at_a_time_does_not_prolong_a_call() {
    let (host, peer) = misbehave(|mut stream, header| {
        for byte in reply(header.request_id, &rawdoc! { "n": 1 }) {
            if stream.write_all(&[byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the caller waited for all of it");
    });
    assert_eq!(connect(&host).call(&rawdoc! { "ping": 1 }, IMPATIENCE), Err(CallError::TimedOut));
    peer.join().unwrap();
}

#[test]
fn impossible_lengths_other_numbers_and_no_protocol_at_all_are_malformed() {
    let good = reply(1, &rawdoc! { "n": 1 });
    let claiming = |length: i32| [&length.to_le_bytes()[..], &good[4..]].concat();
    let another = reply(99, &rawdoc! { "n": 1 });
    let mut unasked = good.clone();
    unasked[16] = Flags::MORE_TO_COME as u8;
    for answer in [claiming(48_000_001), claiming(-1), claiming(15), another, unasked, b"HEAD / HTTP/1.1\r\n".to_vec()]
    {
        let shown = format!("{answer:?}");
        let (host, peer) = misbehave(move |mut stream, _| {
            stream.write_all(&answer).unwrap();
            // Stays until the caller has hung up: it is the answer that is wrong, not its end.
            let _ = stream.read(&mut [0; 16]);
        });
        let result = connect(&host).call(&rawdoc! { "ping": 1 }, PATIENCE);
        assert!(matches!(result, Err(CallError::Malformed(_))), "{result:?} to {shown}");
        peer.join().unwrap();
    }
}

#[test]
fn a_command_too_large_for_a_message_is_refused_and_the_connection_lives_on() {
    let (_server, host) = serve();
    let mut connection = connect(&host);
    let large = rawdoc! { "ping": "x".repeat(48_000_000) };
    assert!(matches!(connection.call(&large, PATIENCE), Err(CallError::Malformed(_))));
    assert_eq!(number(&connection.call(&rawdoc! { "ping": 1 }, PATIENCE).unwrap()), 0);
}

#[test]
fn a_stream_of_three_ends_and_the_connection_is_free_again() {
    let (_server, host) = serve();
    let mut connection = connect(&host);
    for _ in 0..2 {
        connection.begin_stream(&rawdoc! { "stream": 1 }, PATIENCE).unwrap();
        for n in 0..3 {
            assert_eq!(number(&connection.next(PATIENCE).unwrap().unwrap()), n);
        }
        assert_eq!(connection.next(PATIENCE), Ok(None));
        assert_eq!(number(&connection.call(&rawdoc! { "ping": 1 }, PATIENCE).unwrap()), 0);
    }
}

#[test]
fn a_stream_that_pauses_within_a_reply_goes_on_where_it_was() {
    let (go_on, wait) = std::sync::mpsc::channel::<()>();
    let (host, peer) = misbehave(move |mut stream, header| {
        let whole = reply(header.request_id, &rawdoc! { "n": 7 });
        stream.write_all(&whole[..25]).unwrap();
        wait.recv().unwrap();
        stream.write_all(&whole[25..]).unwrap();
    });
    let mut connection = connect(&host);
    connection.begin_stream(&rawdoc! { "stream": 1 }, PATIENCE).unwrap();
    assert_eq!(connection.next(IMPATIENCE), Err(CallError::TimedOut));
    go_on.send(()).unwrap();
    assert_eq!(number(&connection.next(PATIENCE).unwrap().unwrap()), 7);
    peer.join().unwrap();
}

#[test]
fn what_is_there_of_a_stream_is_had_without_waiting_and_half_a_reply_is_kept() {
    let (go_on, wait) = std::sync::mpsc::channel::<()>();
    let (host, peer) = misbehave(move |mut stream, header| {
        let mut flags_of_first = reply(header.request_id, &rawdoc! { "n": 1 });
        // More to come, each in answer to the one before.
        flags_of_first[16] |= 2;
        let second = reply(77, &rawdoc! { "n": 2 });
        let mut bytes = flags_of_first;
        bytes.extend(&second[..20]);
        stream.write_all(&bytes).unwrap();
        wait.recv().unwrap();
        stream.write_all(&second[20..]).unwrap();
        wait.recv().unwrap();
    });
    let mut connection = connect(&host);
    connection.begin_stream(&rawdoc! { "stream": 1 }, PATIENCE).unwrap();
    assert_eq!(number(&connection.next(PATIENCE).unwrap().unwrap()), 1);
    assert_eq!(connection.next_if_there(), Ok(None), "half a reply is none");
    go_on.send(()).unwrap();
    let second = loop {
        match connection.next_if_there().unwrap() {
            Some(reply) => break reply,
            None => std::thread::yield_now(),
        }
    };
    assert_eq!(number(&second), 2);
    assert_eq!(connection.next_if_there(), Ok(None), "the stream has ended");
    go_on.send(()).unwrap();
    peer.join().unwrap();
}

#[test]
fn a_command_within_a_stream_gets_none_of_its_replies() {
    let (_server, host) = serve();
    let mut connection = connect(&host);
    connection.begin_stream(&rawdoc! { "stream": 1 }, PATIENCE).unwrap();
    assert!(matches!(connection.call(&rawdoc! { "ping": 1 }, PATIENCE), Err(CallError::Malformed(_))));
    assert_eq!(connection.next(PATIENCE), Ok(None));
}

#[test]
fn another_thread_shuts_down_a_connection_that_waits() {
    let (host, peer) = misbehave(|mut stream, _| {
        // Until the other side is gone.
        let _ = stream.read(&mut [0; 16]);
    });
    let mut connection = connect(&host);
    let closer = connection.closer();
    connection.begin_stream(&rawdoc! { "stream": 1 }, PATIENCE).unwrap();
    let closing = std::thread::spawn(move || closer.clone().close());
    assert_eq!(connection.next(PATIENCE), Err(CallError::Closed));
    closing.join().unwrap();
    peer.join().unwrap();
}

#[test]
fn a_peer_hears_of_the_end_of_a_connection_whose_closer_is_kept() {
    let (ended, hears) = std::sync::mpsc::channel();
    let (host, peer) = misbehave(move |mut stream, _| {
        while stream.read(&mut [0; 64]).is_ok_and(|bytes| bytes > 0) {}
        ended.send(()).unwrap();
    });
    let mut connection = connect(&host);
    connection.ask(&rawdoc! { "ping": 1 }, PATIENCE).unwrap();
    let (closer, watch) = (connection.closer(), connection.watch());
    drop(connection);
    hears.recv_timeout(PATIENCE).unwrap();
    closer.close();
    drop(watch);
    peer.join().unwrap();
}

#[test]
fn an_idle_connection_notices_its_waker_and_its_peers_end() {
    let (server, host) = serve();
    let mut connection = connect(&host);
    connection.call(&rawdoc! { "ping": 1 }, PATIENCE).unwrap();
    let waker = Waker::new().unwrap();
    waker.wake();
    assert_eq!(connection.watch().idle(&waker, PATIENCE), Idle::Woken);
    assert!(!waker.wait(Some(Duration::ZERO)), "the wake was not taken back");
    assert_eq!(connection.watch().idle(&waker, Duration::from_millis(1)), Idle::TimedOut);
    connection.ask(&rawdoc! { "ping": 1 }, PATIENCE).unwrap();
    assert_eq!(connection.watch().idle(&waker, PATIENCE), Idle::Stirred);
    connection.answer(PATIENCE).unwrap();
    let ending = std::thread::spawn(move || assert!(server.stop(PATIENCE)));
    assert_eq!(connection.watch().idle(&waker, PATIENCE), Idle::Stirred);
    assert!(connection.is_closed_by_peer());
    ending.join().unwrap();
}
