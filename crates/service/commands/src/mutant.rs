//! Faults that can be built in, to see whether the check of histories from real processes finds them.
//!
//! Exist only with the feature `mutants`, which no binary that anybody runs has; which one is active is in the environment
//! (`BATON_MUTANT`). Without the feature every question is answered "no" at compile time.

/// One way to be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Writes at `w: "majority"` are acknowledged once this member has them.
    MajorityAtOnce,
    /// A linearizable read writes no entry after it has read, and so trusts that this member is still primary.
    LinearizableUnproved,
    /// A write that changed nothing is acknowledged without an entry that proves that this member was primary.
    UnchangedUnproved,
}

/// Whether this fault is active.
#[cfg(not(feature = "mutants"))]
pub const fn is(_: Mutant) -> bool {
    false
}

/// Whether this fault is active.
#[cfg(feature = "mutants")]
pub fn is(mutant: Mutant) -> bool {
    use std::sync::LazyLock;
    static ACTIVE: LazyLock<String> = LazyLock::new(|| std::env::var("BATON_MUTANT").unwrap_or_default());
    let name = match mutant {
        Mutant::MajorityAtOnce => "majority-at-once",
        Mutant::LinearizableUnproved => "linearizable-unproved",
        Mutant::UnchangedUnproved => "unchanged-unproved",
    };
    *ACTIVE == name
}
