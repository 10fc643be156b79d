//! A primary that has found what the index does not allow, or that somebody asks to end the build, gives it up.

use super::Checker;
use crate::world::World;

/// See the file's header.
pub struct GivenUp;

impl Checker for GivenUp {
    fn name(&self) -> &'static str {
        "a primary gives up a build that is to end"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        match world.told_to_end_builds().iter().find(|told| !told.is_ending) {
            Some(told) => Err(format!("member {} goes on with build {}, which is to end", told.member, told.build)),
            None => Ok(()),
        }
    }
}
