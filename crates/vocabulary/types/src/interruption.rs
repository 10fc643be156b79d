//! Whether to go on: how a kill or a deadline reaches work that is under way.
//!
//! Invariants: whatever a client can make take long (evaluation, keys of indexes) counts its steps, in [`Interruption::steps`], and is asked
//! whether to go on once in [`STEPS_PER_LOOK`] of them; a step is one value looked at or some hundred bytes moved, so
//! that the answer comes within milliseconds. Who is asked is the operation that runs the work at that moment: a cursor
//! lives longer than the request that opened it.
//!
//! Not here: a clock, or what was killed. The [`Check`] that is handed in knows.

use crate::Result;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Asked now and then while work goes on: `Err` says that the request was killed or has run out of time.
pub type Check = Arc<dyn Fn() -> Result<()> + Send + Sync>;

/// How many steps of evaluation pass between two looks.
pub const STEPS_PER_LOOK: u32 = 1024;

/// How many bytes of a document are read or moved in the time of one step.
pub const BYTES_PER_STEP: usize = 128;

/// Where the work of one request finds the operation that runs it now. Shared by all that belongs to the request.
#[derive(Default)]
pub struct Interruption {
    /// Whether anybody is to be asked. What is parsed once and used by many requests (a validator) asks nobody, and
    /// must not make them write to one counter.
    is_watched: AtomicBool,
    /// Wraps around. Counted by one thread at a time; a step lost between two does no harm.
    steps: AtomicU32,
    current: Mutex<Option<Check>>,
}

/// What asks nobody.
static NOBODY: Interruption = Interruption::new();

impl Interruption {
    const fn new() -> Self {
        Self { is_watched: AtomicBool::new(false), steps: AtomicU32::new(0), current: Mutex::new(None) }
    }

    /// One that asks nobody, for what nobody interrupts.
    pub fn nobody() -> &'static Self {
        &NOBODY
    }

    /// One that asks `check`.
    pub fn asking(check: &Check) -> Arc<Self> {
        let interruption = Self::default();
        interruption.set(check);
        Arc::new(interruption)
    }

    /// From now on `check` is asked.
    pub fn set(&self, check: &Check) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(check));
        self.is_watched.store(true, Ordering::Relaxed);
    }

    /// What is asked now.
    pub fn current(&self) -> Check {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner).clone();
        current.unwrap_or_else(|| Arc::new(|| Ok(())))
    }

    /// Counts one step.
    #[inline]
    pub fn step(&self) -> Result<()> {
        self.steps(1)
    }

    /// Counts steps, and asks whether to go on where a look is due.
    #[inline]
    pub fn steps(&self, steps: usize) -> Result<()> {
        if !self.is_watched.load(Ordering::Relaxed) {
            return Ok(());
        }
        let before = self.steps.load(Ordering::Relaxed);
        let after = before.wrapping_add(u32::try_from(steps).unwrap_or(STEPS_PER_LOOK).min(STEPS_PER_LOOK));
        self.steps.store(after, Ordering::Relaxed);
        if before / STEPS_PER_LOOK == after / STEPS_PER_LOOK { Ok(()) } else { self.look() }
    }

    /// Asks whether to go on.
    #[cold]
    pub fn look(&self) -> Result<()> {
        if self.is_watched.load(Ordering::Relaxed) { (self.current())() } else { Ok(()) }
    }
}

impl fmt::Debug for Interruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interruption").field("is_watched", &self.is_watched).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Error, ErrorCode};

    #[test]
    fn it_looks_once_in_so_many_steps_however_they_are_counted() {
        for size in [1_usize, 7, 500, 1024, 100_000] {
            let looks = Arc::new(AtomicU32::new(0));
            let seen = Arc::clone(&looks);
            let interruption = Interruption::default();
            interruption.set(
                &(Arc::new(move || {
                    seen.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                }) as Check),
            );
            let calls = 10 * STEPS_PER_LOOK as usize / size.min(STEPS_PER_LOOK as usize);
            (0..calls).for_each(|_| interruption.steps(size).unwrap());
            assert!((9..=10).contains(&looks.load(Ordering::Relaxed)), "steps of {size}");
        }
    }

    #[test]
    fn what_nobody_watches_goes_on_and_the_last_check_counts() {
        let interruption = Interruption::default();
        interruption.steps(1 << 20).unwrap();
        interruption.set(&(Arc::new(|| Ok(())) as Check));
        interruption.set(&(Arc::new(|| Err(Error::new(ErrorCode::Interrupted, "killed"))) as Check));
        assert_eq!(interruption.steps(1 << 20).unwrap_err().code, ErrorCode::Interrupted);
        assert_eq!(interruption.look().unwrap_err().code, ErrorCode::Interrupted);
    }
}
