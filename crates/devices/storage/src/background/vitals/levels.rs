//! How deep one family of RocksDB is in debt, and how near that is to slowing writers down.
//!
//! Targets of levels are those of RocksDB's dynamic levels (`VersionStorageInfo::CalculateBaseBytes`): the largest level is what it is,
//! and each one above it may have a tenth of the one below.

use super::{LEVEL0_FILES_SLOWDOWN, MEMTABLES_MAX, PENDING_BYTES_SLOWDOWN};
use crate::options::{LEVEL_BASE_BYTES, LEVEL_FACTOR, LEVEL0_FILES_DUE};

/// One family, as RocksDB's properties tell.
#[derive(Clone, Debug, Default)]
pub(super) struct FamilyFigures {
    pub pending_bytes: u64,
    pub level0_files: u64,
    /// Memtables that wait to be flushed.
    pub immutable_memtables: u64,
    pub memtable_bytes: u64,
    /// Writers are slowed down or stopped already.
    pub is_slowed: bool,
    /// Bytes of each level.
    pub level_bytes: Vec<u64>,
}

/// How far a figure has come from where it begins to grow to where it ends.
fn way(figure: u64, from: u64, to: u64) -> f64 {
    (figure.saturating_sub(from) as f64 / (to - from) as f64).min(1.0)
}

impl FamilyFigures {
    /// 0 far, 1 there. Files that are not due to be compacted yet and one memtable that is being flushed are no sign of anything.
    pub fn stall_nearness(&self) -> f64 {
        if self.is_slowed {
            return 1.0;
        }
        let triggers = [
            way(self.level0_files, LEVEL0_FILES_DUE, LEVEL0_FILES_SLOWDOWN),
            way(self.pending_bytes, 0, PENDING_BYTES_SLOWDOWN),
            way(self.immutable_memtables, 1, MEMTABLES_MAX - 1),
        ];
        triggers.into_iter().fold(0.0, f64::max)
    }

    /// Levels that RocksDB would compact.
    pub fn levels_above_target(&self) -> u32 {
        u32::from(self.level0_files >= LEVEL0_FILES_DUE) + deep_levels_above_target(&self.level_bytes)
    }
}

fn deep_levels_above_target(bytes: &[u64]) -> u32 {
    // The last level has none below that it could be merged into.
    let Some(last) = bytes.len().checked_sub(1) else { return 0 };
    let largest = bytes.iter().skip(1).max().copied().unwrap_or(0);
    let targets = std::iter::successors(Some(largest / LEVEL_FACTOR), |below| Some(below / LEVEL_FACTOR));
    let deep = (1..last).rev().zip(targets);
    deep.filter(|(level, target)| bytes[*level] > LEVEL_BASE_BYTES.max(*target)).count() as u32
}

/// The bytes of each level, from RocksDB's table of levels, files and megabytes.
pub(crate) fn bytes_by_level(table: &str) -> Vec<u64> {
    let row = |line: &str| {
        let mut figures = line.split_whitespace().map(str::parse::<u64>);
        let (_level, _files, megabytes) = (figures.next()?.ok()?, figures.next()?.ok()?, figures.next()?.ok()?);
        Some(megabytes << 20)
    };
    table.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_nearest_trigger_counts_and_what_is_usual_counts_for_nothing() {
        let of = |level0_files, pending_bytes, immutable_memtables| {
            FamilyFigures { level0_files, pending_bytes, immutable_memtables, ..FamilyFigures::default() }
                .stall_nearness()
        };
        assert_eq!(of(4, 0, 1), 0.0);
        assert_eq!(of(12, 0, 0), 0.5);
        assert_eq!(of(0, 48 << 30, 0), 0.75);
        assert_eq!(of(0, 0, 2), 0.5);
        assert_eq!(of(5, 64 << 30, 2), 1.0);
        assert_eq!(of(2000, u64::MAX, 100), 1.0);
        let slowed = FamilyFigures { is_slowed: true, ..FamilyFigures::default() };
        assert_eq!(slowed.stall_nearness(), 1.0);
    }

    #[test]
    fn a_level_is_above_its_target_if_it_has_more_than_a_tenth_of_the_next() {
        let of = |level0_files, level_bytes: [u64; 7]| {
            FamilyFigures { level0_files, level_bytes: level_bytes.to_vec(), ..FamilyFigures::default() }
                .levels_above_target()
        };
        assert_eq!(of(3, [0; 7]), 0);
        assert_eq!(of(4, [30 * MIB, 0, 0, 0, 0, 0, 0]), 1);
        assert_eq!(of(0, [0, 0, 0, 0, 0, 0, 900_000 * MIB]), 0, "the last one is as large as it is");
        assert_eq!(of(0, [0, 0, 0, 0, 0, 900 * MIB, 10_000 * MIB]), 0);
        assert_eq!(of(0, [0, 0, 0, 0, 0, 1100 * MIB, 10_000 * MIB]), 1);
        assert_eq!(of(0, [0, 0, 0, 0, 0, 200 * MIB, 500 * MIB]), 0, "a level may have what the first may");
        assert_eq!(of(9, [0, 0, 0, 0, 500 * MIB, 4000 * MIB, 30_000 * MIB]), 3);
    }

    #[test]
    fn rocksdbs_table_is_read_and_what_is_no_row_of_it_is_not() {
        let table = "Level Files Size(MB)\n--------------------\n  0        3       12\n  1        0        0\n  6       10      640\n";
        assert_eq!(bytes_by_level(table), [12 * MIB, 0, 640 * MIB]);
        assert!(bytes_by_level("").is_empty());
    }
}
