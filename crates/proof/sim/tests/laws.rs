//! One suite of laws for what a follower's store does, over the simulator's disk and over RocksDB's: what worlds find out of members
//! is worth as much as the one is like the other.
//!
//! A store is told at random to apply, to sync, to roll back and to crash, and is compared after each with what the laws say:
//! - It has the entries that it was given, each once and in order; one that is not newer than its last is not applied again.
//! - Its documents are what its log makes of them, whatever happened: an entry and what it did are one write.
//! - A crash leaves a beginning of the log, and all of it that was synced. What a crash leaves is on disk.
//! - A rollback leaves the log up to the common entry and the documents as they were then, and is synced.
//!
//! RocksDB's crash is a loss of power: its files as they are at that moment, of the write-ahead log all that was synced and, at
//! random, some of what was not; cut at any byte. What it deliberately does not do: lose what was written to other files and not
//! synced. Moments within a write are the crash points' (`tests/crash`).

use baton_sim::disk::{DOCUMENTS, Disk, Entry};
use baton_storage::{Bounds, Collection, CollectionOptions, CreateOutcome, Order, Storage, StorageOptions};
use baton_types::{Namespace, OpTime, Timestamp};
use bson::spec::BinarySubtype;
use bson::{Binary, DateTime, RawDocument, RawDocumentBuf, rawdoc};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// What is done to a store in one run.
const ACTS: usize = 80;

/// A document: what it was set to, and how often it was since it was there. None, if it is not there.
type Shown = [Option<(u64, u32)>; DOCUMENTS];

/// An entry, and how often its document will have been set.
#[derive(Clone, Copy, Debug)]
struct Logged {
    entry: Entry,
    writes: u32,
}

/// What a member that follows has its log and its documents in.
trait Store {
    /// The end of the log before the first entry.
    fn beginning(&self) -> OpTime;
    /// Applies entries in order, as many as are new.
    fn apply(&mut self, entries: &[Logged]);
    /// Returns when all is on disk.
    fn sync(&mut self);
    /// Keeps what a rollback to this entry or a later one needs.
    fn commit(&mut self, point: OpTime);
    /// Takes away all entries after this one.
    fn roll_back(&mut self, common: OpTime);
    /// Loses what chance has it lose of what was not synced, and starts again.
    fn crash(&mut self, random: &mut StdRng);
    /// The OpTimes of the log's entries, but for the beginning.
    fn log(&self) -> Vec<OpTime>;
    /// The documents as readers see them.
    fn documents(&self) -> Shown;
}

impl Store for Disk {
    fn beginning(&self) -> OpTime {
        OpTime { term: 1, timestamp: Timestamp { seconds: 1000, increment: 1 } }
    }

    fn apply(&mut self, entries: &[Logged]) {
        if self.log.is_empty() {
            // One that drops a document which is not there.
            Self::apply(self, Entry::new(Store::beginning(self), 0));
        }
        for Logged { entry, .. } in entries {
            if self.lacks(entry) {
                Self::apply(self, *entry);
            }
        }
    }

    fn sync(&mut self) {
        self.durable = self.log.len();
    }

    fn commit(&mut self, point: OpTime) {
        self.commit_point = point;
    }

    fn roll_back(&mut self, common: OpTime) {
        assert!(Self::roll_back(self, common), "the log has {common:?}");
    }

    fn crash(&mut self, random: &mut StdRng) {
        Self::crash(self, random);
    }

    fn log(&self) -> Vec<OpTime> {
        self.log.iter().skip(1).map(|entry| entry.optime).collect()
    }

    fn documents(&self) -> Shown {
        std::array::from_fn(|at| {
            self.documents.exists(at).then(|| (self.documents.value(at), self.documents.writes(at)))
        })
    }
}

/// The simulator's, whose log begins as RocksDB's does: with an entry that is on disk.
fn simulated() -> Disk {
    let mut disk = Disk::default();
    Store::apply(&mut disk, &[]);
    disk.sync();
    disk
}

