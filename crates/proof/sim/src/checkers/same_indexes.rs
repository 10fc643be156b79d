//! Members whose logs end with the same entry have the same indexes, complete and under way, whatever way they came there: so every
//! build ends alike on all members, at the same entry. And an index that is complete has all it should.

use super::Checker;
use crate::ByMember;
use crate::catalog::{BuildId, Catalog};
use crate::world::World;
use baton_types::OpTime;
use std::collections::BTreeMap;

/// See the file's header.
#[derive(Default)]
pub struct SameIndexes {
    /// What indexes there were, and whether they were complete, when somebody was first seen with this as its last entry.
    seen: BTreeMap<OpTime, Vec<(BuildId, bool)>>,
    /// The revision of each store that was looked at last.
    revisions: ByMember<Option<u64>>,
}

fn indexes(catalog: &Catalog) -> impl Iterator<Item = (BuildId, bool)> {
    catalog.indexes().iter().map(|index| (index.build, index.is_complete))
}

impl Checker for SameIndexes {
    fn name(&self) -> &'static str {
        "who has applied the same entry has the same indexes, and whole ones"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        for &id in world.touched() {
            let disk = world.disk(id);
            if self.revisions.of(id).replace(disk.revision) == Some(disk.revision) || !disk.is_whole {
                continue;
            }
            let catalog = &disk.catalog;
            let seen = self.seen.entry(disk.last()).or_insert_with(|| indexes(catalog).collect());
            if !indexes(catalog).eq(seen.iter().copied()) {
                let here: Vec<_> = indexes(catalog).collect();
                return Err(format!("at {} member {id} has {here:?}, where {seen:?} is", disk.last()));
            }
            if let Some(index) = catalog.indexes().iter().find(|index| index.is_complete && !index.is_filled()) {
                return Err(format!("member {id} has completed {index:?}, which is not filled"));
            }
        }
        Ok(())
    }
}
