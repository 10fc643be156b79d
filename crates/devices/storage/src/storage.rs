//! One data directory, open: the database, the catalog, the commit queue, and what keeps them in order.

use crate::background::Chores;
use crate::background::checkpoints::{self, Checkpoints};
use crate::background::compaction_pace::CompactionPace;
use crate::background::full_memtables::FullMemtables;
use crate::background::governor::Governors;
use crate::background::removal::Removal;
use crate::background::retention::{OplogLimits, Retention};
use crate::background::tasks::listener::TaskListener;
use crate::background::tasks::{Company, TaskRegistry};
use crate::background::vitals::{Reads, Watch};
use crate::catalog::{Catalog, Collection};
use crate::critical::CriticalMutex;
use crate::ddl::{CatalogGuard, Freeing};
use crate::documents::counters::Counts;
use crate::documents::format::{self, FORMAT_VERSION, counts_key, family, meta};
use crate::documents::in_flight::InFlight;
use crate::documents::locks::LockTable;
use crate::documents::record_cache::RecordCache;
use crate::documents::sessions::{SessionHandle, SessionTable};
use crate::documents::transaction::Transaction;
use crate::log::check;
use crate::log::commit::{CommitQueue, Durability, KeptStamps};
use crate::log::facts::Fact;
use crate::log::file::LogFile;
use crate::log::flow::FlowControl;
use crate::log::switch::LogSwitch;
use crate::machine::read_failure;
use crate::options::StorageOptions;
use crate::spill::Spills;
use crate::upgrade::OLDEST_VERSION;
use ahash::RandomState;
use arc_swap::ArcSwap;
use baton_types::{Error, ErrorCode, MemoryPool, Namespace, OpTime, Result, Term, Timestamp};
use parking_lot::Mutex;
use rust_rocksdb::{Cache, ColumnFamily, DB, DBPinnableSlice, WriteBatch};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// See the file's header.
pub struct Storage {
    pub(crate) checkpoints: Checkpoints,
    // Fields drop in this order: nothing may outlive the database but the cache.
    pub(crate) commit: Arc<CommitQueue>,
    db: Arc<DB>,
    pub(crate) locks: Arc<LockTable>,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) record_cache: Arc<RecordCache>,
    pub(crate) catalog: ArcSwap<Catalog>,
    /// The turn to change the catalog: see [`crate::Writer::lock_catalog`].
    pub(crate) catalog_turn: CriticalMutex,
    /// Held by the one who applies what another member logged, and while this member becomes primary.
    pub(crate) following: CriticalMutex,
    pub(crate) next_id: AtomicU32,
    /// Counts what is seen of which later views need see no more: see `capped`.
    pub(crate) moment: AtomicU64,
    /// Since when the catalog reads documents rightly: no collection was dropped or renamed and no index completed after
    /// this. What is created anew does not count; it has nothing older to read.
    catalog_stable_from: AtomicU64,
    /// Such changes under way.
    catalog_changes: AtomicU32,
    sessions: SessionTable,
    pub(crate) flow: FlowControl,
    company: Company,
    pub(crate) retention: Retention,
    pub(crate) freeing: Freeing,
    pub(crate) removal: Arc<Removal>,
    /// The log's oldest entry, as of these two: where it may begin, and how often its end was cut off.
    pub(crate) oldest_seen: Mutex<Option<((Timestamp, u64), OpTime)>>,
    tasks: Arc<TaskRegistry>,
    pub(crate) governors: Governors,
    pub(crate) reads: Reads,
    pub(crate) watch: Mutex<Watch>,
    pub(crate) options: StorageOptions,
    pub(crate) cache: Cache,
    /// What the cache may hold at present, in bytes.
    cache_capacity: AtomicUsize,
    spills: Spills,
    /// What all index builds together may hold of what they sort.
    pub(crate) build_memory: Arc<MemoryPool>,
}

