//! What goes into the machine, and what it asks for.

use crate::cost::Cost;
use crate::decision::Decision;
use crate::figures::Figures;
use crate::gossip::Gossip;
use crate::rule::Rule;
use crate::set::{MemberId, Set};
use crate::state::Transition;
use baton_types::{Pace, Proposal, TaskKind, Term};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// A point in time: since the process began, by a monotone clock.
pub type Moment = Duration;

/// Names one task of this member. The driver draws it.
pub type TaskId = u64;

/// What this member is to the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// It takes writes.
    Primary {
        /// Who handed leadership to it; none if it was elected otherwise.
        handed_by: Option<MemberId>,
    },
    /// It follows.
    Secondary,
    /// It starts, recovers, rolls back, copies, or holds no data.
    Other,
}

/// What a task will do, as far as that is known before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// What kind of work.
    pub kind: TaskKind,
    /// On what ([`Proposal::name`]): equal numbers for equal names.
    pub subject: u64,
    /// How much, in the kind's units ([`Proposal::expected`]); 0 if unknown.
    pub expected: u64,
    /// How long, if who asks says so.
    pub expected_duration: Option<Duration>,
}

impl Work {
    /// What the gate was asked about.
    pub fn of(proposal: &Proposal<'_>) -> Self {
        // FNV-1a: the same on every member and in every process.
        let mixed = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        let subject = proposal.name.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, mixed);
        let Proposal { kind, expected, expected_duration, .. } = *proposal;
        Self { kind, subject, expected, expected_duration }
    }
}

/// How well another member follows, as consensus knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Follower {
    /// It gives signs of life and can be reached from here.
    pub is_reachable: bool,
    /// It is a secondary that can be read from.
    pub is_secondary: bool,
    /// How far its log is behind, in the log's time.
    pub lag: Duration,
}

/// How a handoff ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandoffOutcome {
    /// There is another primary.
    Done {
        /// Who.
        to: MemberId,
        /// For how long nobody took writes.
        gap: Duration,
    },
    /// This member takes writes again, or somebody else was elected.
    Failed {
        /// Who was to lead.
        to: MemberId,
        /// What went wrong.
        why: String,
    },
}

/// Everything that can happen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Input {
    /// Time has passed. Due at [`Leadership::next_deadline`](crate::Leadership::next_deadline).
    Tick,
    /// The set is configured like this from now on.
    Configured(Box<Set>),
    /// This member's role or term has changed.
    Role {
        /// The role.
        role: Role,
        /// The term.
        term: Term,
    },
    /// A task that can wait asks for the first time. Answered by [`Effect::Admit`] or [`Effect::Defer`].
    Wanted {
        /// Its name from now on.
        task: TaskId,
        /// What it will do.
        work: Work,
        /// The longest that who asks will wait, if it says so.
        wait_max: Option<Duration>,
    },
    /// A task has begun: one that was admitted, or one that could not wait.
    Begun {
        /// Which.
        task: TaskId,
        /// What it does.
        work: Work,
    },
    /// A task has ended, or does not want to begin any more.
    Ended {
        /// Which.
        task: TaskId,
        /// What it cost, if it ran to its end.
        cost: Option<Cost>,
    },
    /// What this member measures of itself. To be brought at least every few seconds.
    Figures(Box<Figures>),
    /// The time since 1970-01-01 by the wall clock, for the windows. To be brought at least every few seconds, too.
    WallClock(Duration),
    /// Another member says something of itself.
    Gossip {
        /// Who.
        from: MemberId,
        /// What.
        gossip: Box<Gossip>,
        /// When it came.
        heard_at: Moment,
    },
    /// How well the other members follow. To be brought whenever that changes.
    Followers(BTreeMap<MemberId, Follower>),
    /// The handoff that was asked for, or one of an operator's, has ended.
    Handoff(HandoffOutcome),
}

/// Everything that the driver is asked to do.
#[derive(Clone, Debug, Serialize)]
pub enum Effect {
    /// Let the task begin.
    Admit {
        /// Which.
        task: TaskId,
        /// How hard it may work.
        pace: Pace,
        /// Why now.
        why: Rule,
    },
    /// Let the task wait.
    Defer {
        /// Which.
        task: TaskId,
        /// Why.
        why: Rule,
        /// It will be admitted then, at the latest.
        until: Moment,
    },
    /// Have a task that runs end as soon as it can, if it can: this member is to lead. Said once a task; the task's own end follows as ever.
    End {
        /// Which.
        task: TaskId,
        /// Why.
        why: Rule,
    },
    /// Hand leadership over, then say [`Input::Handoff`].
    HandOver {
        /// To whom.
        to: MemberId,
        /// Why.
        decision: Box<Decision>,
    },
    /// Hand leadership back to the preferred primary, whose work is done; then say [`Input::Handoff`].
    Resume {
        /// To whom.
        to: MemberId,
        /// Why.
        decision: Box<Decision>,
    },
    /// This member asks for the heavy slot. Carried by gossip.
    Claim {
        /// The claim.
        number: u64,
    },
    /// This member asks for it no more, or gives it back. Carried by gossip.
    Release {
        /// The claim.
        number: u64,
    },
    /// The state has changed, for logs and figures.
    Transition(Transition),
    /// What others should know has changed: gossip at once.
    Gossip,
}
