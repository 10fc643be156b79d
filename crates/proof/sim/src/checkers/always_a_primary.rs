//! The set always gets a primary: once nothing is broken any more, and while some member that may lead has its data, one takes writes
//! within a bounded time, even if every one of them is in heavy work.

use super::Checker;
use crate::world::World;
use baton_consensus::{MemberId, MemberState, Summary};
use baton_leadership::Set;
use std::time::Duration;

/// Who is busy stands after two election timeouts. Then come lost elections, and catching up.
const TIMEOUTS_MAX: u32 = 6;
const BESIDES: Duration = Duration::from_secs(15);

/// See the file's header.
#[derive(Default)]
pub struct AlwaysAPrimary {
    /// For how long somebody could have led and nobody has.
    headless: Duration,
    checked_at: Duration,
}

impl Checker for AlwaysAPrimary {
    fn name(&self) -> &'static str {
        "the set always gets a primary"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        let passed = world.now() - self.checked_at;
        self.checked_at = world.now();
        if world.duties().is_none() || !world.is_healed() || world.views().any(|(_, summary)| summary.is_writable) {
            self.headless = Duration::ZERO;
            return Ok(());
        }
        let could_lead = |(id, _): &(MemberId, &Summary)| world.is_electable(*id);
        if world.views().filter(could_lead).any(|(_, summary)| summary.state == MemberState::Secondary) {
            self.headless += passed;
        }
        let timeout = world.brains().filter_map(|(_, brain)| brain.set()).map(|set: &Set| set.election_timeout).max();
        let most = timeout.unwrap_or_default() * TIMEOUTS_MAX + BESIDES;
        match self.headless > most {
            true => Err(format!("nobody took writes for {:?}, though somebody could have", self.headless)),
            false => Ok(()),
        }
    }
}