impl Storage {
    /// Opens a data directory, makes it if it is not there, and recovers it if it was not closed. All tasks may begin until a gate is
    /// bound ([`TaskRegistry::bind`]).
    pub fn open(path: &Path, options: StorageOptions) -> Result<Arc<Self>> {
        check::check(path)?;
        let tasks = Arc::new(TaskRegistry::default());
        let cache = options.cache();
        let removal = Removal::new(path);
        let mut database = options.database(&cache, TaskListener::new(Arc::clone(&tasks), Arc::clone(&removal)));
        let log_switch = LogSwitch::default();
        database.add_event_listener(log_switch.clone());
        database.add_event_listener(FullMemtables::default());
        let pace = Arc::new(CompactionPace::default());
        let db = DB::open_cf_descriptors(&database, path, options.families(&cache, &pace)).map_err(|error| {
            Error::new(ErrorCode::InternalError, format!("Cannot open the data directory {}: {error}", path.display()))
        })?;
        let db = Arc::new(db);
        let log = LogFile::open(path).map_err(|error| {
            Error::new(ErrorCode::InternalError, format!("Cannot open the log in {}: {error}", path.display()))
        })?;
        let log = Arc::new(log);
        log_switch.watch(&log);
        crash_point!("recovery-log-replayed");
        let (format, next_id) = Self::check_format(&db)?;
        let locks = Arc::new(LockTable::default());
        let hasher = RandomState::new();
        let in_flight = Arc::new(InFlight::new(hasher.clone()));
        let record_cache = Arc::new(RecordCache::new(options.record_cache_bytes(), hasher));
        let last = Self::last_optime(&db)?;
        let limits = OplogLimits::of(&db, &options)?;
        let stamps = Self::kept_stamps(&db, last)?;
        let settled_from = stamps.settled_from();
        let is_member = Self::stored_fact(&db, Fact::Configuration)?.is_some();
        checkpoints::clean_up(path);
        let spills = Spills::new(path, options.open_spills_max);
        let build_memory = MemoryPool::new(2 * options.index_build_bytes);
        let commit = Arc::new(CommitQueue::new(
            Arc::clone(&db),
            log,
            Arc::clone(&in_flight),
            Arc::clone(&record_cache),
            last,
            stamps,
            options.family_memtable_bytes(),
        ));
        log_switch.watch_queue(&commit);
        let storage = Arc::new(Self {
            checkpoints: Checkpoints::default(),
            commit,
            locks,
            in_flight,
            record_cache,
            catalog: ArcSwap::from_pointee(Self::load_catalog(&db, limits)?),
            catalog_turn: CriticalMutex::new("a change of the catalog"),
            following: CriticalMutex::new("what follows another's log"),
            next_id: AtomicU32::new(next_id),
            moment: AtomicU64::new(0),
            catalog_stable_from: AtomicU64::new(last.timestamp.as_u64().max(settled_from)),
            catalog_changes: AtomicU32::new(0),
            sessions: SessionTable::default(),
            flow: FlowControl::default(),
            company: Company::default(),
            retention: Retention::new(limits, is_member),
            freeing: Freeing::default(),
            removal,
            oldest_seen: Mutex::default(),
            tasks,
            governors: Governors::new(pace),
            reads: Reads::default(),
            watch: Mutex::default(),
            cache_capacity: AtomicUsize::new(options.block_cache_bytes()),
            options,
            cache,
            spills,
            build_memory,
            db,
        });
        crash_point!("recovery-catalog-loaded");
        storage.finish_interrupted_ddl()?;
        crash_point!("recovery-ddl-finished");
        storage.load_capped_positions()?;
        storage.upgrade(format)?;
        storage.note_machine_start()?;
        Ok(storage)
    }

    /// The directory's format and the next id.
    fn check_format(db: &DB) -> Result<(i32, u32)> {
        let family = db.cf_handle(family::META).unwrap_or_else(|| unreachable!("opened"));
        let stored = |name: &[u8]| -> Result<Option<[u8; 4]>> {
            Ok(db.get_pinned_cf(family, name).map_err(read_failure)?.and_then(|value| value.as_ref().try_into().ok()))
        };
        let found = match stored(meta::FORMAT)? {
            Some(version) => i32::from_le_bytes(version),
            None => {
                db.put_cf(family, meta::FORMAT, FORMAT_VERSION.to_le_bytes()).map_err(read_failure)?;
                FORMAT_VERSION
            }
        };
        if !(OLDEST_VERSION..=FORMAT_VERSION).contains(&found) {
            return Err(Error::new(
                ErrorCode::UnsupportedFormat,
                format!(
                    "The data directory has storage format {found}; this Baton reads {OLDEST_VERSION} to {FORMAT_VERSION}. Use the Baton that wrote it, or restore a dump"
                ),
            ));
        }
        Ok((found, stored(meta::NEXT_ID)?.map_or(1, u32::from_le_bytes)))
    }

