//! Two logs that have an entry of the same OpTime are the same up to it.

use super::Checker;
use crate::disk::common_prefix;
use crate::world::World;

/// See the file's header.
pub struct LogMatching;

impl Checker for LogMatching {
    fn name(&self) -> &'static str {
        "log matching"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        let Some(id) = world.touched() else { return Ok(()) };
        let mine = &world.disk(id).log;
        for other in world.ids().filter(|other| *other != id) {
            let theirs = &world.disk(other).log;
            let common = common_prefix(mine, theirs);
            if let Some(at) = (0..common).rev().take(16).find(|at| mine[*at].value != theirs[*at].value) {
                return Err(format!("members {id} and {other} differ in the entry {}", mine[at].optime));
            }
            let mut rest = theirs[common..].iter();
            for entry in &mine[common..] {
                if rest.any(|other| other.optime == entry.optime) {
                    return Err(format!(
                        "members {id} and {other} both have {}, and differ before it at place {common}",
                        entry.optime
                    ));
                }
                rest = theirs[common..].iter();
            }
        }
        Ok(())
    }
}
