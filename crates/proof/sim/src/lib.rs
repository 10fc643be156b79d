//! Simulated worlds: replica sets of the real step machines, with time, network, disks and faults from one seed.
//!
//! [`run`] takes a seed through a [`World`] and has every step judged by every checker. What it finds is a [`Failure`], which names
//! the seed: the same seed gives the same world. [`Worlds`] runs many, on several threads. [`replay`] steps the machines of a real member again through what it wrote down.

mod by_member;
pub mod catalog;
pub mod checkers;
pub mod disk;
pub mod door;
pub mod replay;
pub mod world;
mod worlds;

pub use by_member::ByMember;
use checkers::Checkers;
pub use world::{Shape, Tally, Weather, World};
pub use worlds::Worlds;

use std::fmt;
use std::time::Duration;

/// What went wrong in a world.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The world's seed.
    pub seed: u64,
    /// The property that did not hold.
    pub property: &'static str,
    /// What was seen.
    pub what: String,
    /// When, in simulated time.
    pub at: Duration,
    /// The members at that time.
    pub members: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {} at {:?}: {}: {}\n{}", self.seed, self.at, self.property, self.what, self.members)
    }
}

/// Runs the world of a seed to its end.
pub fn run(seed: u64, weather: Weather) -> Result<Tally, Box<Failure>> {
    let mut world = World::new(seed, weather);
    let mut checkers = Checkers::default();
    loop {
        let failure = |world: &World, property: &'static str, what: String| {
            Err(Box::new(Failure { seed, property, what, at: world.now(), members: world.describe() }))
        };
        match world.step() {
            Err(what) => return failure(&world, "liveness", what),
            Ok(false) => return Ok(world.tally),
            Ok(true) => {}
        }
        if let Err((property, what)) = checkers.check(&world) {
            return failure(&world, property, what);
        }
    }
}
