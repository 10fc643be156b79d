//! Faults that can be built in, to see whether the simulator's checkers find them. Only with the feature `mutants`, which no
//! member that anybody runs has.

/// One way to be wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mutant {
    /// Right.
    #[default]
    None,
    /// A member that was elected fetches on as a secondary does: entries of its own term and later ones, and after its own first entry.
    FetchesOnAsPrimary,
    /// Says that it rests while entries are in its hands.
    RestsAtOnce,
    /// Appends what a stream begins with, whatever that is.
    AppendsUnjudged,
    /// Leaves out an entry that cannot be applied.
    SkipsRefused,
    /// Tries an entry that cannot be applied for ever, and says nothing of it.
    RefusesSilently,
    /// Gives its copy up for an entry that cannot be applied, whether or not the set can spare it.
    NeverAsksToSpare,
    /// Keeps its copy, however often an entry could not be applied.
    NeverGivesUpItsCopy,
    /// Does not look again whether an index is built.
    ForgetsWhatIsNotYetBuilt,
    /// Leaves a source that failed, and tells nobody.
    FailsSilently,
    /// Takes the entry from which it looked for the last that both have.
    GuessesTheCommonEntry,
    /// Rolls back though its source has rolled back meanwhile, or it leads.
    RollsBackWithoutLookingAgain,
    /// Says nothing of the end of a rollback.
    NeverReadyAgain,
    /// Says that its data are whole as soon as it copies.
    ReadyWhileItCopies,
    /// Takes a copy for whole before what was written meanwhile is applied.
    CountsAsWholeTooEarly,
    /// Does not ask whether the source of its copy has rolled back.
    TrustsARolledBackSource,
    /// Goes on with whatever entry the copied source's log begins with, after the stream was lost.
    LeavesAGapInTheCopiedLog,
    /// Does not connect again for a collection whose copying was interrupted, and does not say so.
    ForgetsALostCopier,
    /// Takes a copy for failed whose source was changed while its end was being noted.
    AbandonsAWholeCopy,
    /// Neither begins anew nor says anything once a copy has failed or is done.
    NeverEndsACopy,
}
