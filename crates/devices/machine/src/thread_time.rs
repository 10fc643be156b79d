//! What a thread has computed.
//!
//! Source: `CLOCK_THREAD_CPUTIME_ID` of `clock_gettime(2)`.

use rustix::time::{ClockId, clock_gettime};
use std::thread::ThreadId;
use std::time::Duration;

/// What the calling thread had computed at a moment.
#[derive(Clone, Copy, Debug)]
pub struct ThreadTime {
    thread: ThreadId,
    computed: Duration,
}

impl ThreadTime {
    /// Now.
    pub fn now() -> Self {
        Self { thread: std::thread::current().id(), computed: elapsed(ClockId::ThreadCPUTime) }
    }

    /// What it has computed since; nothing is known on another thread.
    pub fn elapsed(&self) -> Option<Duration> {
        let now = Self::now();
        (now.thread == self.thread).then(|| now.computed.saturating_sub(self.computed))
    }
}

/// What a clock of processor time shows.
pub(crate) fn elapsed(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn it_goes_on_while_the_thread_computes_and_is_that_threads() {
        let began = ThreadTime::now();
        std::thread::sleep(Duration::from_millis(30));
        let slept = began.elapsed().unwrap();
        let until = Instant::now() + Duration::from_millis(30);
        while Instant::now() < until {}
        assert!(began.elapsed().unwrap() > slept);
        assert!(slept < Duration::from_millis(30), "{slept:?}");
        std::thread::spawn(move || assert_eq!(began.elapsed(), None)).join().unwrap();
    }
}
