//! A member's disk: what survives a crash, and what does not.
//!
//! Invariant: `log[..durable]` survives; of the rest a crash leaves a random beginning. Votes and configurations are either
//! entirely there or not at all, and are there once their write was acknowledged. An entry and what it did to a document are one write.
//!
//! It stands for `baton-storage` over RocksDB: one suite of laws holds for both (`tests/laws.rs`).

use crate::catalog::{BuildEntry, Catalog, Index};
use baton_consensus::{Configuration, LastVote, Position};
use baton_types::{OpTime, Timestamp};
use rand::Rng;

/// One entry of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its position.
    pub optime: OpTime,
    /// Its content: no two entries that were ever written share one.
    pub value: u64,
    /// What it says of an index build. Then it changes no document.
    pub build: Option<BuildEntry>,
}

/// How many documents there are.
pub const DOCUMENTS: usize = 4;

/// The documents of a store: each as the last entry left it that set it, and how many did since it was there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Documents {
    values: [u64; DOCUMENTS],
    writes: [u32; DOCUMENTS],
}

impl Entry {
    /// An entry that sets a document.
    pub fn new(optime: OpTime, value: u64) -> Self {
        Self { optime, value, build: None }
    }

    /// Which document it sets, or is about.
    pub fn document(&self) -> usize {
        self.build.map_or((self.value % DOCUMENTS as u64) as usize, |entry| entry.document.into())
    }

    /// Whether a document that was set to this is what an index does not allow.
    pub fn is_of_violation(value: u64) -> bool {
        value % 7 == 5
    }

    /// Whether it drops the document.
    pub fn is_drop(&self) -> bool {
        self.build.is_none() && self.value.is_multiple_of(11)
    }
}

impl Documents {
    fn set(&mut self, entry: &Entry) {
        let document = entry.document();
        if entry.is_drop() {
            self.remove(document);
        } else if entry.build.is_none() {
            self.values[document] = entry.value;
            self.writes[document] += 1;
        }
    }

    /// Drops a document.
    pub fn remove(&mut self, document: usize) {
        (self.values[document], self.writes[document]) = (0, 0);
    }

    /// Whether there is such a document.
    pub fn exists(&self, document: usize) -> bool {
        self.writes[document] > 0
    }

    /// What it was set to last.
    pub fn value(&self, document: usize) -> u64 {
        self.values[document]
    }

    /// How often it was set.
    pub fn writes(&self, document: usize) -> u32 {
        self.writes[document]
    }
}

/// See the file's header.
#[derive(Clone, Debug)]
pub struct Disk {
    /// The last vote.
    pub vote: LastVote,
    /// The configuration.
    pub configuration: Option<Configuration>,
    /// The log, synced up to `durable`.
    pub log: Vec<Entry>,
    /// Numbers the member's processes.
    pub incarnation: u64,
    /// What the log made of the documents.
    pub documents: Documents,
    /// What it made of the indexes, and how far this member has filled them.
    pub catalog: Catalog,
    /// Whether they are of use. If not, a member begins with a copy.
    pub is_whole: bool,
    /// If not: where the log ended that was given up for a copy.
    pub given_up: OpTime,
    /// A copy was begun, and is not whole: of the log here nobody was told.
    pub is_half_copied: bool,
    /// The end of the source's log when each document of the copy was read.
    seen: [OpTime; DOCUMENTS],
    /// Grows with every change of the log.
    pub revision: u64,
    /// Grows whenever the log does not merely grow: who reads it must begin anew.
    pub cuts: u64,
    /// Entries before this place are dropped: nobody gets them from here. (They are kept for the checkers.)
    pub oldest: usize,
    /// How many entries would survive a crash for certain.
    pub durable: usize,
    /// The commit point, as far as it was noted down.
    pub commit_point: OpTime,
}

impl Default for Disk {
    fn default() -> Self {
        Self {
            vote: LastVote::default(),
            configuration: None,
            log: Vec::new(),
            incarnation: 0,
            documents: Documents::default(),
            catalog: Catalog::default(),
            is_whole: true,
            given_up: OpTime::ZERO,
            is_half_copied: false,
            seen: [OpTime::ZERO; DOCUMENTS],
            revision: 0,
            cuts: 0,
            oldest: 0,
            durable: 0,
            commit_point: OpTime::ZERO,
        }
    }
}

impl Disk {
    /// The end of the log.
    pub fn last(&self) -> OpTime {
        self.log.last().map_or(OpTime::ZERO, |entry| entry.optime)
    }

    /// What the member says of its log.
    pub fn position(&self) -> Position {
        let durable = self.durable.checked_sub(1).map_or(OpTime::ZERO, |at| self.log[at].optime);
        Position { written: self.last(), applied: self.last(), durable }
    }

    /// Whether the entry is newer than all that is here. Others are not applied: they are in the log already.
    pub fn lacks(&self, entry: &Entry) -> bool {
        entry.optime.timestamp > self.last().timestamp
    }