    /// The OpTime of the oplog's newest entry.
    fn last_optime(db: &DB) -> Result<OpTime> {
        let family = db.cf_handle(family::OPLOG).unwrap_or_else(|| unreachable!("opened"));
        let mut iterator = db.raw_iterator_cf(family);
        iterator.seek_to_last();
        iterator.status().map_err(read_failure)?;
        let newest =
            iterator.value().and_then(|value| crate::log::oplog::optime_of(bson::RawDocument::from_bytes(value).ok()?));
        Ok(newest.unwrap_or(OpTime::ZERO))
    }

    /// What [`crate::following::rollback`] kept, as this start needs it.
    fn kept_stamps(db: &DB, last: OpTime) -> Result<KeptStamps> {
        let (reserve, bases) = (Self::stored_fact(db, Fact::Stamp)?, Self::stored_fact(db, Fact::StampBases)?);
        let kept = KeptStamps::decode(reserve.as_deref(), bases.as_deref());
        let Some(kept) = kept.at_start(last.timestamp.as_u64()) else { return Ok(kept) };
        let family = db.cf_handle(family::META).unwrap_or_else(|| unreachable!("opened"));
        let mut batch = WriteBatch::default();
        batch.put_cf(family, Fact::Stamp.key(), kept.reserve_bytes());
        batch.put_cf(family, Fact::StampBases.key(), kept.base_bytes());
        db.write(&batch).map_err(read_failure)?;
        Ok(kept)
    }

    fn stored_fact(db: &DB, fact: Fact) -> Result<Option<DBPinnableSlice<'_>>> {
        let family = db.cf_handle(family::META).unwrap_or_else(|| unreachable!("opened"));
        db.get_pinned_cf(family, fact.key()).map_err(read_failure)
    }

    fn load_catalog(db: &DB, limits: OplogLimits) -> Result<Catalog> {
        let (catalog_family, meta_family) = match (db.cf_handle(family::CATALOG), db.cf_handle(family::META)) {
            (Some(catalog), Some(meta)) => (catalog, meta),
            _ => unreachable!("opened"),
        };
        let mut catalog = Catalog::default();
        for item in db.iterator_cf(catalog_family, rust_rocksdb::IteratorMode::Start) {
            let (key, value) = item.map_err(read_failure)?;
            let Ok(id) = <[u8; 4]>::try_from(key.as_ref()) else { continue };
            let id = u32::from_be_bytes(id);
            let counts = db.get_pinned_cf(meta_family, counts_key(id)).map_err(read_failure)?;
            let counts = counts.and_then(|value| Counts::decode(&value)).unwrap_or_default();
            catalog.insert(Arc::new(Collection::decode(id, &value, counts)?));
        }
        catalog.insert(Arc::new(Collection::oplog(limits.bytes_max)?));
        Ok(catalog)
    }

    pub(crate) fn db(&self) -> &DB {
        &self.db
    }

    pub(crate) fn family(&self, name: &str) -> &ColumnFamily {
        self.db.cf_handle(name).unwrap_or_else(|| unreachable!("column family {name} was opened"))
    }

    /// Where queries put what they may not hold in memory.
    pub fn spills(&self) -> &Spills {
        &self.spills
    }

    /// The turn to change what exists, for somebody who only looks, or writes nothing of this member's own.
    pub fn freeze_catalog(&self) -> CatalogGuard<'_> {
        CatalogGuard::new(self.by_member())
    }

    /// Waits until the change of the catalog that is under way, if there is one, is seen by readers: its entry is in the log, and
    /// so counts as applied, a moment before.
    pub fn settle_catalog(&self) {
        drop(self.freeze_catalog());
    }

    /// What exists now.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.load_full()
    }

    /// The collection or view of this name, if there is one.
    pub fn collection(&self, namespace: &Namespace) -> Option<Arc<Collection>> {
        self.catalog.load().get(namespace).cloned()
    }

    /// Lets this member write entries of its own in a term: it is primary. Whoever applies another's entries is done by then.
    pub fn open_to_writes(&self, term: Term) {
        let _turn = self.following.lock();
        self.commit.open_to_writes(term);
    }

    /// Ends a transaction that is not to be committed: its locks are given back.
    pub fn abandon(&self, transaction: Transaction) {
        drop(transaction);
    }

    /// Positions and waiting, for readers of the oplog and for concerns.
    pub fn queue(&self) -> &CommitQueue {
        &self.commit
    }

    /// The memory it was given for blocks, memtables and hot documents, in bytes.
    pub fn cache_bytes(&self) -> usize {
        self.options.cache_bytes
    }

    /// Whether a block that comes into the cache takes the place of another, or nearly.
    pub(crate) fn block_cache_is_full(&self) -> bool {
        self.cache.get_usage() >= self.cache_capacity.load(Ordering::Relaxed) / 10 * 9
    }

    /// The oldest time as of which the catalog of now reads documents rightly; none does while it changes.
    pub(crate) fn catalog_stable_from(&self) -> Timestamp {
        if self.catalog_changes.load(Ordering::SeqCst) > 0 {
            return Timestamp::from_u64(u64::MAX);
        }
        Timestamp::from_u64(self.catalog_stable_from.load(Ordering::SeqCst))
    }

    /// As long as what it returns is held, no read of an older time is admitted.
    pub(crate) fn begin_catalog_change(&self) -> CatalogChange<'_> {
        self.catalog_changes.fetch_add(1, Ordering::SeqCst);
        CatalogChange(self)
    }

    /// Refuses reads as of an older time from now on.
    pub(crate) fn refuse_reads_before(&self, timestamp: u64) {
        self.catalog_stable_from.fetch_max(timestamp, Ordering::SeqCst);
    }

    /// The record of a logical session's retryable writes.
    pub fn session(&self, key: &[u8]) -> Result<SessionHandle> {
        self.sessions.get(&self.db, key)
    }

    /// Sessions in memory.
    pub fn sessions(&self) -> &SessionTable {
        &self.sessions
    }

    /// Background work on this member.
    pub fn tasks(&self) -> &Arc<TaskRegistry> {
        &self.tasks
    }

    /// Whom long work may keep waiting.
    pub fn company(&self) -> &Company {
        &self.company
    }

    /// A collection or index id never given out before. Durable with the transaction that uses it.
    pub(crate) fn allocate_id(&self, transaction: &mut Transaction) -> u32 {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.store_next_id(transaction);
        id
    }

    /// Writes down which ids were given out.
    pub(crate) fn store_next_id(&self, transaction: &mut Transaction) {
        transaction.put(family::META, meta::NEXT_ID, &self.next_id.load(Ordering::Relaxed).to_le_bytes());
    }

    /// Makes everything applied so far durable.
    pub fn sync(&self) -> OpTime {
        self.commit.sync()
    }

    /// Writes memtables out, so that the next start replays nothing. For a clean shutdown and for `fsync`.
    pub fn flush(&self) -> Result<()> {
        self.commit.drain();
        self.commit.sync();
        let mut options = rust_rocksdb::FlushOptions::default();
        options.set_wait(true);
        // One after the other each would leave its log as soon as it is begun, and a log that is left is cut off where it ends: what it was
        // written over is a lot to tell the disk of, and whoever syncs waits for that.
        options.set_force_atomic_flush(true);
        let families: Vec<_> =
            [family::CATALOG, family::META, family::SESSIONS, family::DOCUMENTS, family::INDEXES, family::OPLOG]
                .into_iter()
                .map(|name| self.family(name))
                .collect();
        self.db.flush_cfs_opt(&families, &options).map_err(read_failure)
    }

    /// Prefix of a collection in the documents family, for tools that estimate sizes.
    pub(crate) fn extent(id: u32) -> ([u8; 4], [u8; 4]) {
        (format::prefix(id), format::prefix_end(id))
    }
}

