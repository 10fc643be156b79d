//! What a thread or the process has spent of the machine: processor time, and bytes read and written.
//!
//! Invariant: what cannot be known is `None`. A sum or a difference of which a part is not known is not known.
//!
//! Source: `clock_gettime(2)`; `io` and `schedstat` of `proc(5)`.

use crate::thread_time::elapsed;
use rustix::thread::Pid;
use rustix::time::ClockId;
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
    pub fn of_this_thread() -> Self {
        Self::with_disk(Some(elapsed(ClockId::ThreadCPUTime)), "/proc/thread-self/io")
    }

    /// What another thread of this process has spent in its life; nothing is known once it has ended.
    fn of_thread(thread: Pid) -> Self {
        let folder = format!("/proc/self/task/{}", thread.as_raw_nonzero());
        let cpu = std::fs::read_to_string(format!("{folder}/schedstat")).ok();
        let nanos = cpu.and_then(|text| text.split_whitespace().next()?.parse().ok());
        Self::with_disk(nanos.map(Duration::from_nanos), &format!("{folder}/io"))
    }

    /// What this process has spent in its life.
    pub fn of_this_process() -> Self {
        Self::with_disk(Some(elapsed(ClockId::ProcessCPUTime)), "/proc/self/io")
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
    pub fn spent_so_far(&self) -> Spent {
        Spent::of_thread(self.native).since(self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn burn(time: Duration) {
        let until = elapsed(ClockId::ThreadCPUTime) + time;
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
}
