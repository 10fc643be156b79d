//! Giving back the space of what was dropped: in the background, in bounded steps, holding nothing that anybody else needs.
//!
//! ```text
//!  settling ──▶ files ──▶ rest ──▶ compaction ──▶ the record goes
//!     │           │         │          └ only of much that is left, once history has passed the tombstone; and again until it is gone
//!     │           │         └ few keys: deleted one by one; many: one tombstone for the range
//!     │           └ whole files within the range, one a step
//!     └ until no rollback undoes the drop, and nobody reads from before it
//! ```
//!
//! Ids are never used again, so nobody looks into the range of what was dropped. A reader that was there before has a snapshot, which
//! keeps keys from tombstones but not files from being deleted: so those are waited for.
//!
//! Invariants:
//! - What a rollback may bring back stays: the commit point has passed a drop before anything of it goes.
//! - Every step may be done twice. The record goes last, so that a start after a crash finds what is left, and begins anew.
//! - The gate is asked before anything goes; between two steps it rests as long as its pace wants.

use super::dropped::Dropped;
use crate::background::Chores;
use crate::background::tasks::{Asked, TaskGuard, TaskKind, WaitingTask};
use crate::documents::format::{dropped_key, family, prefix, prefix_end};
use crate::documents::transaction::{DeletedRange, Transaction};
use crate::log::commit::Durability;
use crate::machine::read_failure;
use crate::storage::Storage;
use baton_types::Result;
use parking_lot::Mutex;
use rust_rocksdb::CompactOptions;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long who has looked a collection up just before it was dropped has to begin reading.
const READERS_BEGIN: Duration = Duration::from_millis(500);
/// Up to so many keys are deleted one by one: each costs less than a tombstone that readers of its memtable look at.
const KEYS_ONE_BY_ONE: usize = 256;
/// What takes so many bytes after its deletion is compacted for that alone; less goes when its files are merged anyway.
const COMPACTED_FROM_BYTES: u64 = 16 << 20;
/// How long to wait after a compaction that has left the bytes where they were.
const COMPACTED_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// Bytes in the keys of a table that are the key's stamp.
const STAMP_BYTES: usize = 8;
/// The families that have ranges of ids.
const FAMILIES: [&str; 2] = [family::DOCUMENTS, family::INDEXES];

/// How far the space of one id is given back.
enum Step {
    /// Readers from before the drop may be there: what was written last when it was looked for them.
    Settling { since: Instant, seen: Option<u64> },
    /// Files go, then the rest.
    Deleting,
    /// What is left goes when history has passed this stamp, and it is that late.
    Compacting { stamp: u64, at: Instant },
}

struct Known {
    step: Step,
    bytes: u64,
    /// There while the gate lets it not begin.
    waiting: Option<WaitingTask>,
}

/// What is known of what was dropped, since the start of the process.
#[derive(Default)]
pub(crate) struct Freeing {
    known: Mutex<BTreeMap<u32, Known>>,
    bytes: AtomicU64,
    /// Whether index builds may have left files.
    has_build_files: AtomicBool,
}

impl Freeing {
    /// Says that a build has ended that may have files, which are removed by whoever gives space back: nobody waits for that.
    pub(crate) fn leave_build_files(&self) {
        self.has_build_files.store(true, Ordering::Release);
    }
}

/// What a step was.
enum Outcome {
    /// All is gone.
    Gone,
    /// It goes on another time.
    Later,
}

