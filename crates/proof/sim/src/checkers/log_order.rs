//! In every log OpTimes strictly increase, timestamps do, and terms never fall; and what is durable was written.

use super::Checker;
use crate::world::World;

/// See the file's header.
pub struct OpTimesIncrease;

impl Checker for OpTimesIncrease {
    fn name(&self) -> &'static str {
        "OpTimes strictly increase"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        for &id in world.touched() {
            let disk = world.disk(id);
            if disk.durable > disk.log.len() {
                return Err(format!("member {id} has {} durable entries of {}", disk.durable, disk.log.len()));
            }
            // The beginning was checked when it was written.
            let tail = disk.log.len().saturating_sub(16);
            for pair in disk.log[tail..].windows(2) {
                let (before, after) = (pair[0].optime, pair[1].optime);
                if after.timestamp <= before.timestamp || after.term < before.term {
                    return Err(format!("member {id} has {after} after {before}"));
                }
            }
        }
        Ok(())
    }
}
