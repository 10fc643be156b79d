//! What a member tells of tasks and moves when it is asked: every member's tasks, as far as they are known, and the last decisions.

use super::Steward;
use baton_consensus as consensus;
use baton_leadership::{Candidate, Decision, Gossip, HandoffOutcome, MemberId, Moment, Obstacle, Rule};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

/// What is known of tasks and moves at one moment.
#[derive(Clone, Debug)]
pub struct LeadershipStatus {
    /// Where this member is in the paper's Figure 1.
    pub state: &'static str,
    /// What each member says of itself, and how long ago; of this member, now. Who was never heard is not in it.
    pub members: BTreeMap<MemberId, (Gossip, Duration)>,
    /// The last times that leadership moved from here, or was to: oldest first.
    pub moves: Vec<Decision>,
    /// The last decisions against a move, oldest first.
    pub stays: Vec<Decision>,
    now: Moment,
    wall: SystemTime,
}

/// What was counted since the process began.
#[derive(Clone, Debug, Default)]
pub struct LeadershipCounts {
    /// Moves that were ordered, by trigger.
    pub moves: BTreeMap<&'static str, u64>,
    /// Handoffs after which another member leads, and for how long nobody took writes meanwhile, in all.
    pub moved: u64,
    /// See `moved`.
    pub gaps: Duration,
    /// Handoffs that came to nothing.
    pub failed: u64,
    /// Heavy and light tasks that could wait and were let begin, by rule.
    pub admitted: BTreeMap<&'static str, u64>,
    /// Times that a task was told to wait, by rule.
    pub deferred: BTreeMap<&'static str, u64>,
}

impl LeadershipCounts {
    pub(super) fn admit(&mut self, why: Rule) {
        *self.admitted.entry(why.name()).or_default() += 1;
    }

    pub(super) fn defer(&mut self, why: Rule) {
        *self.deferred.entry(why.name()).or_default() += 1;
    }

    pub(super) fn order(&mut self, decision: &Decision) {
        *self.moves.entry(decision.trigger.name()).or_default() += 1;
    }

    pub(super) fn end(&mut self, outcome: &HandoffOutcome) {
        match outcome {
            HandoffOutcome::Done { gap, .. } => {
                self.moved += 1;
                self.gaps += *gap;
            }
            HandoffOutcome::Failed { .. } => self.failed += 1,
        }
    }
}

impl LeadershipStatus {
    /// When that was, by the wall clock as it goes now.
    pub fn date(&self, at: Moment) -> SystemTime {
        match self.now.checked_sub(at) {
            Some(ago) => self.wall.checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH),
            // No further than a calendar reaches.
            None => self.wall.checked_add((at - self.now).min(Duration::from_secs(1 << 32))).unwrap_or(self.wall),
        }
    }

    /// How long ago a candidate's last heavy task ended.
    pub fn last_task_ended(&self, candidate: &Candidate) -> Option<SystemTime> {
        candidate.last_task_end_at.map(|at| self.date(at))
    }
}

impl Steward {
    /// Who is to lead if leadership moved now, if heavy work of others makes a difference: of those that are level any other will do.
    pub fn free_successor(&self) -> Option<consensus::MemberId> {
        let ranking = self.explain()?.candidates;
        let is_busy = |candidate: &Candidate| {
            matches!(candidate.obstacle, Some(Obstacle::RunsTask(_) | Obstacle::WaitsForTask(_) | Obstacle::HoldsSlot))
        };
        let best = ranking.first().filter(|best| best.obstacle.is_none())?.member;
        ranking.iter().any(is_busy).then_some(consensus::MemberId(best))
    }

    /// What was counted.
    pub fn counts(&self) -> LeadershipCounts {
        self.state.lock().counts.clone()
    }

    /// See the file's header. `me` is this member.
    pub fn status(&self, me: Option<MemberId>) -> LeadershipStatus {
        self.with(|state, now| {
            let own = state.gossip(now);
            let brain = &state.brain;
            let heard = brain.heard().map(|(id, gossip, at)| (id, (gossip.clone(), now.saturating_sub(at))));
            LeadershipStatus {
                members: heard.chain(me.map(|me| (me, (own, Duration::ZERO)))).collect(),
                state: brain.state().name(),
                moves: brain.history().moves().cloned().collect(),
                stays: brain.history().stays().cloned().collect(),
                now,
                wall: SystemTime::now(),
            }
        })
    }
}
