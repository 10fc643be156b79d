//! A set that does nothing heavy, and whose disks are well, makes no moves. Where somebody lies it may: he that an operator took
//! leadership from can say to whom it is to return.

use super::Checker;
use crate::world::World;

/// See the file's header.
pub struct Quiet;

impl Checker for Quiet {
    fn name(&self) -> &'static str {
        "a set that does nothing heavy makes no moves"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        if !world.duties().is_some_and(|duties| duties.is_quiet() && duties.liars.is_empty()) {
            return Ok(());
        }
        match world.acted().iter().find(|acted| acted.seen.is_some()) {
            Some(acted) => Err(format!("member {} moves leadership: {:?}", acted.member, acted.effect)),
            None => Ok(()),
        }
    }
}
