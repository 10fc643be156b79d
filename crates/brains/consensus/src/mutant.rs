//! Faults that can be built in, to see whether the simulator's checkers find them. Only with the feature `mutants`, which no
//! member that anybody runs has.

/// One way to be wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mutant {
    /// Right.
    #[default]
    None,
    /// Positions are merged without adopting their sender's term.
    AcknowledgementsOfAnyTerm,
    /// An entry of an older term is committed once a majority has it.
    OlderTermsCommit,
    /// Appendix A's rule for heartbeats: the lesser of the sender's commit point and one's own last entry.
    CommitPointFromAnyHeartbeat,
    /// The sync source's commit point is taken as it is, beyond one's own log.
    CommitPointUnclamped,
    /// A vote is told before it is on disk.
    VoteNotPersisted,
    /// Whoever has a majority of the others' votes leads before its own is on disk.
    WinsWithoutOwnVote,
    /// A vote is given to any candidate whose term is new.
    VoteForStaleLogs,
    /// Two votes a term.
    VoteTwice,
    /// Reconfigurations are not checked.
    AnyReconfiguration,
    /// Members that know only of written entries are counted as if these were synced.
    CountWrittenAsDurable,
    /// A member in heavy work leaves standing for election to the others, whoever else does not.
    LeavesStandingForEver,
}