/// `baton-storage`, as a member uses it that follows.
struct Rocks {
    folder: TempDir,
    rolled_back: TempDir,
    storage: Option<Arc<Storage>>,
    beginning: OpTime,
    committed: OpTime,
    /// Bytes of each write-ahead log that are on disk.
    synced: BTreeMap<String, u64>,
}

const COLLECTION: [u8; 16] = [7; 16];

fn open(folder: &Path) -> Arc<Storage> {
    let options = StorageOptions { cache_bytes: 8 << 20, ..StorageOptions::default() };
    Storage::open(folder, options).expect("the folder opens")
}

fn namespace() -> Namespace {
    Namespace::new("test", "laws").expect("a valid name")
}

/// Files of a folder, with their sizes.
fn files(folder: &Path) -> Vec<(String, u64)> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    // One may be removed meanwhile.
    let size = |file: fs::DirEntry| Some((file.file_name().into_string().ok()?, file.metadata().ok()?.len()));
    files.filter_map(size).collect()
}

fn is_log(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "log")
}

impl Rocks {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let storage = open(folder.path());
        let options = CollectionOptions::parse(&rawdoc! {}).expect("valid options");
        let created = storage.by_member().create_collection(&namespace(), options, COLLECTION).expect("created");
        assert!(matches!(created, CreateOutcome::Created(_)));
        let beginning = storage.oplog().last_entry();
        let mut rocks = Self {
            folder,
            rolled_back: tempfile::tempdir().expect("a folder"),
            storage: Some(storage),
            beginning,
            committed: beginning,
            synced: BTreeMap::new(),
        };
        rocks.begin_to_follow();
        rocks.sync();
        rocks
    }

    fn begin_to_follow(&self) {
        self.storage().queue().close_to_writes();
        self.storage().oplog().set_commit_point(self.committed);
    }

    fn storage(&self) -> &Storage {
        self.storage.as_deref().expect("open")
    }

    fn collection(&self) -> Arc<Collection> {
        self.storage().collection(&namespace()).expect("there")
    }

    /// The files as they are at one moment: one at which RocksDB removes none.
    fn files_left(&self) -> TempDir {
        loop {
            let left = tempfile::tempdir().expect("a folder");
            let names = || files(self.folder.path()).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
            let before = names();
            let mut copied = before
                .iter()
                .filter(|name| *name != "LOCK")
                .map(|name| fs::copy(self.folder.path().join(name), left.path().join(name)));
            if copied.all(|copied| copied.is_ok()) && names() == before {
                return left;
            }
        }
    }

    fn note_synced(&mut self) {
        self.synced = files(self.folder.path()).into_iter().filter(|(name, _)| is_log(name)).collect();
    }
}

/// The entry as a primary would have logged it.
fn oplog_entry(Logged { entry, writes }: Logged) -> RawDocumentBuf {
    let id = entry.document() as i32;
    let timestamp =
        bson::Timestamp { time: entry.optime.timestamp.seconds, increment: entry.optime.timestamp.increment };
    let (op, o) = if entry.is_drop() {
        ("d", rawdoc! { "_id": id })
    } else {
        ("i", rawdoc! { "_id": id, "value": entry.value as i64, "writes": writes as i32 })
    };
    let uuid = Binary { subtype: BinarySubtype::Uuid, bytes: COLLECTION.to_vec() };
    rawdoc! {
        "ts": timestamp, "t": entry.optime.term, "v": 2_i64, "op": op, "ns": namespace().to_string(), "ui": uuid,
        "wall": DateTime::from_millis(0), "o": o,
    }
}

impl Store for Rocks {
    fn beginning(&self) -> OpTime {
        self.beginning
    }

    fn apply(&mut self, entries: &[Logged]) {
        let entries: Vec<_> = entries.iter().copied().map(oplog_entry).collect();
        let entries: Vec<&RawDocument> = entries.iter().map(AsRef::as_ref).collect();
        self.storage().follower().apply_entries(&entries).expect("applied");
    }

    fn sync(&mut self) {
        self.storage().sync();
        self.note_synced();
    }

    fn commit(&mut self, point: OpTime) {
        self.committed = point;
        self.storage().oplog().set_commit_point(point);
    }

    fn roll_back(&mut self, common: OpTime) {
        self.storage().follower().roll_back(common, self.rolled_back.path()).expect("rolled back");
        self.note_synced();
    }

