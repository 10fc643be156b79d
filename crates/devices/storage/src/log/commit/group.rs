//! What a writing thread makes of a group of transactions: OpTimes, one `WriteBatch`, and everybody's view of it.
//!
//! Invariants: called by one thread at a time, which holds `writing`; what readers and followers are given is on the log before
//! they can see that it is there.

use super::waiter::Waiter;
use super::{CommitQueue, wall_clock_ms};
use crate::background::flushing::LARGE_FAMILIES;
use crate::ddl::{Dropped, DroppedPart};
use crate::documents::counters::Counts;
use crate::documents::format::{counts_key, dropped_key, family, is_versioned, oplog_key, prefix, prefix_end};
use crate::documents::transaction::{Action, DeletedRange, Transaction, Truncation};
use crate::documents::version::Version;
use crate::log::check::Mark;
use crate::log::facts::Fact;
use crate::log::oplog;
use crate::machine;
use baton_types::{Class, OpTime, Timestamp};
use bson::RawDocument;
use hashbrown::HashTable;
use rust_rocksdb::{WriteBatch, properties};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// So much before a memtable is full a change of the log is near: RocksDB takes memory for it by the megabyte.
const NEAR_BYTES: usize = 4 * 1024 * 1024;
/// Whoever has wanted a sync within this time is taken to want others.
const WANTED_FOR: Duration = Duration::from_millis(10);

impl CommitQueue {
    pub(super) fn write_group(&self, group: &[Arc<Waiter>]) {
        let taken = group.iter().filter_map(|waiter| waiter.transaction.lock().take());
        let mut transactions: SmallVec<[Transaction; 1]> = taken.collect();
        let bytes: usize = transactions.iter().map(Transaction::bytes).sum();
        if bytes > 0 {
            let mut batch = WriteBatch::with_capacity_bytes(bytes + 64 * transactions.len() + 64);
            // Nobody else writes now.
            let number = self.batches_written.load(Ordering::Relaxed) + 1;
            let synced = self.batches_synced.load(Ordering::Acquire);
            batch.put_log_data(Mark { boot: self.boot, number, synced }.encode());
            let wall_ms = wall_clock_ms();
            let before = self.applied.load(Ordering::Relaxed);
            let mut last = self.terms.position(before);
            for (waiter, transaction) in group.iter().zip(&mut transactions) {
                last = self.append(&mut batch, transaction, last, wall_ms);
                waiter.set_optime(last);
            }
            let applied = last.timestamp.as_u64();
            crash_point!("commit-before-write");
            let mut documents = self.newest_documents(&transactions);
            for document in &mut documents {
                document.was_cached = self.record_cache.before_write(document.hash, document.key);
            }
            if let Err(error) = self.db.write_opt(&batch, &self.write_options) {
                machine::stop("writing to the log", &error);
            }
            transactions.iter().flat_map(Transaction::ranges).for_each(|range| self.delete_range(*range));
            self.batches_written.store(number, Ordering::Release);
            self.unsynced_bytes.fetch_add(bytes, Ordering::Relaxed);
            for document in &documents {
                self.record_cache.after_write(document.hash, document.key, document.was_cached, || document.version());
            }
            crash_point!("commit-after-write");
            drop(documents);
            let is_truncated = transactions.iter().any(|transaction| transaction.truncation.is_some());
            if self.newest.is_followed() {
                for class in [Class::Normal, Class::Low, Class::Background] {
                    let of_class = transactions.iter().filter(|of| of.has_own_entries() && of.class == class);
                    let bytes: usize = of_class.flat_map(Transaction::entries).map(Vec::len).sum();
                    if bytes > 0 {
                        self.outstanding.add(class, bytes, applied);
                    }
                }
            }
            if !is_truncated {
                let entries = transactions.iter_mut().flat_map(Transaction::take_entries);
                self.newest.extend(entries, applied);
            }
            if applied >= before {
                self.applied.swap(applied, Ordering::SeqCst);
            } else {
                self.go_back_to(applied);
            }
            if is_truncated {
                self.terms.begin(last);
                self.newest.restart(applied);
            }
            self.metrics.batches.fetch_add(1, Ordering::Relaxed);
            self.metrics.transactions.fetch_add(transactions.len() as u64, Ordering::Relaxed);
            self.announce();
            self.urgency.announce();
        } else {
            let last = self.applied();
            for waiter in group {
                waiter.set_optime(last);
            }
        }
        for transaction in &mut transactions {
            if let Some(ticket) = &transaction.in_flight {
                self.in_flight.remove(ticket);
            }
            transaction.locks.release();
        }
    }

    /// Somebody wants a sync.
    pub(super) fn note_wanted_sync(&self, now: Instant) {
        self.sync_wanted.note(now);
    }

    /// Whether a part that is written is to be synced though nobody wants that. It is not while somebody does: he would stand behind that sync,
    /// and his own takes the part along. But at a change of the log nobody writes until all of it is synced.
    pub(super) fn syncs_by_itself(&self, now: Instant) -> bool {
        !self.sync_wanted.is_within(WANTED_FOR, now) || self.is_log_change_near()
    }

