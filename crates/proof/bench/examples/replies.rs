//! The replies spike: who sends the reply to a write, and what the write's thread does until then.
//!
//! - `parked`: a thread for each connection, which waits in the commit queue for its own write and then replies.
//! - `left`: a thread for each connection, which leaves its write with the queue and goes back to its socket; whoever writes or syncs the
//!   group sends the replies.
//! - `loops`: a few threads with many connections each, which read whatever has come, and then commit all of it at once.
//!
//! All three commit through the same queue into the same RocksDB: document and oplog entry of a kilobyte each in one batch a group, one sync
//! for all that were written before it began. A lone writer leads its own write in each. Clients are threads of another process, each with
//! one request under way.
//!
//! It is an experiment kept for its figures (docs/spikes/replies.md); nothing of it is in the product.
//!
//! usage: replies DIR SECONDS [DESIGN,…] [CLIENTS,…]

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use baton_bench::distribution::fnv_hash64;
use hdrhistogram::Histogram;
use parking_lot::{Condvar, Mutex};
use rust_rocksdb as rocksdb;
use rustix::event::{Timespec, epoll};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const REQUEST_BYTES: usize = 1100;
const REPLY_BYTES: usize = 140;
const RECORDS: u64 = 100_000;
/// What a request costs beside queue, RocksDB and sockets: parsing, checking, building the transaction.
const WORK_MICROS: u64 = 8;
/// How long who leads goes on before it hands over.
const LEAD_MAX: Duration = Duration::from_micros(500);
const GROUP_MAX: usize = 512;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Design {
    Parked,
    Left,
    /// With so many threads.
    Loops(usize),
}

impl Design {
    fn parse(name: &str) -> Result<Self, Failure> {
        match name {
            "parked" => Ok(Self::Parked),
            "left" => Ok(Self::Left),
            "loop" => Ok(Self::Loops(1)),
            "loops" => Ok(Self::Loops(2)),
            other => Err(format!("no design is called {other}").into()),
        }
    }
}

const WAITING: u8 = 0;
const LEAD_WRITE: u8 = 1;
const LEAD_SYNC: u8 = 2;
const DONE: u8 = 3;

/// A thread that waits for its own write.
struct Parked {
    state: AtomicU8,
    thread: Thread,
}

impl Parked {
    fn signal(&self, state: u8) {
        self.state.store(state, Ordering::Release);
        self.thread.unpark();
    }

    fn wait(&self) -> u8 {
        loop {
            let state = self.state.swap(WAITING, Ordering::Acquire);
            if state != WAITING {
                return state;
            }
            std::thread::park();
        }
    }
}

/// Whom to tell that a write is done.
#[derive(Clone)]
enum Then {
    Wake(Arc<Parked>),
    Reply(Arc<TcpStream>),
}

impl Then {
    fn done(&self) {
        match self {
            Self::Wake(parked) => parked.signal(DONE),
            Self::Reply(socket) => reply(socket),
        }
    }
}

fn reply(mut socket: &TcpStream) {
    // A client that has gone is none of the spike's troubles.
    let _ = socket.write_all(&[7; REPLY_BYTES]);
}

struct Item {
    key: [u8; 24],
    document: Vec<u8>,
    then: Then,
}

#[derive(Default)]
struct State {
    pending: VecDeque<Item>,
    awaiting_sync: Vec<Then>,
    writing: bool,
    syncing: bool,
    write_called: bool,
    sync_called: bool,
}

#[derive(Default)]
struct Figures {
    batches: AtomicU64,
    writes: AtomicU64,
    syncs: AtomicU64,
}

struct Queue {
    db: rocksdb::DB,
    is_synced: bool,
    state: Mutex<State>,
    called: Condvar,
    next: AtomicU64,
    figures: Figures,
    is_over: AtomicBool,
}

impl Queue {
    fn open(path: &Path, is_synced: bool) -> Result<Self, Failure> {
        let mut options = rocksdb::Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        options.set_write_buffer_size(64 << 20);
        options.set_max_background_jobs(2);
        options.set_recycle_log_file_num(3);
        let db = rocksdb::DB::open_cf(&options, path, ["documents", "oplog"])?;
        Ok(Self {
            db,
            is_synced,
            state: Mutex::default(),
            called: Condvar::new(),
            next: AtomicU64::new(1),
            figures: Figures::default(),
            is_over: AtomicBool::new(false),
        })
    }

