//! Who may write on this member's own behalf: a primary may, a member that follows may not.
//!
//! Invariants:
//! - Decided under the queue's lock, when a transaction takes its place. What has a place is written, so a queued
//!   transaction still cannot fail, and what builds on it before it is readable stays right.
//! - [`CommitQueue::close_to_writes`] and [`CommitQueue::block_writes`] return when the queue holds nothing of this
//!   member's own any more: from then on no entry of its own gets an OpTime until it is opened again.
//! - Transactions without entries of their own (local writes, clean-up, what another member logged) always pass.
//! - Who has waited at a blocked gate may be kept waiting when it closes ([`CommitQueue::close_and_keep`]), until it is told or until the
//!   gate turns once more; who comes to a closed gate is refused at once.
//! - A refused transaction leaves nothing behind: no lock, no version for the next writer, no index that is multikey for it.

use super::CommitQueue;
use super::Durability;
use crate::documents::locks::LockSet;
use crate::documents::transaction::Transaction;
use baton_machine::LendingGuard;
use baton_types::{Error, ErrorCode, OpTime, Term};
use std::sync::atomic::Ordering;

/// Whether entries of this member's own pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteGate {
    /// They pass, and carry this term.
    Open {
        /// The term in which this member is primary.
        term: Term,
    },
    /// They wait until it is open again, or closed. They will carry this term.
    Blocked {
        /// The term in which this member is primary.
        term: Term,
    },
    /// They fail with `NotWritablePrimary` (10107).
    Closed,
}

impl CommitQueue {
    /// Lets entries of this member's own pass, in this term, which is no older than that of the newest entry.
    pub fn open_to_writes(&self, term: Term) {
        assert!(term >= self.applied().term, "a member writes in no term older than its newest entry's");
        self.turn(|_| WriteGate::Open { term });
    }

    /// Lets own entries wait; returns the last OpTime once nothing more comes. A closed gate stays closed.
    pub fn block_writes(&self) -> OpTime {
        self.turn(|gate| match gate {
            WriteGate::Open { term } | WriteGate::Blocked { term } => WriteGate::Blocked { term },
            WriteGate::Closed => WriteGate::Closed,
        });
        self.drain();
        self.applied()
    }

    /// Lets what [`Self::block_writes`] kept waiting pass.
    pub fn unblock_writes(&self) {
        self.turn(|gate| match gate {
            WriteGate::Open { term } | WriteGate::Blocked { term } => WriteGate::Open { term },
            WriteGate::Closed => WriteGate::Closed,
        });
    }

    /// Refuses own entries, those that wait too.
    pub fn close_to_writes(&self) {
        self.turn(|_| WriteGate::Closed);
        self.drain();
    }

    /// Refuses own entries, but tells those that wait already only with [`Self::refuse_kept`], which is to follow soon: they hold the locks
    /// of their documents.
    pub fn close_and_keep(&self) {
        {
            let mut state = self.state.lock();
            state.keeps_refused = true;
            state.gate = WriteGate::Closed;
        }
        self.drain();
    }

    /// Tells those that [`Self::close_and_keep`] has kept waiting that they are refused.
    pub fn refuse_kept(&self) {
        self.turn(|gate| gate);
    }

    /// How the gate stands.
    pub fn write_gate(&self) -> WriteGate {
        self.state.lock().gate
    }

    /// Waits while writes are blocked. They may be blocked again when this returns.
    pub fn await_unblocked(&self) {
        self.passes(&mut self.state.lock());
    }

    fn turn(&self, to: impl FnOnce(WriteGate) -> WriteGate) {
        let mut state = self.state.lock();
        state.gate = to(state.gate);
        state.keeps_refused = false;
        if let WriteGate::Open { term } = state.gate {
            self.own_term.store(term, Ordering::Relaxed);
        }
        drop(state);
        self.gate_turned.notify_all();
    }

    /// Waits until everything that stands in the queue is applied.
    pub fn drain(&self) {
        self.commit_unasked(Transaction::empty(), Durability::Applied);
    }

    /// Waits while the gate is blocked; tells whether it is open then.
    pub(super) fn passes<'q>(&'q self, state: &mut LendingGuard<'q, super::State>) -> bool {
        let mut has_waited = false;
        while matches!(state.gate, WriteGate::Blocked { .. }) || (has_waited && state.keeps_refused) {
            state.wait(&self.gate_turned);
            has_waited = true;
        }
        state.gate != WriteGate::Closed
    }

    /// Undoes what was done for a transaction that has found no place.
    pub(super) fn refuse(&self, mut transaction: Transaction, mut handed_on: LockSet) -> Error {
        // The version that ours has hidden from the next writer is readable then.
        self.drain();
        if let Some(ticket) = &transaction.in_flight {
            self.in_flight.remove(ticket);
        }
        handed_on.release();
        transaction.locks.release();
        Error::new(ErrorCode::NotWritablePrimary, "not primary")
    }
}
