//! The server over real sockets, with a handler that says what it was asked.

#![allow(clippy::unwrap_used, clippy::panic)]

use baton_net::{After, ConnectionInfo, ConnectionProbe, Counters, Handler, Options, Outbox, Server, Service};
use baton_types::MemoryPool;
use baton_wire::client::{decode_reply, encode_command};
use baton_wire::{Flags, ReplyBuilder, Request};
use bson::{Document, RawDocument, cstr, rawdoc};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

/// Answers every command with its name and how many there were; `stream` three times; `wait` when the client is gone.
#[derive(Default)]
struct Echo {
    opened: AtomicU64,
    closed: AtomicU64,
    handled: Arc<AtomicU64>,
    left_while_waiting: Arc<AtomicU64>,
    sent_slowly: Arc<AtomicU64>,
}

struct EchoHandler {
    probe: ConnectionProbe,
    outbox: Arc<Outbox>,
    handled: Arc<AtomicU64>,
    left_while_waiting: Arc<AtomicU64>,
    sent_slowly: Arc<AtomicU64>,
    streamed: AtomicI64,
}

impl Service for Echo {
    type Handler = EchoHandler;

    fn opened(&self, connection: ConnectionInfo) -> EchoHandler {
        self.opened.fetch_add(1, SeqCst);
        EchoHandler {
            probe: connection.probe,
            outbox: connection.outbox,
            handled: self.handled.clone(),
            left_while_waiting: self.left_while_waiting.clone(),
            sent_slowly: self.sent_slowly.clone(),
            streamed: AtomicI64::new(0),
        }
    }

    fn closed(&self, _connection_id: u64) {
        self.closed.fetch_add(1, SeqCst);
    }
}

impl EchoHandler {
    fn reply(&self, request: &Request<'_>, out: &mut Vec<u8>, more: bool) -> After {
        let mut builder = ReplyBuilder::new(out, request);
        if more {
            builder.more_to_come();
        }
        let mut body = builder.body();
        body.append(cstr!("command"), request.command_name());
        body.append(cstr!("handled"), self.handled.load(SeqCst) as i64);
        body.append(cstr!("size"), request.body.as_bytes().len() as i64);
        drop(body);
        builder.finish();
        if more { After::Exhaust } else { After::Reply }
    }
}

impl Handler for EchoHandler {
    fn handle(&mut self, request: &Request<'_>, out: &mut Vec<u8>) -> After {
        self.handled.fetch_add(1, SeqCst);
        match request.command_name() {
            "stream" => {
                self.streamed.store(1, SeqCst);
                self.reply(request, out, true)
            }
            "wait" => {
                while !self.probe.gone() {
                    std::thread::sleep(Duration::from_millis(2));
                }
                self.left_while_waiting.fetch_add(1, SeqCst);
                After::NoReply
            }
            "nap" => {
                std::thread::sleep(Duration::from_millis(150));
                self.reply(request, out, false)
            }
            // Finished by others: a moment later, with more than a socket takes at once, or never.
            name @ ("later" | "later-large" | "given-up") => {
                let _ = self.reply(request, out, false);
                let mut reply = std::mem::take(out);
                if name == "later-large" {
                    let mut builder = ReplyBuilder::new(
                        {
                            reply.clear();
                            &mut reply
                        },
                        request,
                    );
                    builder.body().append(cstr!("large"), "x".repeat(8 << 20).as_str());
                    builder.finish();
                }
                let (promise, delay) = (self.outbox.promise(), if name == "later" { 20 } else { 0 });
                let is_kept = name != "given-up";
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(delay));
                    if is_kept { promise.keep(reply) } else { drop(promise) }
                });
                After::Later
            }
            "panic" => panic!("asked to"),
            "bye" => {
                self.reply(request, out, false);
                After::Close
            }
            "large" => {
                let mut builder = ReplyBuilder::new(out, request);
                builder.body().append(cstr!("large"), "x".repeat(8 << 20).as_str());
                builder.finish();
                After::Reply
            }
            _ => self.reply(request, out, false),
        }
    }

    fn resume(&mut self, request: &Request<'_>, out: &mut Vec<u8>) -> After {
        let streamed = self.streamed.fetch_add(1, SeqCst);
        self.reply(request, out, streamed < 2)
    }

    fn sends_slowly(&mut self) {
        self.sent_slowly.fetch_add(1, SeqCst);
    }
}

