//! The rules by which tasks are admitted or deferred and leadership moves or stays: one name and one sentence each.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! rules {
    ($($(#[$meta:meta])* $variant:ident, $name:literal, $sentence:literal;)*) => {
        /// What decided. The sentence of a rule that defers is what a waiting task shows.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[allow(missing_docs)]
        pub enum Rule { $($(#[$meta])* $variant,)* }

        impl Rule {
            /// Every rule.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// For status, logs and metrics.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// For people.
            pub fn sentence(self) -> &'static str {
                match self { $(Self::$variant => $sentence,)* }
            }
        }
    };
}

rules! {
    // Tasks that begin without more ado.
    ModeOff, "modeOff", "leadership does not move by itself in this set";
    NoSet, "noSet", "this member is in no set";
    Light, "light", "the task is too small to be felt";
    NotServing, "notServing", "this member is neither primary nor secondary";
    NoVote, "noVote", "this member has no vote, so that no majority needs it";
    Unasked, "unasked", "the task could not wait";
    // Tasks that begin whatever the policy would like.
    Deadline, "deadline", "the task has waited for as long as it may";
    DebtBudget, "debtBudget", "what waits to be compacted has reached its budget";
    NearStall, "nearStall", "the storage engine would soon slow writers down";
    FreesSpace, "freesSpace", "the disk is nearly full, and the task frees space";
    // Leadership stays, and the task begins once the slot is free.
    NoOtherMember, "noOtherMember", "no other member can become primary in this configuration";
    NotWorthwhile, "notWorthwhile", "moving leadership would cost about as much as the task, or more";
    NoMoveInTime, "noMoveInTime", "leadership may not move again before the task must begin";
    // Tasks that wait.
    NoCandidate, "noCandidate", "no other member is free and level enough to lead";
    TooSoonAfterElection, "tooSoonAfterElection", "the primary was elected only lately";
    Cooldown, "cooldown", "leadership moved, or was to, only lately";
    MovesSpent, "movesSpent", "leadership has moved often enough within the last hour";
    StatementUnderWay, "statementUnderWay", "a client's statement of many documents is under way, which a move would end";
    HandoffUnderWay, "handoffUnderWay", "leadership is about to move to another member";
    SlotAsked, "slotAsked", "the primary has not confirmed yet that this member may be busy";
    SlotsTaken, "slotsTaken", "as many members are busy as leave a majority free";
    NeededAsPrimary, "neededAsPrimary", "the primary's disk is nearly full, and this member is to lead in its place";
    OthersAwaited, "othersAwaited", "somebody waits for another task of this member, and nobody for this one";
    WindowClosed, "windowClosed", "no maintenance window of the set is open";
    // Tasks that begin in turn.
    SlotConfirmed, "slotConfirmed", "the primary has confirmed that this member may be busy";
    // Leadership moves.
    AlwaysMoves, "alwaysMoves", "leadership moves before every heavy task";
    WorthMoving, "worthMoving", "the task is predicted to cost more than moving leadership";
    PreferredFree, "preferredFree", "the preferred primary has done its work";
    DiskSlow, "diskSlow", "the disk syncs far more slowly than it did and than the others' do";
    DiskNearlyFull, "diskNearlyFull", "the disk is nearly full";
    Asked, "asked", "an operator asked";
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_rules_have_one_name_or_one_sentence() {
        let names: BTreeSet<_> = Rule::ALL.iter().map(|rule| rule.name()).collect();
        let sentences: BTreeSet<_> = Rule::ALL.iter().map(|rule| rule.to_string()).collect();
        assert_eq!((names.len(), sentences.len()), (Rule::ALL.len(), Rule::ALL.len()));
    }
}
