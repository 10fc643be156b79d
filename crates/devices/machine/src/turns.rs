//! Whether a thread gets a processor when it could run.
//!
//! Source: `schedstat` of `proc(5)`.

use std::time::Duration;

/// What a thread has had of the processors in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// It ran.
    pub ran: Duration,
    /// It could have run, and waited for a processor.
    pub waited: Duration,
}

impl Turns {
    /// Of the calling thread; none where the kernel does not tell.
    pub fn of_this_thread() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/thread-self/schedstat").ok()?)
    }

    /// What was added since.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self { ran: self.ran.saturating_sub(earlier.ran), waited: self.waited.saturating_sub(earlier.waited) }
    }

    /// `schedstat` has nanoseconds: run, waited; then how often.
    fn parse(schedstat: &str) -> Option<Self> {
        let mut nanos = schedstat.split_ascii_whitespace().map(|field| field.parse().map(Duration::from_nanos));
        Some(Self { ran: nanos.next()?.ok()?, waited: nanos.next()?.ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_tells_is_read() {
        let turns = Turns { ran: Duration::from_nanos(3_000_000), waited: Duration::from_nanos(17) };
        assert_eq!(Turns::parse("3000000 17 12\n"), Some(turns));
        assert_eq!(Turns::parse("3000000"), None);
        assert_eq!(Turns::parse("x y"), None);
    }
}