fn serve(change: impl FnOnce(&mut Options)) -> (Server, Arc<Echo>) {
    let mut options = Options { port: 0, ..Options::default() };
    change(&mut options);
    let service = Arc::new(Echo::default());
    (Server::start(&options, service.clone()).unwrap(), service)
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.addresses()[0]).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

fn command(id: i32, flags: u32, body: &RawDocument) -> Vec<u8> {
    let mut out = Vec::new();
    encode_command(&mut out, id, Flags(flags), body, None);
    out
}

fn read_message(stream: &mut impl Read) -> std::io::Result<Vec<u8>> {
    let mut message = vec![0; 4];
    stream.read_exact(&mut message)?;
    let length = i32::from_le_bytes(message[..4].try_into().unwrap()) as usize;
    message.resize(length, 0);
    stream.read_exact(&mut message[4..])?;
    Ok(message)
}

fn ask(stream: &mut (impl Read + Write), body: &RawDocument) -> Document {
    stream.write_all(&command(1, 0, body)).unwrap();
    Document::try_from(decode_reply(&read_message(stream).unwrap()).unwrap().body).unwrap()
}

/// Reads to the end, which must come; a reset counts as one.
fn read_to_close(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    match stream.read_to_end(&mut all) {
        Ok(_) => {}
        Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(e) => panic!("the connection was not closed: {e}"),
    }
    all
}

fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !check() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn counters(server: &Server) -> Arc<Counters> {
    server.counters()
}

#[test]
fn requests_are_answered_and_counted_over_tcp_and_unix() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("baton.sock");
    let (server, service) = serve(|o| o.unix_socket = Some(path.clone()));
    let mut tcp = connect(&server);
    let mut unix = UnixStream::connect(&path).unwrap();
    for i in 0..10 {
        assert_eq!(ask(&mut tcp, &rawdoc! { "ping": i }).get_str("command").unwrap(), "ping");
        assert_eq!(ask(&mut unix, &rawdoc! { "hello": i }).get_str("command").unwrap(), "hello");
    }
    // A reply may arrive before its sender has counted it.
    eventually("all are answered and counted", || {
        let counted = counters(&server).snapshot();
        counted.active == 0 && counted.bytes_out > 20 * 30
    });
    let counted = counters(&server).snapshot();
    assert_eq!((counted.current, counted.total_created, counted.requests), (2, 2, 20));
    assert!(counted.bytes_in > 20 * 30);
    drop((tcp, unix));
    eventually("both closed", || service.closed.load(SeqCst) == 2 && counters(&server).snapshot().current == 0);
    assert!(server.stop(PATIENCE));
    drop(server);
    assert!(!path.exists(), "the socket file is removed");
}

#[test]
fn a_message_in_single_bytes_and_many_in_one_write_are_both_read() {
    let (server, _) = serve(|_| {});
    let mut stream = connect(&server);
    for byte in command(3, 0, &rawdoc! { "slow": 1 }) {
        stream.write_all(&[byte]).unwrap();
    }
    assert_eq!(decode_reply(&read_message(&mut stream).unwrap()).unwrap().response_to, 3);
    let many: Vec<u8> = (10..110).flat_map(|id| command(id, 0, &rawdoc! { "p": id })).collect();
    stream.write_all(&many).unwrap();
    for id in 10..110 {
        assert_eq!(decode_reply(&read_message(&mut stream).unwrap()).unwrap().response_to, id);
    }
}

#[test]
fn large_messages_pass_both_ways() {
    let (server, _) = serve(|_| {});
    let mut stream = connect(&server);
    let text = "y".repeat(10 << 20);
    for _ in 0..2 {
        let reply = ask(&mut stream, &rawdoc! { "big": text.as_str() });
        assert!(reply.get_i64("size").unwrap() > 10 << 20);
        assert_eq!(ask(&mut stream, &rawdoc! { "large": 1 }).get_str("large").unwrap().len(), 8 << 20);
        assert_eq!(ask(&mut stream, &rawdoc! { "small": 1 }).get_str("command").unwrap(), "small");
    }
}

