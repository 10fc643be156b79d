//! The two phases of a benchmark: load a table, run a mix of operations on it.
//!
//! A closed loop: every client is a thread that sends its next request when the last was answered, so throughput is
//! clients divided by latency, and a stall shows in both. Operations of the warm-up are counted in the lines per
//! second but not in the result. The first failure ends the run.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::Failure;
use crate::client::{Client, Factory};
use crate::distribution::{Distribution, Random};
use crate::histogram::Latencies;
use crate::record::{KEY_BYTES, Key, Layout, VALUE_BYTES, fill_value, key_of};
use crate::workload::{Kind, Records, SCAN_LENGTH_MAX, Workload};

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The mix of operations.
    pub workload: Workload,
    /// Concurrent connections.
    pub clients: usize,
    /// Time before measuring begins.
    pub warmup: Duration,
    /// How long to measure.
    pub duration: Duration,
    /// How many operations to stop after, if before `duration`.
    pub operations: Option<u64>,
    /// Whether every record is as likely as another, in place of the workload's own distribution.
    pub uniform: bool,
    /// Different seeds ask for different records.
    pub seed: u64,
    /// Print a line a second.
    pub verbose: bool,
}

/// What came out of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Latencies of the operations that began after the warm-up.
    pub latencies: Latencies,
    /// How long was measured.
    pub seconds: f64,
    /// Operations finished in each second, the warm-up's too.
    pub per_second: Vec<u64>,
    /// Operations finished in all, the warm-up's too.
    pub operations_with_warmup: u64,
    /// CPU time this process used per operation, in microseconds: the client's cost (and the store's, if it lives here).
    pub client_cpu_us: f64,
}

impl Outcome {
    /// What a peer gives that answered nothing for so long that it was given up.
    ///
    /// # Errors
    /// Never with the bounds that are used.
    pub fn silence(waited: Duration) -> Result<Self, Failure> {
        Ok(Self {
            latencies: Latencies::new()?,
            seconds: waited.as_secs_f64(),
            per_second: Vec::new(),
            operations_with_warmup: 0,
            client_cpu_us: 0.0,
        })
    }

    /// Whether nothing was answered at all.
    pub fn is_silence(&self) -> bool {
        self.latencies.count() == 0
    }

    /// Operations a second.
    pub fn throughput(&self) -> f64 {
        self.latencies.count() as f64 / self.seconds.max(1e-9)
    }

    /// For people.
    pub fn text(&self) -> String {
        format!(
            "{:.0} operations/s over {:.1} s, client CPU {:.1} us/operation\n{}",
            self.throughput(),
            self.seconds,
            self.client_cpu_us,
            self.latencies.text()
        )
    }

    /// For programs.
    pub fn json(&self) -> Value {
        json!({
            "operationsPerSecond": self.throughput(),
            "seconds": self.seconds,
            "clientCpuUs": self.client_cpu_us,
            "perSecond": self.per_second,
            "latency": self.latencies.json(),
        })
    }
}

/// What came out of a run under one of its conditions.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Latencies of the operations that began under it.
    pub latencies: Latencies,
    /// How long it was measured.
    pub seconds: f64,
}

impl Measured {
    /// Operations a second.
    pub fn throughput(&self) -> f64 {
        self.latencies.count() as f64 / self.seconds.max(1e-9)
    }
}

/// The condition of what is not measured.
const UNMEASURED: usize = usize::MAX;

/// What the clients of a run share.
struct Shared<'a> {
    plan: &'a Plan,
    records: &'a Records,
    stop: AtomicBool,
    /// What is left of the operations asked for, if a number was.
    budget: Option<AtomicI64>,
    finished: Vec<Finished>,
    failure: Mutex<Option<Failure>>,
    /// Under which condition an operation counts that begins now.
    condition: AtomicUsize,
}

impl Shared<'_> {
    fn finished(&self) -> u64 {
        self.finished.iter().map(|one| one.0.load(Ordering::Relaxed)).sum()
    }
}

/// What is known once all clients have ended.
struct Conducted<T, const CONDITIONS: usize> {
    latencies: [Latencies; CONDITIONS],
    finished: u64,
    ended: Instant,
    /// What the conductor gave.
    result: T,
}

