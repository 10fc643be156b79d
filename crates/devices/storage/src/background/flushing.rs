//! When a memtable is written out before it is full.
//!
//! RocksDB flushes a memtable that is full, and lets writers wait if it cannot. That moment is nobody's to choose: a gate that said
//! no would stop the member's writes. So the gate is asked before: whether a memtable that will be full soon is to be flushed now.
//!
//! Invariant: nothing here makes anybody wait. Whatever the gate answers, a full memtable is flushed.

use crate::background::Chores;
use crate::documents::format::family;
use crate::machine::read_failure;
use baton_types::Result;
use rust_rocksdb::{FlushOptions, properties};

/// Families whose memtables grow large.
pub(crate) const LARGE_FAMILIES: [&str; 3] = [family::DOCUMENTS, family::INDEXES, family::OPLOG];

/// The family whose memtable is to be asked about: the largest, if it is three quarters full, or all of them together are.
fn soon_full(sizes: &[(&'static str, u64)], family_max: u64) -> Option<(&'static str, u64)> {
    let &(name, largest) = sizes.iter().max_by_key(|(_, bytes)| *bytes)?;
    let sum: u64 = sizes.iter().map(|(_, bytes)| bytes).sum();
    // RocksDB begins when seven eighths of the memory for all are used, which is for two full ones.
    let is_soon = largest >= family_max / 4 * 3 || sum >= 2 * family_max / 8 * 7 / 4 * 3;
    is_soon.then_some((name, largest))
}

impl Chores<'_> {
    /// Flushes a memtable that will be full soon, if the gate says that now is better. To be called several times a second.
    pub fn tend_flushes(&self) -> Result<()> {
        let mut sizes = [("", 0); LARGE_FAMILIES.len()];
        for (size, name) in sizes.iter_mut().zip(LARGE_FAMILIES) {
            let bytes = self.0.db().property_int_value_cf(self.0.family(name), properties::CUR_SIZE_ACTIVE_MEM_TABLE);
            *size = (name, bytes.map_err(read_failure)?.unwrap_or(0));
        }
        let Some((name, bytes)) = soon_full(&sizes, self.0.options.family_memtable_bytes() as u64) else {
            return Ok(());
        };
        if !self.0.tasks().may_flush_early(name, bytes) {
            return Ok(());
        }
        let mut options = FlushOptions::default();
        options.set_wait(false);
        self.0.db().flush_cf_opt(self.0.family(name), &options).map_err(read_failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_largest_that_is_asked_about_once_it_or_all_are_nearly_full() {
        let sizes = |documents, oplog| [(family::DOCUMENTS, documents), (family::OPLOG, oplog)];
        assert_eq!(soon_full(&sizes(700, 10), 1000), None);
        assert_eq!(soon_full(&sizes(10, 750), 1000), Some((family::OPLOG, 750)));
        assert_eq!(
            soon_full(&sizes(700, 620), 1000),
            Some((family::DOCUMENTS, 700)),
            "seven eighths are used together soon"
        );
    }
}
