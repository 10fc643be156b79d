//! At most one member is primary of a term.

use super::Checker;
use crate::world::World;
use baton_consensus::{MemberId, MemberState};
use baton_types::Term;
use std::collections::BTreeMap;

/// See the file's header.
#[derive(Default)]
pub struct OnePrimaryPerTerm {
    primaries: BTreeMap<Term, MemberId>,
}

impl Checker for OnePrimaryPerTerm {
    fn name(&self) -> &'static str {
        "one primary per term"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        for (id, view) in world.touched_views() {
            if view.state == MemberState::Primary {
                let first = *self.primaries.entry(view.term).or_insert(id);
                if first != id {
                    return Err(format!("members {first} and {id} are both primary of term {}", view.term));
                }
            }
        }
        Ok(())
    }
}
