//! Faults that can be built in, to see whether the checkers find them. Only with the feature `mutants`, which no member that
//! anybody runs has.

/// One way to be wrong: of [`Admission`](crate::Admission), and from `HelpsWhoRuns` on of [`Starving`](crate::Starving).
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
    /// Whose wait was at its end counts as a normal one.
    RaisesTheAged,
    /// Who has run since he was looked at counts as if he had stood.
    HelpsWhoRuns,
    /// However short he has stood.
    HelpsAtOnce,
    /// Who has stood for the shortest is first.
    HelpsTheLastFirst,
    /// Nobody is helped.
    HelpsNobody,
    /// However many are helped already.
    HelpsEverybody,
    /// What was used is not counted.
    HelpsForNothing,
    /// As long as he has anything to do, however much he has had.
    HelpsToTheEnd,
    /// Who has nothing to do is helped until he has had enough.
    HelpsTheIdle,
}

/// The fault that is built in. None, in a member that anybody runs.
#[derive(Debug, Default)]
pub(crate) struct Fault(#[cfg(feature = "mutants")] pub Mutant);

impl Fault {
    #[cfg(feature = "mutants")]
    pub fn is(&self, mutant: Mutant) -> bool {
        self.0 == mutant
    }

    #[cfg(not(feature = "mutants"))]
    #[expect(clippy::unused_self, reason = "with the feature it is asked")]
    pub fn is(&self, _: Mutant) -> bool {
        false
    }
}
