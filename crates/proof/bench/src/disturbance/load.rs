//! The clients whose latency counts: one that writes and one that reads at a steady pace, or so many that are never idle.
//!
//! They ask for small documents of a database that no event touches. A request belongs to a stretch of time if any of its own time
//! does. One that was stuck counts fully: a client of a steady pace would have sent more meanwhile, and each of these is counted with
//! the time that it would have waited (`record_correct`), so that no stall hides behind the client that it stalls.
//!
//! Who is primary they learn as drivers do ([`Discovery`]). A request that a member refused because it is no primary (any more) is
//! sent again to the next one, and all that took is its latency; any other failure is one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bson::{Document, doc};
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::Failure;
use crate::client::{Discovery, Wire, is_of_no_primary};

/// The clients' own database.
const DATABASE: &str = "steady";
/// Documents that they ask for.
const DOCUMENTS: u64 = 1000;
/// Between two requests of the steady writer: two hundred a second.
const WRITER_PACE: Duration = Duration::from_millis(5);
/// Between two requests of the steady reader: five hundred a second.
const READER_PACE: Duration = Duration::from_millis(2);
/// For how long one request is sent again and again.
const PATIENCE: Duration = Duration::from_secs(30);
/// What a request may take at the most, in nanoseconds; more counts as this.
const LATENCY_NS_MAX: u64 = 600_000_000_000;

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Updates a document, `w: "majority", j: true`.
    Writer,
    /// Reads a document by `_id` from the primary.
    Reader,
}

impl Role {
    /// Both, in the order of reports.
    pub const ALL: [Self; 2] = [Self::Writer, Self::Reader];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Writer => "writer",
            Self::Reader => "reader",
        }
    }
}

/// One request. Times are nanoseconds since the clients were started.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// What it did.
    pub role: Role,
    /// When it was sent.
    pub start: u64,
    /// When its reply, or its failure, was there.
    pub end: u64,
    /// Whether it was answered as it should be.
    pub is_ok: bool,
}

/// A stretch of time, in nanoseconds since the clients were started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Its beginning.
    pub start: u64,
    /// Its end.
    pub end: u64,
}

impl Stretch {
    /// How long it is.
    pub fn secs(self) -> f64 {
        (self.end - self.start) as f64 / 1e9
    }
}

struct Shared {
    addresses: Vec<String>,
    discovery: Discovery,
    begun: Instant,
    is_busy: bool,
    resting: AtomicBool,
    /// Clients that rest, because they were told to.
    at_rest: AtomicUsize,
    stopping: AtomicBool,
    samples: Vec<Mutex<Vec<Sample>>>,
}

impl Shared {
    fn now(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    /// Asks until it is told to stop.
    fn client(&self, index: usize) {
        let mut wire: Option<(usize, Wire)> = None;
        let mut random = 0x9E37_79B9_7F4A_7C15u64.wrapping_mul(index as u64 + 1);
        let mut turn = index;
        while !self.stopping.load(Ordering::SeqCst) {
            if self.resting.load(Ordering::SeqCst) {
                self.rest();
                continue;
            }
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let role = Role::ALL[turn % 2];
            let request = request_of(role, (random >> 33) % DOCUMENTS);
            let begun = Instant::now();
            let start = self.now();
            let is_ok = self.ask(&mut wire, &request).is_some_and(|reply| took_effect(role, &reply));
            self.samples[index].lock().push(Sample { role, start, end: self.now(), is_ok });
            if self.is_busy {
                turn += 1;
            } else {
                std::thread::sleep(pace_of(role).saturating_sub(begun.elapsed()));
            }
        }
    }

    /// The reply of whoever is primary; none if it did not answer, or none was primary in time.
    fn ask(&self, wire: &mut Option<(usize, Wire)>, request: &Document) -> Option<Document> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (index, mut connection) = match wire.take() {
                Some(connected) => connected,
                None => {
                    let index = self.discovery.primary(deadline.saturating_duration_since(Instant::now()))?;
                    (index, Wire::connect(&self.addresses[index]).inspect_err(|_| self.discovery.failed(index)).ok()?)
                }
            };
            let Ok(reply) = connection.command(request) else {
                self.discovery.failed(index);
                return None;
            };
            if !is_of_no_primary(&reply) {
                *wire = Some((index, connection));
                return Some(reply);
            }
            if Instant::now() > deadline {
                return Some(reply);
            }
            // It says so anew if it is primary nevertheless.
            self.discovery.failed(index);
        }
    }

    fn rest(&self) {
        self.at_rest.fetch_add(1, Ordering::SeqCst);
        while self.resting.load(Ordering::SeqCst) && !self.stopping.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.at_rest.fetch_sub(1, Ordering::SeqCst);
    }
}