    fn crash(&mut self, random: &mut StdRng) {
        let left = self.files_left();
        let logs = files(left.path()).into_iter().filter(|(name, _)| is_log(name));
        if let Some((name, bytes)) = logs.max() {
            let kept = random.random_range(self.synced.get(&name).copied().unwrap_or(0)..=bytes);
            let file = fs::OpenOptions::new().write(true).open(left.path().join(name)).expect("a file");
            file.set_len(kept).expect("cut");
        }
        self.storage = None;
        self.storage = Some(open(left.path()));
        self.folder = left;
        // What is found is on disk, says the law: nothing of the logs is spared if it is not.
        self.synced.clear();
        self.begin_to_follow();
    }

    fn log(&self) -> Vec<OpTime> {
        let entries = self.storage().oplog().entries_from(self.beginning.timestamp, usize::MAX).expect("readable");
        let optimes = entries.iter().map(|entry| baton_storage::optime_of(entry).expect("an OpTime"));
        optimes.filter(|optime| *optime != self.beginning).collect()
    }

    fn documents(&self) -> Shown {
        let mut shown = [None; DOCUMENTS];
        let mut cursor = self.storage().view().documents(&self.collection(), &Bounds::default(), Order::Forward);
        while let Some((_, document)) = cursor.next_document().expect("readable") {
            let field = |name| document.get_i64(name).ok().or_else(|| document.get_i32(name).ok().map(i64::from));
            let of = |name| field(name).expect("a document of the laws");
            shown[of("_id") as usize] = Some((of("value") as u64, of("writes") as u32));
        }
        shown
    }
}

/// What a log makes of the documents.
fn made_by(log: &[Logged]) -> Shown {
    let mut shown = [None; DOCUMENTS];
    for Logged { entry, writes } in log {
        shown[entry.document()] = (!entry.is_drop()).then_some((entry.value, *writes));
    }
    shown
}

/// What a store must be, and the run that it is put through.
struct Run<'s> {
    store: &'s mut dyn Store,
    random: StdRng,
    log: Vec<Logged>,
    /// How many entries are on disk, and how many are committed.
    synced: usize,
    committed: usize,
    term: i64,
    next_value: u64,
    seconds: u32,
}

impl Run<'_> {
    fn optime(&self, len: usize) -> OpTime {
        len.checked_sub(1).map_or_else(|| self.store.beginning(), |at| self.log[at].entry.optime)
    }

    fn next(&mut self) -> Logged {
        self.next_value += 1;
        self.seconds += self.random.random_range(0..2);
        let last = self.optime(self.log.len()).timestamp;
        let seconds = self.seconds.max(last.seconds);
        let increment = if seconds == last.seconds { last.increment + 1 } else { 1 };
        let optime = OpTime { term: self.term, timestamp: Timestamp { seconds, increment } };
        let entry = Entry::new(optime, self.next_value);
        let before = made_by(&self.log)[entry.document()];
        Logged { entry, writes: before.map_or(1, |(_, writes)| writes + 1) }
    }

    fn act(&mut self) -> &'static str {
        match self.random.random_range(0..10) {
            0..=4 => {
                // Some that are in the log already come again, as they do when a source is left for another.
                let from = self.log.len() - self.random.random_range(0..=self.log.len().min(3));
                for _ in 0..self.random.random_range(1..6) {
                    let next = self.next();
                    self.log.push(next);
                }
                self.store.apply(&self.log[from..]);
                "applying"
            }
            5 | 6 => {
                self.store.sync();
                self.synced = self.log.len();
                "a sync"
            }
            7 => {
                self.committed = self.random.random_range(self.committed..=self.synced);
                self.store.commit(self.optime(self.committed));
                "a commit"
            }
            8 => {
                let common = self.random.random_range(self.committed..=self.log.len());
                self.store.roll_back(self.optime(common));
                self.log.truncate(common);
                self.synced = common;
                self.term += 1;
                "a rollback"
            }
            _ => {
                self.store.crash(&mut self.random);
                let left = self.store.log().len();
                if (self.synced..=self.log.len()).contains(&left) {
                    self.log.truncate(left);
                    self.synced = left;
                }
                "a crash"
            }
        }
    }

    fn check(&self, after: &str) -> Result<(), String> {
        let expected: Vec<OpTime> = self.log.iter().map(|logged| logged.entry.optime).collect();
        let log = self.store.log();
        if log != expected {
            return Err(format!(
                "after {after} the log is {log:?}, and should be {expected:?}, {} synced",
                self.synced
            ));
        }
        let (shown, made) = (self.store.documents(), made_by(&self.log));
        if shown != made {
            return Err(format!("after {after} there is {shown:?}, and the log makes {made:?}"));
        }
        Ok(())
    }
}

