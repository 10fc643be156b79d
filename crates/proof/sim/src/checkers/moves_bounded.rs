//! Within any hour leadership is moved no more often than the settings allow, whatever is gossiped.
//!
//! Who begins anew knows no earlier terms, and may hear of nobody who does: so each restart may cost the set that many again.

use super::Checker;
use crate::world::World;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// See the file's header.
#[derive(Default)]
pub struct MovesBounded {
    seen: usize,
}

impl Checker for MovesBounded {
    fn name(&self) -> &'static str {
        "moves within an hour are bounded, whatever is gossiped"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        let Some(duties) = world.duties().filter(|_| world.moves().len() > self.seen) else { return Ok(()) };
        self.seen = world.moves().len();
        let lately = |at: &Duration| world.now() - *at < HOUR;
        let moves = world.moves().iter().filter(|one| lately(&one.at)).count();
        let restarts = world.restarts().iter().filter(|at| lately(at)).count();
        let most = duties.settings.moves_per_hour_max as usize;
        if moves > most * (1 + restarts) {
            return Err(format!("{moves} moves within an hour, where {most} are allowed, and {restarts} restarts"));
        }
        Ok(())
    }
}