#[test]
fn whose_client_does_not_take_a_reply_at_once_is_told_so_and_sends_the_rest() {
    let (server, service) = serve(|_| {});
    let mut stream = connect(&server);
    ask(&mut stream, &rawdoc! { "small": 1 });
    assert_eq!(service.sent_slowly.load(SeqCst), 0);
    stream.write_all(&command(1, 0, &rawdoc! { "large": 1 })).unwrap();
    let until = Instant::now() + PATIENCE;
    while service.sent_slowly.load(SeqCst) == 0 {
        assert!(Instant::now() < until, "no socket takes eight megabytes of which nobody reads any");
        std::thread::sleep(Duration::from_millis(2));
    }
    let message = read_message(&mut stream).unwrap();
    assert_eq!(decode_reply(&message).unwrap().body.get_str("large").unwrap().len(), 8 << 20);
}

#[test]
fn an_exhaust_stream_chains_its_numbers() {
    let (server, _) = serve(|_| {});
    let mut stream = connect(&server);
    stream.write_all(&command(500, Flags::EXHAUST_ALLOWED, &rawdoc! { "stream": 1 })).unwrap();
    let mut answers = 500;
    for part in 0..3 {
        let message = read_message(&mut stream).unwrap();
        let reply = decode_reply(&message).unwrap();
        assert_eq!(reply.response_to, answers, "part {part}");
        assert_eq!(reply.flags.more_to_come(), part < 2);
        answers = reply.reply_id;
    }
    assert_eq!(ask(&mut stream, &rawdoc! { "ping": 1 }).get_str("command").unwrap(), "ping");
}

#[test]
fn a_request_with_more_to_come_gets_no_reply_even_when_it_fails_and_the_stream_stays_in_step() {
    let (server, _) = serve(|_| {});
    let mut stream = connect(&server);
    stream.write_all(&command(1, Flags::MORE_TO_COME, &rawdoc! { "insert": 1 })).unwrap();
    // Two bodies: refused by the decoder, silently.
    let mut two = command(2, Flags::MORE_TO_COME, &rawdoc! { "insert": 1 });
    let section = two[20..].to_vec();
    two.extend_from_slice(&section);
    let length = two.len() as i32;
    two[..4].copy_from_slice(&length.to_le_bytes());
    stream.write_all(&two).unwrap();
    stream.write_all(&command(3, 0, &rawdoc! { "ping": 1 })).unwrap();
    assert_eq!(decode_reply(&read_message(&mut stream).unwrap()).unwrap().response_to, 3);
}

#[test]
fn a_client_that_leaves_while_its_request_waits_is_noticed() {
    let (server, service) = serve(|_| {});
    let mut stream = connect(&server);
    stream.write_all(&command(1, 0, &rawdoc! { "wait": 1 })).unwrap();
    eventually("the request is active", || counters(&server).snapshot().active == 1);
    assert_eq!(service.left_while_waiting.load(SeqCst), 0);
    drop(stream);
    eventually("it was noticed", || service.left_while_waiting.load(SeqCst) == 1);
}

#[test]
fn impossible_lengths_close_without_an_answer() {
    let (server, _) = serve(|_| {});
    for length in [15i32, -1, 48_000_001, i32::MAX] {
        let mut stream = connect(&server);
        stream.write_all(&length.to_le_bytes()).unwrap();
        assert!(read_to_close(&mut stream).is_empty());
    }
    assert_eq!(counters(&server).snapshot().malformed, 4);
}

#[test]
fn a_legacy_insert_and_an_unknown_opcode_close() {
    let (server, _) = serve(|_| {});
    for op_code in [2002i32, 4711] {
        let mut stream = connect(&server);
        let mut bytes = command(1, 0, &rawdoc! { "x": 1 });
        bytes[12..16].copy_from_slice(&op_code.to_le_bytes());
        stream.write_all(&bytes).unwrap();
        assert!(read_to_close(&mut stream).is_empty());
    }
}

