//! Two logs that have an entry of the same OpTime are the same up to it.

use super::Checker;
use crate::disk::{Disk, common_prefix};
use crate::world::World;
use baton_consensus::MemberId;
use std::collections::BTreeMap;

/// See the file's header.
#[derive(Default)]
pub struct LogMatching {
    /// The revision of each log that was compared last.
    seen: BTreeMap<MemberId, u64>,
}

impl Checker for LogMatching {
    fn name(&self) -> &'static str {
        "log matching"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        for &id in world.touched() {
            let Disk { log: mine, revision, .. } = world.disk(id);
            if self.seen.insert(id, *revision) == Some(*revision) {
                continue;
            }
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
        }
        Ok(())
    }
}