    /// Whether a memtable will be full soon, or all together, with which RocksDB begins another log.
    fn is_log_change_near(&self) -> bool {
        let sizes = LARGE_FAMILIES.map(|name| {
            let family = self.db.cf_handle(name).unwrap_or_else(|| unreachable!("opened"));
            let bytes = self.db.property_int_value_cf(family, properties::CUR_SIZE_ACTIVE_MEM_TABLE);
            bytes.ok().flatten().unwrap_or(0) as usize
        });
        let (largest, sum) = (sizes.into_iter().max().unwrap_or(0), sizes.into_iter().sum::<usize>());
        largest + NEAR_BYTES >= self.memtable_bytes || sum + NEAR_BYTES >= 2 * self.memtable_bytes / 8 * 7
    }

    /// The documents that a group writes, each once.
    fn newest_documents<'a>(&self, transactions: &'a [Transaction]) -> SmallVec<[NewestVersion<'a>; 2]> {
        /// So many are told apart by looking at each.
        const FEW: usize = 8;
        let mut places: HashTable<usize> = HashTable::new();
        let mut newest: SmallVec<[NewestVersion<'_>; 2]> = SmallVec::with_capacity(transactions.len());
        for transaction in transactions {
            let ticket = transaction.in_flight.as_ref();
            for action in transaction.actions() {
                let (key, document) = match action {
                    Action::Put { family: family::DOCUMENTS, key, value, .. } => (key, Some(value)),
                    Action::Delete { family: family::DOCUMENTS, key, .. } => (key, None),
                    _ => continue,
                };
                let hash = ticket.map_or_else(|| self.record_cache.hash(key), |ticket| ticket.hash);
                let shared = ticket.and_then(|ticket| ticket.version.as_ref());
                let version = NewestVersion { hash, key, document, shared, was_cached: None };
                let place = match newest.len() {
                    ..=FEW => newest.iter().position(|known| known.hash == hash && known.key == key),
                    _ => places.find(hash, |at| newest[*at].key == key).copied(),
                };
                match place {
                    Some(at) => newest[at] = version,
                    None => newest.push(version),
                }
                // Among few, looking at each is faster; beyond, those that have no place yet get one.
                if newest.len() > FEW {
                    for at in places.len()..newest.len() {
                        places.insert_unique(newest[at].hash, at, |at| newest[*at].hash);
                    }
                }
            }
        }
        newest
    }

    /// Adds one transaction to the batch; returns the last OpTime of its entries, or `last` if it has none.
    fn append(&self, batch: &mut WriteBatch, transaction: &mut Transaction, last: OpTime, wall_ms: i64) -> OpTime {
        let handle =
            |name: &str| self.db.cf_handle(name).unwrap_or_else(|| unreachable!("column family {name} was opened"));
        let mut last = last;
        if let Some(Truncation { to: newest, committed }) = transaction.truncation {
            let (from, to) = (oplog_key(Timestamp::from_u64(newest.timestamp.as_u64() + 1)), [u8::MAX; 9]);
            batch.delete_range_cf(handle(family::OPLOG), from.as_slice(), to.as_slice());
            last = newest;
            let kept = self.stamps.truncated(newest.timestamp.as_u64(), committed.as_u64());
            batch.put_cf(handle(family::META), Fact::Stamp.key(), kept.reserve_bytes());
            batch.put_cf(handle(family::META), Fact::StampBases.key(), kept.base_bytes());
        }
        let optimes = self.optimes_of(transaction, &mut last, wall_ms);
        let stamps: SmallVec<[u64; 4]> =
            optimes.iter().map(|optime| self.stamps.of(optime.timestamp.as_u64())).collect();
        // What belongs to no entry (local writes, clean-up, what a rollback restores) gets the highest.
        let highest = self.stamps.highest();
        for action in transaction.actions() {
            let stamp = |entry: usize| stamps.get(entry).unwrap_or(&highest).to_le_bytes();
            match action {
                Action::Put { family, entry, key, value } if is_versioned(family) => {
                    batch.put_cf_with_ts(handle(family), key, stamp(entry), value);
                }
                Action::Put { family, key, value, .. } => batch.put_cf(handle(family), key, value),
                Action::Delete { family, entry, key } if is_versioned(family) => {
                    batch.delete_cf_with_ts(handle(family), key, stamp(entry));
                }
                Action::Delete { family, key, .. } => batch.delete_cf(handle(family), key),
            }
        }
        if transaction.oplog_entries() > 0 {
            let oplog = handle(family::OPLOG);
            let is_replicated = transaction.is_replicated;
            for (entry, optime) in transaction.entries_mut().zip(optimes) {
                if !is_replicated {
                    oplog::stamp(entry, optime, wall_ms);
                }
                if oplog::class_of(entry) == Class::High {
                    self.urgency.note(optime.timestamp.as_u64());
                }
                batch.put_cf(oplog, oplog_key(optime.timestamp), &entry);
            }
        }
        for (collection, change) in &transaction.counts {
            if *change != Counts::default() {
                let counts = collection.counters.add(*change);
                batch.put_cf(handle(family::META), counts_key(collection.id), counts.encode());
            }
        }
        let dropped_at = if transaction.oplog_entries() > 0 { Some(last) } else { transaction.replayed };
        for (collection, entry) in transaction.take_catalog() {
            let key = prefix(collection.id);
            let mut known = collection.shared.entry.lock();
            match (&entry, &*known) {
                (Some(entry), _) => batch.put_cf(handle(family::CATALOG), key, entry.encode().as_bytes()),
                (None, None) => {}
                (None, Some(was)) => {
                    batch.delete_cf(handle(family::CATALOG), key);
                    let part = DroppedPart::Collection { entry: was.encode(), counts: collection.counters.get() };
                    let dropped = Dropped { id: collection.id, at: dropped_at, part };
                    batch.put_cf(handle(family::META), dropped_key(dropped.id), dropped.encode());
                }
            }
            *known = entry;
        }
        for (id, part) in transaction.take_dropped() {
            batch.put_cf(handle(family::META), dropped_key(id), Dropped { id, at: dropped_at, part }.encode());
        }
        for (collection, index, bits) in transaction.multikey() {
            index.add_multikey(*bits);
            if let Some(entry) = &*collection.shared.entry.lock() {
                batch.put_cf(handle(family::CATALOG), prefix(collection.id), entry.encode().as_bytes());
            }
        }
        for session in &transaction.sessions {
            batch.put_cf(handle(family::SESSIONS), &session.key, session.encode(last));
        }
        last
    }

    /// Deletes a range by one tombstone. The binding has none with a stamp: what it writes for a family of stamped keys has zeros
    /// in the place of both bounds' stamps, which end the batch.
    fn delete_range(&self, range: DeletedRange) {
        const STAMP: usize = 8;
        let family = self.db.cf_handle(range.family).unwrap_or_else(|| unreachable!("opened"));
        let (from, to) = (prefix(range.id), prefix_end(range.id));
        let mut batch = WriteBatch::default();
        batch.delete_range_cf(family, from, to);
        let mut bytes = batch.data().to_vec();
        let end = bytes.len() - STAMP;
        let start = end - to.len() - 1 - STAMP;
        assert!(is_versioned(range.family) && bytes[end..] == [0; STAMP] && bytes[start..start + STAMP] == [0; STAMP]);
        for place in [start, end] {
            bytes[place..place + STAMP].copy_from_slice(&range.stamp.to_le_bytes());
        }
        if let Err(error) = self.db.write_opt(&WriteBatch::from_data(&bytes), &self.write_options) {
            machine::stop("writing to the log", &error);
        }
    }

    /// The OpTimes of a transaction's entries, given out or brought along; moves `last` on to the last of them.
    fn optimes_of(&self, transaction: &Transaction, last: &mut OpTime, wall_ms: i64) -> SmallVec<[OpTime; 4]> {
        let floor = self.floor.load(Ordering::Relaxed);
        let own_term = self.own_term.load(Ordering::Relaxed);
        let optimes = transaction.entries().iter().map(|entry| {
            let optime = if transaction.is_replicated {
                let brought = RawDocument::from_bytes(entry).ok().and_then(oplog::optime_of);
                brought.unwrap_or_else(|| unreachable!("read when the entry was taken in"))
            } else {
                let clock = last.timestamp.as_u64().max(floor);
                OpTime { term: own_term, timestamp: Timestamp::from_u64(next_timestamp(clock, wall_ms)) }
            };
            assert!(optime.timestamp > last.timestamp, "OpTimes increase");
            if optime.term != last.term {
                self.terms.begin(optime);
            }
            *last = optime;
            optime
        });
        optimes.collect()
    }
}

