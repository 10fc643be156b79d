//! A primary of a term has every entry that was committed in an earlier term.
//!
//! The term that counts is the one in which an entry was committed, not the one in which it was written: an entry of an old
//! term is committed along with the first of a later one.

use super::Checker;
use crate::ByMember;
use crate::disk::Entry;
use crate::world::World;
use baton_consensus::MemberState;
use baton_types::{OpTime, Term};
use std::collections::BTreeMap;

/// See the file's header.
#[derive(Default)]
pub struct LeaderCompleteness {
    /// The last entry that a primary committed, by the term in which it did.
    committed_in: BTreeMap<Term, Entry>,
    /// What each primary was when it was looked at last: its term, its commit point and its log's revision.
    seen: ByMember<(Term, OpTime, u64)>,
}

impl Checker for LeaderCompleteness {
    fn name(&self) -> &'static str {
        "leader completeness"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        for (id, view) in world.touched_views().filter(|(_, view)| view.state == MemberState::Primary) {
            let now = (view.term, view.commit_point, world.disk(id).revision);
            if std::mem::replace(self.seen.of(id), now) == now {
                continue;
            }
            let log = &world.disk(id).log;
            if view.commit_point.term == view.term {
                let at = log.partition_point(|entry| entry.optime < view.commit_point);
                if let Some(entry) = log.get(at) {
                    self.committed_in.insert(view.term, *entry);
                }
            }
            if let Some((term, committed)) = self.committed_in.range(..view.term).next_back() {
                let at = log.partition_point(|entry| entry.optime < committed.optime);
                if log.get(at) != Some(committed) {
                    return Err(format!(
                        "member {id}, primary of term {}, lacks {}, which was committed in term {term}",
                        view.term, committed.optime
                    ));
                }
            }
        }
        Ok(())
    }
}
