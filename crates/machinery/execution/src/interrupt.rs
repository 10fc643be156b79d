//! Whether to go on: how a kill or a deadline reaches work that is under way.
//!
//! Invariant: whatever may take long asks, every few documents at the most. What asks on behalf of an aggregation, inner
//! pipelines of its stages included, asks the operation that runs the aggregation at that moment: a cursor lives longer
//! than the request that opened it.

use baton_types::Result;
use parking_lot::Mutex;
use std::sync::Arc;

/// Asked now and then while work goes on: `Err` says that the request was killed or has run out of time.
pub type Interrupt<'a> = &'a (dyn Fn() -> Result<()> + 'a);

/// An [`Interrupt`] that can be kept.
pub type Check = Arc<dyn Fn() -> Result<()> + Send + Sync>;

/// Where the stages of an aggregation find the operation that runs it now.
#[derive(Default)]
pub struct Interruption {
    current: Mutex<Option<Check>>,
}

impl Interruption {
    /// From now on `check` is asked.
    pub fn set(&self, check: &Check) {
        *self.current.lock() = Some(Arc::clone(check));
    }

    /// What is asked now.
    pub fn current(&self) -> Check {
        self.current.lock().clone().unwrap_or_else(|| Arc::new(|| Ok(())))
    }
}