/// The newest version of a document that a group writes.
struct NewestVersion<'a> {
    hash: u64,
    key: &'a [u8],
    /// Absent: the document is deleted.
    document: Option<&'a [u8]>,
    /// The same in memory that can be shared, if somebody made that already.
    shared: Option<&'a Version>,
    /// The heat of the version before it, if the record cache had that.
    was_cached: Option<u8>,
}

impl NewestVersion<'_> {
    fn version(&self) -> Option<Version> {
        match self.shared {
            Some(version) => Some(version.clone()),
            None => self.document.map(|document| Version::new(self.hash, self.key, document)),
        }
    }
}

/// The timestamp after `clock`: this second's first, or the next ordinal if the clock is at or past this second.
fn next_timestamp(clock: u64, wall_ms: i64) -> u64 {
    let second = (wall_ms / 1000).clamp(0, i64::from(u32::MAX)) as u64;
    (clock + 1).max((second << 32) | 1)
}

#[cfg(test)]
mod tests {
    use super::next_timestamp;

    #[test]
    fn timestamps_increase_even_when_the_clock_goes_back() {
        let first = next_timestamp(0, 10_000);
        assert_eq!(first, (10 << 32) | 1);
        assert_eq!(next_timestamp(first, 10_999), (10 << 32) | 2);
        assert_eq!(next_timestamp(first, 3_000), (10 << 32) | 2);
        assert_eq!(next_timestamp(first, 11_000), (11 << 32) | 1);
    }
}
