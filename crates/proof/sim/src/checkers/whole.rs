//! A member whose data are not whole serves nobody, and has no vote.
//!
//! A vote of the term in which it gave its data up may be told later: it was decided while it had them.

use super::Checker;
use crate::ByMember;
use crate::world::World;
use baton_types::Term;

/// See the file's header.
#[derive(Default)]
pub struct WholeBeforeItServes {
    /// The term of each member that is not whole when it was first seen so.
    since: ByMember<Option<Term>>,
}

impl Checker for WholeBeforeItServes {
    fn name(&self) -> &'static str {
        "who is not whole serves nobody and has no vote"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        for (id, view) in world.touched_views() {
            if world.disk(id).is_whole {
                *self.since.of(id) = None;
                continue;
            }
            self.since.of(id).get_or_insert(view.term);
            if view.state.is_readable() || view.is_writable {
                return Err(format!("member {id} is {} and its data are not whole", view.state.name()));
            }
        }
        let since = |voter| self.since.get(voter).copied().flatten();
        match world.votes_told().iter().find(|vote| since(&vote.voter).is_some_and(|since| vote.term > since)) {
            Some(vote) => Err(format!("member {} voted in term {} without whole data", vote.voter, vote.term)),
            None => Ok(()),
        }
    }
}