impl Chores<'_> {
    /// Gives space of what was dropped back, as far as that may be now. To be called several times a second by one thread; between
    /// steps `goes_on` is asked.
    pub fn free_dropped(&self, goes_on: &dyn Fn() -> bool) -> Result<()> {
        if self.0.freeing.has_build_files.swap(false, Ordering::AcqRel) {
            self.0.remove_build_files();
        }
        let dropped = self.0.dropped()?;
        let mut known = self.0.freeing.known.lock();
        known.retain(|id, _| dropped.iter().any(|dropped| dropped.id == *id));
        for dropped in &dropped {
            if !goes_on() {
                break;
            }
            let state = known.entry(dropped.id).or_insert_with(|| {
                let now = Instant::now();
                let bytes = self.0.extent_bytes(dropped.id);
                Known { step: Step::Settling { since: now, seen: None }, bytes, waiting: None }
            });
            if let Outcome::Gone = self.0.free(dropped, state, goes_on)? {
                known.remove(&dropped.id);
            }
        }
        self.0.freeing.bytes.store(known.values().map(|known| known.bytes).sum(), Ordering::Relaxed);
        Ok(())
    }

    /// Lets the step under way end soon, and no other be of use: before the database is closed.
    pub fn stop_freeing(&self) {
        self.0.db().disable_manual_compaction();
    }
}

impl Storage {
    /// Bytes of what was dropped that were not given back yet: RocksDB's estimate when it was dropped.
    pub fn dropped_bytes(&self) -> u64 {
        self.freeing.bytes.load(Ordering::Relaxed)
    }

    /// How many ids that were dropped have their range still.
    pub fn dropped_extents(&self) -> Result<usize> {
        Ok(self.dropped()?.len())
    }

    /// Asks the gate for what is done next; what it does not let begin yet shows as waiting.
    fn admit_freeing(&self, known: &mut Known, name: &str) -> Option<TaskGuard> {
        let asked = match known.waiting.take() {
            Some(waiting) => waiting.ask_again(),
            None => self.tasks().admit(TaskKind::DropCleanup, name, known.bytes),
        };
        match asked {
            Asked::Admitted(task) => Some(task),
            Asked::Waits(waiting) => {
                known.waiting = Some(waiting);
                None
            }
        }
    }

    fn free(&self, dropped: &Dropped, known: &mut Known, goes_on: &dyn Fn() -> bool) -> Result<Outcome> {
        let id = dropped.id;
        let name = dropped.name();
        if dropped.at.is_some_and(|at| !self.is_committed(at)) {
            return Ok(Outcome::Later);
        }
        if let Step::Settling { since, seen } = &mut known.step {
            if since.elapsed() < READERS_BEGIN {
                return Ok(Outcome::Later);
            }
            let seen = *seen.get_or_insert_with(|| self.db().latest_sequence_number());
            if self.oldest_snapshot()?.is_some_and(|oldest| oldest <= seen) {
                return Ok(Outcome::Later);
            }
            known.step = Step::Deleting;
        }
        if let Step::Deleting = known.step {
            let Some(task) = self.admit_freeing(known, &name) else { return Ok(Outcome::Later) };
            // Files are gone at once: the drop must be on disk before.
            crash_point!("freeing-begins");
            self.sync();
            let mut freed = 0;
            for family in FAMILIES {
                let all = self.delete_files(family, id, &mut |bytes| {
                    freed += bytes;
                    task.progress(freed, known.bytes.max(freed));
                    task.rest();
                    goes_on() && task.may_go_on()
                })?;
                if !all {
                    return Ok(Outcome::Later);
                }
            }
            let mut tombstone = None;
            for family in FAMILIES {
                tombstone = self.delete_rest(family, dropped)?.max(tombstone);
            }
            crash_point!("freeing-deleted");
            if let Some(stamp) = tombstone
                && self.extent_bytes(id) >= COMPACTED_FROM_BYTES
            {
                known.step = Step::Compacting { stamp, at: Instant::now() };
                return Ok(Outcome::Later);
            }
        }
        if let Step::Compacting { stamp, at } = known.step {
            if self.retention.history_from().as_u64() <= stamp || Instant::now() < at {
                return Ok(Outcome::Later);
            }
            let Some(task) = self.admit_freeing(known, &name) else { return Ok(Outcome::Later) };
            crash_point!("freeing-compaction");
            let mut options = CompactOptions::default();
            options.set_exclusive_manual_compaction(false);
            let asked = self.tasks().asked_compactions.ask();
            for (done, family) in FAMILIES.iter().enumerate() {
                task.progress(done as u64 + 1, FAMILIES.len() as u64 + 1);
                let (from, to) = Self::extent(id);
                self.db().compact_range_cf_opt(self.family(family), Some(from), Some(to), &options);
                if !goes_on() {
                    return Ok(Outcome::Later);
                }
            }
            task.charge_parts(asked.spent());
            // RocksDB does not say whether it came to that: on a full disk there is no room for what else its files have.
            if self.extent_bytes(id) >= COMPACTED_FROM_BYTES {
                known.step = Step::Compacting { stamp, at: Instant::now() + COMPACTED_AGAIN_AFTER };
                return Ok(Outcome::Later);
            }
        }
        let mut transaction = Transaction::default();
        transaction.delete(family::META, &dropped_key(id));
        self.commit.commit_unasked(transaction, Durability::Applied);
        crash_point!("freeing-done");
        Ok(Outcome::Gone)
    }

