//! A transaction in the queue, and who is told when it is done: the thread that waits for it, or whatever was left with the queue in its
//! place.
//!
//! Invariants:
//! - What is left is called once, with the transaction's OpTime, by whoever writes or syncs it, after the queue's lock is given back; or
//!   by the thread that leaves it, if it comes too late.
//! - Of the one whose thread has left nobody makes a leader.

use super::{CommitQueue, Durability};
use crate::documents::transaction::Transaction;
use baton_machine::{Bearer, about_to_wait};
use baton_types::{Class, OpTime, Timestamp, must_not_unwind};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::thread::Thread;

/// What a waiting thread is to do.
pub(super) const WAITING: u8 = 0;
pub(super) const LEAD_WRITE: u8 = 1;
pub(super) const LEAD_SYNC: u8 = 2;
pub(super) const DONE: u8 = 3;

/// What is left with the queue. It is called on the thread that writes or syncs for all: it is quick, and does not wait.
pub trait Then: Send {
    /// The transaction, whose last OpTime this is, is as safe as was asked for.
    fn is_safe(self: Box<Self>, optime: OpTime);
}

impl<F: FnOnce(OpTime) + Send> Then for F {
    fn is_safe(self: Box<Self>, optime: OpTime) {
        self(optime);
    }
}

enum End {
    /// The thread waits, or will.
    Open,
    Left(Box<dyn Then>),
    Done,
}

/// One transaction in the queue.
pub(super) struct Waiter {
    state: AtomicU8,
    thread: Thread,
    /// The thread's, for what it may have to do for others.
    pub bearer: Arc<Bearer>,
    end: Mutex<End>,
    pub durability: Durability,
    /// The transaction's.
    pub class: Class,
    /// Whether it builds on nothing that stands in the queue, nor can anything that stands there mean to be before it.
    pub may_pass: bool,
    pub transaction: Mutex<Option<Transaction>>,
    /// The last OpTime given to the transaction; valid once applied.
    timestamp: AtomicU64,
    term: AtomicI64,
}

impl Waiter {
    pub fn new(transaction: Transaction, durability: Durability) -> Arc<Self> {
        let may_pass = transaction.in_flight.as_ref().is_some_and(|ticket| !ticket.builds_on_another);
        Arc::new(Self {
            class: transaction.class,
            may_pass,
            state: AtomicU8::new(WAITING),
            thread: std::thread::current(),
            bearer: baton_machine::bearer(),
            end: Mutex::new(End::Open),
            durability,
            transaction: Mutex::new(Some(transaction)),
            timestamp: AtomicU64::new(0),
            term: AtomicI64::new(0),
        })
    }

    /// Whether it may be written before those that came before it.
    pub fn passes(&self) -> bool {
        self.class == Class::High && self.may_pass
    }

    /// What of it is to be written, in bytes.
    pub fn bytes(&self) -> usize {
        self.transaction.lock().as_ref().map_or(0, Transaction::bytes)
    }

    pub fn set_optime(&self, optime: OpTime) {
        self.timestamp.store(optime.timestamp.as_u64(), Ordering::Relaxed);
        self.term.store(optime.term, Ordering::Relaxed);
    }

    pub fn optime(&self) -> OpTime {
        OpTime {
            term: self.term.load(Ordering::Relaxed),
            timestamp: Timestamp::from_u64(self.timestamp.load(Ordering::Relaxed)),
        }
    }

    /// Makes its thread a leader; asked for under the queue's lock, of one that [`Self::is_here`].
    pub fn signal(&self, role: u8) {
        self.state.store(role, Ordering::Release);
        self.thread.unpark();
    }

    /// Waits until there is something to do.
    pub fn wait(&self) -> u8 {
        loop {
            let state = self.take_role();
            if state != WAITING {
                return state;
            }
            let _waiting = about_to_wait();
            std::thread::park();
        }
    }

    pub fn take_role(&self) -> u8 {
        self.state.swap(WAITING, Ordering::Acquire)
    }

    /// Whether its thread can be made a leader. Under the queue's lock that stays so.
    pub fn is_here(&self) -> bool {
        matches!(*self.end.lock(), End::Open)
    }

    pub fn is_done(&self) -> bool {
        matches!(*self.end.lock(), End::Done)
    }

    /// It is done. `is_own`: its thread is the one that says so.
    pub fn end(&self, is_own: bool) {
        let end = std::mem::replace(&mut *self.end.lock(), End::Done);
        match end {
            End::Left(then) => then.is_safe(self.optime()),
            End::Open | End::Done if is_own => self.state.store(DONE, Ordering::Release),
            End::Open | End::Done => self.signal(DONE),
        }
    }

    /// Leaves `then`; gives it back if the transaction is done. Under the queue's lock.
    fn leave(&self, then: Box<dyn Then>) -> Option<Box<dyn Then>> {
        let mut end = self.end.lock();
        match *end {
            End::Done => Some(then),
            End::Open | End::Left(_) => {
                *end = End::Left(then);
                None
            }
        }
    }
}

/// A transaction that has its place in the queue, and cannot fail any more. Dropped, it is waited for.
#[must_use = "nobody writes it but who waits, or leaves"]
pub struct Placed {
    queue: Arc<CommitQueue>,
    waiter: Arc<Waiter>,
}

impl Placed {
    pub(super) fn new(queue: Arc<CommitQueue>, waiter: Arc<Waiter>) -> Self {
        Self { queue, waiter }
    }

    /// Waits until it is as safe as was asked for; gives its last OpTime.
    pub fn wait(self) -> OpTime {
        self.finish()
    }

    /// Goes on without it: `then` is called once it is as safe as was asked for. If nobody writes, this thread does so before it
    /// returns.
    pub fn leave(self, then: Box<dyn Then>) {
        let _guard = must_not_unwind("the commit queue");
        let mut role = self.leave_there(then);
        if role == WAITING && self.queue.takes_writing() {
            role = LEAD_WRITE;
        }
        self.lead(role);
    }

    /// The same, for one who leaves several: if nobody writes, nobody does until the caller has the queue
    /// [lead what was left](CommitQueue::lead_what_was_left), or somebody else comes.
    pub fn leave_to_others(self, then: Box<dyn Then>) {
        let _guard = must_not_unwind("the commit queue");
        let role = self.leave_there(then);
        self.lead(role);
    }

    fn lead(&self, role: u8) {
        if role == LEAD_WRITE || (role == LEAD_SYNC && self.queue.lead_sync(false)) {
            self.queue.lead_write(&self.waiter, true);
        }
    }

    /// What the thread was made to do before it left.
    fn leave_there(&self, then: Box<dyn Then>) -> u8 {
        let state = self.queue.state.lock();
        let Some(then) = self.waiter.leave(then) else { return self.waiter.take_role() };
        drop(state);
        then.is_safe(self.waiter.optime());
        DONE
    }

    fn finish(&self) -> OpTime {
        // Who leaves the queue otherwise than it came leaves `writing` or `syncing` behind, and everybody waits for ever.
        let _guard = must_not_unwind("the commit queue");
        let mut role = WAITING;
        {
            let mut state = self.queue.state.lock();
            let standing = state.standing();
            if !self.waiter.is_done() && state.roles.take_writing(standing) {
                role = LEAD_WRITE;
            }
        }
        self.queue.serve(&self.waiter, role)
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        // One that was left is here no more, and one that was waited for is done.
        if self.waiter.is_here() {
            self.finish();
        }
    }
}
