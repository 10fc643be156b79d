//! The YCSB core workloads: which operation comes next, on which record.
//!
//! Invariant: a record is chosen only after its insertion was acknowledged. The mixes are those of YCSB's
//! `workloads/workload[a-f]`; two single-operation mixes are ours, for figures that must not be blended.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::distribution::{Distribution, Random};
use crate::record::Layout;

/// Longest scan of workload E; lengths are uniform over `1..=SCAN_LENGTH_MAX`.
pub const SCAN_LENGTH_MAX: u64 = 100;

/// A mix of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
#[value(rename_all = "lower")]
pub enum Workload {
    /// Update heavy: half reads, half updates, zipfian.
    A,
    /// Read mostly: 95 % reads, 5 % updates, zipfian.
    B,
    /// Read only, zipfian.
    C,
    /// Read latest: 95 % reads of the newest, 5 % inserts.
    D,
    /// Short ranges: 95 % scans, 5 % inserts, zipfian.
    E,
    /// Half reads, half read-modify-writes, zipfian.
    F,
    /// Updates only, zipfian (ours).
    Update,
    /// Updates only, each of the whole kilobyte in one field, zipfian (ours); the table is loaded in that shape.
    Replace,
    /// Inserts only, one at a time (ours).
    Insert,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// One record by key, all fields.
    Read,
    /// One field of one record set.
    Update,
    /// A new record.
    Insert,
    /// Up to `SCAN_LENGTH_MAX` records from a key on, in key order.
    Scan,
    /// A read and an update of the same record, timed as one.
    ReadModifyWrite,
}

impl Kind {
    /// Every kind, in the order reports list them.
    pub const ALL: [Self; 5] = [Self::Read, Self::Update, Self::Insert, Self::Scan, Self::ReadModifyWrite];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Update => "update",
            Self::Insert => "insert",
            Self::Scan => "scan",
            Self::ReadModifyWrite => "read-modify-write",
        }
    }
}

impl Workload {
    /// Its letter or name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
            Self::C => "c",
            Self::D => "d",
            Self::E => "e",
            Self::F => "f",
            Self::Update => "update",
            Self::Replace => "replace",
            Self::Insert => "insert",
        }
    }

    /// The share of operations that are `.0`, the rest being `.1`.
    fn mix(self) -> (f64, Kind, Kind) {
        match self {
            Self::A => (0.5, Kind::Read, Kind::Update),
            Self::B => (0.95, Kind::Read, Kind::Update),
            Self::C => (1.0, Kind::Read, Kind::Read),
            Self::D => (0.95, Kind::Read, Kind::Insert),
            Self::E => (0.95, Kind::Scan, Kind::Insert),
            Self::F => (0.5, Kind::Read, Kind::ReadModifyWrite),
            Self::Update | Self::Replace => (1.0, Kind::Update, Kind::Update),
            Self::Insert => (1.0, Kind::Insert, Kind::Insert),
        }
    }

    /// Whether the mix holds scans, which a key-value peer cannot answer.
    pub fn scans(self) -> bool {
        self == Self::E
    }

    /// The part of the operations that change something.
    pub fn write_share(self) -> f64 {
        let (share, often, seldom) = self.mix();
        let writes = |kind| if matches!(kind, Kind::Read | Kind::Scan) { 0.0 } else { 1.0 };
        share * writes(often) + (1.0 - share) * writes(seldom)
    }

    /// How the records lie in the table.
    pub fn layout(self) -> Layout {
        if self == Self::Replace { Layout::Whole } else { Layout::Fields }
    }

    /// The next kind of operation.
    pub fn next_kind(self, random: &mut Random) -> Kind {
        let (share, often, seldom) = self.mix();
        if share >= 1.0 || random.unit() < share { often } else { seldom }
    }

    /// The mix's own request distribution over a table of `records`.
    ///
    /// `operations` is how many will be asked for, if known: like YCSB, the zipfian then also covers the records that
    /// the run is going to insert.
    pub fn distribution(self, records: u64, operations: Option<u64>) -> Distribution {
        match self {
            Self::D => Distribution::latest(records),
            Self::A | Self::B | Self::C | Self::E | Self::F | Self::Update | Self::Replace | Self::Insert => {
                let inserted = operations.filter(|_| self == Self::E).map_or(0, |count| count / 10);
                Distribution::scrambled_zipfian(records + inserted)
            }
        }
    }
}

/// The records of one table: which number the next insertion takes, and up to which all are acknowledged.
#[derive(Debug)]
pub struct Records {
    loaded: u64,
    next: AtomicU64,
    acknowledged: AtomicU64,
    out_of_order: Mutex<BTreeSet<u64>>,
}

impl Records {
    /// A table that holds records `0..count`.
    pub fn loaded(count: u64) -> Self {
        let (next, acknowledged) = (AtomicU64::new(count), AtomicU64::new(count));
        Self { loaded: count, next, acknowledged, out_of_order: Mutex::default() }
    }

    /// How many there were at first.
    pub fn loaded_count(&self) -> u64 {
        self.loaded
    }

    /// The number of a record to insert.
    pub fn claim(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Notes that the server acknowledged `record`.
    pub fn acknowledge(&self, record: u64) {
        let mut waiting = self.out_of_order.lock();
        waiting.insert(record);
        let mut limit = self.acknowledged.load(Ordering::Relaxed);
        while waiting.remove(&limit) {
            limit += 1;
        }
        self.acknowledged.store(limit, Ordering::Release);
    }

    /// Goes on after a run that was cut off: the next insertion takes the first number above all that were ever claimed,
    /// and what was claimed in vain counts as acknowledged.
    ///
    /// Only for tables of which nobody reads what was not acknowledged.
    pub fn abandon_unacknowledged(&self) {
        let mut waiting = self.out_of_order.lock();
        waiting.clear();
        self.acknowledged.store(self.next.load(Ordering::Relaxed), Ordering::Release);
    }

    /// How many records, from 0 on, may be asked for.
    pub fn count(&self) -> u64 {
        self.acknowledged.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_only_once_all_before_it_are_acknowledged() {
        let records = Records::loaded(10);
        let (first, second) = (records.claim(), records.claim());
        records.acknowledge(second);
        assert_eq!(records.count(), 10);
        records.acknowledge(first);
        assert_eq!(records.count(), 12);
    }

    #[test]
    fn workload_b_updates_one_time_in_twenty() {
        let mut random = Random::new(5);
        let updates = (0..100_000).filter(|_| Workload::B.next_kind(&mut random) == Kind::Update).count();
        assert!((4_700..5_300).contains(&updates), "{updates}");
    }
}
