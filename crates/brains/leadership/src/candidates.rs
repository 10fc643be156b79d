//! Who could lead instead of this member, how well, and what keeps the others from it (the paper's Policy 2, before the ranking).
//!
//! Invariant: a candidate without an obstacle is, as far as could be known, electable, reachable, level, free, and large enough for what
//! clients ask of this member: what is known of it is no older than two heartbeats.

use crate::figures::Figures;
use crate::leadership::Leadership;
use crate::mutant::Mutant;
use crate::ranking::{Ranking, score};
use crate::rule::Rule;
use crate::set::{Member, MemberId, Set};
use crate::step::Moment;
use baton_types::TaskKind;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// A member further behind has too much to catch up on while writes wait.
pub const LAG_MAX: Duration = Duration::from_secs(2);
/// Less free space than this share of a disk is nearly none.
pub const DISK_FREE_MIN: f64 = 0.05;
/// A disk that is to be moved to has so many times as much.
const DISK_FREE_FACTOR: f64 = 2.0;
/// How many times slower than here a candidate's syncs may be.
const SYNC_FACTOR_MAX: u32 = 3;
/// Syncs faster than this are fast, whatever the others' are.
const SYNC_FAST: Duration = Duration::from_millis(20);
/// What of its processors a smaller member may come to use for what clients ask of this one.
const FILLED_MAX: f64 = 0.9;
/// A member with nearly as many processors is no smaller.
const SMALLER: f64 = 0.95;
/// How long a member is not asked again after a handoff to it failed.
pub(crate) const AVOIDED_FOR: Duration = Duration::from_secs(60);

/// A member's place in a ranking, and the figures that gave it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Who.
    pub member: MemberId,
    /// Its priority.
    #[serde(with = "baton_replay::numbers")]
    pub priority: f64,
    /// What it measured, if it was heard.
    pub figures: Option<Figures>,
    /// How long ago it was heard.
    pub gossip_age: Option<Duration>,
    /// How far its log is behind.
    pub lag: Duration,
    /// When its last heavy task ended, by this member's clock.
    pub last_task_end_at: Option<Moment>,
    /// For how long it has served as primary.
    pub served_as_primary: Duration,
    /// Leadership is to return to it.
    pub is_preferred: bool,
    /// See [`Ranking::Score`]; the lower the better.
    #[serde(with = "baton_replay::numbers")]
    pub score: f64,
    /// Drawn for [`Ranking::Random`].
    pub lot: u64,
    /// What moving leadership to it is predicted to cost.
    #[serde(with = "baton_replay::numbers")]
    pub moving_secs: f64,
    /// What keeps it from leading; none: it is ranked, where the list has it.
    pub obstacle: Option<Obstacle>,
}

/// Why a member is no candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Obstacle {
    Arbiter,
    NoPriority,
    NoVote,
    Unreachable,
    NotSecondary,
    NeverHeard,
    GossipOld,
    RunsTask(TaskKind),
    WaitsForTask(TaskKind),
    HoldsSlot,
    Lags,
    TooSmall,
    DiskNearlyFull,
    DiskSlow,
    ScoreWorse,
    FailedLately,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arbiter => f.write_str("it is an arbiter"),
            Self::NoPriority => f.write_str("its priority is 0"),
            Self::NoVote => f.write_str("it has no vote"),
            Self::Unreachable => f.write_str("it cannot be reached"),
            Self::NotSecondary => f.write_str("it is no secondary"),
            Self::NeverHeard => f.write_str("nothing was heard of its tasks"),
            Self::GossipOld => f.write_str("what is known of its tasks is older than two heartbeats"),
            Self::RunsTask(kind) => write!(f, "it is in a task ({})", kind.name()),
            Self::WaitsForTask(kind) => write!(f, "it waits for a task ({})", kind.name()),
            Self::HoldsSlot => f.write_str("it may begin a task at any moment"),
            Self::Lags => f.write_str("it lags"),
            Self::TooSmall => f.write_str("it has too few processors for what clients ask for"),
            Self::DiskNearlyFull => f.write_str("its disk is nearly full"),
            Self::DiskSlow => f.write_str("its disk syncs more slowly"),
            Self::ScoreWorse => f.write_str("its score is worse than the primary's by the bound"),
            Self::FailedLately => f.write_str("a handoff to it failed lately"),
        }
    }
}

impl Leadership {
    /// Every other member, the best first, for a decision that falls now by that rule.
    pub(crate) fn candidates(&self, set: &Set, for_rule: Option<Rule>) -> Vec<Candidate> {
        let mut candidates: Vec<Candidate> = set.others().map(|member| self.candidate(set, member, for_rule)).collect();
        set.settings.ranking.sort(&mut candidates);
        candidates
    }

    fn candidate(&self, set: &Set, member: &Member, for_rule: Option<Rule>) -> Candidate {
        let peer = self.peers.get(&member.id);
        let follower = self.followers.get(&member.id);
        let lag = follower.map_or(Duration::MAX, |follower| follower.lag);
        let figures = peer.map(|peer| peer.gossip.figures.bounded());
        let debt_bytes_max = set.settings.debt_bytes_max;
        let lot = if set.settings.ranking == Ranking::Random { self.lot(member.id) } else { 0 };
        Candidate {
            member: member.id,
            priority: member.priority,
            figures,
            gossip_age: peer.map(|peer| self.now.saturating_sub(peer.heard_at)),
            lag,
            last_task_end_at: peer.and_then(|peer| peer.last_task_end_at()),
            served_as_primary: peer.map_or(Duration::ZERO, |peer| peer.gossip.served_as_primary),
            is_preferred: self.preferred == Some(member.id),
            score: figures.map_or(1.0, |figures| score(&figures, lag, debt_bytes_max)),
            lot,
            moving_secs: self.costs.moving_secs(&self.figures, figures.as_ref()),
            obstacle: self.obstacle(set, member, lag, for_rule),
        }
    }

