//! What a task cost: processor time, and bytes read and written, of the thread that does it.
//!
//! A task that one thread does from its beginning to its end is measured by what that thread had spent then and now. One that many
//! threads do in turns is measured step by step, and one that RocksDB does by what RocksDB tells of it.
//!
//! Invariant: what cannot be known is `None`. A sum or a difference of which a part is not known is not known.
//! What it deliberately does not do: reckon in the waits of others, or what was evicted from caches.

use parking_lot::Mutex;
use rustix::thread::Pid;
use rustix::time::{ClockId, clock_gettime};
use std::thread::ThreadId;
use std::time::Duration;

/// See the file's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spent {
    /// Processor time.
    pub cpu: Option<Duration>,
    /// Bytes read.
    pub read_bytes: Option<u64>,
    /// Bytes written.
    pub written_bytes: Option<u64>,
}

impl Spent {
    /// Nothing, and that is known.
    pub const NOTHING: Self = Self { cpu: Some(Duration::ZERO), read_bytes: Some(0), written_bytes: Some(0) };
    /// Nobody knows.
    pub const UNKNOWN: Self = Self { cpu: None, read_bytes: None, written_bytes: None };

    fn combine(
        self,
        other: Self,
        cpu: impl Fn(Duration, Duration) -> Duration,
        bytes: impl Fn(u64, u64) -> u64,
    ) -> Self {
        let both = |one: Option<u64>, other: Option<u64>| Some(bytes(one?, other?));
        Self {
            cpu: self.cpu.zip(other.cpu).map(|(one, other)| cpu(one, other)),
            read_bytes: both(self.read_bytes, other.read_bytes),
            written_bytes: both(self.written_bytes, other.written_bytes),
        }
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.combine(other, Duration::saturating_add, u64::saturating_add)
    }

    /// What was added since.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        self.combine(earlier, Duration::saturating_sub, u64::saturating_sub)
    }

    /// What the calling thread has spent in its life.
    pub(crate) fn of_this_thread() -> Self {
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        let cpu = Duration::new(u64::try_from(cpu.tv_sec).unwrap_or(0), u32::try_from(cpu.tv_nsec).unwrap_or(0));
        Self::with_disk(Some(cpu), "/proc/thread-self/io")
    }

    /// What another thread of this process has spent in its life; nothing is known once it has ended.
    fn of_thread(thread: Pid) -> Self {
        let folder = format!("/proc/self/task/{}", thread.as_raw_nonzero());
        let cpu = std::fs::read_to_string(format!("{folder}/schedstat")).ok();
        let nanos = cpu.and_then(|text| text.split_whitespace().next()?.parse().ok());
        Self::with_disk(nanos.map(Duration::from_nanos), &format!("{folder}/io"))
    }

    /// What this process has spent in its life.
    pub(crate) fn of_this_process() -> Self {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let cpu = Duration::new(u64::try_from(cpu.tv_sec).unwrap_or(0), u32::try_from(cpu.tv_nsec).unwrap_or(0));
        Self::with_disk(Some(cpu), "/proc/self/io")
    }

    fn with_disk(cpu: Option<Duration>, path: &str) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let figure = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim_start_matches(':').trim().parse().ok()
        };
        Self { cpu, read_bytes: figure("read_bytes"), written_bytes: figure("write_bytes") }
    }
}

/// Measures one thread from now on.
#[derive(Debug)]
pub struct Meter {
    thread: ThreadId,
    native: Pid,
    before: Spent,
}

impl Meter {
    /// Begins with the calling thread.
    pub fn start() -> Self {
        Self { thread: std::thread::current().id(), native: rustix::thread::gettid(), before: Spent::of_this_thread() }
    }

    /// What the thread spent since; asked by another one nothing is known, since it may have done something else meanwhile.
    pub fn spent(&self) -> Spent {
        if std::thread::current().id() == self.thread {
            Spent::of_this_thread().since(self.before)
        } else {
            Spent::UNKNOWN
        }
    }

    /// What the thread spent since, asked by any.
    fn spent_so_far(&self) -> Spent {
        Spent::of_thread(self.native).since(self.before)
    }
}

/// How a task is measured.
#[derive(Debug)]
pub(super) enum Metering {
    /// It does not run yet.
    NotBegun,
    /// By the thread that began it.
    Thread(Meter),
    /// By what is charged to it.
    Charged(Spent),
    /// By what tasks cost that did its work, and count themselves.
    Parts(Spent),
}

impl Metering {
    /// What it cost. Who asks is the thread that ends it.
    pub fn spent(&self) -> Spent {
        match self {
            Self::NotBegun => Spent::UNKNOWN,
            Self::Thread(meter) => meter.spent(),
            Self::Charged(spent) | Self::Parts(spent) => *spent,
        }
    }

