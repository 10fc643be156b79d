//! The step machine's state, and the way of an input through it.
//!
//! Invariant: after the input was taken, [`Leadership::settle`] does everything that is then due. So no decision depends on which
//! input made it possible, and whoever waits is looked at again with every news.

use crate::claims::{Claimed, Register};
use crate::cost::CostModel;
use crate::decision::{Decision, History, Outcome, Trigger};
use crate::disk::DiskWatch;
use crate::figures::Figures;
use crate::gossip::{Claim, Gossip, Peer};
use crate::limits::Limits;
use crate::mutant::Mutant;
use crate::rule::Rule;
use crate::set::{MemberId, Set};
use crate::state::{State, Transition};
use crate::step::{Effect, Follower, HandoffOutcome, Input, Moment, Role, TaskId, Work};
use crate::tasks::{Phase, Task, Tasks};
use baton_types::{TaskKind, Term};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A handoff of which nothing was heard for so long has failed.
pub(crate) const HANDOFF_MAX: Duration = Duration::from_secs(60);

/// What a member knows when its process begins.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// Tells this process from the others of the same member: greater than that of every earlier one.
    pub incarnation: u64,
    /// Seeds this member's draws.
    pub seed: u64,
}

impl Start {
    /// The number of a process of a member whose last one had the number `before`, or 0. `clock` is the time since 1970: it takes part
    /// for a member whose data were lost or brought back from a backup; it alone may have been set back.
    pub fn next_incarnation(before: u64, clock: Duration) -> u64 {
        u64::try_from(clock.as_micros()).unwrap_or(0).max(before.saturating_add(1))
    }
}

/// A handoff that was asked for.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Handoff {
    pub to: MemberId,
    pub since: Moment,
}

/// What others must know at once if it changes. Not the role and the term: consensus has heartbeats sent at once by whoever wins or
/// resigns, and these and their answers carry gossip. To send them twice would take time just when clients wait for the new primary.
type Digest = (Vec<(TaskKind, bool)>, Option<Claim>, Vec<Claimed>, Option<MemberId>, Option<MemberId>);

/// See the crate's and the file's header.
#[derive(Clone, Serialize, Deserialize)]
pub struct Leadership {
    pub(crate) incarnation: u64,
    pub(crate) seed: u64,
    pub(crate) sequence: u64,
    pub(crate) now: Moment,
    /// How far the wall clock is ahead of `now`.
    wall_ahead: Option<Duration>,
    pub(crate) set: Option<Arc<Set>>,
    pub(crate) role: Role,
    pub(crate) term: Term,
    /// Since when this member has been primary, if it is.
    pub(crate) primary_since: Moment,
    pub(crate) served_before: Duration,
    pub(crate) tasks: Tasks,
    pub(crate) last_task_end: Option<Moment>,
    pub(crate) figures: Figures,
    pub(crate) disk: DiskWatch,
    pub(crate) peers: BTreeMap<MemberId, Peer>,
    pub(crate) followers: BTreeMap<MemberId, Follower>,
    /// Members that a handoff to failed, until when.
    pub(crate) avoided: BTreeMap<MemberId, Moment>,
    pub(crate) handoff: Option<Handoff>,
    /// Who is to get leadership back from whoever this member handed it to.
    pub(crate) returns_to: Option<MemberId>,
    /// The same of who handed it to this member.
    pub(crate) preferred: Option<MemberId>,
    /// Of a primary whose disk is nearly full: who is to end its tasks.
    pub(crate) asks_to_end: Option<MemberId>,
    pub(crate) limits: Limits,
    pub(crate) costs: CostModel,
    pub(crate) claim: Option<Claim>,
    /// Until when the last confirmation of the claim is to be believed, by this member's clock.
    pub(crate) lease_ends: Moment,
    pub(crate) next_claim: u64,
    pub(crate) register: Register,
    pub(crate) wants_slot_as_primary: bool,
    pub(crate) history: History,
    pub(crate) state: State,
    digest: Option<Digest>,
    #[cfg(feature = "mutants")]
    #[serde(skip)]
    mutant: Mutant,
    /// Empty between steps.
    #[serde(skip)]
    pub(crate) effects: Vec<Effect>,
}

impl Leadership {
    /// A member at the beginning of its process.
    pub fn new(start: Start) -> Self {
        Self {
            incarnation: start.incarnation,
            seed: start.seed,
            sequence: 0,
            now: Moment::ZERO,
            wall_ahead: None,
            set: None,
            role: Role::Other,
            term: 0,
            primary_since: Moment::ZERO,
            served_before: Duration::ZERO,
            tasks: Tasks::default(),
            last_task_end: None,
            figures: Figures::default(),
            disk: DiskWatch::default(),
            peers: BTreeMap::new(),
            followers: BTreeMap::new(),
            avoided: BTreeMap::new(),
            handoff: None,
            returns_to: None,
            preferred: None,
            asks_to_end: None,
            limits: Limits::default(),
            costs: CostModel::default(),
            claim: None,
            lease_ends: Moment::ZERO,
            next_claim: 0,
            register: Register::default(),
            wants_slot_as_primary: false,
            history: History::default(),
            state: State::Apart,
            digest: None,
            #[cfg(feature = "mutants")]
            mutant: Mutant::None,
            effects: Vec::new(),
        }
    }

