//! A member says only of an index that is filled that it has built it.

use super::Checker;
use crate::world::World;

/// See the file's header.
pub struct VotesForBuilt;

impl Checker for VotesForBuilt {
    fn name(&self) -> &'static str {
        "who votes for a build has built"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        match world.build_votes().iter().find(|vote| !vote.has_built) {
            Some(vote) => {
                Err(format!("member {} votes for build {}, whose index is not filled", vote.member, vote.build))
            }
            None => Ok(()),
        }
    }
}
