//! The set always gets a primary: once nothing is broken any more some member takes writes within a bounded time, even if every one of
//! them is in heavy work.

use super::Checker;
use crate::world::World;
use baton_leadership::Set;
use std::time::Duration;

/// Who is busy stands after two election timeouts. Then come lost elections, and catching up.
const TIMEOUTS_MAX: u32 = 6;
const BESIDES: Duration = Duration::from_secs(15);

/// See the file's header.
#[derive(Default)]
pub struct AlwaysAPrimary {
    headless_since: Option<Duration>,
}

impl Checker for AlwaysAPrimary {
    fn name(&self) -> &'static str {
        "the set always gets a primary"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        if world.duties().is_none() || !world.is_healed() || world.views().any(|(_, summary)| summary.is_writable) {
            self.headless_since = None;
            return Ok(());
        }
        let since = *self.headless_since.get_or_insert(world.now());
        let timeout = world.brains().filter_map(|(_, brain)| brain.set()).map(|set: &Set| set.election_timeout).max();
        let most = timeout.unwrap_or_default() * TIMEOUTS_MAX + BESIDES;
        match world.now() - since > most {
            true => Err(format!("nobody takes writes since {since:?}")),
            false => Ok(()),
        }
    }
}