#[test]
fn an_unknown_required_flag_is_answered_with_223_then_closed() {
    let (server, _) = serve(|_| {});
    let mut stream = connect(&server);
    stream.write_all(&command(1, 1 << 5, &rawdoc! { "ping": 1 })).unwrap();
    let all = read_to_close(&mut stream);
    assert_eq!(decode_reply(&all).unwrap().body.get_i32("code").unwrap(), 223);
}

#[test]
fn http_gets_a_notice_and_is_closed() {
    let (server, _) = serve(|_| {});
    let mut stream = connect(&server);
    let padding = "x".repeat(3000);
    write!(stream, "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: {padding}\r\n\r\n").unwrap();
    let text = String::from_utf8(read_to_close(&mut stream)).unwrap();
    assert!(
        text.contains("It looks like you are trying to access Baton over HTTP on the native driver port."),
        "{text}"
    );
}

#[test]
fn half_a_header_then_silence_times_out_but_silence_between_messages_does_not() {
    let (server, _) = serve(|o| {
        o.message_timeout = Duration::from_millis(200);
        o.rest_after = Duration::from_millis(100);
    });
    let mut patient = connect(&server);
    ask(&mut patient, &rawdoc! { "ping": 1 });
    let never_spoke = connect(&server);
    for half in [&[40u8, 0][..], &[40, 0, 0, 0, 1, 0, 0, 0][..], &command(1, 0, &rawdoc! { "ping": 1 })[..30]] {
        let mut stream = connect(&server);
        stream.write_all(half).unwrap();
        let before = Instant::now();
        assert!(read_to_close(&mut stream).is_empty());
        assert!(before.elapsed() >= Duration::from_millis(150), "closed too early");
    }
    assert_eq!(counters(&server).snapshot().timed_out, 3);
    // Both have given back their threads in between.
    eventually("they rest", || counters(&server).snapshot().resting == 2);
    assert_eq!(ask(&mut patient, &rawdoc! { "ping": 2 }).get_str("command").unwrap(), "ping");
    drop(never_spoke);
}

#[test]
fn a_client_that_trickles_a_message_is_timed_out() {
    let (server, _) = serve(|o| o.message_timeout = Duration::from_millis(200));
    let mut stream = connect(&server);
    for byte in command(1, 0, &rawdoc! { "ping": "a message too long to trickle in time" }) {
        if stream.write_all(&[byte]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    eventually("timed out", || counters(&server).snapshot().timed_out == 1);
}

/// A client that claims a message of 48 MB, sends so much of it, and falls silent.
fn claim(server: &Server, sent_bytes: usize) -> TcpStream {
    let mut message = command(1, 0, &rawdoc! { "ping": "x".repeat(sent_bytes) });
    message[..4].copy_from_slice(&(48_000_000i32).to_le_bytes());
    let mut stream = connect(server);
    stream.write_all(&message[..sent_bytes]).unwrap();
    stream
}

#[test]
fn clients_that_claim_large_messages_and_stall_keep_out_nobody() {
    let memory = MemoryPool::new(50 << 20);
    let (server, _) = serve(|o| o.message_memory = Arc::clone(&memory));
    let claimed: Vec<_> =
        (0..20).map(|_| claim(&server, 1000)).chain((0..20).map(|_| claim(&server, 300_000))).collect();
    eventually("they hold what they sent", || memory.bytes() >= 20 * 300_000);
    assert!(memory.bytes() <= 20 * 600_000, "a claim is held for, not what came: {}", memory.bytes());
    let mut honest = connect(&server);
    let reply = ask(&mut honest, &rawdoc! { "insert": "c", "payload": "x".repeat(1 << 20) });
    assert!(reply.get_i64("size").unwrap() > 1 << 20);
    assert_eq!(counters(&server).snapshot().timed_out, 0, "nobody is in the way of anybody");
    drop(claimed);
    eventually("all is given back", || memory.bytes() == 0);
}

/// Two dozen clients claim 48 MB each, send four of them, and stall. Fails if more is held than the pool has, or if an honest client
/// is not served until all of them are given up: its turn may come after those that wait for memory before it.
#[test]
fn who_holds_memory_that_others_wait_for_and_sends_nothing_is_given_up() {
    let memory = MemoryPool::new(20 << 20);
    let (server, _) = serve(|o| o.message_memory = Arc::clone(&memory));
    let address = server.addresses()[0];
    let senders: Vec<_> = (0..24)
        .map(|_| {
            std::thread::spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                let part =
                    [&48_000_000_i32.to_le_bytes()[..], &[0; 8], &2013_i32.to_le_bytes(), &[0; 4_000_000]].concat();
                // It may be given up while it still sends.
                let _ = stream.write_all(&part);
                stream
            })
        })
        .collect();
    eventually("the memory is used up", || memory.is_waited_for());
    let mut honest = connect(&server);
    let begun = Instant::now();
    let reply = ask(&mut honest, &rawdoc! { "insert": "c", "payload": "x".repeat(3 << 20) });
    assert!(reply.get_i64("size").unwrap() > 3 << 20);
    let before = counters(&server).snapshot();
    assert!(before.current > 1, "it is served before all of them are given up: {before:?} after {:?}", begun.elapsed());
    assert!(memory.bytes() <= 20 << 20);
    assert!(counters(&server).snapshot().timed_out > 0, "the silent ones are in the way");
    drop(senders.into_iter().map(|sender| sender.join()).collect::<Vec<_>>());
    eventually("all is given back", || memory.bytes() == 0);
}