/// The first law that does not hold.
fn laws(store: &mut dyn Store, seed: u64) -> Result<(), String> {
    let seconds = store.beginning().timestamp.seconds;
    let random = StdRng::seed_from_u64(seed);
    let mut run = Run { store, random, log: Vec::new(), synced: 0, committed: 0, term: 2, next_value: 0, seconds };
    for act in 0..ACTS {
        let did = run.act();
        run.check(did).map_err(|broken| format!("seed {seed}, act {act}: {broken}"))?;
    }
    Ok(())
}

#[test]
fn they_hold_for_the_simulators_disk() {
    for seed in 0..500 {
        laws(&mut simulated(), seed).unwrap_or_else(|broken| panic!("{broken}"));
    }
}

#[test]
fn they_hold_for_rocksdb() {
    for seed in 0..20 {
        laws(&mut Rocks::new(), seed).unwrap_or_else(|broken| panic!("{broken}"));
    }
}

/// What a store may get wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    /// A crash takes entries away and leaves what they did.
    DocumentsOutliveTheirEntries,
    /// A crash may take what was synced.
    SyncsAreIgnored,
    /// A rollback leaves a document as it is.
    ARollbackForgetsADocument,
    /// What a rollback leaves is not synced.
    ARollbackIsNotSynced,
    /// Entries that are there are applied again.
    EntriesAreAppliedTwice,
}

/// The simulator's disk with a fault.
struct Faulty(Disk, Wrong);

impl Store for Faulty {
    fn beginning(&self) -> OpTime {
        Store::beginning(&self.0)
    }

    fn apply(&mut self, entries: &[Logged]) {
        if self.1 == Wrong::EntriesAreAppliedTwice {
            entries.iter().for_each(|logged| Disk::apply(&mut self.0, logged.entry));
        } else {
            Store::apply(&mut self.0, entries);
        }
    }

    fn sync(&mut self) {
        if self.1 != Wrong::SyncsAreIgnored {
            self.0.sync();
        }
    }

    fn commit(&mut self, point: OpTime) {
        Store::commit(&mut self.0, point);
    }

    fn roll_back(&mut self, common: OpTime) {
        let (documents, durable) = (self.0.documents, self.0.durable);
        Store::roll_back(&mut self.0, common);
        match self.1 {
            Wrong::ARollbackForgetsADocument => self.0.documents = documents,
            Wrong::ARollbackIsNotSynced => self.0.durable = durable.min(self.0.log.len()),
            _ => {}
        }
    }

    fn crash(&mut self, random: &mut StdRng) {
        let documents = self.0.documents;
        Store::crash(&mut self.0, random);
        if self.1 == Wrong::DocumentsOutliveTheirEntries {
            self.0.documents = documents;
        }
    }

    fn log(&self) -> Vec<OpTime> {
        Store::log(&self.0)
    }

    fn documents(&self) -> Shown {
        Store::documents(&self.0)
    }
}

#[test]
fn a_store_that_breaks_one_is_found_out() {
    for wrong in [
        Wrong::DocumentsOutliveTheirEntries,
        Wrong::SyncsAreIgnored,
        Wrong::ARollbackForgetsADocument,
        Wrong::ARollbackIsNotSynced,
        Wrong::EntriesAreAppliedTwice,
    ] {
        let is_caught = |seed| laws(&mut Faulty(simulated(), wrong), seed).is_err();
        assert!((0..20).any(is_caught), "{wrong:?}");
    }
}
