//! Two logs that have an entry of the same OpTime are the same up to it.
//!
//! What two logs were found to share is not looked at again until one of them is cut.

use super::Checker;
use crate::ByMember;
use crate::disk::{Disk, Entry, common_prefix};
use crate::world::World;

/// What two logs were found to share.
#[derive(Clone, Copy, Default)]
struct Shared {
    /// So many entries from the beginning.
    entries: usize,
    /// The cuts of both since then, the lower `_id`'s first.
    cuts: (u64, u64),
}

/// See the file's header.
#[derive(Default)]
pub struct LogMatching {
    /// The revision of each log that was compared last.
    seen: ByMember<Option<u64>>,
    /// By the lower `_id` and the higher one.
    shared: ByMember<ByMember<Shared>>,
}

impl Checker for LogMatching {
    fn name(&self) -> &'static str {
        "log matching"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        for &id in world.touched() {
            let revision = world.disk(id).revision;
            if self.seen.of(id).replace(revision) == Some(revision) {
                continue;
            }
            for other in world.ids().filter(|other| *other != id) {
                let (low, high) = (id.min(other), id.max(other));
                let shared = self.shared.of(low).of(high);
                compare(world.disk(low), world.disk(high), shared)
                    .map_err(|what| format!("members {low} and {high} {what}"))?;
            }
        }
        Ok(())
    }
}

fn compare(low: &Disk, high: &Disk, shared: &mut Shared) -> Result<(), String> {
    let cuts = (low.cuts, high.cuts);
    let known = if shared.cuts == cuts { shared.entries } else { 0 };
    let common = known + common_prefix(&low.log[known..], &high.log[known..]);
    *shared = Shared { entries: common, cuts };
    if let Some(at) = (known..common).find(|at| low.log[*at].value != high.log[*at].value) {
        return Err(format!("differ in the entry {}", low.log[at].optime));
    }
    let (rest, others): (&[Entry], &[Entry]) = (&low.log[common..], &high.log[common..]);
    match rest.iter().find(|entry| others.iter().any(|other| other.optime == entry.optime)) {
        Some(entry) => Err(format!("both have {}, and differ before it at place {common}", entry.optime)),
        None => Ok(()),
    }
}
