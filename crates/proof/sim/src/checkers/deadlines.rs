//! A task that waits begins by its deadline, whatever is gossiped, whoever leads.

use super::Checker;
use crate::world::World;
use std::time::Duration;

/// A driver looks no more often than every millisecond.
const SLACK: Duration = Duration::from_millis(2);

/// See the file's header.
pub struct Deadlines;

impl Checker for Deadlines {
    fn name(&self) -> &'static str {
        "a task that waits begins by its deadline"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        for (id, brain) in world.brains() {
            for task in brain.tasks().filter(|task| task.is_waiting) {
                // Whoever pauses does it late.
                let latest = task.deadline.map(|deadline| deadline.max(world.paused_until(id)) + SLACK);
                if latest.is_some_and(|latest| world.now() > latest) {
                    return Err(format!("member {id} still waits for {:?}", task.work));
                }
            }
        }
        Ok(())
    }
}
