//! In every log OpTimes strictly increase, timestamps do, and terms never fall; and what is durable was written.

use super::Checker;
use crate::ByMember;
use crate::world::World;

/// See the file's header.
#[derive(Default)]
pub struct OpTimesIncrease {
    /// The cuts of each log that was looked at last, and how long it was: so far it need not be looked at again.
    seen: ByMember<(u64, usize)>,
}

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
            let (cuts, len) = std::mem::replace(self.seen.of(id), (disk.cuts, disk.log.len()));
            let known = if cuts == disk.cuts { len } else { 0 };
            for pair in disk.log[known.saturating_sub(1)..].windows(2) {
                let (before, after) = (pair[0].optime, pair[1].optime);
                if after.timestamp <= before.timestamp || after.term < before.term {
                    return Err(format!("member {id} has {after} after {before}"));
                }
            }
        }
        Ok(())
    }
}
