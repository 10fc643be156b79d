//! What a member's machine tells when it is asked: what to gossip, when to step it next, what a gate answers, and what it decided.

use crate::cost::CostModel;
use crate::decision::History;
use crate::gossip::{Gossip, HeardPrimary};
use crate::leadership::{HANDOFF_MAX, Leadership};
use crate::rule::Rule;
use crate::set::MemberId;
use crate::state::State;
use crate::step::{Moment, TaskId};
use crate::tasks::Phase;
use crate::windows;
use baton_types::{Admission, Pace};
use std::time::Duration;

impl Leadership {
    /// What this member says of itself now, for one message to any number of members.
    pub fn gossip(&mut self, now: Moment) -> Gossip {
        // What is said is said of now, also by who has just woken up.
        self.now = self.now.max(now);
        let now = self.now;
        self.sequence += 1;
        let serving = if self.is_primary() { now.saturating_sub(self.primary_since) } else { Duration::ZERO };
        Gossip {
            incarnation: self.incarnation,
            sequence: self.sequence,
            made_at: now,
            term: self.term,
            is_primary: self.is_primary(),
            tasks: self.tasks.gossip(now),
            last_task_end: self.last_task_end.map(|at| now.saturating_sub(at)),
            served_as_primary: self.served_before + serving,
            figures: self.figures,
            claim: self.claim,
            grants: self.grants(),
            preferred: self.returns_to,
            asks_to_end: self.asks_to_end,
            heard_primary: self.heard_primary(),
            terms_last_hour: self.limits.begun_last_hour(now),
            moved_in: self.limits.moved_in(),
        }
    }

    /// What this member heard last of the primary of its term.
    fn heard_primary(&self) -> Option<HeardPrimary> {
        let is_primary = |gossip: &&Gossip| gossip.is_primary && gossip.term == self.term;
        let primary = self.peers.values().map(|peer| &peer.gossip).find(is_primary).filter(|_| !self.is_primary())?;
        Some(HeardPrimary { incarnation: primary.incarnation, made_at: primary.made_at })
    }

    /// When to step next, if nothing else happens before.
    pub fn next_deadline(&self) -> Option<Moment> {
        let set = self.set.as_ref()?;
        let tasks = self.tasks.next_deadline();
        let handoff = self.handoff.map(|handoff| handoff.since + HANDOFF_MAX);
        let is_disk_moving = self.is_primary() && self.disk.sick_at().is_some_and(|at| at > self.now);
        let disk = self.disk.sick_at().filter(|_| is_disk_moving);
        let window = self.wall().and_then(|wall| {
            let kinds = self.tasks.waiting_for_window();
            let openings = kinds.filter_map(|kind| windows::next_opening(&set.settings.windows, kind, wall));
            openings.min().map(|opens| self.now + opens.saturating_sub(wall))
        });
        // Gossip grows old, members are gone and moves are possible again: all by time alone.
        let is_looking = self.is_primary() && (tasks.is_some() || self.preferred.is_some() || self.register.is_asked());
        let look = is_looking.then(|| self.now + set.heartbeat_interval);
        tasks.into_iter().chain(handoff).chain(disk).chain(window).chain(look).min()
    }

    /// What the gate answers about a task that can wait; none if no such task was wanted.
    pub fn admission(&self, task: TaskId) -> Option<Admission> {
        let known = self.tasks.get(task)?;
        Some(match known.phase {
            Phase::Waiting { told, .. } => Admission::Wait { why: told.map_or("it has just come", Rule::sentence) },
            Phase::Admitted | Phase::Running => Admission::Begin(self.pace(task)),
        })
    }

    /// How hard a task may work now: half, if it runs on a primary only because it could wait no longer.
    pub fn pace(&self, task: TaskId) -> Pace {
        let is_reluctant = self.tasks.get(task).is_some_and(|task| task.is_reluctant);
        if is_reluctant && self.is_primary() { Pace::Half } else { Pace::Full }
    }

    /// Where this member is in Figure 1.
    pub fn state(&self) -> State {
        self.state
    }

    /// The last moves, and the last decisions against one.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// What the others said of themselves last, and when that came.
    pub fn heard(&self) -> impl Iterator<Item = (MemberId, &Gossip, Moment)> {
        self.peers.iter().map(|(id, peer)| (*id, &peer.gossip, peer.heard_at))
    }

    /// What was learnt about costs.
    pub fn costs(&self) -> &CostModel {
        &self.costs
    }
}