    /// Takes one input; returns what is to be done, in order. `now` never goes back.
    pub fn step(&mut self, now: Moment, input: Input) -> Vec<Effect> {
        self.now = self.now.max(now);
        self.take(input);
        self.settle();
        std::mem::take(&mut self.effects)
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Tick => {}
            Input::Configured(set) => self.take_set(*set),
            Input::Role { role, term } => self.take_role(role, term),
            Input::Wanted { task, work, wait_max } => self.take_wanted(task, work, wait_max),
            Input::Begun { task, work } => self.take_begun(task, work),
            Input::Ended { task, cost } => {
                let Some(ended) = self.tasks.remove(task) else { return };
                let has_run = !matches!(ended.phase, Phase::Waiting { .. });
                if ended.is_heavy && has_run {
                    self.last_task_end = Some(self.now);
                }
                if let Some(cost) = cost.filter(|_| has_run) {
                    self.costs.learn(&ended.work, cost);
                }
            }
            Input::Figures(figures) => {
                self.figures = figures.bounded();
                let mut others = self.fresh_sync_latencies();
                self.disk.measure(self.now, self.figures.sync_latency, &mut others);
            }
            Input::WallClock(wall) => self.wall_ahead = Some(wall.saturating_sub(self.now)),
            Input::Gossip { from, gossip, heard_at } => self.take_gossip(from, *gossip, heard_at),
            Input::Followers(followers) => self.followers = followers,
            Input::Handoff(outcome) => self.take_handoff(&outcome),
        }
    }

    fn take_set(&mut self, set: Set) {
        self.peers.retain(|id, _| set.member(*id).is_some());
        self.followers.retain(|id, _| set.member(*id).is_some());
        self.avoided.retain(|id, _| set.member(*id).is_some());
        self.set = Some(Arc::new(set));
    }

    fn take_role(&mut self, role: Role, term: Term) {
        let (was_primary, is_primary) = (self.is_primary(), matches!(role, Role::Primary { .. }));
        let is_elected = is_primary && (!was_primary || term != self.term);
        self.term = self.term.max(term);
        self.role = role;
        if was_primary && !is_primary {
            self.served_before += self.now.saturating_sub(self.primary_since);
        }
        if !is_primary {
            self.register = Register::default();
        }
        if is_elected {
            if !was_primary {
                self.primary_since = self.now;
            }
            self.conclude_handoff(|to| HandoffOutcome::Failed { to, why: "this member was elected again".into() });
            self.register = Register::new(self.now);
            self.returns_to = None;
            let is_move = matches!(role, Role::Primary { handed_by: Some(_) });
            self.limits.elected(self.now, self.term, is_move);
        }
    }

    fn take_wanted(&mut self, id: TaskId, work: Work, wait_max: Option<Duration>) {
        let postpone_max = self.set.as_ref().map_or(Duration::ZERO, |set| set.settings.postpone_max);
        let deadline = self.now.saturating_add(postpone_max.min(wait_max.unwrap_or(Duration::MAX)));
        self.insert(id, work, Phase::Waiting { deadline, told: None });
    }

    fn take_begun(&mut self, id: TaskId, work: Work) {
        if self.tasks.get(id).is_some() {
            self.tasks.set_phase(id, self.now, Phase::Running);
        } else {
            self.insert(id, work, Phase::Running);
        }
    }

    fn insert(&mut self, id: TaskId, work: Work, phase: Phase) {
        let is_heavy = self.costs.is_heavy(&work, &self.figures) || self.is_mutant(Mutant::EverythingIsHeavy);
        /// Beyond this, an expected end says nothing.
        const PREDICTED_SECS_MAX: f64 = 1e6;
        let predicted = Duration::from_secs_f64(self.costs.predict(&work).duration_secs.min(PREDICTED_SECS_MAX));
        let task =
            Task { work, is_heavy, predicted, since: self.now, phase, is_reluctant: false, is_told_to_end: false };
        self.tasks.insert(id, task);
    }

    fn take_gossip(&mut self, from: MemberId, gossip: Gossip, heard_at: Moment) {
        let Some(set) = self.set.clone() else { return };
        if from == set.me || set.member(from).is_none() {
            return;
        }
        let heard_at = heard_at.min(self.now);
        if !self.is_mutant(Mutant::CountsOwnMovesOnly) {
            self.limits.hear_move(gossip.moved_in);
        }
        match self.peers.get_mut(&from) {
            Some(peer) => peer.hear(gossip, heard_at),
            None => {
                self.peers.insert(from, Peer::new(gossip, heard_at));
            }
        }
        self.hear_grants(&set, from);
    }

    fn take_handoff(&mut self, outcome: &HandoffOutcome) {
        match outcome {
            HandoffOutcome::Done { gap, .. } => self.costs.learn_gap(*gap),
            HandoffOutcome::Failed { to, .. } => {
                self.avoided.insert(*to, self.now + crate::candidates::AVOIDED_FOR);
                self.limits.fail_move(self.now);
                self.returns_to = None;
            }
        }
        self.handoff = None;
        if !self.history.conclude(outcome)
            && let Some(set) = self.set.clone()
        {
            // An operator's.
            let decision = self.decision(&set, Trigger::Operator, Rule::Asked, Vec::new(), outcome.into());
            self.history.add_move(decision);
        }
    }

    fn conclude_handoff(&mut self, outcome: impl FnOnce(MemberId) -> HandoffOutcome) {
        if let Some(handoff) = self.handoff {
            self.take_handoff(&outcome(handoff.to));
        }
    }

    fn settle(&mut self) {
        self.limits.hear_term(self.now, self.term);
        self.avoided.retain(|_, until| *until > self.now);
        self.preferred = self.who_is_preferred();
        if self.handoff.is_some_and(|handoff| self.now.saturating_sub(handoff.since) >= HANDOFF_MAX) {
            self.conclude_handoff(|to| HandoffOutcome::Failed { to, why: "nothing was heard of it".into() });
        }
        match self.set.clone() {
            Some(set) => {
                self.settle_policy(&set);
                self.settle_claim(&set);
            }
            None => self.admit_all(Rule::NoSet),
        }
        self.tell_state();
        let digest = self.digest();
        if self.digest.as_ref() != Some(&digest) {
            self.digest = Some(digest);
            self.effects.push(Effect::Gossip);
        }
    }

    /// While a member leads that was handed leadership before a task: who gets it back.
    fn who_is_preferred(&self) -> Option<MemberId> {
        let Role::Primary { handed_by: Some(by) } = self.role else { return None };
        let preferred = self.peers.get(&by)?.gossip.preferred;
        preferred.filter(|id| self.set.as_ref().is_some_and(|set| set.me != *id))
    }

    fn tell_state(&mut self) {
        let now = State::of(self.role, self.tasks.is_busy());
        let path = if self.is_mutant(Mutant::SkipsStates) { vec![now] } else { self.state.path(now) };
        for next in path {
            self.effects.extend(Transition::between(self.state, next).map(Effect::Transition));
            self.state = next;
        }
    }

    fn digest(&self) -> Digest {
        let tasks = self.tasks.told().map(|(task, is_running)| (task.work.kind, is_running)).collect();
        (tasks, self.claim, self.register.granted(), self.returns_to, self.asks_to_end)
    }

    /// The sync latencies of the others, as far as they are known and not old.
    fn fresh_sync_latencies(&self) -> Vec<Duration> {
        let age_max = self.set.as_ref().map_or(Duration::ZERO, |set| set.gossip_age_max());
        let fresh = self.peers.values().filter(|peer| self.now.saturating_sub(peer.heard_at) <= age_max);
        fresh.map(|peer| peer.gossip.figures.sync_latency).collect()
    }

    /// The time since 1970-01-01, once that was told.
    pub(crate) fn wall(&self) -> Option<Duration> {
        self.wall_ahead.map(|ahead| ahead + self.now)
    }

    pub(crate) fn is_primary(&self) -> bool {
        matches!(self.role, Role::Primary { .. })
    }

    pub(crate) fn decision(
        &self,
        set: &Set,
        trigger: Trigger,
        rule: Rule,
        candidates: Vec<crate::Candidate>,
        outcome: Outcome,
    ) -> Decision {
        let staying_secs = match trigger {
            Trigger::Task { task, .. } => {
                self.tasks.get(task).map(|task| self.costs.staying_secs(&task.work, &self.figures))
            }
            Trigger::DiskSlow | Trigger::DiskNearlyFull | Trigger::PreferredFree | Trigger::Operator => None,
        };
        let chosen = match &outcome {
            Outcome::Moving { to } | Outcome::Moved { to, .. } | Outcome::Failed { to, .. } => Some(*to),
            Outcome::WouldMove { to } => *to,
            Outcome::Stayed | Outcome::Postponed { .. } => None,
        };
        let chosen = candidates.iter().find(|candidate| chosen.is_none_or(|chosen| candidate.member == chosen));
        let moving_secs = chosen.filter(|candidate| candidate.obstacle.is_none()).map(|chosen| chosen.moving_secs);
        Decision {
            at: self.now,
            last_at: self.now,
            count: 1,
            trigger,
            mode: set.settings.mode,
            ranking: set.settings.ranking,
            rule,
            candidates,
            staying_secs,
            moving_secs,
            gap_secs: self.costs.gap_secs(),
            outcome,
        }
    }

    /// Builds a fault in.
    #[cfg(feature = "mutants")]
    pub fn mutate(&mut self, mutant: Mutant) {
        self.mutant = mutant;
    }

    /// Whether this is the mutant that the checkers are to catch. Never, in a member that anybody runs.
    #[cfg(feature = "mutants")]
    pub(crate) fn is_mutant(&self, mutant: Mutant) -> bool {
        self.mutant == mutant
    }

    #[cfg(not(feature = "mutants"))]
    pub(crate) fn is_mutant(&self, _: Mutant) -> bool {
        false
    }
}