    /// The same, but for what others count.
    pub fn counted(&self) -> Spent {
        if let Self::Parts(_) = self { Spent::NOTHING } else { self.spent() }
    }

    /// What it cost until now, where that is known.
    pub fn spent_so_far(&self) -> Spent {
        match self {
            Self::NotBegun | Self::Parts(_) => Spent::NOTHING,
            Self::Thread(meter) => meter.spent_so_far(),
            Self::Charged(spent) => *spent,
        }
    }
}

/// What compactions cost that somebody asked RocksDB for, and who did: the jobs themselves do not tell for whom they are.
#[derive(Debug)]
pub(crate) struct AskedCompactions(Mutex<AskedSoFar>);

#[derive(Clone, Copy, Debug)]
struct AskedSoFar {
    running: u32,
    begun: u64,
    spent: Spent,
}

impl Default for AskedCompactions {
    fn default() -> Self {
        Self(Mutex::new(AskedSoFar { running: 0, begun: 0, spent: Spent::NOTHING }))
    }
}

/// Somebody asks for compactions as long as this lives.
pub(crate) struct AskedCompaction<'a> {
    all: &'a AskedCompactions,
    at_begin: AskedSoFar,
}

impl AskedCompactions {
    /// A job that was asked for has ended.
    pub fn ended(&self, spent: Spent) {
        let mut so_far = self.0.lock();
        so_far.spent = so_far.spent.plus(spent);
    }

    /// Somebody begins to ask.
    pub fn ask(&self) -> AskedCompaction<'_> {
        let mut so_far = self.0.lock();
        so_far.running += 1;
        so_far.begun += 1;
        AskedCompaction { all: self, at_begin: *so_far }
    }
}

impl AskedCompaction<'_> {
    /// What the jobs cost that were for this one: not known if anybody else has asked meanwhile.
    pub fn spent(&self) -> Spent {
        let now = *self.all.0.lock();
        let was_alone = self.at_begin.running == 1 && now.begun == self.at_begin.begun;
        if was_alone { now.spent.since(self.at_begin.spent) } else { Spent::UNKNOWN }
    }
}

impl Drop for AskedCompaction<'_> {
    fn drop(&mut self) {
        self.all.0.lock().running -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn burn(time: Duration) {
        let begun = clock_gettime(ClockId::ThreadCPUTime);
        let until = Duration::new(begun.tv_sec as u64, begun.tv_nsec as u32) + time;
        let deadline = Instant::now() + Duration::from_secs(60);
        while Spent::of_this_thread().cpu.unwrap() < until && Instant::now() < deadline {}
    }

    #[test]
    fn what_is_not_known_stays_so_in_sums() {
        let known = Spent { cpu: Some(Duration::from_secs(2)), read_bytes: Some(7), written_bytes: Some(1) };
        let partly = Spent { read_bytes: None, ..known };
        assert_eq!(
            known.plus(partly),
            Spent { cpu: Some(Duration::from_secs(4)), read_bytes: None, written_bytes: Some(2) }
        );
        assert_eq!(known.since(known), Spent::NOTHING);
        assert_eq!(known.since(Spent::UNKNOWN), Spent::UNKNOWN);
    }

    #[test]
    fn a_thread_is_measured_by_itself_and_by_others_only_while_it_lives() {
        let meter = Meter::start();
        burn(Duration::from_millis(30));
        let spent = meter.spent();
        assert!(spent.cpu.is_some_and(|cpu| cpu >= Duration::from_millis(30)), "{spent:?}");
        assert!(meter.spent_so_far().cpu.is_some_and(|cpu| cpu >= Duration::from_millis(20)));
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(meter.spent(), Spent::UNKNOWN, "it may have done something else"));
        });
        let ended = std::thread::spawn(Meter::start).join().unwrap();
        assert_eq!((ended.spent(), ended.spent_so_far().cpu), (Spent::UNKNOWN, None));
    }

    #[test]
    fn what_was_asked_for_by_two_at_once_is_known_of_neither() {
        let all = AskedCompactions::default();
        let spent = Spent { cpu: Some(Duration::from_secs(1)), read_bytes: Some(10), written_bytes: Some(5) };
        all.ended(spent);
        let first = all.ask();
        all.ended(spent);
        assert_eq!(first.spent(), spent, "what was before does not count");
        let second = all.ask();
        all.ended(spent);
        assert_eq!((first.spent(), second.spent()), (Spent::UNKNOWN, Spent::UNKNOWN));
        drop((first, second));
        let third = all.ask();
        assert_eq!(third.spent(), Spent::NOTHING);
    }
}