    fn write(&self, group: &[Item]) {
        let mut batch = rocksdb::WriteBatch::default();
        let documents = self.db.cf_handle("documents").expect("a family");
        let oplog = self.db.cf_handle("oplog").expect("a family");
        let stamps = self.next.fetch_add(group.len() as u64, Ordering::Relaxed)..;
        for (item, stamp) in group.iter().zip(stamps) {
            batch.put_cf(documents, item.key, &item.document);
            batch.put_cf(oplog, stamp.to_be_bytes(), &item.document);
        }
        self.db.write(&batch).expect("written");
        self.figures.batches.fetch_add(1, Ordering::Relaxed);
        self.figures.writes.fetch_add(group.len() as u64, Ordering::Relaxed);
    }

    fn sync(&self) {
        self.db.flush_wal(true).expect("synced");
        self.figures.syncs.fetch_add(1, Ordering::Relaxed);
    }

    /// Puts writes into the queue; whether the caller is to lead.
    fn put(&self, items: impl IntoIterator<Item = Item>) -> bool {
        let mut state = self.state.lock();
        state.pending.extend(items);
        !std::mem::replace(&mut state.writing, true)
    }

    /// Writes what waits. Whoever waits for itself is told, or made the next leader; of the rest the caller becomes the syncer, if it is
    /// told so.
    fn lead_write(&self) -> bool {
        let until = Instant::now() + LEAD_MAX;
        loop {
            let mut state = self.state.lock();
            if state.pending.is_empty() {
                state.writing = false;
                let leads_sync = !state.awaiting_sync.is_empty() && !std::mem::replace(&mut state.syncing, true);
                return leads_sync;
            }
            if Instant::now() >= until {
                match state.pending.front().map(|item| item.then.clone()) {
                    Some(Then::Wake(next)) => next.signal(LEAD_WRITE),
                    _ => {
                        state.write_called = true;
                        self.called.notify_all();
                    }
                }
                let leads_sync = !state.awaiting_sync.is_empty() && !std::mem::replace(&mut state.syncing, true);
                return leads_sync;
            }
            let count = state.pending.len().min(GROUP_MAX);
            let group: Vec<Item> = state.pending.drain(..count).collect();
            drop(state);
            self.write(&group);
            if self.is_synced {
                let mut state = self.state.lock();
                state.awaiting_sync.extend(group.into_iter().map(|item| item.then));
                if state.syncing {
                    continue;
                }
                // Nobody syncs: one of those who wait for themselves does, or the caller once it has written.
                if let Some(Then::Wake(next)) = state.awaiting_sync.last().cloned() {
                    state.syncing = true;
                    next.signal(LEAD_SYNC);
                } else if !state.pending.is_empty() {
                    state.syncing = true;
                    state.sync_called = true;
                    self.called.notify_all();
                }
            } else {
                group.iter().for_each(|item| item.then.done());
            }
        }
    }

    /// Syncs for all that wait. `is_patient`: as long as there are any.
    fn lead_sync(&self, is_patient: bool) {
        let until = Instant::now() + LEAD_MAX;
        loop {
            let served = std::mem::take(&mut self.state.lock().awaiting_sync);
            self.sync();
            let mut state = self.state.lock();
            let mut is_over = state.awaiting_sync.is_empty();
            if is_over {
                state.syncing = false;
            } else if !is_patient {
                match state.awaiting_sync.last().cloned() {
                    Some(Then::Wake(next)) => {
                        next.signal(LEAD_SYNC);
                        is_over = true;
                    }
                    _ if Instant::now() >= until => {
                        state.sync_called = true;
                        self.called.notify_all();
                        is_over = true;
                    }
                    _ => {}
                }
            }
            drop(state);
            served.iter().for_each(Then::done);
            if is_over {
                return;
            }
        }
    }

    /// The threads that go on where nobody waits for itself.
    fn serve(&self, writes: bool) {
        loop {
            let mut state = self.state.lock();
            loop {
                if self.is_over.load(Ordering::Relaxed) {
                    return;
                }
                let called = if writes { &mut state.write_called } else { &mut state.sync_called };
                if std::mem::take(called) {
                    break;
                }
                self.called.wait(&mut state);
            }
            drop(state);
            if writes {
                if self.lead_write() {
                    self.state.lock().sync_called = true;
                    self.called.notify_all();
                }
            } else {
                self.lead_sync(true);
            }
        }
    }
}