/// How many operations one client has finished, on a cache line of its own: a counter that all of them shared would cost
/// more than the rest of the client's arithmetic.
#[derive(Default)]
#[repr(align(128))]
struct Finished(AtomicU64);

/// Loads `count` records from number 0 on, `batch` in a request; gives records a second.
///
/// # Errors
/// If the store fails.
pub fn load(factory: &dyn Factory, count: u64, clients: usize, batch: u64, verbose: bool) -> Result<f64, Failure> {
    let begun = Instant::now();
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let failure: Mutex<Option<Failure>> = Mutex::default();
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..clients)
            .map(|_| {
                scope.spawn(|| {
                    if let Err(error) = load_some(factory, count, batch, &next, &done) {
                        next.store(count, Ordering::Relaxed);
                        failure.lock().get_or_insert(error);
                    }
                })
            })
            .collect();
        let mut reported = Instant::now();
        while handles.iter().any(|handle| !handle.is_finished()) {
            std::thread::sleep(Duration::from_millis(20));
            if verbose && reported.elapsed() >= Duration::from_secs(1) {
                reported = Instant::now();
                eprintln!("load: {} of {count} records", done.load(Ordering::Relaxed));
            }
        }
    });
    match failure.into_inner() {
        Some(error) => Err(error),
        None => Ok(count as f64 / begun.elapsed().as_secs_f64()),
    }
}

fn load_some(factory: &dyn Factory, count: u64, batch: u64, next: &AtomicU64, done: &AtomicU64) -> Result<(), Failure> {
    let mut client = factory.connect()?;
    let mut group = Vec::with_capacity(batch as usize);
    loop {
        let from = next.fetch_add(batch, Ordering::Relaxed);
        if from >= count {
            return Ok(());
        }
        let to = (from + batch).min(count);
        group.clear();
        group.extend((from..to).map(record));
        client.insert(&group)?;
        done.fetch_add(to - from, Ordering::Relaxed);
    }
}

/// A record's content depends on its number alone, so that a load can be repeated.
fn record(number: u64) -> (Key, [u8; VALUE_BYTES]) {
    let mut value = [0; VALUE_BYTES];
    fill_value(&mut Random::new(number), &mut value);
    (key_of(number), value)
}

/// Runs one plan on a loaded table.
///
/// # Errors
/// The first failure of any client.
pub fn run(factory: &dyn Factory, records: &Records, plan: &Plan) -> Result<Outcome, Failure> {
    let mut per_second = Vec::new();
    let mut measured_from = Instant::now();
    let conducted = conduct(factory, records, plan, |shared, is_over| {
        measured_from = Instant::now() + plan.warmup;
        Ok(watch(shared, measured_from, &mut per_second, is_over))
    })?;
    let [latencies] = conducted.latencies;
    Ok(Outcome {
        seconds: conducted.ended.saturating_duration_since(measured_from).as_secs_f64(),
        client_cpu_us: conducted.result / latencies.count().max(1) as f64,
        latencies,
        per_second,
        operations_with_warmup: conducted.finished,
    })
}

/// Runs one plan under several conditions on the same connections: they are `prepare`d in this order, and each turn takes the plan's warm-up
/// and its duration. Whatever connections have by chance is then the same for all.
///
/// # Errors
/// The first failure of any client, or what `prepare` says.
pub fn run_in_turns<const CONDITIONS: usize>(
    factory: &dyn Factory,
    records: &Records,
    plan: &Plan,
    order: &[usize],
    mut prepare: impl FnMut(usize) -> Result<(), Failure>,
) -> Result<[Measured; CONDITIONS], Failure> {
    let conducted = conduct(factory, records, plan, |shared, is_over| {
        let mut seconds = [0.0; CONDITIONS];
        shared.condition.store(UNMEASURED, Ordering::Relaxed);
        for &condition in order {
            prepare(condition)?;
            std::thread::sleep(plan.warmup);
            let from = Instant::now();
            shared.condition.store(condition, Ordering::Relaxed);
            std::thread::sleep(plan.duration);
            seconds[condition] += from.elapsed().as_secs_f64();
            shared.condition.store(UNMEASURED, Ordering::Relaxed);
            if is_over() {
                break;
            }
        }
        Ok(seconds)
    })?;
    let mut seconds = conducted.result.into_iter();
    Ok(conducted.latencies.map(|latencies| Measured { latencies, seconds: seconds.next().unwrap_or_default() }))
}

