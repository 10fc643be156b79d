//! What replication counts: elections, applied entries, fetched batches, changes of source; for serverStatus, replSetGetStatus and
//! `/metrics`.
//!
//! Invariants: counters only grow; what is told of an election is all of one election.
//! What it deliberately does not do: survive a restart.

use baton_consensus::{ElectionReason, MemberId, ResignReason};
use baton_types::{OpTime, Term};
use bson::RawDocument;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

/// An election that this member won.
#[derive(Clone, Debug)]
pub struct ElectionWon {
    /// Why it stood.
    pub reason: ElectionReason,
    /// When it won.
    pub date: SystemTime,
    /// The term it is primary of.
    pub term: Term,
    /// The last entry it knew to be committed.
    pub committed: OpTime,
    /// The end of its log.
    pub last_seen: OpTime,
    /// How many votes it needed.
    pub votes_needed: usize,
    /// Its priority.
    pub priority: f64,
    /// The election timeout.
    pub election_timeout: Duration,
    /// When the term's first entry was written.
    pub term_began: Option<SystemTime>,
    /// When the first entry of the term was committed.
    pub majority_available: Option<SystemTime>,
}

/// A vote that this member cast for another one.
#[derive(Clone, Copy, Debug)]
pub struct VoteCast {
    /// When.
    pub date: SystemTime,
    /// In which term.
    pub term: Term,
    /// For whom.
    pub candidate: MemberId,
    /// The end of its own log.
    pub last_applied: OpTime,
    /// Its own priority.
    pub priority: f64,
}

#[derive(Debug, Default)]
struct Elections {
    called: BTreeMap<ElectionReason, u64>,
    won: BTreeMap<ElectionReason, u64>,
    step_downs: BTreeMap<&'static str, u64>,
    last_won: Option<ElectionWon>,
    last_vote: Option<VoteCast>,
}

/// Elections by their reason.
#[derive(Clone, Debug, Default)]
pub struct ElectionCounts {
    /// How often this member stood, dry runs that failed aside.
    pub called: BTreeMap<ElectionReason, u64>,
    /// How often it won.
    pub won: BTreeMap<ElectionReason, u64>,
    /// How often it ceased to be primary, by the cause.
    pub step_downs: BTreeMap<&'static str, u64>,
}

/// See the file's header.
#[derive(Debug, Default)]
pub struct Figures {
    elections: Mutex<Elections>,
    /// Batches of the log that were applied.
    pub applied_batches: AtomicU64,
    /// Entries in them.
    pub applied_entries: AtomicU64,
    /// Of those the inserts, updates, deletes and commands.
    pub applied_by_kind: [AtomicU64; 4],
    /// Microseconds that took, syncing included.
    pub apply_micros: AtomicU64,
    /// Batches that came from a source, empty ones included.
    pub fetched_batches: AtomicU64,
    /// Empty ones.
    pub fetched_empty: AtomicU64,
    /// Bytes in them.
    pub fetched_bytes: AtomicU64,
    /// Entries in them.
    pub fetched_entries: AtomicU64,
    /// Times that a source was chosen.
    pub sources_chosen: AtomicU64,
    /// Times that there was none to choose.
    pub sources_lacking: AtomicU64,
    /// Rollbacks.
    pub rollbacks: AtomicU64,
    /// Attempts to apply an entry that failed.
    pub refused_entries: AtomicU64,
}

/// Why a primary resigned, as a label.
fn cause(reason: ResignReason) -> &'static str {
    match reason {
        ResignReason::HigherTerm(_) => "higherTerm",
        ResignReason::NoMajority => "noMajority",
        ResignReason::Request => "request",
        ResignReason::Configuration => "configuration",
        ResignReason::Data => "data",
    }
}

impl Figures {
    /// Elections so far.
    pub fn elections(&self) -> ElectionCounts {
        let elections = self.elections.lock();
        ElectionCounts {
            called: elections.called.clone(),
            won: elections.won.clone(),
            step_downs: elections.step_downs.clone(),
        }
    }

    /// The last election that this member won.
    pub fn last_won(&self) -> Option<ElectionWon> {
        self.elections.lock().last_won.clone()
    }

    /// The last vote that it cast for another.
    pub fn last_vote(&self) -> Option<VoteCast> {
        self.elections.lock().last_vote
    }

    pub(crate) fn stood(&self, reason: ElectionReason) {
        *self.elections.lock().called.entry(reason).or_default() += 1;
    }

    pub(crate) fn won(&self, election: ElectionWon) {
        let mut elections = self.elections.lock();
        *elections.won.entry(election.reason).or_default() += 1;
        elections.last_won = Some(election);
    }

    pub(crate) fn voted(&self, vote: VoteCast) {
        self.elections.lock().last_vote = Some(vote);
    }

    pub(crate) fn term_began(&self) {
        if let Some(election) = &mut self.elections.lock().last_won {
            election.term_began = Some(SystemTime::now());
        }
    }

    /// An entry of that term is committed; for the primary of it, the first is news.
    pub(crate) fn committed(&self, term: Term) {
        if let Some(election) = &mut self.elections.lock().last_won
            && election.term == term
            && election.majority_available.is_none()
        {
            election.majority_available = Some(SystemTime::now());
        }
    }

    pub(crate) fn resigned(&self, reason: ResignReason) {
        *self.elections.lock().step_downs.entry(cause(reason)).or_default() += 1;
    }

    pub(crate) fn source_chosen(&self, is_one: bool) {
        if is_one { &self.sources_chosen } else { &self.sources_lacking }.fetch_add(1, Relaxed);
    }

    pub(crate) fn fetched(&self, entries: usize, bytes: usize) {
        self.fetched_batches.fetch_add(1, Relaxed);
        self.fetched_empty.fetch_add(u64::from(entries == 0), Relaxed);
        self.fetched_entries.fetch_add(entries as u64, Relaxed);
        self.fetched_bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn applied(&self, entries: &[&RawDocument], time: Duration) {
        for entry in entries {
            let kind = match entry.get_str("op") {
                Ok("i") => 0,
                Ok("u") => 1,
                Ok("d") => 2,
                Ok("c") => 3,
                _ => continue,
            };
            self.applied_by_kind[kind].fetch_add(1, Relaxed);
        }
        self.applied_batches.fetch_add(1, Relaxed);
        self.applied_entries.fetch_add(entries.len() as u64, Relaxed);
        self.apply_micros.fetch_add(time.as_micros() as u64, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_entry_committed_in_a_term_is_noted_once_and_for_its_term_alone() {
        let figures = Figures::default();
        figures.stood(ElectionReason::Handoff);
        figures.won(ElectionWon {
            reason: ElectionReason::Handoff,
            date: SystemTime::now(),
            term: 3,
            committed: OpTime::ZERO,
            last_seen: OpTime::ZERO,
            votes_needed: 2,
            priority: 1.0,
            election_timeout: Duration::from_secs(10),
            term_began: None,
            majority_available: None,
        });
        figures.committed(2);
        assert!(figures.last_won().unwrap().majority_available.is_none());
        figures.committed(3);
        let first = figures.last_won().unwrap().majority_available;
        assert!(first.is_some());
        figures.committed(3);
        assert_eq!(figures.last_won().unwrap().majority_available, first);
        let counts = figures.elections();
        assert_eq!((counts.called[&ElectionReason::Handoff], counts.won[&ElectionReason::Handoff]), (1, 1));
    }
}
