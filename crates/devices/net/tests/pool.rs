//! Connections that few threads serve in turns: nobody waits for another who waits, and who is silent has nothing.
//!
//! The threads of the process are counted by their names, so these tests run one after the other.

#![allow(clippy::unwrap_used, clippy::panic)]

use baton_machine::about_to_wait;
use baton_net::{
    After, ConnectionInfo, CountersSnapshot, CrowdLimits, Handler, Options, Outbox, Server, Service, Threads,
};
use baton_wire::client::{decode_reply, encode_command};
use baton_wire::{Flags, ReplyBuilder, Request};
use bson::{RawDocumentBuf, cstr, doc};
use parking_lot::{Condvar, Mutex, MutexGuard};
use socket2::SockRef;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
const REST_AFTER: Duration = Duration::from_millis(20);
const WORKERS: usize = 2;

static ALONE: Mutex<()> = Mutex::new(());

/// What became of the handlers, and on which threads.
#[derive(Default)]
struct Diary {
    alive: AtomicU64,
    closed: AtomicU64,
    /// Each request, by which thread it was handled, of which name, and for which connection that worked, if it has several.
    handled: Mutex<Vec<Handled>>,
    /// Whether those that wait may go on.
    is_open: Mutex<bool>,
    opened: Condvar,
    /// The names of the threads that dropped a handler.
    dropped_by: Mutex<Vec<String>>,
    /// How long it takes to drop one, in milliseconds.
    drop_ms: AtomicU64,
    /// How long the last request had waited to be read, in milliseconds.
    waited_ms: AtomicU64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Handled {
    name: String,
    thread: ThreadId,
    thread_name: String,
    connection: Option<u64>,
}

impl Diary {
    fn note(&self, name: &str) {
        let (thread, thread_name, connection) =
            (std::thread::current().id(), thread_name(), baton_machine::connection());
        self.handled.lock().push(Handled { name: name.to_owned(), thread, thread_name, connection });
    }

    /// The names of the threads that handled the last requests, numbers left out.
    fn last_by(&self, count: usize) -> Vec<String> {
        let handled = self.handled.lock();
        let last = handled.iter().rev().take(count);
        last.map(|one| one.thread_name.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned()).collect()
    }

    fn count(&self, name: &str) -> usize {
        self.handled.lock().iter().filter(|handled| handled.name == name).count()
    }

    fn wait(&self) {
        let mut is_open = self.is_open.lock();
        while !*is_open {
            self.opened.wait(&mut is_open);
        }
    }

    fn open(&self) {
        *self.is_open.lock() = true;
        self.opened.notify_all();
    }
}

struct Silent(Arc<Diary>);

struct Writer {
    diary: Arc<Diary>,
    outbox: Arc<Outbox>,
    threads: Threads,
    precedes: bool,
    has_deadlines: bool,
}

impl Service for Silent {
    type Handler = Writer;

    fn opened(&self, connection: ConnectionInfo) -> Writer {
        self.0.alive.fetch_add(1, SeqCst);
        let (diary, outbox) = (Arc::clone(&self.0), connection.outbox);
        Writer { diary, outbox, threads: Threads::Shared, precedes: false, has_deadlines: false }
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
        let name = request.command_name();
        self.diary.note(name);
        self.diary.waited_ms.store(request.waited.as_millis() as u64, SeqCst);
        match name {
            "wait" => self.diary.wait(),
            "say" => {
                let _waiting = about_to_wait();
                self.diary.wait();
            }
            "panic" => panic!("asked to"),
            "keep" => self.threads = Threads::Kept,
            "own" => self.threads = Threads::Own,
            "precede" => (self.threads, self.precedes) = (Threads::Own, true),
            "share" => self.threads = Threads::Shared,
            "deadline" => self.has_deadlines = true,
            _ => {}
        }
        let mut builder = ReplyBuilder::new(out, request);
        builder.body().append(cstr!("command"), name);
        builder.finish();
        if !["later", "write"].contains(&name) {
            return After::Reply;
        }
        let (promise, reply) = (self.outbox.promise(), std::mem::take(out));
        if name == "write" {
            promise.keep(reply);
            return After::Later;
        }
        std::thread::spawn(move || {
            std::thread::sleep(10 * REST_AFTER);
            promise.keep(reply);
        });
        After::Later
    }

    fn threads(&self) -> Threads {
        self.threads
    }

    fn precedes(&self) -> bool {
        self.precedes
    }

