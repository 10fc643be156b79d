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
    /// A new primary takes a member that it has not heard of for gone after one election timeout.
    GivesUpUnheardSoon,
    /// Begins by what a primary of another term has confirmed.
    BelievesAnyTerm,
    /// Begins by a confirmation that came so late that somebody else may have been confirmed since.
    BelievesLateGrants,
    /// Knows no least time between moves.
    NoCooldown,
    /// Counts towards that time only the moves that it took part in.
    CountsOwnMovesOnly,
    /// Hands leadership on as soon as it has it.
    PassesOnAtOnce,
    /// Counts no moves.
    CountsNoMoves,
    /// Hands over to the candidate that is ranked last.
    TakesTheWorst,
    /// Tells of the candidate it chose and of no other.
    ExplainsTheBestOnly,
    /// Goes from state to state without the one between.
    SkipsStates,
    /// Lets tasks begin while their windows are closed.
    IgnoresWindows,
    /// Lets what nobody waits for begin beside what somebody waits for.
    BeginsBesideTheAwaited,
    /// Ends its tasks when another member is to.
    EndsTasksForAnybody,
    /// Takes every task for a heavy one.
    EverythingIsHeavy,
}
