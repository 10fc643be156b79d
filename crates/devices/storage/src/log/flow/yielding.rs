//! What a write waits for before it begins, for the sake of those of higher classes.
//!
//! - Where urgent writes come, those of normal class together have little on its way to a majority, and those of low class begin only where all
//!   others together have no more than that: an urgent entry never follows megabytes, and nobody waits for what a lower class has on its way.
//! - Where compactions are behind, so that RocksDB would soon slow all writers down alike, those of low class slow down first. RocksDB has
//!   a way of its own for that (`low_pri`), but there it is the thread that writes for all which waits.
//!
//! Invariants: who waits holds nothing that others want, and waits no longer than [`WAIT_MAX`] at a time; high class never waits.

use super::{SLICE, STALLED_AFTER, WAIT_MAX};
use crate::log::author::Writer;
use crate::log::commit::Durability;
use baton_machine::about_to_wait;
use baton_types::{Class, Result};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// What urgent entries may have to follow: some milliseconds' worth of fetching, carrying out and syncing.
pub const CREDIT_BYTES: usize = 256 * 1024;

impl Writer<'_> {
    /// Returns when it may begin.
    ///
    /// # Errors
    /// What `interrupt` says.
    pub(super) fn yield_to_higher(&self, interrupt: &dyn Fn() -> Result<()>) -> Result<()> {
        if self.class() == Class::High {
            return Ok(());
        }
        let queue = self.queue();
        let has_no_credit = || {
            queue.outstanding_bytes_before(self.class()) > CREDIT_BYTES
                && queue.urgency().class() == Class::High
                && self.has_pace()
        };
        if has_no_credit() {
            queue.settle(Durability::Wanted);
            self.flow.await_moves(&has_no_credit, Some(STALLED_AFTER), interrupt)?;
        }
        let is_pressed = || self.flow.is_pressed.load(Ordering::Relaxed);
        if self.class() == Class::Low && is_pressed() {
            self.flow.await_moves(&is_pressed, None, interrupt)?;
        }
        Ok(())
    }
}

impl super::FlowControl {
    /// Waits while that is so, and the commit point has moved lately, if it matters whether it has.
    pub(super) fn await_moves(
        &self,
        is_so: &dyn Fn() -> bool,
        lately: Option<std::time::Duration>,
        interrupt: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let began = Instant::now();
        let mut moved = self.moved.lock();
        let has_stalled = |moved: &Instant| lately.is_some_and(|lately| moved.elapsed() >= lately);
        if !is_so() || has_stalled(&moved) {
            return Ok(());
        }
        let _waiting = parking_lot::MutexGuard::unlocked(&mut moved, about_to_wait);
        self.watchers.fetch_add(1, Ordering::SeqCst);
        let mut outcome = Ok(());
        while is_so() && !has_stalled(&moved) && began.elapsed() < WAIT_MAX && outcome.is_ok() {
            self.has_moved.wait_for(&mut moved, SLICE);
            parking_lot::MutexGuard::unlocked(&mut moved, || outcome = interrupt());
        }
        self.watchers.fetch_sub(1, Ordering::SeqCst);
        drop(moved);
        self.waited_since(began);
        outcome
    }
}
