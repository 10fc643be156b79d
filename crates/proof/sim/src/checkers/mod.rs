//! What must hold at every step of every world. One property, one file; a checker sees the whole world and keeps what it needs
//! to remember.

mod always_a_primary;
mod committed_stays;
mod deadlines;
mod documents;
mod each_once;
mod ended_for_need;
mod explained;
mod figure1;
mod leader_completeness;
mod log_matching;
mod log_order;
mod majority_free;
mod mode_off;
mod moves_bounded;
mod one_primary;
mod own_log;
mod ping_pong;
mod priorities;
mod quiet;
mod says_why;
mod spacing;
mod spared;
mod target;
mod votes;
mod went_back;
mod whole;
mod windows;

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
        // Of following.
        Box::new(documents::EqualDocuments::default()),
        Box::new(each_once::EachOnce::default()),
        Box::new(says_why::SaysWhy::default()),
        Box::new(went_back::BackForWhoIsAhead),
        Box::new(spared::SparedCopies::default()),
        Box::new(whole::WholeBeforeItServes::default()),
        // Of leadership.
        Box::new(deadlines::Deadlines),
        Box::new(ended_for_need::EndedForNeed),
        Box::new(majority_free::MajorityFree::default()),
        Box::new(target::Target),
        Box::new(spacing::Spacing),
        Box::new(ping_pong::PingPong),
        Box::new(moves_bounded::MovesBounded::default()),
        Box::new(quiet::Quiet),
        Box::new(windows::Windows),
        Box::new(mode_off::ModeOff),
        Box::new(priorities::Priorities),
        Box::new(explained::Explained),
        Box::new(figure1::Figure1::default()),
        Box::new(always_a_primary::AlwaysAPrimary::default()),
    ]
}