    fn obstacle(&self, set: &Set, member: &Member, lag: Duration, for_rule: Option<Rule>) -> Option<Obstacle> {
        self.inability(set, member)
            .or_else(|| self.occupation(member.id))
            .or_else(|| self.unfitness(set, member.id, lag, for_rule))
    }

    /// Whether a member would have no obstacle for this rule, whatever it is in.
    pub(crate) fn could_lead(&self, set: &Set, id: MemberId, for_rule: Rule) -> bool {
        let Some(member) = set.member(id) else { return false };
        let lag = self.followers.get(&id).map_or(Duration::MAX, |follower| follower.lag);
        self.inability(set, member).is_none() && self.unfitness(set, id, lag, Some(for_rule)).is_none()
    }

    /// Whether a member runs a task, as far as is known.
    pub(crate) fn runs_task(&self, id: MemberId) -> bool {
        matches!(self.occupation(id), Some(Obstacle::RunsTask(_)))
    }

    /// What keeps a member from leading whatever it does; and that nothing is known of what it does.
    fn inability(&self, set: &Set, member: &Member) -> Option<Obstacle> {
        let follower = self.followers.get(&member.id);
        if member.is_arbiter {
            return Some(Obstacle::Arbiter);
        }
        if member.priority <= 0.0 {
            return Some(Obstacle::NoPriority);
        }
        if !member.is_voter {
            return Some(Obstacle::NoVote);
        }
        if !follower.is_some_and(|follower| follower.is_reachable) {
            return Some(Obstacle::Unreachable);
        }
        if !follower.is_some_and(|follower| follower.is_secondary) {
            return Some(Obstacle::NotSecondary);
        }
        let Some(peer) = self.peers.get(&member.id) else { return Some(Obstacle::NeverHeard) };
        // What it said in an earlier term another primary may have changed since.
        let is_old = self.now.saturating_sub(peer.heard_at) > set.gossip_age_max() || peer.gossip.term != self.term;
        (is_old && !self.is_mutant(Mutant::TrustsOldGossip)).then_some(Obstacle::GossipOld)
    }

    /// What a member is in, or may be in at any moment.
    fn occupation(&self, id: MemberId) -> Option<Obstacle> {
        let gossip =
            self.peers.get(&id).filter(|_| !self.is_mutant(Mutant::IgnoresTheirTasks)).map(|peer| &peer.gossip)?;
        let running = gossip.running().map(|task| Obstacle::RunsTask(task.kind));
        let waiting = || gossip.waiting().map(|task| Obstacle::WaitsForTask(task.kind));
        let holds_slot = || gossip.claim.is_some() || self.register.has_granted(id);
        running.or_else(waiting).or_else(|| holds_slot().then_some(Obstacle::HoldsSlot))
    }

    /// Why a member would lead badly, or worse than this one does.
    fn unfitness(&self, set: &Set, id: MemberId, lag: Duration, for_rule: Option<Rule>) -> Option<Obstacle> {
        if lag > LAG_MAX && !self.is_mutant(Mutant::IgnoresLag) {
            return Some(Obstacle::Lags);
        }
        if self.avoided.get(&id).is_some_and(|until| *until > self.now) {
            return Some(Obstacle::FailedLately);
        }
        let there = self.peers.get(&id)?.gossip.figures.bounded();
        self.worse_than_here(set, &there, lag, for_rule)
    }

    /// The refusal: leadership would move from one trouble to another.
    fn worse_than_here(&self, set: &Set, there: &Figures, lag: Duration, for_rule: Option<Rule>) -> Option<Obstacle> {
        let here = &self.figures;
        let free_min = DISK_FREE_MIN * if for_rule == Some(Rule::DiskNearlyFull) { DISK_FREE_FACTOR } else { 1.0 };
        if there.disk_free < free_min {
            return Some(Obstacle::DiskNearlyFull);
        }
        let sync_max = if for_rule == Some(Rule::DiskSlow) {
            here.sync_latency / SYNC_FACTOR_MAX
        } else {
            here.sync_latency.saturating_mul(SYNC_FACTOR_MAX).max(SYNC_FAST)
        };
        if there.sync_latency > sync_max {
            return Some(Obstacle::DiskSlow);
        }
        // A disk that fails is worse than a small machine.
        let is_for_disk = matches!(for_rule, Some(Rule::DiskSlow | Rule::DiskNearlyFull));
        let is_smaller = there.cpus < SMALLER * here.cpus;
        if is_smaller && here.load * here.cpus > FILLED_MAX * there.cpus && !is_for_disk {
            return Some(Obstacle::TooSmall);
        }
        let debt_bytes_max = set.settings.debt_bytes_max;
        let (mine, theirs) = (score(here, Duration::ZERO, debt_bytes_max), score(there, lag, debt_bytes_max));
        (theirs - mine > set.settings.refusal_bound).then_some(Obstacle::ScoreWorse)
    }

    /// A draw for a member: another one for each move of this process (splitmix64).
    fn lot(&self, member: MemberId) -> u64 {
        let salt = self.history.moves().len() as u64 + ((member as u64) << 32);
        let mut mixed = self.seed.wrapping_add(salt.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
