//! Leadership is handed only to who was electable, level and free, as far as the primary could know by news no older than two of its
//! heartbeats.

use super::Checker;
use crate::world::World;
use baton_leadership::LAG_MAX;

/// See the file's header.
pub struct Target;

impl Checker for Target {
    fn name(&self) -> &'static str {
        "leadership is handed only to who was level and free, as far as could be known"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        for acted in world.acted() {
            let Some(seen) = acted.seen else { continue };
            let is_free = seen.heard.is_some_and(|(age, is_free)| is_free && age <= seen.gossip_age_max);
            let follows = seen
                .follower
                .is_some_and(|follower| follower.is_reachable && follower.is_secondary && follower.lag <= LAG_MAX);
            if !(is_free && follows && seen.is_electable) {
                return Err(format!("member {} hands over ({:?}) and knew {seen:?}", acted.member, acted.effect));
            }
        }
        Ok(())
    }
}
