//! A member whose data are not whole serves nobody, and has no vote.
//!
//! A vote of the term in which it gave its data up may be told later: it was decided while it had them.

use super::Checker;
use crate::world::World;
use baton_consensus::MemberId;
use baton_types::Term;
use std::collections::BTreeMap;

/// See the file's header.
#[derive(Default)]
pub struct WholeBeforeItServes {
    /// The term of each member that is not whole when it was first seen so.
    since: BTreeMap<MemberId, Term>,
}

impl Checker for WholeBeforeItServes {
    fn name(&self) -> &'static str {
        "who is not whole serves nobody and has no vote"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        for (id, view) in world.touched_views() {
            if world.disk(id).is_whole {
                self.since.remove(&id);
                continue;
            }
            self.since.entry(id).or_insert(view.term);
            if view.state.is_readable() || view.is_writable {
                return Err(format!("member {id} is {} and its data are not whole", view.state.name()));
            }
        }
        let is_late = |voter: &MemberId, term: Term| self.since.get(voter).is_some_and(|since| term > *since);
        match world.votes_told().iter().find(|vote| is_late(&vote.voter, vote.term)) {
            Some(vote) => Err(format!("member {} voted in term {} without whole data", vote.voter, vote.term)),
            None => Ok(()),
        }
    }
}