impl Chores<'_> {
    /// Forgets the retryable writes of sessions that have done none for `age_secs` seconds.
    pub fn expire_sessions(&self, age_secs: u32) -> Result<()> {
        let now = crate::log::commit::wall_clock_ms() / 1000;
        let oldest = u32::try_from(now - i64::from(age_secs)).unwrap_or(0);
        self.0.sessions.shrink();
        self.0.sessions.expire(&self.0.db, oldest, |transaction| {
            self.0.commit.commit_unasked(transaction, Durability::Applied);
        })
    }

    /// Lends so many bytes of the cache's memory to somebody else, from now on; 0 takes all back.
    pub fn lend_cache(&self, bytes: usize) {
        let all = self.0.options.block_cache_bytes();
        // A handle to the same cache: the crate asks for an exclusive one.
        let capacity = all.saturating_sub(bytes).max(all / 4);
        self.0.cache.clone().set_capacity(capacity);
        self.0.cache_capacity.store(capacity, Ordering::Relaxed);
    }
}

/// A change of the catalog under way; see [`crate::Writer::commit_catalog_change`].
#[must_use]
pub(crate) struct CatalogChange<'s>(&'s Storage);

impl Drop for CatalogChange<'_> {
    fn drop(&mut self) {
        self.0.catalog_changes.fetch_sub(1, Ordering::SeqCst);
    }
}
