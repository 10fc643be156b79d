//! Faults that can be built in, to see whether the checkers find them. Only with the feature `mutants`, which no member that
//! anybody runs has.

/// One way to be wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mutant {
    /// Right.
    #[default]
    None,
    /// A lower class begins as soon as there is room, whoever else waits.
    LowerFirst,
    /// Nobody's wait is bounded.
    NoBound,
    /// Who has left is not counted off.
    KeepsPlaces,
    /// What cannot be in time is begun all the same.
    BeginsTheHopeless,
    /// Within a class deadlines count for nothing.
    FirstComeFirstServed,
    /// Nobody is refused, however many wait or compute.
    NeverSheds,
    /// Where so many compute that the lowest class is refused, everybody is.
    ShedsAnybody,
    /// Who pauses holds his place all the same.
    PausesInPlace,
    /// Who gives up waits on.
    ForgetsNobody,
}