/// What a request becomes.
fn item_of(request: &[u8], then: Then) -> Item {
    let begun = Instant::now();
    let number = u64::from_le_bytes(request[..8].try_into().expect("eight bytes")) % RECORDS;
    let mut key = [0; 24];
    key[..8].copy_from_slice(&fnv_hash64(number).to_be_bytes());
    key[16..].copy_from_slice(&u64::MAX.to_be_bytes());
    let document = request[8..].to_vec();
    let mut mixed = number;
    while begun.elapsed() < Duration::from_micros(WORK_MICROS) {
        mixed = fnv_hash64(mixed);
    }
    key[8..16].copy_from_slice(&(mixed & 1).to_be_bytes());
    Item { key, document, then }
}

fn serve_connection(queue: &Queue, design: Design, socket: TcpStream) {
    let socket = Arc::new(socket);
    let mut request = [0; REQUEST_BYTES];
    while (&*socket).read_exact(&mut request).is_ok() {
        if design == Design::Left {
            let item = item_of(&request, Then::Reply(Arc::clone(&socket)));
            if queue.put([item]) && queue.lead_write() {
                queue.lead_sync(false);
            }
            continue;
        }
        let parked = Arc::new(Parked { state: AtomicU8::new(WAITING), thread: std::thread::current() });
        let item = item_of(&request, Then::Wake(Arc::clone(&parked)));
        let mut role = if queue.put([item]) { LEAD_WRITE } else { WAITING };
        loop {
            match role {
                LEAD_WRITE if queue.lead_write() => queue.lead_sync(false),
                LEAD_SYNC => queue.lead_sync(false),
                DONE => break,
                _ => {}
            }
            role = parked.wait();
        }
        reply(&socket);
    }
}

type Sockets = Mutex<Vec<Option<Arc<TcpStream>>>>;

/// One thread's connections, served as they come.
fn serve_loop(queue: &Queue, loop_of: &OwnedFd, sockets: &Sockets) {
    let mut events = Vec::with_capacity(256);
    let mut request = [0; REQUEST_BYTES];
    let patience = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    while !queue.is_over.load(Ordering::Relaxed) {
        events.clear();
        let _ = epoll::wait(loop_of, rustix::buffer::spare_capacity(&mut events), Some(&patience));
        let mut items = Vec::new();
        for event in &events {
            let at = event.data.u64() as usize;
            let Some(socket) = sockets.lock()[at].clone() else { continue };
            if (&*socket).read_exact(&mut request).is_ok() {
                items.push(item_of(&request, Then::Reply(socket)));
            } else {
                let _ = epoll::delete(loop_of, &*socket);
                sockets.lock()[at] = None;
            }
        }
        if !items.is_empty() && queue.put(items) && queue.lead_write() {
            queue.lead_sync(false);
        }
    }
}

fn start(queue: &Arc<Queue>, design: Design, listener: TcpListener) {
    for writes in [true, false] {
        let queue = Arc::clone(queue);
        std::thread::spawn(move || queue.serve(writes));
    }
    let sockets: Arc<Sockets> = Arc::default();
    let mut loops = Vec::new();
    if let Design::Loops(threads) = design {
        for _ in 0..threads {
            let own = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC).expect("a descriptor"));
            loops.push(Arc::clone(&own));
            let (queue, sockets) = (Arc::clone(queue), Arc::clone(&sockets));
            std::thread::spawn(move || serve_loop(&queue, &own, &sockets));
        }
    }
    let queue = Arc::clone(queue);
    std::thread::spawn(move || {
        for (number, socket) in listener.incoming().map_while(Result::ok).enumerate() {
            let _ = socket.set_nodelay(true);
            if loops.is_empty() {
                let queue = Arc::clone(&queue);
                std::thread::spawn(move || serve_connection(&queue, design, socket));
            } else {
                let mut all = sockets.lock();
                let socket = Arc::new(socket);
                all.push(Some(Arc::clone(&socket)));
                let place = epoll::EventData::new_u64(all.len() as u64 - 1);
                epoll::add(&*loops[number % loops.len()], &*socket, place, epoll::EventFlags::IN).expect("added");
            }
        }
    });
}