#[test]
fn replies_that_others_send_come_in_the_order_of_their_requests() {
    let (server, _) = serve(|_| {});
    let mut stream = connect(&server);
    // Sent before any is answered: every other one is answered by the connection's own thread, and after the one before it.
    let many: Vec<u8> = (10..60)
        .flat_map(|id| {
            command(
                id,
                0,
                &if id % 2 == 0 {
                    rawdoc! { "later": id }
                } else {
                    rawdoc! { "now": id }
                },
            )
        })
        .collect();
    stream.write_all(&many).unwrap();
    for id in 10..60 {
        assert_eq!(decode_reply(&read_message(&mut stream).unwrap()).unwrap().response_to, id);
    }
    eventually("none is active", || counters(&server).snapshot().active == 0);
}

#[test]
fn who_finishes_the_replies_of_clients_that_do_not_read_is_not_held_up_and_they_get_them_when_they_do() {
    let (server, service) = serve(|_| {});
    let mut slow: Vec<TcpStream> = (0..20).map(|_| connect(&server)).collect();
    for stream in &mut slow {
        stream.write_all(&command(7, 0, &rawdoc! { "later-large": 1 })).unwrap();
    }
    eventually("all are handled", || service.handled.load(SeqCst) == 20);
    let mut quick = connect(&server);
    for _ in 0..20 {
        assert_eq!(ask(&mut quick, &rawdoc! { "later": 1 }).get_str("command").unwrap(), "later");
    }
    // The quick one has its last reply a moment before its request is counted as over.
    eventually("what is not read is not sent", || counters(&server).snapshot().active == 20);
    for stream in &mut slow {
        assert!(read_message(stream).unwrap().len() > 8 << 20);
        assert_eq!(ask(stream, &rawdoc! { "after": 1 }).get_str("command").unwrap(), "after");
    }
    eventually("none is active", || counters(&server).snapshot().active == 0);
}

#[test]
fn a_promise_that_is_given_up_ends_its_connection_and_one_whose_client_is_gone_is_over() {
    let (server, service) = serve(|_| {});
    let mut stream = connect(&server);
    stream.write_all(&command(7, 0, &rawdoc! { "given-up": 1 })).unwrap();
    assert!(read_to_close(&mut stream).is_empty());
    let mut gone = connect(&server);
    gone.write_all(&command(7, 0, &rawdoc! { "later-large": 1 })).unwrap();
    eventually("it is handled", || service.handled.load(SeqCst) == 2);
    drop(gone);
    eventually("both are closed", || service.closed.load(SeqCst) == 2 && counters(&server).snapshot().active == 0);
    assert!(server.stop(PATIENCE));
}

