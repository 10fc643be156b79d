//! How far a long job is, and when it will have ended.
//!
//! A job has phases, each of which counts by itself: what it did in an earlier phase, or before a restart, took its own time and says
//! nothing about this one's.

use std::time::{Duration, Instant};

/// How far a job is in the phase it is in.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    done: u64,
    total: u64,
    phase_began: Instant,
    done_before: u64,
}

impl Progress {
    /// That of a phase which begins now, and of which so much was done earlier. The total is 0 while unknown.
    pub fn begin(done: u64, total: u64) -> Self {
        Self { done, total, phase_began: Instant::now(), done_before: done }
    }

    /// So much is done now, of so much.
    pub fn set(&mut self, done: u64, total: u64) {
        (self.done, self.total) = (done, total);
    }

    /// Units done so far and in all (documents, bytes or keys by kind of job); the total is 0 while unknown.
    pub fn counts(&self) -> (u64, u64) {
        (self.done, self.total)
    }

    /// Seconds until the end of the phase at the pace it has had so far; none before anything was done in it.
    pub fn eta_secs(&self) -> Option<f64> {
        self.eta_after(self.phase_began.elapsed())
    }

    fn eta_after(&self, elapsed: Duration) -> Option<f64> {
        let done = self.done.saturating_sub(self.done_before);
        let left = self.total.checked_sub(self.done)?;
        (done > 0).then(|| elapsed.as_secs_f64() * left as f64 / done as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_takes_as_long_as_what_was_done_in_it_says() {
        let mut progress = Progress::begin(600, 1000);
        assert_eq!(progress.eta_after(Duration::from_secs(9)), None, "what was done before took its own time");
        progress.set(700, 1000);
        assert_eq!(progress.eta_after(Duration::from_secs(10)), Some(30.0));
        progress.set(1000, 1000);
        assert_eq!(progress.eta_after(Duration::from_secs(40)), Some(0.0));
        progress.set(1001, 1000);
        assert_eq!(progress.eta_after(Duration::from_secs(41)), None, "more than there was to do");
    }
}
