//! A vote that was told is on disk, as is the winner's own, and there is one a term: whoever crashes remembers for whom it voted.

use super::Checker;
use crate::world::World;
use baton_consensus::MemberId;
use baton_types::Term;
use std::collections::BTreeMap;

/// See the file's header.
#[derive(Default)]
pub struct VoteBeforeReply {
    told: BTreeMap<(MemberId, Term), MemberId>,
}

impl Checker for VoteBeforeReply {
    fn name(&self) -> &'static str {
        "a vote is durable before it is told, and there is one a term"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        for vote in world.votes_told() {
            let disk = world.disk(vote.voter);
            if disk.vote.term < vote.term {
                return Err(format!("member {} told a vote in term {} that is not on its disk", vote.voter, vote.term));
            }
            let first = *self.told.entry((vote.voter, vote.term)).or_insert(vote.candidate);
            if first != vote.candidate {
                return Err(format!(
                    "member {} voted for {first} and for {} in term {}",
                    vote.voter, vote.candidate, vote.term
                ));
            }
        }
        Ok(())
    }
}