#[test]
fn a_handler_that_panics_ends_its_own_connection_only() {
    let (server, service) = serve(|_| {});
    let mut other = connect(&server);
    ask(&mut other, &rawdoc! { "ping": 1 });
    let mut stream = connect(&server);
    stream.write_all(&command(1, 0, &rawdoc! { "panic": 1 })).unwrap();
    assert!(read_to_close(&mut stream).is_empty());
    eventually("its end is told", || service.closed.load(SeqCst) == 1);
    assert_eq!(ask(&mut other, &rawdoc! { "ping": 2 }).get_str("command").unwrap(), "ping");
    eventually("it is no longer active", || counters(&server).snapshot().active == 0);
}

#[test]
fn connections_beyond_the_limit_are_turned_away_and_the_others_served() {
    let (server, _) = serve(|o| o.connection_count_max = 3);
    let mut kept: Vec<_> = (0..3).map(|_| connect(&server)).collect();
    kept.iter_mut().for_each(|s| drop(ask(s, &rawdoc! { "ping": 1 })));
    assert!(read_to_close(&mut connect(&server)).is_empty());
    let counted = counters(&server).snapshot();
    assert_eq!((counted.current, counted.available, counted.rejected), (3, 0, 1));
    kept.pop();
    eventually("there is room", || counters(&server).snapshot().available == 1);
    ask(&mut connect(&server), &rawdoc! { "ping": 1 });
    ask(&mut kept[0], &rawdoc! { "ping": 1 });
}

#[test]
fn stopping_lets_a_running_request_finish_and_ends_idle_connections() {
    let (server, service) = serve(|_| {});
    let mut idle = connect(&server);
    ask(&mut idle, &rawdoc! { "ping": 1 });
    eventually("the ping is over", || counters(&server).snapshot().active == 0);
    let mut busy = connect(&server);
    busy.write_all(&command(9, 0, &rawdoc! { "nap": 1 })).unwrap();
    eventually("the nap began", || counters(&server).snapshot().active == 1);
    let address = server.addresses()[0];
    assert!(server.stop(PATIENCE));
    assert_eq!(decode_reply(&read_message(&mut busy).unwrap()).unwrap().response_to, 9);
    assert!(read_to_close(&mut idle).is_empty());
    assert_eq!(service.closed.load(SeqCst), 2);
    assert!(TcpStream::connect(address).is_err(), "it no longer listens");
}

#[test]
fn a_handler_may_hang_up_after_its_reply() {
    let (server, _) = serve(|_| {});
    let mut stream = connect(&server);
    stream.write_all(&command(1, 0, &rawdoc! { "bye": 1 })).unwrap();
    assert_eq!(decode_reply(&read_to_close(&mut stream)).unwrap().body.get_str("command").unwrap(), "bye");
}

#[test]
fn a_port_in_use_and_an_unknown_host_are_named_in_the_error() {
    let (server, _) = serve(|_| {});
    let port = server.addresses()[0].port();
    let error = Server::start(&Options { port, ..Options::default() }, Arc::new(Echo::default())).err().unwrap();
    assert!(error.to_string().contains(&format!("127.0.0.1:{port}")), "{error}");
    let hosts = vec!["no.such.host.invalid".to_owned()];
    let error = Server::start(&Options { hosts, ..Options::default() }, Arc::new(Echo::default())).err().unwrap();
    assert!(error.to_string().contains("no.such.host.invalid"), "{error}");
}

#[test]
fn a_file_in_the_unix_sockets_place_is_not_removed_but_a_stale_socket_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("precious");
    std::fs::write(&path, "data").unwrap();
    let options = Options { port: 0, unix_socket: Some(path.clone()), ..Options::default() };
    assert!(Server::start(&options, Arc::new(Echo::default())).is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "data");
    let stale = folder.path().join("stale.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    let (server, _) = serve(|o| o.unix_socket = Some(stale.clone()));
    let mut unix = UnixStream::connect(&stale).unwrap();
    ask(&mut unix, &rawdoc! { "ping": 1 });
    assert!(server.stop(PATIENCE));
}
