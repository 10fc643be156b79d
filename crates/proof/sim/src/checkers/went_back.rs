//! A member goes back only for a source that is ahead of it, with an entry of the present term, by the last that it heard of it; never as
//! primary; and not behind what it knows to be committed.

use super::Checker;
use crate::world::World;

/// See the file's header.
pub struct BackForWhoIsAhead;

impl Checker for BackForWhoIsAhead {
    fn name(&self) -> &'static str {
        "nobody goes back for a source that is not ahead"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        for back in world.went_back() {
            let (here, source) = (back.here, back.source);
            let is_ahead = source.last > here.last && source.last.term >= here.term.max(source.term);
            if !is_ahead || here.leads || here.committed > back.common.timestamp {
                return Err(format!("{back:?}"));
            }
        }
        Ok(())
    }
}
