//! What must hold at every step of every world. One property, one file; a checker sees the whole world and keeps what it needs
//! to remember.

mod committed_stays;
mod leader_completeness;
mod log_matching;
mod log_order;
mod one_primary;
mod own_log;
mod votes;

use crate::world::World;

/// A property that a world must keep.
pub trait Checker {
    /// Its name, for reports.
    fn name(&self) -> &'static str;
    /// Looks at the world after a step; says what is wrong.
    fn check(&mut self, world: &World) -> Result<(), String>;
}

/// All of them, fresh.
pub fn all() -> Vec<Box<dyn Checker>> {
    vec![
        Box::new(one_primary::OnePrimaryPerTerm::default()),
        Box::new(votes::VoteBeforeReply::default()),
        Box::new(log_order::OpTimesIncrease),
        Box::new(log_matching::LogMatching::default()),
        Box::new(own_log::CommitPointWithinOwnLog::default()),
        Box::new(committed_stays::CommittedStays::default()),
        Box::new(leader_completeness::LeaderCompleteness::default()),
    ]
}