fn pace_of(role: Role) -> Duration {
    match role {
        Role::Writer => WRITER_PACE,
        Role::Reader => READER_PACE,
    }
}

fn request_of(role: Role, id: u64) -> Document {
    let id = id as i64;
    match role {
        Role::Writer => doc! {
            "update": "documents", "updates": [ { "q": { "_id": id }, "u": { "$inc": { "n": 1 } } } ],
            "writeConcern": { "w": "majority", "j": true }, "$db": DATABASE,
        },
        Role::Reader => {
            doc! { "find": "documents", "filter": { "_id": id }, "limit": 1, "singleBatch": true, "$db": DATABASE }
        }
    }
}

fn took_effect(role: Role, reply: &Document) -> bool {
    match role {
        Role::Writer => {
            reply.get_i32("nModified").is_ok_and(|n| n == 1)
                && !reply.contains_key("writeErrors")
                && !reply.contains_key("writeConcernError")
        }
        Role::Reader => reply
            .get_document("cursor")
            .and_then(|cursor| cursor.get_array("firstBatch"))
            .is_ok_and(|batch| batch.len() == 1),
    }
}

/// The clients. Dropped, they stop.
pub struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Writes the clients' documents and starts the clients, at rest: the steady two, or `busy` that are never idle, each of which
    /// reads and writes in turn.
    ///
    /// # Errors
    /// If the documents cannot be written.
    pub fn start(addresses: Vec<String>, busy: usize) -> Result<Self, Failure> {
        let discovery = Discovery::of(&addresses);
        let primary = discovery.primary(PATIENCE).ok_or("no member is primary")?;
        let mut wire = Wire::connect(&addresses[primary])?;
        let documents: Vec<Document> =
            (0..DOCUMENTS as i64).map(|id| doc! { "_id": id, "n": 0, "text": "x".repeat(64) }).collect();
        let insert = doc! {
            "insert": "documents", "documents": documents, "writeConcern": { "w": "majority" }, "$db": DATABASE,
        };
        let reply = wire.command(&insert)?;
        if reply.get_i32("n").ok() != Some(DOCUMENTS as i32) {
            return Err(format!("the clients' documents: {reply}").into());
        }
        let clients = if busy > 0 { busy } else { Role::ALL.len() };
        let shared = Arc::new(Shared {
            addresses,
            discovery,
            begun: Instant::now(),
            is_busy: busy > 0,
            resting: AtomicBool::new(true),
            at_rest: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            samples: (0..clients).map(|_| Mutex::default()).collect(),
        });
        let threads = (0..clients).map(|index| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || shared.client(index))
        });
        let threads = threads.collect();
        Ok(Self { shared, threads })
    }

    /// When they were started.
    pub fn begun(&self) -> Instant {
        self.shared.begun
    }

    /// Nanoseconds since they were started.
    pub fn now(&self) -> u64 {
        self.shared.now()
    }

    /// Lets them rest; returns when all do.
    pub fn rest(&self) {
        self.shared.resting.store(true, Ordering::SeqCst);
        while self.shared.at_rest.load(Ordering::SeqCst) < self.threads.len() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets them go on.
    pub fn go_on(&self) {
        self.shared.resting.store(false, Ordering::SeqCst);
    }

    /// All requests so far, in no order.
    pub fn samples(&self) -> Vec<Sample> {
        self.shared.samples.iter().flat_map(|samples| samples.lock().clone()).collect()
    }

    /// What a client of this role left between two requests; none, if it is never idle.
    pub fn pace_ns(&self, role: Role) -> u64 {
        if self.shared.is_busy { 0 } else { pace_of(role).as_nanos() as u64 }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            // One that panicked has measured nothing more.
            let _ = thread.join();
        }
    }
}

/// What the requests of one role were in a stretch of time. Times are milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Requests that were answered within it, a second.
    pub per_sec: f64,
    /// Requests that failed.
    pub failures: usize,
    /// Quantiles of the latency.
    pub p50: f64,
    /// See above.
    pub p99: f64,
    /// See above.
    pub p999: f64,
    /// The longest.
    pub longest: f64,
}

