//! The parts of a member in which threads meet, in orders that a scheduler chooses.
//!
//! The machines that decide are explored in the simulator; here are those that carry out, with locks and conditions. `build.rs` brings
//! them from where they stand, word for word but for what they wait at; [`shuttled`] has that on shuttle, which runs one thread at a
//! time and chooses after each step which. A fault is a panic, an assertion of a scenario, or that all wait. Each part has mutants, which
//! must be found.
//!
//! What it deliberately does not do: weak memory. Shuttle's atomics are all sequentially consistent.
//!
//! Source: S. Burckhardt and others, "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs" (ASPLOS 2010), for the orders
//! of [`explore`].

#[allow(dead_code, reason = "what the parts may use, not what each does")]
mod shuttled;

#[allow(dead_code, reason = "the door's alone is used")]
#[path = "../../../service/commands/src/priority/figures.rs"]
mod figures;

#[allow(
    dead_code,
    unused,
    clippy::all,
    clippy::unwrap_used,
    clippy::panic,
    unused_qualifications,
    reason = "the parts are read where they stand, and not all of them is used here"
)]
mod parts {
    pub(crate) use crate::figures;

    /// Members die there in tests of crashes.
    macro_rules! crash_point {
        ($name:expr) => {};
    }

    include!(concat!(env!("OUT_DIR"), "/parts.rs"));
}

pub use parts::{MUTANTS, PARTS};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, Runner};

/// How many changes of threads in the wrong places a fault may take that [`explore`] is likely to find.
const DEPTH: usize = 3;

fn run(scenario: fn(), scheduler: impl Scheduler + 'static, persistence: FailurePersistence) -> usize {
    let mut config = Config::new();
    config.stack_size = 256 * 1024;
    config.failure_persistence = persistence;
    // It is in this file's header.
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(scenario)
}

/// Carries a scenario out in so many orders: half of them drawn at random at each step, half as a few changes of threads would have it.
///
/// # Panics
/// With what is wrong, and the order, if one of them shows a fault.
pub fn explore(scenario: fn(), orders: usize, seed: u64) {
    run(scenario, RandomScheduler::new_from_seed(seed, orders / 2), FailurePersistence::Print);
    run(scenario, PctScheduler::new_from_seed(seed, DEPTH, orders / 2), FailurePersistence::Print);
}

/// Whether one of so many orders shows a fault.
pub fn finds(scenario: fn(), orders: usize, seed: u64) -> bool {
    let random = || run(scenario, RandomScheduler::new_from_seed(seed, orders / 2), FailurePersistence::None);
    let few_changes = || run(scenario, PctScheduler::new_from_seed(seed, DEPTH, orders / 2), FailurePersistence::None);
    std::panic::catch_unwind(random).is_err() || std::panic::catch_unwind(few_changes).is_err()
}