    /// Adds an entry, and does what it says, in one write.
    pub fn apply(&mut self, entry: Entry) {
        if !self.has_seen(&entry) {
            self.documents.set(&entry);
            match &entry.build {
                // Of a collection that is not there nothing is built.
                Some(change) if self.documents.exists(entry.document()) => self.catalog.apply(change),
                None if entry.is_drop() => self.catalog.drop_collection(entry.document()),
                Some(_) | None => {}
            }
        }
        self.pass_over(entry);
    }

    /// Drops a document, and the indexes of the collection it stands for.
    pub fn remove(&mut self, document: usize) {
        self.documents.remove(document);
        self.catalog.drop_collection(document);
    }

    /// Adds an entry alone.
    pub fn pass_over(&mut self, entry: Entry) {
        self.log.push(entry);
        self.revision += 1;
    }

    /// Whether a copied document is as it was after this entry, or later.
    pub fn has_seen(&self, entry: &Entry) -> bool {
        entry.optime <= self.seen[entry.document()]
    }

    /// Loses what was not synced, or as much of it as chance has it.
    pub fn crash(&mut self, random: &mut impl Rng) {
        let kept = random.random_range(self.durable..=self.log.len());
        self.cut(kept);
        self.catalog.crash(kept, random);
        // What is found after a crash is on disk.
        self.durable = self.log.len();
    }

    /// Takes away what lies behind the first `len` entries: every document becomes what it was then.
    pub fn cut(&mut self, len: usize) {
        let gone = self.log.split_off(len);
        for document in gone.iter().map(Entry::document) {
            self.documents.remove(document);
            self.log.iter().filter(|entry| entry.document() == document).for_each(|entry| self.documents.set(entry));
        }
        let concerns_indexes = |entry: &Entry| entry.build.is_some() || entry.is_drop();
        let documents: Vec<usize> = gone.iter().filter(|entry| concerns_indexes(entry)).map(Entry::document).collect();
        if !documents.is_empty() {
            self.catalog.replay(&documents, &self.log);
        }
        self.revision += 1;
        self.cuts += u64::from(!gone.is_empty());
        self.durable = self.durable.min(len);
    }

    /// Takes away all entries after this one and what they did, in one write that is synced. `false` if there is no such entry.
    pub fn roll_back(&mut self, common: OpTime) -> bool {
        if !self.has(common) {
            return false;
        }
        let before = self.catalog.clone();
        self.cut(self.place(common.timestamp) + 1);
        self.catalog.rolled_back(&before, self.log.len());
        self.durable = self.log.len();
        true
    }

    /// Becomes a copy of another member's data, synced. What is known to be committed is what that one knew: what this one knew need
    /// not be in this log.
    pub fn copy(&mut self, source: &Self) {
        self.log.clone_from(&source.log);
        self.commit_point = source.commit_point;
        self.documents = source.documents;
        self.catalog.clone_from(&source.catalog);
        self.end_clone();
        self.revision += 1;
        self.cuts += 1;
    }

    /// What is here is of no use any more. Survives a crash.
    pub fn note_not_whole(&mut self) {
        if self.is_whole {
            (self.is_whole, self.given_up) = (false, self.last());
        }
    }

    /// Gives up what is here, for a copy that is made piece by piece.
    pub fn begin_clone(&mut self) {
        self.note_not_whole();
        *self = Self {
            configuration: self.configuration.take(),
            vote: self.vote,
            incarnation: self.incarnation,
            commit_point: self.commit_point,
            given_up: self.given_up,
            is_whole: false,
            is_half_copied: true,
            revision: self.revision + 1,
            cuts: self.cuts + 1,
            ..Self::default()
        };
    }

    /// Begins the log of a copy. (All of it is kept for the checkers.)
    pub fn begin_log(&mut self, log: &[Entry]) {
        self.log = log.to_vec();
        self.revision += 1;
    }

    /// Takes over a document of a source whose log ends there, and the indexes of the collection it stands for.
    pub fn copy_document(&mut self, document: usize, source: &Documents, indexes: &[Index], last: OpTime) {
        self.catalog.copy_collection(document, indexes, self.log.len());
        self.documents.values[document] = source.values[document];
        self.documents.writes[document] = source.writes[document];
        self.seen[document] = last;
    }

    /// The copy is whole, and synced.
    pub fn end_clone(&mut self) {
        (self.is_whole, self.is_half_copied, self.given_up) = (true, false, OpTime::ZERO);
        self.seen = [OpTime::ZERO; DOCUMENTS];
        self.revision += 1;
        self.durable = self.log.len();
    }

    /// The entry of this OpTime, if there is one.
    pub fn entry(&self, optime: OpTime) -> Option<&Entry> {
        self.log.get(self.place(optime.timestamp)).filter(|entry| entry.optime == optime)
    }

    /// The place of the first entry from this timestamp on.
    pub fn place(&self, timestamp: Timestamp) -> usize {
        let at = self.log.partition_point(|entry| entry.optime.timestamp < timestamp);
        at.max(self.oldest).min(self.log.len())
    }

    /// Whether this entry is in the log.
    pub fn has(&self, optime: OpTime) -> bool {
        self.log.get(self.place(optime.timestamp)).is_some_and(|entry| entry.optime == optime)
    }
}

/// How many entries two logs have in common from the beginning, for the checkers.
pub fn common_prefix(a: &[Entry], b: &[Entry]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a.optime == b.optime).count()
}
