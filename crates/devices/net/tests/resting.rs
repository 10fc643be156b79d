//! Connections whose clients are silent: they have no thread, and nobody notices.
//!
//! The threads of the process are counted by their names, so these tests run one after the other.

#![allow(clippy::unwrap_used, clippy::panic)]

use baton_net::{After, ConnectionInfo, CountersSnapshot, Handler, Options, Outbox, Server, Service};
use baton_wire::client::{decode_reply, encode_command};
use baton_wire::{Flags, ReplyBuilder, Request};
use bson::{RawDocumentBuf, cstr, doc};
use parking_lot::{Mutex, MutexGuard};
use socket2::SockRef;
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
const REST_AFTER: Duration = Duration::from_millis(20);

static ALONE: Mutex<()> = Mutex::new(());

/// What became of the handlers, and on which threads.
#[derive(Default)]
struct Diary {
    alive: AtomicU64,
    closed: AtomicU64,
    /// By which thread, of which name, each request was handled.
    handled: Mutex<Vec<(ThreadId, String)>>,
    /// The names of the threads that dropped a handler.
    dropped_by: Mutex<Vec<String>>,
    /// How long it takes to drop one, in milliseconds.
    drop_ms: AtomicU64,
}

struct Silent(Arc<Diary>);

struct Writer {
    diary: Arc<Diary>,
    outbox: Arc<Outbox>,
    keeps_thread: bool,
}

impl Service for Silent {
    type Handler = Writer;

    fn opened(&self, connection: ConnectionInfo) -> Writer {
        self.0.alive.fetch_add(1, SeqCst);
        Writer { diary: Arc::clone(&self.0), outbox: connection.outbox, keeps_thread: false }
    }

    fn closed(&self, _connection_id: u64) {
        self.0.closed.fetch_add(1, SeqCst);
    }
}

fn thread_name() -> String {
    std::thread::current().name().unwrap().to_owned()
}

impl Handler for Writer {
    fn handle(&mut self, request: &Request<'_>, out: &mut Vec<u8>) -> After {
        self.diary.handled.lock().push((std::thread::current().id(), thread_name()));
        let name = request.command_name();
        match name {
            "panic" => panic!("asked to"),
            "keep" => self.keeps_thread = true,
            _ => {}
        }
        let mut builder = ReplyBuilder::new(out, request);
        builder.body().append(cstr!("command"), name);
        builder.finish();
        if name != "later" {
            return After::Reply;
        }
        let (promise, reply) = (self.outbox.promise(), std::mem::take(out));
        std::thread::spawn(move || {
            std::thread::sleep(10 * REST_AFTER);
            promise.keep(reply);
        });
        After::Later
    }

    fn keeps_thread(&self) -> bool {
        self.keeps_thread
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        std::thread::sleep(Duration::from_millis(self.diary.drop_ms.load(SeqCst)));
        self.diary.dropped_by.lock().push(thread_name());
        self.diary.alive.fetch_sub(1, SeqCst);
    }
}

struct Stage {
    server: Server,
    diary: Arc<Diary>,
    /// Nobody else is on it.
    _alone: MutexGuard<'static, ()>,
}

fn stage(change: impl FnOnce(&mut Options)) -> Stage {
    let alone = ALONE.lock();
    let mut options = Options { port: 0, rest_after: REST_AFTER, ..Options::default() };
    change(&mut options);
    let diary = Arc::<Diary>::default();
    let server = Server::start(&options, Arc::new(Silent(Arc::clone(&diary)))).unwrap();
    Stage { server, diary, _alone: alone }
}

impl Stage {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.server.addresses()[0]).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    fn counted(&self) -> CountersSnapshot {
        self.server.counters().snapshot()
    }

    /// So many connections that have asked something and then rest.
    fn resting(&self, count: usize) -> Vec<TcpStream> {
        let mut streams: Vec<_> = (0..count).map(|_| self.connect()).collect();
        streams.iter_mut().for_each(|stream| ask(stream, "ping"));
        self.await_rest(count);
        streams
    }

    fn await_rest(&self, count: usize) {
        eventually("they rest", || self.counted().resting == count);
        eventually("they have no threads", || threads("conn") == 0);
    }
}

/// The process's threads of that name, numbers left out.
fn threads(wanted: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim_end().trim_end_matches(|c: char| c.is_ascii_digit()) == wanted).count()
}

fn command(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let body = RawDocumentBuf::try_from(&doc! { name: 1 }).unwrap();
    encode_command(&mut out, 1, Flags(0), &body, None);
    out
}

