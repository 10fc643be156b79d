//! Whoever applies an entry has applied the one before it, and nothing since: none is left out, none comes twice.

use super::Checker;
use crate::world::World;
use baton_types::OpTime;
use std::collections::BTreeMap;

/// See the file's header.
#[derive(Default)]
pub struct EachOnce {
    /// What came before each entry where it was written, by the entry's content.
    before: BTreeMap<u64, OpTime>,
}

impl Checker for EachOnce {
    fn name(&self) -> &'static str {
        "no entry is left out or applied twice"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        for applied in world.applied() {
            let value = applied.entry.value;
            if applied.is_own {
                self.before.insert(value, applied.after);
            } else if self.before.get(&value).is_some_and(|before| *before != applied.after) {
                return Err(format!(
                    "member {} applied {} after {}, where it was written after {}",
                    applied.member, applied.entry.optime, applied.after, self.before[&value]
                ));
            }
        }
        Ok(())
    }
}
