//! There is one committed log: what any member ever knew to be committed, no member contradicts, nobody removes, and no
//! acknowledged majority write is missing from it.
//!
//! Who may remove it is a member that was still in an earlier term than the one it was committed in when it decided to, and so had no
//! part in that: it follows a primary that was, and hears of the later one in time. Its disk may be at work when it does, even when it
//! votes for it: by the longer log, so for nobody who lacks more. What it knows itself to be committed it keeps (as the checker of
//! commit points sees to).

use super::Checker;
use crate::ByMember;
use crate::disk::Entry;
use crate::world::World;
use baton_types::{OpTime, Term};

/// See the file's header.
#[derive(Default)]
pub struct CommittedStays {
    /// The longest log that was ever known to be committed.
    committed: Vec<Entry>,
    /// The terms in which it was: where the log ended then.
    terms: Vec<(usize, Term)>,
    /// The revision of each log, and the commit point, that were looked at last.
    seen: ByMember<(u64, OpTime)>,
}

impl Checker for CommittedStays {
    fn name(&self) -> &'static str {
        "what is committed stays"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        let known_before = self.committed.last().map_or(OpTime::ZERO, |entry| entry.optime);
        for (id, view) in world.touched_views() {
            let (log, now) = (&world.disk(id).log, (world.disk(id).revision, view.commit_point));
            if std::mem::replace(self.seen.of(id), now) == now || view.commit_point == OpTime::ZERO {
                continue;
            }
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
                self.committed.extend_from_slice(&log[shared..len]);
                // Only an entry of the primary's own term is ever the last that it commits.
                self.terms.push((len, view.commit_point.term));
            }
        }
        for removed in world.removed() {
            let Some(at) = self.committed.iter().position(|entry| *entry == removed.entry) else { continue };
            let committed_in = self.terms[self.terms.partition_point(|(len, _)| *len <= at)].1;
            if removed.term >= committed_in {
                return Err(format!(
                    "{} was committed in term {committed_in} and has been rolled back in term {}",
                    removed.entry.optime, removed.term
                ));
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
