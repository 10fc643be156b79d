//! No member's commit point lies beyond its own log, and while the process lives it never falls. A member that copies another one's data
//! has given its log up, and still knows what is committed: its copy reaches that when it is whole.

use super::Checker;
use crate::ByMember;
use crate::world::World;
use baton_types::OpTime;

/// See the file's header.
#[derive(Default)]
pub struct CommitPointWithinOwnLog {
    /// The boot of each member's process, and its highest commit point.
    highest: ByMember<(u64, OpTime)>,
}

impl Checker for CommitPointWithinOwnLog {
    fn name(&self) -> &'static str {
        "no commit point beyond one's own log, and none that falls"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        for (id, view) in world.touched_views() {
            if view.commit_point > view.position.written && !world.is_copying(id) {
                return Err(format!(
                    "member {id} has commit point {} and a log that ends at {}",
                    view.commit_point, view.position.written
                ));
            }
            let boot = world.boot(id);
            let (of, highest) = std::mem::replace(self.highest.of(id), (boot, view.commit_point));
            if of == boot && view.commit_point < highest {
                return Err(format!("the commit point of member {id} fell from {highest} to {}", view.commit_point));
            }
        }
        Ok(())
    }
}
