//! No two voters are at the same time without the copy that they gave up because they could not apply an entry to it: with the same
//! trouble on all members, each giving up what it has, the set would have nothing left.
//!
//! What is not counted: a member that some configuration in use gives no vote.

use super::Checker;
use crate::ByMember;
use crate::world::World;
use baton_consensus::{MemberId, MemberState};
use std::collections::BTreeSet;

/// See the file's header.
#[derive(Default)]
pub struct SparedCopies {
    before: ByMember<Option<MemberState>>,
    given_up: BTreeSet<MemberId>,
}

impl Checker for SparedCopies {
    fn name(&self) -> &'static str {
        "at most one voter has given up its copy"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        for (id, view) in world.touched_views() {
            // A member that cannot apply an entry says so, and is RECOVERING, before it does anything about it.
            let before = self.before.of(id).replace(view.state);
            match view.state {
                MemberState::Startup2 if before == Some(MemberState::Recovering) => {
                    self.given_up.insert(id);
                }
                MemberState::Primary | MemberState::Secondary => {
                    self.given_up.remove(&id);
                }
                _ => {}
            }
        }
        if self.given_up.len() < 2 {
            return Ok(());
        }
        let voters: Vec<_> = self.given_up.iter().filter(|id| world.is_voter(**id)).collect();
        if voters.len() > 1 {
            return Err(format!("members {voters:?} have given up their copies"));
        }
        Ok(())
    }
}
