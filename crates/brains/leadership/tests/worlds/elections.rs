//! Elections and handoffs, as consensus would do them as far as it matters here: one primary a term, elected where a majority of the
//! voters is; others learn of a term later, and an old primary that is cut off later still.

use crate::world::{ELECTION_TIMEOUT_MS, Message, Node, World};
use baton_leadership::{HandoffOutcome, Role};
use rand::Rng;
use std::time::Duration;

/// How long a primary that reaches no majority goes on as one.
const STALE_MS: u64 = 12_000;

impl World {
    fn majority_of(&self, cut: bool) -> bool {
        let voters = |node: &&Node| self.weather.members[node.id as usize].is_voter;
        let all = self.nodes.iter().filter(voters).count();
        self.nodes.iter().filter(voters).filter(|node| node.is_up && node.is_cut == cut).count() > all / 2
    }

    /// Whoever leads no majority notices that after a while.
    pub fn resign_if_cut_off(&mut self) {
        for at in 0..self.nodes.len() {
            let node = &self.nodes[at];
            let is_lost = node.is_up && node.leads_since.is_some() && !self.majority_of(node.is_cut);
            let lost_since = is_lost.then(|| node.lost_since.unwrap_or(self.now_ms));
            self.nodes[at].lost_since = lost_since;
            if lost_since.is_some_and(|since| self.now_ms - since >= STALE_MS) {
                self.set_role(at, Role::Secondary, self.nodes[at].term);
            }
        }
    }

    pub fn elect_if_due(&mut self) {
        let leads = self.primary.filter(|at| self.nodes[*at].is_up && self.majority_of(self.nodes[*at].is_cut));
        if leads.is_some() {
            self.headless_since = None;
            return;
        }
        let since = *self.headless_since.get_or_insert(self.now_ms);
        let Some(side) = [false, true].into_iter().find(|cut| self.majority_of(*cut)) else {
            self.headless_since = Some(self.now_ms);
            return;
        };
        let silence = self.now_ms - since;
        if silence < ELECTION_TIMEOUT_MS && self.term > 0 {
            return;
        }
        let candidates: Vec<usize> = (0..self.nodes.len())
            .filter(|at| {
                let node = &self.nodes[*at];
                node.is_up
                    && node.is_cut == side
                    && !node.is_recovering
                    && self.weather.members[*at].is_electable()
                    && node.machine.standing_obstacle(Duration::from_millis(silence)).is_none()
            })
            .collect();
        if candidates.is_empty() {
            let nobody_can = !(0..self.nodes.len()).any(|at| {
                let node = &self.nodes[at];
                node.is_up && !node.is_recovering && node.is_cut == side && self.weather.members[at].is_electable()
            });
            if nobody_can {
                self.headless_since = Some(self.now_ms);
            }
            self.checkers.headless(silence);
            return;
        }
        let winner = candidates[self.random.random_range(0..candidates.len())];
        self.lead(winner, None);
    }

    /// Somebody is elected.
    fn lead(&mut self, winner: usize, handed_by: Option<usize>) {
        self.term += 1;
        self.primary = Some(winner);
        self.headless_since = None;
        let term = self.term;
        if let Some(old) = handed_by {
            self.set_role(old, Role::Secondary, term);
        }
        let handed_by = handed_by.map(|by| self.nodes[by].id);
        self.set_role(winner, Role::Primary { handed_by }, term);
        self.tell_term();
    }

    /// Members learn of a term one after the other, and so does one that was primary.
    pub fn tell_term(&mut self) {
        let Some(primary) = self.primary else { return };
        for to in (0..self.nodes.len()).filter(|to| *to != primary) {
            if self.nodes[to].is_up && self.nodes[to].term < self.term {
                let delay = self.random.random_range(1..3000);
                let term = self.term;
                self.send(Some(primary), to, delay, Message::Term(term));
            }
        }
    }

    pub fn resolve_handoffs(&mut self) {
        let now = self.now_ms;
        let due: Vec<_> = self.handoffs.iter().filter(|(at, ..)| *at <= now).copied().collect();
        self.handoffs.retain(|(at, ..)| *at > now);
        for (_, from, to) in due {
            if !self.nodes[from].is_up {
                continue;
            }
            let works = self.primary == Some(from)
                && self.nodes[from].leads_since.is_some()
                && self.are_connected(from, to)
                && self.majority_of(self.nodes[from].is_cut)
                && self.nodes[to].lag_ms <= 3_000
                && !self.nodes[to].is_recovering
                && self.random.random_bool(0.9);
            let id = self.nodes[to].id;
            let outcome = if works {
                self.checkers.moved(self.now_ms, from, to);
                self.lead(to, Some(from));
                HandoffOutcome::Done { to: id, gap: Duration::from_millis(self.random.random_range(10..400)) }
            } else {
                HandoffOutcome::Failed { to: id, why: "it does not catch up".into() }
            };
            if self.random.random_bool(0.95) {
                let delay = self.random.random_range(1..2000);
                self.send(None, from, delay, Message::Outcome(outcome));
            }
        }
    }
}