    fn has_deadlines(&self) -> bool {
        self.has_deadlines
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
    // However few they are, they share threads.
    let crowd_limits = CrowdLimits { speakers: 0, writers: 0 };
    let mut options =
        Options { port: 0, rest_after: REST_AFTER, worker_count: WORKERS, crowd_limits, ..Options::default() };
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
fn a_hundred_clients_share_two_threads_and_the_log_knows_whom_each_works_for() {
    let stage = stage(|_| {});
    let never_spoke = stage.connect();
    let mut all: Vec<_> = (0..100).map(|_| stage.connect()).collect();
    all.iter_mut().for_each(|stream| ask(stream, "ping"));
    stage.await_rest(101);
    all.iter_mut().for_each(|stream| ask(stream, "again"));
    let handled = stage.diary.handled.lock().clone();
    for (before, after) in handled[..100].iter().zip(&handled[100..]) {
        assert!(before.connection.is_some());
        assert_eq!(before.connection, after.connection);
        assert_eq!(before.thread_name, "worker");
    }
    assert_eq!((threads("worker"), threads("conn"), threads("watch"), threads("closing")), (WORKERS, 0, 1, 1));
    stage.await_rest(101);
    drop(never_spoke);
}

#[test]
fn who_takes_long_without_a_word_keeps_nobody_from_being_served() {
    let stage = stage(|_| {});
    let mut long: Vec<_> = (0..5 * WORKERS).map(|_| stage.connect()).collect();
    long.iter_mut().for_each(|stream| stream.write_all(&command("wait")).unwrap());
    let mut working = stage.connect();
    for _ in 0..100 {
        ask(&mut working, "ping");
    }
    eventually("all wait", || stage.diary.count("wait") == long.len());
    assert!(threads("worker") >= long.len(), "each has a thread for itself");
    ask(&mut working, "ping");
    stage.diary.open();
    long.iter_mut().for_each(|stream| assert_eq!(answer(stream), "wait"));
    ask(&mut working, "ping");
    eventually("spare threads end", || threads("worker") == WORKERS);
}

#[test]
fn hundreds_that_say_that_they_wait_do_so_together() {
    let stage = stage(|_| {});
    let mut waiting: Vec<_> = (0..300).map(|_| stage.connect()).collect();
    for round in 1..=3 {
        *stage.diary.is_open.lock() = false;
        waiting.iter_mut().for_each(|stream| stream.write_all(&command("say")).unwrap());
        eventually("all wait", || stage.diary.count("say") == round * waiting.len());
        ask(&mut stage.connect(), "ping");
        stage.diary.open();
        waiting.iter_mut().for_each(|stream| assert_eq!(answer(stream), "say"));
    }
    assert!(stage.server.stop(PATIENCE));
    eventually("no thread runs", || threads("worker") == 0);
}

#[test]
fn what_follows_a_long_turn_is_served_though_nobody_else_speaks() {
    let stage = stage(|_| {});
    let mut stream = stage.connect();
    stream.write_all(&[command("say"), command("ping")].concat()).unwrap();
    eventually("it waits", || stage.diary.count("say") == 1);
    // Whoever looks after those at work has nothing to look after any more.
    std::thread::sleep(5 * REST_AFTER);
    stage.diary.open();
    assert_eq!((answer(&mut stream), answer(&mut stream)), ("say".to_owned(), "ping".to_owned()));
}

/// What comes while requests that were read before are served is not forgotten.
#[test]
fn many_requests_in_many_pieces_are_all_served() {
    let stage = stage(|_| {});
    let mut stream = stage.connect();
    let small = command("ping");
    for round in 0..40 {
        for piece in 0..60 {
            stream.write_all(&small).unwrap();
            if piece % (round + 1) == 0 {
                std::thread::yield_now();
            }
        }
        (0..60).for_each(|_| assert_eq!(answer(&mut stream), "ping"));
    }
}

#[test]
fn who_sends_much_at_once_has_one_turn_at_a_time() {
    let stage = stage(|o| o.worker_count = 1);
    let (mut much, mut little) = (stage.connect(), stage.connect());
    ask(&mut little, "ping");
    // One more than there are threads keeps the watch from helping.
    much.write_all(&command("wait")).unwrap();
    eventually("it waits", || stage.diary.count("wait") == 1);
    let hundred: Vec<u8> = (0..100).flat_map(|_| command("much")).collect();
    much.write_all(&hundred).unwrap();
    little.write_all(&command("little")).unwrap();
    // Until both are there.
    std::thread::sleep(REST_AFTER);
    stage.diary.open();
    assert_eq!(answer(&mut little), "little");
    assert_eq!(answer(&mut much), "wait");
    (0..100).for_each(|_| assert_eq!(answer(&mut much), "much"));
    let names: Vec<_> = stage.diary.handled.lock().iter().map(|handled| handled.name.clone()).collect();
    let place = names.iter().position(|name| name == "little").unwrap();
    let before = names[..place].iter().filter(|name| *name == "much").count();
    assert!(before < 50, "{before} came first");
}

#[test]
fn a_client_that_falls_silent_again_and_again_is_answered_every_time() {
    let stage = stage(|_| {});
    let mut stream = stage.connect();
    for _ in 0..20 {
        // Several at once, the second of them in two parts.
        let two = [command("one"), command("two")].concat();
        stream.write_all(&two[..two.len() - 7]).unwrap();
        assert_eq!(answer(&mut stream), "one");
        stream.write_all(&two[two.len() - 7..]).unwrap();
        assert_eq!(answer(&mut stream), "two");
        stage.await_rest(1);
    }
}

/// Each request is sent at another moment of the turn before, and of the rest after it.
#[test]
fn bytes_that_come_at_any_moment_are_served() {
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
    assert_eq!(stage.diary.count("ping"), 8 * 150);
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
fn who_is_to_keep_its_thread_has_one_from_then_to_the_end() {
    let stage = stage(|_| {});
    let mut stream = stage.connect();
    // The second is there when the thread begins.
    stream.write_all(&[command("keep"), command("ping")].concat()).unwrap();
    assert_eq!((answer(&mut stream), answer(&mut stream)), ("keep".to_owned(), "ping".to_owned()));
    std::thread::sleep(5 * REST_AFTER);
    ask(&mut stream, "again");
    assert_eq!(stage.counted().resting, 0);
    let handled = stage.diary.handled.lock().clone();
    assert_eq!((handled[1].thread, &*handled[1].thread_name), (handled[2].thread, "conn1"));
    assert_ne!(handled[0].thread, handled[1].thread);
    drop(stream);
    eventually("it ends", || stage.diary.closed.load(SeqCst) == 1);
    assert_eq!(*stage.diary.dropped_by.lock(), ["conn1"]);
}

#[test]
fn who_has_a_thread_of_its_own_gives_it_back_when_it_is_silent_and_gets_another_with_the_first_byte() {
    let stage = stage(|_| {});
    let mut all: Vec<_> = (0..20).map(|_| stage.connect()).collect();
    all.iter_mut().for_each(|stream| ask(stream, "own"));
    for round in 0..3 {
        all.iter_mut().for_each(|stream| ask(stream, "again"));
        let handled = stage.diary.handled.lock().clone();
        let last = &handled[handled.len() - all.len()..];
        assert!(last.iter().all(|handled| handled.thread_name.starts_with("conn")), "round {round}: {last:?}");
        stage.await_rest(all.len());
        eventually("they have no threads", || threads("conn") == 0);
    }
    drop(all.split_off(10));
    eventually("they ended", || stage.diary.closed.load(SeqCst) == 10);
    assert_eq!(*stage.diary.dropped_by.lock(), ["closing"; 10], "without a thread of their own");
    assert!(stage.server.stop(PATIENCE));
    assert_eq!((stage.diary.alive.load(SeqCst), stage.counted().resting), (0, 0));
}

#[test]
fn who_has_a_thread_of_its_own_may_go_back_to_those_that_are_shared() {
    let stage = stage(|_| {});
    let mut all: Vec<_> = (0..20).map(|_| stage.connect()).collect();
    for _ in 0..20 {
        for stream in &mut all {
            // The last are there when the thread ends.
            stream.write_all(&["own", "alone", "share", "together", "again"].map(command).concat()).unwrap();
        }
        for stream in &mut all {
            for name in ["own", "alone", "share", "together", "again"] {
                assert_eq!(answer(stream), name);
            }
        }
    }
    let handled = stage.diary.handled.lock().clone();
    for one in handled {
        let is_alone = ["alone", "share"].contains(&&*one.name);
        assert_eq!(one.thread_name == "worker", !is_alone, "{one:?}");
    }
    eventually("they have no threads", || threads("conn") == 0);
}

/// The clients ask this again and again, until all are answered by threads of that name, several times running.
fn ask_until_served_by(thread: &str, stage: &Stage, clients: &mut [TcpStream], name: &str) {
    let mut times = 0;
    eventually(thread, || {
        clients.iter_mut().for_each(|stream| ask(stream, name));
        let is_so = stage.diary.last_by(clients.len()).iter().all(|by| by == thread);
        times = if is_so { times + 1 } else { 0 };
        times == 50
    });
}

#[test]
fn few_that_are_at_work_have_a_thread_each_and_many_share() {
    let stage = stage(|o| {
        o.crowd_limits = CrowdLimits { speakers: 8, writers: 3 };
        o.rest_after = PATIENCE;
    });
    let mut all: Vec<_> = (0..20).map(|_| stage.connect()).collect();
    for _ in 0..3 {
        ask_until_served_by("conn", &stage, &mut all[..6], "ping");
        ask_until_served_by("worker", &stage, &mut all, "ping");
        ask_until_served_by("conn", &stage, &mut all[..2], "write");
        ask_until_served_by("worker", &stage, &mut all[..6], "write");
    }
    ask_until_served_by("worker", &stage, &mut all, "ping");
    eventually("none has a thread", || threads("conn") == 0);
}

#[test]
fn few_share_threads_while_one_goes_before_them_and_are_served_whatever_it_does() {
    let stage = stage(|o| {
        o.processor_count = 1;
        o.crowd_limits = CrowdLimits { speakers: 8, writers: 3 };
        o.rest_after = PATIENCE;
    });
    let (mut urgent, mut few) = (stage.connect(), vec![stage.connect(), stage.connect()]);
    ask_until_served_by("conn", &stage, &mut few, "ping");
    // The first is served by a worker, the second by a thread that goes before them from then on.
    (0..2).for_each(|_| ask(&mut urgent, "precede"));
    ask_until_served_by("worker", &stage, &mut few, "ping");
    for (name, count) in [("wait", 1), ("say", 2)] {
        *stage.diary.is_open.lock() = false;
        urgent.write_all(&command(name)).unwrap();
        eventually("it waits", || stage.diary.count("wait") + stage.diary.count("say") == count);
        for _ in 0..100 {
            few.iter_mut().for_each(|stream| ask(stream, "beside"));
        }
        stage.diary.open();
        assert_eq!(answer(&mut urgent), name);
    }
    drop(urgent);
    ask_until_served_by("conn", &stage, &mut few, "ping");
}

#[test]
fn who_speaks_now_and_then_costs_no_thread() {
    let stage = stage(|o| {
        o.crowd_limits = CrowdLimits { speakers: 8, writers: 3 };
        o.rest_after = PATIENCE;
    });
    let mut stream = stage.connect();
    for _ in 0..3 {
        ask(&mut stream, "ping");
        std::thread::sleep(Duration::from_millis(210));
    }
    assert_eq!(stage.diary.last_by(3), ["worker"; 3]);
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
    let all_threads = ["conn", "worker", "watch", "closing", "listener"];
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
    }
    assert!(answered_meanwhile > 100, "{answered_meanwhile}");
    assert!(stage.diary.dropped_by.lock().iter().all(|name| name == "closing"));
    eventually("they are counted off", || stage.counted().current == 1);
}

/// A request that comes while the one before it is being served has waited to be read.
#[test]
fn where_there_are_deadlines_a_request_is_told_how_long_it_has_waited_to_be_read() {
    let stage = stage(|_| {});
    let mut stream = stage.connect();
    let waited_ms = |stream: &mut TcpStream| {
        *stage.diary.is_open.lock() = false;
        let before = stage.diary.count("wait");
        stream.write_all(&command("wait")).unwrap();
        eventually("it is served", || stage.diary.count("wait") > before);
        stream.write_all(&command("ping")).unwrap();
        std::thread::sleep(REST_AFTER);
        stage.diary.open();
        assert_eq!([answer(stream), answer(stream)], ["wait", "ping"]);
        stage.diary.waited_ms.load(SeqCst)
    };
    assert_eq!(waited_ms(&mut stream), 0, "nobody wants to know");
    ask(&mut stream, "deadline");
    // The kernel begins a moment after the first one has asked.
    eventually("it is known", || waited_ms(&mut stream) >= REST_AFTER.as_millis() as u64);
    ask(&mut stream, "own");
    assert!(waited_ms(&mut stream) >= REST_AFTER.as_millis() as u64, "on a thread of its own, too");
    std::thread::sleep(5 * REST_AFTER);
    ask(&mut stream, "ping");
    assert!(stage.diary.waited_ms.load(SeqCst) < 1000, "one that is read at once has not");
}
