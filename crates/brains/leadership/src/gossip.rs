//! What members tell each other about their tasks, with heartbeats and at once when it changes; and what one remembers of another.
//!
//! Times are ages: no two members' clocks need agree.
//!
//! Invariant: of two messages of one member the one that was made later stands, in whatever order they come, and however many
//! processes it had between them.

use crate::figures::Figures;
use crate::set::MemberId;
use crate::step::Moment;
use baton_types::{TaskKind, Term};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One heavy task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GossipedTask {
    /// What kind of work.
    pub kind: TaskKind,
    /// Whether it runs, or waits for its beginning.
    pub is_running: bool,
    /// For how long it has been waiting, or running.
    pub age: Duration,
    /// In how long it is expected to end.
    pub ends_in: Option<Duration>,
}

/// A request for the heavy slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Tells this claim from the others of the same process.
    pub number: u64,
    /// A primary has confirmed it.
    pub is_confirmed: bool,
}

/// A claim that the primary has confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Whose.
    pub member: MemberId,
    /// Of which process of that member.
    pub incarnation: u64,
    /// [`Claim::number`].
    pub number: u64,
    /// [`Gossip::made_at`] of the last that was heard of the member when this was said. The claim cannot have been stolen before the
    /// election timeout is over since then: until then, by its own clock, the member may begin.
    pub heard_made_at: Moment,
}

/// The last that a member heard of the primary of its term. It proves to that one who listened to it, and when: in its own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeardPrimary {
    /// [`Gossip::incarnation`] of the primary.
    pub incarnation: u64,
    /// [`Gossip::made_at`] of what was heard.
    pub made_at: Moment,
}

/// What one member says of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gossip {
    /// Which process of this member says it: see [`crate::Start::incarnation`].
    pub incarnation: u64,
    /// Grows with each message of one incarnation.
    pub sequence: u64,
    /// When this was said, by the member's own clock: for nobody but itself.
    pub made_at: Moment,
    /// The member's term.
    pub term: Term,
    /// Whether it is primary in that term.
    pub is_primary: bool,
    /// Its heavy tasks: those that run, and those that wait.
    pub tasks: Vec<GossipedTask>,
    /// How long ago its last heavy task ended.
    pub last_task_end: Option<Duration>,
    /// For how long it has served as primary, in all.
    pub served_as_primary: Duration,
    /// What it measures.
    pub figures: Figures,
    /// What it heard last of the primary of its term.
    pub heard_primary: Option<HeardPrimary>,
    /// Its claim on the heavy slot.
    pub claim: Option<Claim>,
    /// Of a primary: the claims it has confirmed.
    pub grants: Vec<Grant>,
    /// Of a primary: who had leadership before tasks moved it, and gets it back.
    pub preferred: Option<MemberId>,
    /// Of a primary whose disk is nearly full: who is to end its tasks, because only these keep it from leading.
    pub asks_to_end: Option<MemberId>,
    /// How many terms it has seen begin within the last hour: no fewer than leadership has moved.
    pub terms_last_hour: u32,
    /// The last term that began with leadership being handed over, as far as it knows; 0: none.
    pub moved_in: Term,
}

impl Gossip {
    /// A heavy task that runs.
    pub fn running(&self) -> Option<&GossipedTask> {
        self.tasks.iter().find(|task| task.is_running)
    }

    /// A heavy task that waits.
    pub fn waiting(&self) -> Option<&GossipedTask> {
        self.tasks.iter().find(|task| !task.is_running)
    }
}

/// What is remembered of another member.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Peer {
    pub gossip: Gossip,
    pub heard_at: Moment,
}

impl Peer {
    pub fn new(gossip: Gossip, heard_at: Moment) -> Self {
        Self { gossip, heard_at }
    }

    /// Takes a message, unless it is older than what is known.
    pub fn hear(&mut self, gossip: Gossip, heard_at: Moment) {
        let made = |gossip: &Gossip| (gossip.incarnation, gossip.sequence);
        if made(&gossip) <= made(&self.gossip) {
            return;
        }
        self.gossip = gossip;
        self.heard_at = self.heard_at.max(heard_at);
    }

    /// When its last heavy task ended, by this member's clock; zero if that was before this process began.
    pub fn last_task_end_at(&self) -> Option<Moment> {
        self.gossip.last_task_end.map(|ago| self.heard_at.saturating_sub(ago))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn gossip(incarnation: u64, sequence: u64) -> Gossip {
        Gossip {
            incarnation,
            sequence,
            made_at: Moment::ZERO,
            term: 1,
            is_primary: false,
            tasks: Vec::new(),
            last_task_end: None,
            served_as_primary: Duration::ZERO,
            figures: Figures::default(),
            heard_primary: None,
            claim: None,
            grants: Vec::new(),
            preferred: None,
            asks_to_end: None,
            terms_last_hour: 0,
            moved_in: 0,
        }
    }

    #[test]
    fn what_comes_late_is_not_believed_whichever_process_it_is_from() {
        let at = Duration::from_secs;
        let mut peer = Peer::new(gossip(3, 5), at(1));
        for (said, stands) in [
            ((3, 4), (3, 5)),
            ((3, 5), (3, 5)),
            ((3, 6), (3, 6)),
            ((4, 1), (4, 1)),
            ((3, 9), (4, 1)),
            ((6, 1), (6, 1)),
            // Two processes ago: the one that lives is heard all the same.
            ((3, 10), (6, 1)),
            ((6, 2), (6, 2)),
            ((5, 3), (6, 2)),
        ] {
            peer.hear(gossip(said.0, said.1), at(said.1));
            assert_eq!((peer.gossip.incarnation, peer.gossip.sequence), stands, "after {said:?}");
        }
        assert_eq!(peer.heard_at, at(6), "time does not go back");
    }
}
