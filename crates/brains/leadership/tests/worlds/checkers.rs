//! What must hold in every world, each property by itself. A checker knows the world as it is, and what each member was told; it asks
//! no machine for its reasons.

use crate::world::{ELECTION_TIMEOUT_MS, STEP_MS, World};
use baton_leadership::{Candidate, Effect, Gossip, KEPT_MAX, LAG_MAX, Mode, Outcome, State, Transition};
use std::collections::{BTreeMap, BTreeSet};

pub const DEADLINE: &str = "a task that waits is admitted by its deadline";
pub const MAJORITY: &str = "never a majority busy while claims are honoured";
pub const TARGET: &str = "leadership is handed only to who was level and free, as far as could be known";
pub const HOUR: &str = "moves within an hour are bounded, whatever the gossip";
pub const SPACING: &str = "between two moves lies the least tenure, and the cooldown";
pub const QUIET: &str = "a set that does nothing heavy makes no moves";
pub const OFF: &str = "with the mode off nothing waits and nothing moves";
pub const PRIMARY: &str = "the set always gets a primary";
pub const PRIORITY: &str = "priorities of the configuration stand above everything";
pub const EXPLAINED: &str = "every move is explained, and what is kept is bounded";
pub const FIGURE: &str = "every change of state is a transition of Figure 1";

/// What a member was told last by another.
pub struct Known {
    pub made_ms: u64,
    pub heard_ms: u64,
    pub gossip: Gossip,
}

/// A property that did not hold.
#[derive(Debug)]
pub struct Failure {
    #[allow(dead_code)]
    pub seed: u64,
    pub property: &'static str,
    #[allow(dead_code)]
    pub at_ms: u64,
}

/// See the file's header; and what happened, so that a test can ask whether anything did.
#[derive(Default)]
pub struct Checkers {
    pub failure: Option<&'static str>,
    /// When, from whom, to whom.
    pub moves: Vec<(u64, usize, usize)>,
    /// How often each rule decided.
    pub rules: BTreeMap<&'static str, usize>,
    pub in_slots: usize,
    restarts_ms: Vec<u64>,
    /// Members whose claims a primary took for those of a dead.
    given_up: BTreeSet<usize>,
    states: BTreeMap<usize, State>,
}

impl Checkers {
    fn fail(&mut self, property: &'static str) {
        self.failure.get_or_insert(property);
    }

    fn decided(&mut self, rule: &'static str) {
        *self.rules.entry(rule).or_default() += 1;
    }

    pub fn restarted(&mut self, now_ms: u64) {
        self.restarts_ms.push(now_ms);
    }

    pub fn moved(&mut self, now_ms: u64, from: usize, to: usize) {
        self.moves.push((now_ms, from, to));
    }

    /// Nobody stood, though a majority is there.
    pub fn headless(&mut self, silence_ms: u64) {
        if silence_ms > 2 * ELECTION_TIMEOUT_MS + STEP_MS {
            self.fail(PRIMARY);
        }
    }
}

impl World {
    /// A member asks for something to be done.
    pub fn check_effect(&mut self, at: usize, effect: &Effect) {
        let mode = self.weather.settings.mode;
        match effect {
            Effect::Admit { why, .. } => self.checkers.decided(why.name()),
            Effect::Claim { .. } | Effect::Release { .. } | Effect::Gossip => {}
            Effect::Defer { why, .. } => {
                self.checkers.decided(why.name());
                if mode == Mode::Off {
                    self.checkers.fail(OFF);
                }
            }
            Effect::HandOver { to, decision } | Effect::Resume { to, decision } => {
                self.checkers.decided(decision.rule.name());
                if mode == Mode::Off {
                    self.checkers.fail(OFF);
                }
                if self.weather.is_quiet() {
                    self.checkers.fail(QUIET);
                }
                self.check_target(at, *to);
                let best = decision.candidates.iter().find(|candidate| candidate.member == *to);
                let priority = |candidate: &&Candidate| best.is_some_and(|best| candidate.priority > best.priority);
                if decision.candidates.iter().filter(|candidate| candidate.obstacle.is_none()).any(|one| priority(&one))
                {
                    self.checkers.fail(PRIORITY);
                }
                let is_explained = decision.outcome == Outcome::Moving { to: *to }
                    && best.is_some_and(|best| best.obstacle.is_none())
                    && decision.candidates.len() + 1 == self.nodes.len()
                    && decision.candidates.is_sorted_by_key(|candidate| candidate.obstacle.is_some());
                if !is_explained {
                    self.checkers.fail(EXPLAINED);
                }
            }
            Effect::Transition(transition) => self.check_transition(at, *transition),
        }
    }

    fn check_target(&mut self, from: usize, to: i32) {
        let node = &self.nodes[from];
        let heartbeats_ms = 2 * 2_000;
        let is_free = node.known.get(&to).is_some_and(|known| {
            self.now_ms - known.heard_ms <= heartbeats_ms
                && known.gossip.tasks.is_empty()
                && known.gossip.claim.is_none()
        });
        let is_level = node
            .followers
            .get(&to)
            .is_some_and(|follower| follower.is_reachable && follower.is_secondary && follower.lag <= LAG_MAX);
        let is_electable = self.weather.members.iter().any(|member| member.id == to && member.is_electable());
        if !(is_free && is_level && is_electable) {
            self.checkers.fail(TARGET);
        }
    }

