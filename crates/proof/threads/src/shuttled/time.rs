//! A clock that stands until somebody waits for a time.

use std::cell::Cell;
use std::ops::{Add, Sub};
pub use std::time::Duration;

thread_local! {
    // All threads of an execution are shuttle's, on one of the kernel's.
    static NOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    static HURRIES: Cell<bool> = const { Cell::new(false) };
}

/// An execution begins. `hurries`: times that are waited for may come at any moment; else they never do.
pub fn begin(hurries: bool) {
    NOW.set(Duration::ZERO);
    HURRIES.set(hurries);
}

/// Whether times that are waited for may come.
pub(super) fn hurries() -> bool {
    HURRIES.get()
}

/// It is that late.
pub(super) fn advance_to(at: Instant) {
    NOW.set(NOW.get().max(at.0));
}

/// A time of an execution's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(Duration);

impl Instant {
    pub fn now() -> Self {
        Self(NOW.get())
    }

    pub fn elapsed(&self) -> Duration {
        NOW.get().saturating_sub(self.0)
    }

    pub fn saturating_duration_since(&self, before: Self) -> Duration {
        self.0.saturating_sub(before.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0 + time)
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, before: Self) -> Duration {
        self.saturating_duration_since(before)
    }
}
