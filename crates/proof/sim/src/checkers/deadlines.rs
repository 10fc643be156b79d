//! A task that waits begins by its deadline, whatever is gossiped, whoever leads.

use super::Checker;
use crate::world::World;
use std::time::Duration;

/// A driver looks no more often than every millisecond.
const SLACK: Duration = Duration::from_millis(2);

/// See the file's header.
#[derive(Default)]
pub struct Deadlines {
    /// The world's changes of tasks that were looked at last.
    changes: u64,
    /// The first deadline of any task that waits.
    next: Option<Duration>,
}

impl Checker for Deadlines {
    fn name(&self) -> &'static str {
        "a task that waits begins by its deadline"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        if std::mem::replace(&mut self.changes, world.task_changes()) != world.task_changes() {
            let waiting = world.brains().flat_map(|(_, brain)| brain.tasks().filter(|task| task.is_waiting));
            self.next = waiting.filter_map(|task| task.deadline).min();
        }
        if self.next.is_none_or(|next| world.now() <= next + SLACK) {
            return Ok(());
        }
        for (id, brain) in world.brains() {
            for task in brain.tasks().filter(|task| task.is_waiting) {
                // Whoever pauses does it late.
                let latest = task.deadline.map(|deadline| deadline.max(world.late_until(id)) + SLACK);
                if latest.is_some_and(|latest| world.now() > latest) {
                    return Err(format!("member {id} still waits for {:?}", task.work));
                }
            }
        }
        Ok(())
    }
}