    /// RocksDB's estimate of what the range of this id takes.
    fn extent_bytes(&self, id: u32) -> u64 {
        let (from, to) = Self::extent(id);
        FAMILIES.iter().map(|family| self.range_bytes(family, &from, &to)).sum()
    }

    /// The sequence number of the oldest snapshot that somebody reads from.
    fn oldest_snapshot(&self) -> Result<Option<u64>> {
        let oldest = self.db().property_int_value("rocksdb.oldest-snapshot-sequence").map_err(read_failure)?;
        Ok(oldest.filter(|oldest| *oldest > 0))
    }

    /// Deletes the files that have keys of this id alone, one after the other; told of each one's bytes, `step` says whether to go
    /// on. Gives whether all went. Those of level 0 stay.
    fn delete_files(&self, family: &str, id: u32, step: &mut dyn FnMut(u64) -> bool) -> Result<bool> {
        let prefix = prefix(id);
        let within = |key: &Option<Vec<u8>>| {
            let key = key.as_deref()?;
            let (key, _) = key.split_at(key.len().checked_sub(STAMP_BYTES)?);
            key.starts_with(&prefix).then(|| key.to_vec())
        };
        for file in self.db().live_files().map_err(read_failure)? {
            if file.column_family_name != family || file.level == 0 {
                continue;
            }
            let (Some(from), Some(to)) = (within(&file.start_key), within(&file.end_key)) else { continue };
            self.keep_for_removal(&file);
            self.db().delete_file_in_range_cf(self.family(family), from, to).map_err(read_failure)?;
            crash_point!("freeing-file");
            if !step(file.size as u64) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Deletes what the files had beside; gives the stamp of a tombstone for the range, if that was needed.
    fn delete_rest(&self, family: &'static str, dropped: &Dropped) -> Result<Option<u64>> {
        let id = dropped.id;
        let mut transaction = Transaction::default();
        let mut options = crate::documents::view::newest(family);
        options.set_iterate_upper_bound(prefix_end(id).to_vec());
        let mut iterator = self.db().raw_iterator_cf_opt(self.family(family), options);
        iterator.seek(prefix(id));
        let mut keys = 0;
        while let Some(key) = iterator.key().filter(|_| keys <= KEYS_ONE_BY_ONE) {
            transaction.delete(family, key);
            keys += 1;
            iterator.next();
        }
        iterator.status().map_err(read_failure)?;
        drop(iterator);
        let stamp = (keys > KEYS_ONE_BY_ONE).then(|| {
            let highest = self.commit.highest_stamp();
            // Nothing in it is as late as the drop; so history passes the tombstone even if nothing is written any more.
            highest - u64::from(dropped.at.is_some_and(|at| at.timestamp.as_u64() == highest))
        });
        if let Some(stamp) = stamp {
            transaction = Transaction::default();
            transaction.delete_range(DeletedRange { family, id, stamp });
        }
        self.commit.commit_unasked(transaction, Durability::Applied);
        Ok(stamp)
    }
}