/// Has the plan's clients send requests until they have sent as many as they are to, or `conductor` returns, which is told whether they have.
fn conduct<T, const CONDITIONS: usize>(
    factory: &dyn Factory,
    records: &Records,
    plan: &Plan,
    conductor: impl FnOnce(&Shared<'_>, &dyn Fn() -> bool) -> Result<T, Failure>,
) -> Result<Conducted<T, CONDITIONS>, Failure> {
    let clients = (0..plan.clients).map(|_| factory.connect()).collect::<Result<Vec<_>, _>>()?;
    let budget = plan.operations.map(|count| AtomicI64::new(i64::try_from(count).unwrap_or(i64::MAX)));
    // Made once: a zipfian over many records takes a while.
    let distribution =
        if plan.uniform { Distribution::Uniform } else { plan.workload.distribution(records.count(), plan.operations) };
    let shared = Shared {
        plan,
        records,
        stop: AtomicBool::new(false),
        budget,
        finished: clients.iter().map(|_| Finished::default()).collect(),
        failure: Mutex::default(),
        condition: AtomicUsize::new(if plan.warmup.is_zero() { 0 } else { UNMEASURED }),
    };
    let mut latencies = none_measured::<CONDITIONS>()?;
    let (result, ended) = std::thread::scope(|scope| -> Result<_, Failure> {
        let handles: Vec<_> = clients
            .into_iter()
            .enumerate()
            .map(|(number, client)| {
                scope.spawn({
                    let shared = &shared;
                    let distribution = distribution.clone();
                    move || drive::<CONDITIONS>(client, number, distribution, shared)
                })
            })
            .collect();
        let result = conductor(&shared, &|| handles.iter().all(std::thread::ScopedJoinHandle::is_finished));
        shared.stop.store(true, Ordering::Relaxed);
        let ended = Instant::now();
        for handle in handles {
            let parts = handle.join().map_err(|_| "a client's thread panicked")??;
            latencies.iter_mut().zip(&parts).try_for_each(|(all, part)| all.add(part))?;
        }
        Ok((result, ended))
    })?;
    let finished = shared.finished();
    match shared.failure.into_inner() {
        Some(failure) => Err(failure),
        None => Ok(Conducted { latencies, finished, ended, result: result? }),
    }
}

/// Waits for the end, counting by the second; gives the CPU time used since the warm-up.
fn watch(shared: &Shared<'_>, measured_from: Instant, per_second: &mut Vec<u64>, is_over: &dyn Fn() -> bool) -> f64 {
    let end = measured_from + shared.plan.duration;
    let mut cpu_before = None;
    let mut counted = 0;
    let mut next_line = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end && !is_over() {
        let now = Instant::now();
        let wake = [Some(end), Some(next_line), cpu_before.is_none().then_some(measured_from)];
        let pause = wake.into_iter().flatten().map(|at| at.saturating_duration_since(now)).min();
        std::thread::sleep(pause.unwrap_or_default().min(Duration::from_millis(50)));
        if cpu_before.is_none() && Instant::now() >= measured_from {
            shared.condition.store(0, Ordering::Relaxed);
            cpu_before = Some(cpu_time_us());
        }
        if Instant::now() >= next_line {
            next_line += Duration::from_secs(1);
            let sum = shared.finished();
            per_second.push(sum - counted);
            if shared.plan.verbose {
                let warming = if Instant::now() < measured_from { " (warming up)" } else { "" };
                eprintln!("{:4} s  {:8} operations/s{warming}", per_second.len(), sum - counted);
            }
            counted = sum;
        }
    }
    cpu_before.map_or(0.0, |before| cpu_time_us() - before)
}

fn none_measured<const CONDITIONS: usize>() -> Result<[Latencies; CONDITIONS], Failure> {
    let latencies = (0..CONDITIONS).map(|_| Latencies::new()).collect::<Result<Vec<_>, _>>()?;
    latencies.try_into().map_err(|_| "one for each condition".into())
}

fn drive<const CONDITIONS: usize>(
    mut client: Box<dyn Client>,
    number: usize,
    mut distribution: Distribution,
    shared: &Shared<'_>,
) -> Result<[Latencies; CONDITIONS], Failure> {
    let mut latencies = none_measured()?;
    let plan = shared.plan;
    let mut random = Random::new(plan.seed.wrapping_mul(1_000_003).wrapping_add(number as u64));
    let mut request = Request::new(plan.workload.layout(), &mut Random::new(RandomState::new().hash_one(number)));
    let within_budget = || shared.budget.as_ref().is_none_or(|left| left.fetch_sub(1, Ordering::Relaxed) > 0);
    let mut finished = 0;
    while !shared.stop.load(Ordering::Relaxed) && within_budget() {
        let kind = plan.workload.next_kind(&mut random);
        request.choose(kind, &mut random, &mut distribution, shared.records);
        let condition = shared.condition.load(Ordering::Relaxed);
        let begun = Instant::now();
        let result = request.send(client.as_mut());
        let took = begun.elapsed();
        if let Err(error) = result {
            shared.stop.store(true, Ordering::Relaxed);
            shared.failure.lock().get_or_insert(error);
            break;
        }
        if kind == Kind::Insert {
            shared.records.acknowledge(request.number);
        }
        if let Some(latencies) = latencies.get_mut(condition) {
            latencies.record(kind, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        }
        finished += 1;
        shared.finished[number].0.store(finished, Ordering::Relaxed);
    }
    Ok(latencies)
}

/// Where the values of updates are cut from: long enough that records do not repeat each other within a block. In every run it is
/// another one, whatever the seed: an update that finds its value there already writes nothing.
const POOL_BYTES: usize = 64 << 10;

/// A request with all it carries, made before its clock starts, in place: nothing is allocated for an operation.
struct Request {
    kind: Kind,
    key: Key,
    /// The record that an insertion adds.
    number: u64,
    /// The field that an update sets, and where in the pool its value begins.
    field: usize,
    value: usize,
    /// How many records a scan wants.
    length: u64,
    record: [(Key, [u8; VALUE_BYTES]); 1],
    pool: Vec<u8>,
    layout: Layout,
}

impl Request {
    fn new(layout: Layout, random: &mut Random) -> Self {
        let mut pool = vec![0; POOL_BYTES];
        random.fill_printable(&mut pool);
        Self {
            kind: Kind::Read,
            key: [0; KEY_BYTES],
            number: 0,
            field: 0,
            value: 0,
            length: 0,
            record: [([0; KEY_BYTES], [0; VALUE_BYTES])],
            pool,
            layout,
        }
    }

    fn choose(&mut self, kind: Kind, random: &mut Random, distribution: &mut Distribution, records: &Records) {
        self.kind = kind;
        match kind {
            Kind::Insert => {
                self.number = records.claim();
                self.record = [record(self.number)];
                return;
            }
            Kind::Update | Kind::ReadModifyWrite => {
                self.field = random.below(self.layout.field_count() as u64) as usize;
                self.value = random.below((POOL_BYTES - VALUE_BYTES) as u64) as usize;
            }
            Kind::Scan => self.length = 1 + random.below(SCAN_LENGTH_MAX),
            Kind::Read => {}
        }
        self.key = key_of(distribution.next(random, records.count().max(1)));
    }

    fn send(&self, client: &mut dyn Client) -> Result<(), Failure> {
        let value = &self.pool[self.value..self.value + self.layout.field_bytes()];
        match self.kind {
            Kind::Read => client.read(&self.key),
            Kind::Update => client.update(&self.key, self.field, value),
            Kind::Insert => client.insert(&self.record),
            Kind::Scan => client.scan(&self.key, self.length).map(|_| ()),
            Kind::ReadModifyWrite => {
                client.read(&self.key)?;
                client.update(&self.key, self.field, value)
            }
        }
    }
}

/// CPU time of this process so far, in microseconds.
pub fn cpu_time_us() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result, and the clock exists on every Linux.
    #[allow(unsafe_code)]
    let _ = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::EchoFactory;

    fn plan(workload: Workload) -> Plan {
        Plan {
            workload,
            clients: 3,
            warmup: Duration::ZERO,
            duration: Duration::from_secs(30),
            operations: Some(300),
            uniform: false,
            seed: 1,
            verbose: false,
        }
    }

    /// A store that can be read, as the function says, and has no room.
    #[derive(Clone, Copy)]
    struct Reads(fn() -> Result<(), Failure>);

    impl Factory for Reads {
        fn connect(&self) -> Result<Box<dyn Client>, Failure> {
            Ok(Box::new(*self))
        }
        fn clear(&self) -> Result<(), Failure> {
            Ok(())
        }
    }

    impl Client for Reads {
        fn read(&mut self, _: &Key) -> Result<(), Failure> {
            (self.0)()
        }
        fn update(&mut self, _: &Key, _: usize, _: &[u8]) -> Result<(), Failure> {
            Ok(())
        }
        fn insert(&mut self, _: &[(Key, [u8; VALUE_BYTES])]) -> Result<(), Failure> {
            Err("full".into())
        }
        fn scan(&mut self, _: &Key, _: u64) -> Result<u64, Failure> {
            Ok(0)
        }
    }

    #[test]
    fn a_run_of_every_workload_does_exactly_the_operations_asked_for() {
        let factory = EchoFactory::here().expect("listens");
        load(&factory, 1000, 2, 100, false).expect("loads");
        for workload in [Workload::A, Workload::D, Workload::E, Workload::F, Workload::Update, Workload::Replace] {
            let records = Records::loaded(1000);
            let outcome = run(&factory, &records, &plan(workload)).expect("runs");
            assert_eq!(outcome.latencies.count(), 300, "{workload:?}");
        }
    }

    #[test]
    fn what_takes_turns_is_counted_by_condition_and_not_in_between() {
        let turn = Duration::from_millis(20);
        let plan = Plan { warmup: turn, duration: turn, operations: None, ..plan(Workload::C) };
        let slowly = Reads(|| {
            std::thread::sleep(Duration::from_millis(1));
            Ok(())
        });
        let mut prepared = Vec::new();
        let prepare = |condition| {
            prepared.push(condition);
            std::thread::sleep(10 * turn);
            Ok(())
        };
        let measured = run_in_turns::<3>(&slowly, &Records::loaded(1000), &plan, &[0, 2, 2], prepare).expect("runs");
        assert_eq!(prepared, [0, 2, 2]);
        let [first, second, third] = &measured;
        assert!(first.seconds >= turn.as_secs_f64() && third.seconds >= 2.0 * turn.as_secs_f64(), "{measured:?}");
        assert_eq!((second.latencies.count(), second.seconds), (0, 0.0));
        // Three clients, each at the most a thousand times a second, and of each that which was under way at a turn's end.
        for (one, turns) in [(first, 1), (third, 2)] {
            let most = (3000.0 * one.seconds) as u64 + 3 * turns;
            assert!((1..=most).contains(&one.latencies.count()), "{measured:?}");
        }
    }

    #[test]
    fn what_cannot_be_prepared_ends_the_run() {
        let plan = Plan { operations: None, ..plan(Workload::C) };
        let outcome = run_in_turns::<1>(&Reads(|| Ok(())), &Records::loaded(10), &plan, &[0], |_| Err("not so".into()));
        assert_eq!(outcome.expect_err("ends").to_string(), "not so");
    }

    #[test]
    fn inserts_of_many_clients_leave_no_gap() {
        let factory = EchoFactory::here().expect("listens");
        let records = Records::loaded(10);
        run(&factory, &records, &plan(Workload::Insert)).expect("runs");
        assert_eq!(records.count(), 310);
    }

    #[test]
    fn the_first_failure_ends_the_run() {
        let lost = Reads(|| Err("lost".into()));
        let error = run(&lost, &Records::loaded(10), &plan(Workload::C)).expect_err("fails");
        assert_eq!(error.to_string(), "lost");
        assert_eq!(load(&lost, 10, 2, 1, false).expect_err("fails").to_string(), "full");
    }
}
