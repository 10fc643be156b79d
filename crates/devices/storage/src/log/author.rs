//! On whose behalf something is written: what has come of it, and whether it is logged as this member's own.
//!
//! ```text
//!   request ── Author ─┐
//!                      ├─▶ Storage::by ──▶ Writer ── commit, lock_catalog, create_collection, …
//!   entry ─── Author ──┘
//!   the member itself ──▶ Storage::by_member ──▶ Writer
//! ```
//!
//! Invariants:
//! - Whoever changes what clients see does so as a [`Writer`]: there is no other way to the catalog's guard or to a commit that the gate
//!   is asked about.
//! - What an author has committed is told by [`Author::committed`], on whatever thread each part was written.
//! - An author that follows ([`Storage::replay`]) has no entries of this member's own.
//!
//! Not here: who may write ([`crate::log::commit`]'s gate).

use crate::ddl::CatalogGuard;
use crate::documents::locks::LockSet;
use crate::documents::transaction::Transaction;
use crate::following::replay::Replay;
use crate::log::commit::{Durability, Placed};
use crate::storage::{CatalogChange, Storage};
use baton_types::{Class, Interruption, OpTime, Result, must_not_unwind};
use bson::RawDocument;
use parking_lot::Mutex;
use std::ops::Deref;
use std::sync::Arc;

/// What an author has committed with entries of this member's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// Transactions.
    pub count: u64,
    /// The last OpTime of the last of them.
    pub last: OpTime,
}

/// A request, or an entry of another member's that is carried out: see the file's header.
#[derive(Debug, Default)]
pub struct Author {
    committed: Mutex<Committed>,
    replay: Option<Replay>,
    class: Class,
}

impl Author {
    /// A request of this class.
    pub fn of(class: Class) -> Self {
        Self { class, ..Self::default() }
    }

    pub(crate) fn replaying(replay: Replay) -> Self {
        Self { replay: Some(replay), ..Self::default() }
    }

    pub(crate) fn replay(&self) -> Option<&Replay> {
        self.replay.as_ref()
    }

    /// What it has committed so far.
    pub fn committed(&self) -> Committed {
        *self.committed.lock()
    }

    /// It has committed a transaction, with this as its last OpTime: one that [`Writer::place`] gave a place.
    pub fn note(&self, optime: OpTime) {
        let mut committed = self.committed.lock();
        // Of several threads that of the earlier transaction may be told later.
        *committed = Committed { count: committed.count + 1, last: committed.last.max(optime) };
    }
}

/// A storage, written to on somebody's behalf. What only reads is [`Storage`]'s.
#[derive(Clone, Copy)]
pub struct Writer<'w> {
    storage: &'w Storage,
    author: Option<&'w Author>,
}

impl Deref for Writer<'_> {
    type Target = Storage;

    fn deref(&self) -> &Storage {
        self.storage
    }
}

impl Storage {
    /// Writes on behalf of `author`.
    pub fn by<'w>(&'w self, author: &'w Author) -> Writer<'w> {
        Writer { storage: self, author: Some(author) }
    }

    /// Writes what the member does by itself: nobody asks what was committed.
    pub fn by_member(&self) -> Writer<'_> {
        Writer { storage: self, author: None }
    }
}

impl<'w> Writer<'w> {
    /// Commits a transaction; see [`crate::CommitQueue`].
    ///
    /// # Errors
    /// `NotWritablePrimary` (10107) if it has entries of this member's own and the gate is closed to them.
    pub fn commit(&self, mut transaction: Transaction, durability: Durability) -> Result<OpTime> {
        // From the version left for the next writer on, others build on what this transaction does.
        let _guard = must_not_unwind("a commit");
        let handed_on = self.hand_on(&mut transaction);
        self.commit.commit(transaction, durability, handed_on, self.author)
    }

    /// The first half of [`Self::commit`]: after it the transaction cannot fail. Its author is not told of it.
    ///
    /// # Errors
    /// As those of [`Self::commit`].
    pub fn place(&self, mut transaction: Transaction, durability: Durability) -> Result<Placed> {
        let _guard = must_not_unwind("a commit");
        let handed_on = self.hand_on(&mut transaction);
        self.storage.commit.place(transaction, durability, handed_on)
    }

    /// Leaves a document's new version for its next writer; gives the locks that this one may have at once.
    fn hand_on(&self, transaction: &mut Transaction) -> LockSet {
        // Inserts into a capped collection hold a lock on its end as well: the next must see what this one drops.
        if transaction.locks.holds_one_document()
            && let Some((key, document)) = transaction.sole_change()
        {
            let ticket = self.in_flight.put(key, document);
            transaction.in_flight = Some(ticket);
            return transaction.locks.take_documents();
        }
        LockSet::default()
    }

    /// Waits for the turn to change what exists. Whoever has it asks for no second one.
    ///
    /// While this member's writes are blocked (leadership is being handed over) it waits without the turn: with it, it would stand
    /// at the write gate, and before whoever wants to know what exists.
    pub fn lock_catalog(&self) -> CatalogGuard<'w> {
        self.commit.await_unblocked();
        CatalogGuard::new(*self)
    }

    pub(crate) fn storage(&self) -> &'w Storage {
        self.storage
    }

    /// Commits a change of the catalog that reads of an older time would stumble over. The caller makes it visible while it holds what
    /// this returns. Meanwhile no read of an older time is admitted.
    pub(crate) fn commit_catalog_change(&self, transaction: Transaction) -> Result<CatalogChange<'w>> {
        let guard = self.storage.begin_catalog_change();
        let optime = self.commit(transaction, Durability::Synced)?;
        self.refuse_reads_before(optime.timestamp.as_u64());
        Ok(guard)
    }

    /// Whether nothing that it writes is logged as this member's own, since it carries out what another member has logged.
    pub(crate) fn follows(&self) -> bool {
        self.replayed().is_some()
    }

    /// A transaction by the author's rules: of his class, and of one that follows without entries of this member's own.
    pub fn transaction(&self) -> Transaction {
        let mut transaction = if self.follows() { Transaction::replicating() } else { Transaction::empty() };
        transaction.class = self.class();
        transaction
    }

    /// The same, of a request: what takes long while it is filled asks `interruption`.
    pub fn interruptible_transaction(&self, interruption: &Arc<Interruption>) -> Transaction {
        let mut transaction = self.transaction();
        transaction.interruption = Some(Arc::clone(interruption));
        transaction
    }

    /// Lets a transaction that is to log the command `o` carry the entry that is replayed instead, if that is the entry's command; tells
    /// whether an entry is replayed, so that nothing else is to be logged.
    pub(crate) fn carry_entry(&self, transaction: &mut Transaction, o: &RawDocument) -> bool {
        let Some(replay) = self.replayed() else { return false };
        replay.carry(transaction, o);
        transaction.replayed = replay.optime();
        true
    }

    /// Of whoever it is written for; what the member writes by itself is nobody's before another.
    pub(crate) fn class(&self) -> Class {
        self.author.map_or(Class::Normal, |author| author.class)
    }

    fn replayed(&self) -> Option<&'w Replay> {
        self.author.and_then(Author::replay)
    }
}
