//! A member's disk: what survives a crash, and what does not.
//!
//! Invariant: `log[..durable]` survives; of the rest a crash leaves a random beginning. Votes and configurations are either
//! entirely there or not at all, and are there once their write was acknowledged.

use baton_consensus::{Configuration, LastVote, Position};
use baton_types::OpTime;
use rand::Rng;

/// One entry of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its position.
    pub optime: OpTime,
    /// Its content: no two entries that were ever written share one.
    pub value: u64,
}

/// See the file's header.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// The last vote.
    pub vote: LastVote,
    /// The configuration.
    pub configuration: Option<Configuration>,
    /// The log, synced up to `durable`.
    pub log: Vec<Entry>,
    /// Grows with every change of the log.
    pub revision: u64,
    /// Entries before this place are dropped: nobody gets them from here. (They are kept for the checkers.)
    pub oldest: usize,
    /// How many entries would survive a crash for certain.
    pub durable: usize,
    /// The commit point, as far as it was noted down.
    pub commit_point: OpTime,
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

    /// Adds entries.
    pub fn append(&mut self, entries: &[Entry]) {
        self.log.extend_from_slice(entries);
        self.revision += 1;
    }

    /// Loses what was not synced, or as much of it as chance has it.
    pub fn crash(&mut self, random: &mut impl Rng) {
        let kept = random.random_range(self.durable..=self.log.len());
        self.log.truncate(kept);
        self.revision += 1;
        // What is found after a crash is on disk.
        self.durable = self.log.len();
    }

    /// Removes what lies behind the first `len` entries.
    pub fn truncate(&mut self, len: usize) {
        self.log.truncate(len);
        self.revision += 1;
        self.durable = self.durable.min(len);
    }

    /// The entries from this timestamp on.
    pub fn from(&self, optime: OpTime) -> &[Entry] {
        let at = self.log.partition_point(|entry| entry.optime.timestamp < optime.timestamp);
        &self.log[at.max(self.oldest).min(self.log.len())..]
    }
}

/// How many entries two logs have in common from the beginning.
pub fn common_prefix(a: &[Entry], b: &[Entry]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a.optime == b.optime).count()
}
