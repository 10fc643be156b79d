//! No member's commit point lies beyond its own log, and while the process lives it never falls.

use super::Checker;
use crate::world::World;
use baton_consensus::MemberId;
use baton_types::OpTime;
use std::collections::BTreeMap;

/// See the file's header.
#[derive(Default)]
pub struct CommitPointWithinOwnLog {
    highest: BTreeMap<(MemberId, u64), OpTime>,
}

impl Checker for CommitPointWithinOwnLog {
    fn name(&self) -> &'static str {
        "no commit point beyond one's own log, and none that falls"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        for (id, view) in world.touched_views() {
            if view.commit_point > view.position.written {
                return Err(format!(
                    "member {id} has commit point {} and a log that ends at {}",
                    view.commit_point, view.position.written
                ));
            }
            let highest = self.highest.entry((id, world.boot(id))).or_default();
            if view.commit_point < *highest {
                return Err(format!("the commit point of member {id} fell from {highest} to {}", view.commit_point));
            }
            *highest = view.commit_point;
        }
        Ok(())
    }
}