    fn check_transition(&mut self, at: usize, transition: Transition) {
        const STATES: [State; 5] =
            [State::PrimaryFree, State::PrimaryBusy, State::SecondaryFree, State::SecondaryBusy, State::Apart];
        let state = self.checkers.states.get(&at).copied().unwrap_or(State::Apart);
        let next = match transition {
            Transition::Postpone => (state == State::PrimaryFree).then_some(state),
            // Whereto it does not say.
            Transition::Join => (state == State::Apart).then_some(self.nodes[at].machine.state()),
            _ => STATES.into_iter().find(|next| Transition::between(state, *next) == Some(transition)),
        };
        match next {
            Some(next) => {
                self.checkers.states.insert(at, next);
            }
            None => self.checkers.fail(FIGURE),
        }
    }

    /// What can be seen at any moment.
    pub fn check(&mut self) {
        self.check_deadlines();
        self.check_busy();
        self.check_moves();
        for at in 0..self.nodes.len() {
            let node = &self.nodes[at];
            if !node.is_up {
                self.checkers.states.remove(&at);
                continue;
            }
            let history = node.machine.history();
            let is_bounded = history.moves().len() <= KEPT_MAX && history.stays().len() <= KEPT_MAX;
            let known = self.checkers.states.get(&at).copied().unwrap_or(State::Apart);
            let is_known = known == node.machine.state();
            if !is_bounded {
                self.checkers.fail(EXPLAINED);
            }
            if !is_known {
                self.checkers.fail(FIGURE);
            }
        }
    }

    fn check_deadlines(&mut self) {
        let now = self.now_ms;
        let is_late = self
            .nodes
            .iter()
            .filter(|node| node.is_up)
            .flat_map(|node| node.tasks.values())
            .any(|task| task.begins_ms.is_none() && task.ends_ms.is_none() && now > task.deadline_ms + STEP_MS);
        if is_late {
            self.checkers.fail(DEADLINE);
        }
    }

    fn check_busy(&mut self) {
        let in_slot = |at: usize, world: &Self| {
            let node = &world.nodes[at];
            let is_voter = world.weather.members[at].is_voter;
            node.is_up && is_voter && node.tasks.values().any(|task| task.is_in_slot)
        };
        for at in 0..self.nodes.len() {
            let id = self.nodes[at].id;
            // Any primary, one that is none any more but does not know it too, may have taken the member for gone.
            let is_given_up = self.nodes.iter().filter(|node| node.is_up && node.id != id).any(|primary| {
                primary.leads_since.is_some_and(|since| {
                    let heard = primary.known.get(&id).map_or(since, |known| known.heard_ms.max(since));
                    // Within a step it may be taken for gone, and be heard again.
                    self.now_ms - heard >= ELECTION_TIMEOUT_MS - STEP_MS
                })
            });
            let has_tasks =
                self.nodes[at].tasks.values().any(|task| task.begins_ms.is_some() || task.ends_ms.is_some());
            if is_given_up {
                self.checkers.given_up.insert(at);
            } else if !has_tasks {
                self.checkers.given_up.remove(&at);
            }
        }
        let busy: Vec<usize> = (0..self.nodes.len()).filter(|at| in_slot(*at, self)).collect();
        self.checkers.in_slots = self.checkers.in_slots.max(busy.len());
        let honoured = busy.iter().filter(|at| !self.checkers.given_up.contains(at)).count();
        let voters = self.weather.members.iter().filter(|member| member.is_voter).count();
        if honoured > voters.saturating_sub(voters / 2 + 1).max(1) {
            self.checkers.fail(MAJORITY);
        }
    }

    fn check_moves(&mut self) {
        let settings = &self.weather.settings;
        let (tenure_ms, cooldown_ms) = (settings.tenure_min.as_millis() as u64, settings.cooldown.as_millis() as u64);
        let Some((last, before)) = self.checkers.moves.split_last() else { return };
        if last.0 != self.now_ms {
            return;
        }
        let begins_after = |earlier: &(u64, usize, usize)| last.0 - earlier.0;
        if let Some(previous) = before.last() {
            let same = previous.2 == last.1 && self.checkers.restarts_ms.iter().all(|at| *at < previous.0);
            let least = if same { tenure_ms.max(cooldown_ms) } else { tenure_ms };
            if begins_after(previous) < least {
                self.checkers.fail(SPACING);
                return;
            }
        }
        let within = before.iter().filter(|earlier| begins_after(earlier) < 3_600_000).count() + 1;
        // Who was restarted knows no earlier terms, and may hear of nobody who does.
        let restarts = self.checkers.restarts_ms.iter().filter(|at| last.0 - **at < 3_600_000).count();
        if within > settings.moves_per_hour_max as usize * (1 + restarts) {
            self.checkers.fail(HOUR);
        }
    }
}