impl Figures {
    /// Of the requests of `role` that share any time with one of the stretches; `pace_ns` is how often one was to be sent, 0 for whenever the
    /// one before is answered.
    ///
    /// # Errors
    /// If there is no memory for a histogram.
    pub fn of(samples: &[Sample], role: Role, stretches: &[Stretch], pace_ns: u64) -> Result<Self, Failure> {
        let mut histogram = Histogram::<u64>::new_with_bounds(1000, LATENCY_NS_MAX, 3)?;
        let (mut failures, mut answered) = (0, 0);
        let is_in =
            |sample: &Sample| stretches.iter().any(|stretch| sample.start < stretch.end && sample.end > stretch.start);
        for sample in samples.iter().filter(|sample| sample.role == role && is_in(sample)) {
            histogram.record_correct((sample.end - sample.start).min(LATENCY_NS_MAX), pace_ns)?;
            failures += usize::from(!sample.is_ok);
            let is_answered = stretches.iter().any(|stretch| (stretch.start..stretch.end).contains(&sample.end));
            answered += usize::from(sample.is_ok && is_answered);
        }
        let ms = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e6;
        Ok(Self {
            per_sec: answered as f64 / stretches.iter().copied().map(Stretch::secs).sum::<f64>().max(1e-9),
            failures,
            p50: ms(0.5),
            p99: ms(0.99),
            p999: ms(0.999),
            longest: histogram.max() as f64 / 1e6,
        })
    }

    /// For programs.
    pub fn json(&self) -> Value {
        json!({
            "perSecond": self.per_sec, "failures": self.failures, "p50Ms": self.p50, "p99Ms": self.p99, "p999Ms": self.p999,
            "longestMs": self.longest,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn sample(start_ms: u64, end_ms: u64) -> Sample {
        Sample { role: Role::Writer, start: start_ms * MS, end: end_ms * MS, is_ok: true }
    }

    #[test]
    fn a_request_that_is_stuck_counts_for_all_that_would_have_been_sent_meanwhile() {
        let mut samples: Vec<Sample> = (0..100).map(|i| sample(5 * i, 5 * i + 1)).collect();
        samples.push(sample(500, 1500));
        let stretch = Stretch { start: 0, end: 1500 * MS };
        let omitting = Figures::of(&samples, Role::Writer, &[stretch], 0).expect("counted");
        assert!((omitting.p50 - 1.0).abs() < 0.01, "one of 101");
        let counted = Figures::of(&samples, Role::Writer, &[stretch], 5 * MS).expect("counted");
        assert!(counted.p50 > 100.0, "two thirds of what should have been sent waited: {counted:?}");
        assert!((counted.longest - 1000.0).abs() < 1.0);
    }

    #[test]
    fn two_stretches_count_as_one_that_is_as_long_as_both() {
        let samples = [sample(0, 1), sample(5, 505), sample(510, 511), sample(600, 602)];
        let stretches = [(0, 2), (508, 608)].map(|(start, end)| Stretch { start: start * MS, end: end * MS });
        let figures = Figures::of(&samples, Role::Writer, &stretches, 0).expect("counted");
        assert!((figures.per_sec - 3.0 / 0.102).abs() < 0.1, "{figures:?}");
        assert!((figures.longest - 2.0).abs() < 0.1, "{figures:?}");
    }

    #[test]
    fn only_what_no_primary_says_is_asked_again() {
        assert!(is_of_no_primary(&doc! { "ok": 0.0, "code": 10107 }));
        assert!(is_of_no_primary(&doc! { "ok": 1.0, "nModified": 1, "writeConcernError": { "code": 189 } }));
        assert!(!is_of_no_primary(&doc! { "ok": 0.0, "code": 11000 }));
        assert!(!is_of_no_primary(&doc! { "ok": 1.0, "nModified": 1 }));
    }

    #[test]
    fn a_request_belongs_to_every_stretch_that_it_shares_time_with() {
        let samples = [sample(0, 1), sample(5, 905), sample(910, 911)];
        let figures = |start, end| {
            let stretch = Stretch { start: start * MS, end: end * MS };
            Figures::of(&samples, Role::Writer, &[stretch], 0).expect("counted").longest
        };
        assert!((figures(100, 200) - 900.0).abs() < 1.0, "it was under way all that time");
        assert!((figures(0, 3) - 1.0).abs() < 0.01);
        assert!((figures(906, 1000) - 1.0).abs() < 0.01, "it was over");
        let reader = Figures::of(&samples, Role::Reader, &[Stretch { start: 0, end: 1000 * MS }], 0).expect("counted");
        assert!(reader.longest < 0.001, "others' requests do not count");
    }
}
