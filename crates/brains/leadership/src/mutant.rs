//! Faults that can be built in, to see whether the checkers find them. Only with the feature `mutants`, which no member that
//! anybody runs has.

/// One way to be wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mutant {
    /// Right.
    #[default]
    None,
    /// Moves leadership with the mode off.
    MovesWhenOff,
    /// Postpones beyond the deadline.
    PostponesForEver,
    /// Believes gossip of any age.
    TrustsOldGossip,
    /// Hands over to members that run a task, or wait for one.
    IgnoresTheirTasks,
    /// Hands over to members that lag.
    IgnoresLag,
    /// Confirms every claim.
    GrantsEverybody,
    /// A new primary confirms claims before it has heard who is busy.
    GrantsUnheard,
    /// Begins by what a primary of another term has confirmed.
    BelievesAnyTerm,
    /// Begins by a confirmation that came so late that somebody else may have been confirmed since.
    BelievesLateGrants,
    /// Knows no least time between moves.
    NoCooldown,
    /// Counts no moves.
    CountsNoMoves,
    /// Hands over to the candidate that is ranked last.
    TakesTheWorst,
    /// Does not stand for election while it is busy, whoever else does not.
    NeverStandsBusy,
    /// Tells of the candidate it chose and of no other.
    ExplainsTheBestOnly,
    /// Goes from state to state without the one between.
    SkipsStates,
    /// Takes every task for a heavy one.
    EverythingIsHeavy,
}
