//! There is one committed log: what any member ever knew to be committed, no member contradicts, nobody removes, and no
//! acknowledged majority write is missing from it.

use super::Checker;
use crate::disk::Entry;
use crate::world::World;
use baton_types::OpTime;

/// See the file's header.
#[derive(Default)]
pub struct CommittedStays {
    /// The longest log that was ever known to be committed.
    committed: Vec<Entry>,
}

impl Checker for CommittedStays {
    fn name(&self) -> &'static str {
        "what is committed stays"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        let known_before = self.committed.last().map_or(OpTime::ZERO, |entry| entry.optime);
        for (id, view) in world.views() {
            if view.commit_point == OpTime::ZERO {
                continue;
            }
            let log = &world.disk(id).log;
            let len = log.partition_point(|entry| entry.optime <= view.commit_point);
            // Compare the end; that the beginnings agree is log matching.
            let shared = len.min(self.committed.len());
            if shared > 0 && log[shared - 1] != self.committed[shared - 1] {
                return Err(format!(
                    "member {id} holds {} committed, where {} is",
                    log[shared - 1].optime,
                    self.committed[shared - 1].optime
                ));
            }
            if len > self.committed.len() {
                self.committed = log[..len].to_vec();
            }
        }
        for removed in world.removed() {
            if self.committed.iter().any(|entry| entry == removed) {
                return Err(format!("{} was committed and has been rolled back", removed.optime));
            }
        }
        for acknowledged in world.acknowledged() {
            let at = self.committed.partition_point(|entry| entry.optime < acknowledged.optime);
            if self.committed.get(at) != Some(acknowledged) {
                return Err(format!(
                    "{} was acknowledged and is not in the committed log, which ends at {known_before}",
                    acknowledged.optime
                ));
            }
        }
        Ok(())
    }
}
