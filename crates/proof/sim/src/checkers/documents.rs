//! Members whose logs end with the same entry have the same documents, whatever way they came there: applied, copied, rolled back,
//! or found after a crash.

use super::Checker;
use crate::ByMember;
use crate::disk::Documents;
use crate::world::World;
use baton_types::OpTime;
use std::collections::BTreeMap;

/// See the file's header.
#[derive(Default)]
pub struct EqualDocuments {
    /// What the documents were when somebody was first seen with this as its last entry.
    seen: BTreeMap<OpTime, Documents>,
    /// The revision of each store that was looked at last.
    revisions: ByMember<Option<u64>>,
}

impl Checker for EqualDocuments {
    fn name(&self) -> &'static str {
        "who has applied the same entry has the same documents"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        for &id in world.touched() {
            let disk = world.disk(id);
            if self.revisions.of(id).replace(disk.revision) == Some(disk.revision) || !disk.is_whole {
                continue;
            }
            let seen = self.seen.entry(disk.last()).or_insert(disk.documents);
            if *seen != disk.documents {
                return Err(format!("at {} member {id} has {:?}, where {seen:?} is", disk.last(), disk.documents));
            }
        }
        Ok(())
    }
}
