//! What must hold at every step of every world. One property, one file; a checker sees the whole world and keeps what it needs
//! to remember, so that it looks only at what has changed since.

mod always_a_primary;
mod asked_all;
mod awaited;
mod builds_end;
mod builds_say_why;
mod committed_stays;
mod deadlines;
mod documents;
mod each_once;
mod ended_for_need;
mod explained;
mod figure1;
mod given_up;
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
mod quorum_has_built;
mod same_indexes;
mod says_why;
mod spacing;
mod spared;
mod target;
mod votes;
mod votes_for_built;
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

/// All of them, by what must have come about in a step for their property to break. Most steps bring little.
pub struct Checkers {
    /// A member has changed: [`World::touched`].
    of_members: [Box<dyn Checker>; 13],
    /// The same, where indexes are built.
    of_builds: [Box<dyn Checker>; 7],
    /// A brain has asked for something: [`World::acted`].
    of_acts: [Box<dyn Checker>; 11],
    /// Time has passed.
    of_time: [Box<dyn Checker>; 4],
}

impl Default for Checkers {
    fn default() -> Self {
        Self {
            of_members: [
                Box::new(one_primary::OnePrimaryPerTerm::default()),
                Box::new(votes::VoteBeforeReply::default()),
                Box::new(log_order::OpTimesIncrease::default()),
                Box::new(log_matching::LogMatching::default()),
                Box::new(own_log::CommitPointWithinOwnLog::default()),
                Box::new(committed_stays::CommittedStays::default()),
                Box::new(leader_completeness::LeaderCompleteness::default()),
                // Of following.
                Box::new(documents::EqualDocuments::default()),
                Box::new(each_once::EachOnce::default()),
                Box::new(went_back::BackForWhoIsAhead),
                Box::new(spared::SparedCopies::default()),
                Box::new(whole::WholeBeforeItServes::default()),
                // Of leadership.
                Box::new(moves_bounded::MovesBounded::default()),
            ],
            of_builds: [
                Box::new(same_indexes::SameIndexes::default()),
                Box::new(quorum_has_built::QuorumHasBuilt::default()),
                Box::new(asked_all::AskedAll),
                Box::new(votes_for_built::VotesForBuilt),
                Box::new(given_up::GivenUp),
                Box::new(builds_end::BuildsEnd::default()),
                Box::new(builds_say_why::BuildsSayWhy::default()),
            ],
            of_acts: [
                Box::new(ended_for_need::EndedForNeed),
                Box::new(target::Target),
                Box::new(spacing::Spacing),
                Box::new(ping_pong::PingPong),
                Box::new(quiet::Quiet),
                Box::new(windows::Windows),
                Box::new(awaited::Awaited),
                Box::new(mode_off::ModeOff),
                Box::new(priorities::Priorities),
                Box::new(explained::Explained),
                Box::new(figure1::Figure1::default()),
            ],
            of_time: [
                Box::new(says_why::SaysWhy::default()),
                Box::new(deadlines::Deadlines::default()),
                Box::new(majority_free::MajorityFree::default()),
                Box::new(always_a_primary::AlwaysAPrimary::default()),
            ],
        }
    }
}

impl Checkers {
    /// Looks at the world after a step.
    ///
    /// # Errors
    /// The first property that is broken, and what was seen.
    pub fn check(&mut self, world: &World) -> Result<(), (&'static str, String)> {
        if !world.touched().is_empty() {
            check(&mut self.of_members, world)?;
            if world.builds_indexes() {
                check(&mut self.of_builds, world)?;
            }
        }
        if !world.acted().is_empty() {
            check(&mut self.of_acts, world)?;
        }
        check(&mut self.of_time, world)
    }
}

fn check(checkers: &mut [Box<dyn Checker>], world: &World) -> Result<(), (&'static str, String)> {
    checkers.iter_mut().try_for_each(|checker| checker.check(world).map_err(|what| (checker.name(), what)))
}
