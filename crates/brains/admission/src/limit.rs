//! How many requests may compute at once: as many as there are processors, and more where those who have begun leave processors idle,
//! because they wait for the disk or for one another.
//!
//! Invariant: it is between one for each processor and [`PER_PROCESSOR_MAX`] for each.

/// The most for each processor.
const PER_PROCESSOR_MAX: usize = 16;
/// Where so much of the processors was idle while requests waited, one more may begin.
const IDLE_SHARE_MIN: f64 = 0.15;
/// Where no more than that was, it is one less.
const BUSY_SHARE_MAX: f64 = 0.05;

/// See the file's header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    processors: usize,
    now: usize,
}

impl Limit {
    pub fn new(processors: usize) -> Self {
        let processors = processors.max(1);
        Self { processors, now: processors }
    }

    pub fn now(self) -> usize {
        self.now
    }

    pub fn processors(self) -> usize {
        self.processors
    }

    /// So much of the processors was idle, of 1, since this was last told; `has_waited`: whether requests waited at the door meanwhile.
    pub fn measured(&mut self, idle: f64, has_waited: bool) {
        if has_waited && idle >= IDLE_SHARE_MIN {
            self.now = (self.now + 1).min(self.processors * PER_PROCESSOR_MAX);
        } else if idle <= BUSY_SHARE_MAX || !has_waited {
            self.now = (self.now - 1).max(self.processors);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_where_processors_are_idle_though_requests_wait_and_comes_back() {
        let mut limit = Limit::new(2);
        assert_eq!(limit.now(), 2);
        limit.measured(0.5, false);
        assert_eq!(limit.now(), 2, "nobody waits");
        for _ in 0..100 {
            limit.measured(0.5, true);
        }
        assert_eq!(limit.now(), 32);
        limit.measured(0.1, true);
        assert_eq!(limit.now(), 32, "neither idle nor all busy");
        for _ in 0..100 {
            limit.measured(0.0, true);
        }
        assert_eq!(limit.now(), 2);
        assert_eq!(Limit::new(0).now(), 1);
    }
}
