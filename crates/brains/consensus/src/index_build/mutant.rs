//! Faults that can be built into the machine, to see whether the simulator's checkers find them. Only with the feature `mutants`,
//! which no member that anybody runs has.

/// One way to be wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mutant {
    /// Right.
    #[default]
    None,
    /// Commits without votes.
    QuorumUnasked,
    /// Commits what it put in as a follower.
    FactsUnverified,
    /// Takes for asked what it asked before another led.
    StaysChecked,
    /// Takes a pass for asked whose beginning it made as a follower.
    ForgetsHalfAPass,
    /// Votes before it has built.
    VotesEarly,
    /// Counts votes of members that the configuration no longer has.
    StrangersCount,
    /// Ends a build that was committed.
    EndsWhatIsCommitted,
    /// Takes for committed, as primary, what an entry said that another primary wrote and that never came into its own log.
    StaysCommitted,
}
