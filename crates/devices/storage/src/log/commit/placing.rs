//! How a transaction comes to its place in the queue, and how long its thread stays.
//!
//! Invariants:
//! - What has a place is written: whoever is refused is refused before ([`super::gate`]).
//! - Locks are handed on as soon as the transaction has its place, and not before.
//! - A thread that waits here does what it is made to do for others, until its own transaction is done.

use super::waiter::{DONE, LEAD_SYNC, LEAD_WRITE, Placed, WAITING, Waiter};
use super::{CommitQueue, Durability, State};
use crate::documents::locks::LockSet;
use crate::documents::transaction::Transaction;
use crate::log::author::Author;
use baton_machine::LendingGuard;
use baton_types::{Class, OpTime, Result, must_not_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl CommitQueue {
    /// Commits a transaction and returns its last OpTime (the last applied one, if it logged nothing). Others may have the locks
    /// `handed_on` as soon as it has its place in the queue.
    ///
    /// # Errors
    /// `NotWritablePrimary` (10107) if it has entries of this member's own and the gate is closed to them.
    pub(crate) fn commit(
        &self,
        transaction: Transaction,
        durability: Durability,
        mut handed_on: LockSet,
        author: Option<&Author>,
    ) -> Result<OpTime> {
        let (waiter, is_own, state) = self.enter(transaction, durability, &mut handed_on)?;
        let optime = self.take_place(waiter, state, handed_on);
        if let Some(author) = author.filter(|_| is_own) {
            author.note(optime);
        }
        Ok(optime)
    }

    /// The first half of [`Self::commit`]: gives the transaction its place. What it waits for, and what its author has committed, is the
    /// caller's to see to.
    pub(crate) fn place(
        self: &Arc<Self>,
        transaction: Transaction,
        durability: Durability,
        mut handed_on: LockSet,
    ) -> Result<Placed> {
        let (waiter, _, mut state) = self.enter(transaction, durability, &mut handed_on)?;
        self.queue_up(&mut state, Arc::clone(&waiter));
        drop(state);
        handed_on.release();
        Ok(Placed::new(Arc::clone(self), waiter))
    }

    /// Asks the gate; gives the transaction as it is to stand in the queue, whether it has entries of this member's own, and the queue.
    fn enter(
        &self,
        mut transaction: Transaction,
        durability: Durability,
        handed_on: &mut LockSet,
    ) -> Result<(Arc<Waiter>, bool, LendingGuard<'_, State>)> {
        if self.is_unlogged.load(Ordering::Relaxed) && !transaction.is_replicated {
            transaction.forget_entries();
        }
        let is_own = transaction.has_own_entries();
        let waiter = Waiter::new(transaction, durability);
        let mut state = self.state.lock();
        if is_own && !self.passes(&mut state) {
            drop(state);
            let transaction = waiter.transaction.lock().take().unwrap_or_default();
            return Err(self.refuse(transaction, std::mem::take(handed_on)));
        }
        state.writer.is_waited_for_by(waiter.class);
        Ok((waiter, is_own, state))
    }

    /// Commits a transaction without entries of this member's own, which nothing refuses.
    pub(crate) fn commit_unasked(&self, transaction: Transaction, durability: Durability) -> OpTime {
        assert!(!transaction.has_own_entries(), "own entries pass the gate");
        self.take_place(Waiter::new(transaction, durability), self.state.lock(), LockSet::default())
    }

    /// Puts a transaction into the queue and waits until it is done; returns its last OpTime.
    fn take_place(&self, waiter: Arc<Waiter>, mut state: LendingGuard<'_, State>, mut handed_on: LockSet) -> OpTime {
        // Who leaves the queue otherwise than it came leaves `writing` or `syncing` behind, and everybody waits for ever.
        let _guard = must_not_unwind("the commit queue");
        self.queue_up(&mut state, Arc::clone(&waiter));
        let standing = state.standing();
        let role = if state.roles.take_writing(standing) { LEAD_WRITE } else { WAITING };
        drop(state);
        handed_on.release();
        self.serve(&waiter, role)
    }

    fn queue_up(&self, state: &mut State, waiter: Arc<Waiter>) {
        if waiter.class == Class::High {
            self.urgent.fetch_add(1, Ordering::Relaxed);
        }
        state.queue_up(waiter);
    }

    /// Does what a waiting thread is to do, until its transaction is done.
    pub(super) fn serve(&self, waiter: &Arc<Waiter>, mut role: u8) -> OpTime {
        loop {
            match role {
                LEAD_WRITE => self.lead_write(waiter, false),
                LEAD_SYNC if self.lead_sync(false) => self.lead_write(waiter, false),
                DONE => return waiter.optime(),
                _ => {}
            }
            role = waiter.wait();
        }
    }
}