/// The other process: `count` clients for so many seconds; one line of figures.
fn clients(port: u16, count: u64, seconds: f64) -> Result<(), Failure> {
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let warm = Instant::now() + Duration::from_secs_f64(seconds / 5.0);
    let threads: Vec<_> = (0..count)
        .map(|client| {
            std::thread::spawn(move || -> Result<Histogram<u64>, Failure> {
                let mut socket = TcpStream::connect(("127.0.0.1", port))?;
                socket.set_nodelay(true)?;
                let mut histogram = Histogram::new(3)?;
                let (mut request, mut answer, mut number) = ([5; REQUEST_BYTES], [0; REPLY_BYTES], client);
                while Instant::now() < until {
                    number = fnv_hash64(number);
                    request[..8].copy_from_slice(&number.to_le_bytes());
                    let begun = Instant::now();
                    socket.write_all(&request)?;
                    socket.read_exact(&mut answer)?;
                    if begun >= warm {
                        histogram.record(begun.elapsed().as_micros() as u64)?;
                    }
                }
                Ok(histogram)
            })
        })
        .collect();
    let mut all = Histogram::<u64>::new(3)?;
    for thread in threads {
        all.add(thread.join().map_err(|_| "a client broke")??)?;
    }
    println!(
        "{} {} {} {}",
        all.len() as f64 / (seconds * 0.8),
        all.value_at_quantile(0.5),
        all.value_at_quantile(0.99),
        all.max()
    );
    Ok(())
}

/// Processor time of this process, to a hundredth of a second.
fn cpu_micros() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    fields.filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>() * 10_000
}

fn switches() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    stat.lines().find_map(|line| line.strip_prefix("ctxt ")?.trim().parse().ok()).unwrap_or_default()
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|first| first == "clients") {
        return clients(arguments[2].parse()?, arguments[3].parse()?, arguments[4].parse()?);
    }
    let usage = "usage: replies DIR SECONDS [DESIGN,…] [CLIENTS,…]";
    let (directory, seconds) = (arguments.get(1).ok_or(usage)?, arguments.get(2).ok_or(usage)?);
    let designs = arguments.get(3).map_or("parked,left,loop,loops", String::as_str);
    let counts = arguments.get(4).map_or("1,8,64,256", String::as_str);
    println!(
        "{:10} {:8} {:>7} {:>9} {:>7} {:>8} {:>8} {:>8} {:>9} {:>7} {:>6}",
        "design", "until", "clients", "writes/s", "p50", "p99", "longest", "CPU us", "switches", "a batch", "a sync"
    );
    for is_synced in [false, true] {
        for count in counts.split(',') {
            for name in designs.split(',') {
                let design = Design::parse(name)?;
                let path = Path::new(directory).join(format!("replies-spike-{name}-{is_synced}-{count}"));
                let _ = std::fs::remove_dir_all(&path);
                let queue = Arc::new(Queue::open(&path, is_synced)?);
                let listener = TcpListener::bind("127.0.0.1:0")?;
                let port = listener.local_addr()?.port();
                start(&queue, design, listener);
                let (cpu, switched) = (cpu_micros(), switches());
                let output = Command::new(std::env::current_exe()?)
                    .args(["clients", &port.to_string(), count, seconds])
                    .stderr(Stdio::inherit())
                    .output()?;
                let text = String::from_utf8(output.stdout)?;
                let found: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
                let [per_second, p50, p99, longest] = found[..] else { return Err("the clients said nothing".into()) };
                let writes = queue.figures.writes.load(Ordering::Relaxed).max(1) as f64;
                let each = |of: &AtomicU64| writes / of.load(Ordering::Relaxed).max(1) as f64;
                println!(
                    "{name:10} {:8} {count:>7} {per_second:9.0} {p50:7.0} {p99:8.0} {longest:8.0} {:8.1} {:9.2} {:7.1} {:6.1}",
                    if is_synced { "synced" } else { "applied" },
                    (cpu_micros() - cpu) as f64 / writes,
                    (switches() - switched) as f64 / writes,
                    each(&queue.figures.batches),
                    if is_synced { each(&queue.figures.syncs) } else { 0.0 },
                );
                queue.is_over.store(true, Ordering::Relaxed);
                queue.called.notify_all();
                std::thread::sleep(Duration::from_millis(300));
                let _ = std::fs::remove_dir_all(&path);
            }
        }
    }
    Ok(())
}