/// The name of the command that the next reply answers.
fn answer(stream: &mut TcpStream) -> String {
    let mut message = vec![0; 4];
    stream.read_exact(&mut message).unwrap();
    let length = i32::from_le_bytes(message[..4].try_into().unwrap()) as usize;
    message.resize(length, 0);
    stream.read_exact(&mut message[4..]).unwrap();
    decode_reply(&message).unwrap().body.get_str("command").unwrap().to_owned()
}

fn ask(stream: &mut TcpStream, name: &str) {
    stream.write_all(&command(name)).unwrap();
    assert_eq!(answer(stream), name);
}

/// Whether the server has closed it, without a word.
fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 100]) {
        Ok(count) => count == 0,
        Err(e) => e.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !check() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_hundred_that_rest_have_no_thread_and_each_goes_on_on_one_of_its_name() {
    let stage = stage(|_| {});
    let never_spoke = stage.connect();
    let mut all: Vec<_> = (0..100).map(|_| stage.connect()).collect();
    all.iter_mut().for_each(|stream| ask(stream, "ping"));
    stage.await_rest(101);
    assert_eq!((threads("resting"), threads("closing")), (1, 1));
    all.iter_mut().for_each(|stream| ask(stream, "again"));
    let handled = stage.diary.handled.lock().clone();
    for (before, after) in handled[..100].iter().zip(&handled[100..]) {
        assert_eq!(before.1, after.1, "the log knows the connection by its thread's name");
        assert_ne!(before.0, after.0);
    }
    stage.await_rest(101);
    drop(never_spoke);
}

#[test]
fn a_client_that_falls_silent_again_and_again_is_answered_every_time() {
    let stage = stage(|_| {});
    let mut stream = stage.connect();
    for round in 1..=20 {
        // Several at once, the second of them in two parts.
        let two = [command("one"), command("two")].concat();
        stream.write_all(&two[..two.len() - 7]).unwrap();
        assert_eq!(answer(&mut stream), "one");
        stream.write_all(&two[two.len() - 7..]).unwrap();
        assert_eq!(answer(&mut stream), "two");
        stage.await_rest(1);
        let threads: HashSet<_> = stage.diary.handled.lock().iter().map(|(thread, _)| *thread).collect();
        assert_eq!(threads.len(), round, "a thread for each time that it spoke");
    }
}

/// The silence is swept past the moment at which the connection is handed over.
#[test]
fn bytes_that_come_at_the_very_moment_at_which_it_rests_wake_it() {
    let stage = stage(|o| o.rest_after = Duration::from_millis(4));
    std::thread::scope(|scope| {
        for client in 0..8_u64 {
            let mut stream = stage.connect();
            scope.spawn(move || {
                for round in 0..150 {
                    ask(&mut stream, "ping");
                    std::thread::sleep(Duration::from_micros(2000 + round * 40 + client * 5));
                }
            });
        }
    });
    let threads: HashSet<_> = stage.diary.handled.lock().iter().map(|(thread, _)| *thread).collect();
    assert!((50..1200).contains(&threads.len()), "some rested and some did not: {} threads", threads.len());
}

#[test]
fn who_waits_for_a_reply_that_was_promised_does_not_rest() {
    let stage = stage(|_| {});
    let mut stream = stage.connect();
    stream.write_all(&command("later")).unwrap();
    eventually("it is handled", || !stage.diary.handled.lock().is_empty());
    let until = Instant::now() + 5 * REST_AFTER;
    while Instant::now() < until {
        assert_eq!(stage.counted().resting, 0);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(answer(&mut stream), "later");
    stage.await_rest(1);
    ask(&mut stream, "ping");
}

#[test]
fn who_keeps_its_thread_has_the_same_one_to_the_end() {
    let stage = stage(|_| {});
    let mut stream = stage.connect();
    ask(&mut stream, "keep");
    std::thread::sleep(5 * REST_AFTER);
    ask(&mut stream, "ping");
    assert_eq!(stage.counted().resting, 0);
    let handled = stage.diary.handled.lock().clone();
    assert_eq!(handled[0], handled[1]);
    drop(stream);
    eventually("it ends", || stage.diary.closed.load(SeqCst) == 1);
    assert_eq!(*stage.diary.dropped_by.lock(), [handled[0].1.clone()]);
}

#[test]
fn a_client_that_hangs_up_while_it_rests_is_ended_without_a_thread_of_its_own() {
    let stage = stage(|_| {});
    let mut hung_up = stage.resting(3);
    let reset = hung_up.split_off(1);
    // What is closed so is reset.
    reset.iter().for_each(|stream| SockRef::from(stream).set_linger(Some(Duration::ZERO)).unwrap());
    drop(hung_up);
    eventually("it ended", || stage.diary.closed.load(SeqCst) == 1);
    drop(reset);
    eventually("all ended", || stage.diary.closed.load(SeqCst) == 3);
    eventually("they are counted off", || (stage.counted().current, stage.counted().resting) == (0, 0));
    assert_eq!(*stage.diary.dropped_by.lock(), ["closing"; 3]);
    assert_eq!(stage.diary.handled.lock().len(), 3);
}

#[test]
fn what_a_client_asks_before_it_hangs_up_is_carried_out() {
    let stage = stage(|_| {});
    for mut stream in stage.resting(10) {
        stream.write_all(&command("last")).unwrap();
    }
    eventually("all ended", || stage.diary.closed.load(SeqCst) == 10);
    assert_eq!(stage.diary.handled.lock().len(), 20);
}

#[test]
fn stopping_ends_hundreds_that_rest_at_once() {
    let stage = stage(|_| {});
    let mut all = stage.resting(400);
    let begun = Instant::now();
    assert!(stage.server.stop(PATIENCE));
    assert!(begun.elapsed() < PATIENCE / 4, "nobody is waited for: {:?}", begun.elapsed());
    assert_eq!((stage.diary.alive.load(SeqCst), stage.diary.closed.load(SeqCst)), (0, 400));
    assert_eq!(stage.counted().resting, 0);
    let all_threads = ["conn", "resting", "closing", "listener"];
    eventually("no thread runs", || all_threads.into_iter().all(|name| threads(name) == 0));
    assert!(all.iter_mut().all(is_closed));
}

#[test]
fn a_server_that_stops_while_its_clients_fall_silent_and_speak_leaves_nobody_behind() {
    for round in 0..20 {
        let stage = stage(|o| o.rest_after = Duration::from_millis(3));
        let mut all: Vec<_> = (0..20).map(|_| stage.connect()).collect();
        all.iter_mut().for_each(|stream| ask(stream, "ping"));
        std::thread::sleep(Duration::from_micros(round * 300));
        for stream in all.iter_mut().step_by(2) {
            stream.write_all(&command("late")).unwrap();
        }
        assert!(stage.server.stop(PATIENCE));
        assert_eq!((stage.diary.alive.load(SeqCst), stage.counted().resting), (0, 0));
    }
}

#[test]
fn half_a_message_after_a_rest_is_waited_for_no_longer_than_any() {
    let stage = stage(|o| o.message_timeout = Duration::from_millis(200));
    let mut all = stage.resting(2);
    let begun = Instant::now();
    all[0].write_all(&command("ping")[..20]).unwrap();
    assert!(is_closed(&mut all[0]));
    assert!(begun.elapsed() >= Duration::from_millis(150), "closed too early");
    assert_eq!(stage.counted().timed_out, 1);
    ask(&mut all[1], "ping");
    stage.await_rest(1);
}

#[test]
fn a_handler_that_panics_after_a_rest_ends_its_own_connection_only() {
    let stage = stage(|_| {});
    let mut all = stage.resting(2);
    all[0].write_all(&command("panic")).unwrap();
    assert!(is_closed(&mut all[0]));
    eventually("its end is told", || stage.diary.closed.load(SeqCst) == 1);
    eventually("it is counted off", || (stage.counted().current, stage.counted().active) == (1, 0));
    ask(&mut all[1], "ping");
    stage.await_rest(1);
    assert!(stage.server.stop(PATIENCE));
    assert_eq!(stage.diary.alive.load(SeqCst), 0);
}

#[test]
fn those_that_rest_count_for_the_limit_until_they_end() {
    let stage = stage(|o| o.connection_count_max = 3);
    let mut all = stage.resting(3);
    assert!(is_closed(&mut stage.connect()));
    let counted = stage.counted();
    assert_eq!((counted.current, counted.available, counted.rejected), (3, 0, 1));
    all.pop();
    eventually("there is room", || stage.counted().available == 1);
    ask(&mut stage.connect(), "ping");
    all.iter_mut().for_each(|stream| ask(stream, "ping"));
}

/// Dropping each takes a millisecond. Fails if that is done by more threads than one, or if whoever works has to wait for it.
#[test]
fn a_thousand_that_hang_up_at_once_leave_the_threads_to_who_works() {
    let stage = stage(|_| {});
    let all = stage.resting(1000);
    stage.diary.drop_ms.store(1, SeqCst);
    let mut working = stage.connect();
    ask(&mut working, "ping");
    drop(all);
    let mut answered_meanwhile = 0;
    while stage.diary.closed.load(SeqCst) < 1000 {
        ask(&mut working, "ping");
        answered_meanwhile += 1;
        assert!(threads("conn") <= 1, "the one that works");
    }
    assert!(answered_meanwhile > 100, "{answered_meanwhile}");
    assert!(stage.diary.dropped_by.lock().iter().all(|name| name == "closing"));
    eventually("they are counted off", || stage.counted().current == 1);
}
