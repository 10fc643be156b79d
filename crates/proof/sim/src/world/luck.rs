//! Bad luck, and its end: crashes, pauses, partitions, logs cut short, and operators who interfere.

use super::World;
use super::configuration::member;
use super::event::Event;
use baton_consensus::{ConfigurationVersion, Input, MemberId, MemberState, Mutant, StepDownRequest};
use rand::Rng;
use std::collections::BTreeSet;
use std::time::Duration;

/// When an operator looks at a healed world: later than what members recover from by themselves, and early enough for the rest.
const OPERATOR_AFTER: Duration = Duration::from_secs(20);

impl World {
    pub(super) fn heal(&mut self) {
        self.healed = true;
        self.cut.clear();
        self.loss = 0.0;
        self.delay_ms_max = self.delay_ms_max.min(20);
        let ids: Vec<MemberId> = self.members.ids().collect();
        for id in ids {
            if let Some(member) = self.members.get_mut(&id) {
                member.paused_until = self.now;
                // As if somebody turned up whose log reaches back: who was too stale must find it.
                member.disk.oldest = 0;
            }
            if self.members[&id].consensus.is_none() {
                self.boot_member(id);
            }
            self.deliver(id, Input::Freeze(Duration::ZERO));
            // Who paused finds what was due meanwhile.
            self.step_brain(id, baton_leadership::Input::Tick);
        }
        self.end_troubles();
        self.found();
        self.busy_all();
        self.schedule(OPERATOR_AFTER, Event::Operator);
    }

    pub(super) fn crash(&mut self, id: MemberId) {
        if self.weather.trace {
            eprintln!("{:?} member {id} crashes", self.now);
        }
        let restart_ms = self.random.random_range(50..8000);
        self.end_rings(id);
        let Some(member) = self.members.get_mut(&id) else { return };
        if member.consensus.take().is_none() {
            return;
        }
        member.brain = None;
        self.leading.task_changes += 1;
        member.builders.clear();
        member.disk.crash(&mut self.random);
        member.takes_writes = false;
        self.waiting.remove(&id);
        self.touch(id);
        self.tally.crashes += 1;
        self.schedule_ms(restart_ms, Event::Restart { member: id });
    }

    pub(super) fn fault(&mut self) {
        if self.healed || self.leading.duties.as_ref().is_some_and(|duties| duties.is_calm) {
            return;
        }
        let ids: Vec<MemberId> = self.members.ids().collect();
        let victim = ids[self.random.random_range(0..ids.len())];
        match self.random.random_range(0..100) {
            0..20 => self.crash(victim),
            20..30 => {
                let primaries: Vec<MemberId> =
                    self.views().filter(|(_, s)| s.state == MemberState::Primary).map(|(id, _)| id).collect();
                primaries.into_iter().for_each(|id| self.crash(id));
            }
            30..45 => {
                // A one-way cut.
                let other = ids[self.random.random_range(0..ids.len())];
                self.cut.insert((victim, other));
            }
            45..60 => self.partition(&ids),
            60..78 => self.cut.clear(),
            78..84 => {
                let pause = Duration::from_millis(self.random.random_range(100..6000));
                self.pause(victim, pause);
            }
            84..90 => self.step_down(),
            90..97 => self.reconfigure(),
            _ => {
                let dry_run = self.random.random_bool(0.5);
                self.deliver(victim, Input::StandForElection { dry_run });
            }
        }
        let wait_ms = self.random.random_range(20..2500) * self.slowness();
        self.schedule_ms(wait_ms, Event::Fault);
    }

    pub(super) fn pause(&mut self, id: MemberId, pause: Duration) {
        let leads = self.duties().is_some();
        if let Some(member) = self.members.get_mut(&id) {
            // A pause within a longer one ends it no sooner: what is due then is due at its end.
            let longer = if leads { member.paused_until } else { self.now };
            member.paused_until = longer.max(self.now + pause);
            member.late_until = member.late_until.max(member.paused_until);
        }
        self.schedule(pause, Event::Resume { member: id });
    }

    /// Drops the old end of a log, up to what its member knows to be committed: now and then of all but the last of it.
    pub(super) fn truncate(&mut self) {
        if self.healed {
            return;
        }
        let live: Vec<MemberId> = self.views().map(|(id, _)| id).collect();
        if !live.is_empty() {
            let id = live[self.truncating.random_range(0..live.len())];
            let commit_point = self.members[&id].summary.commit_point;
            let all = self.truncating.random_bool(0.5);
            let share = if all { 1.0 } else { self.truncating.random_range(0.0..1.0) };
            if let Some(member) = self.members.get_mut(&id) {
                let committed = member.disk.log.partition_point(|entry| entry.optime < commit_point);
                let oldest = (committed as f64 * share) as usize;
                member.disk.oldest = member.disk.oldest.max(oldest);
            }
        }
        let wait_ms = self.truncating.random_range(200..6000) * self.slowness();
        self.schedule_ms(wait_ms, Event::Truncate);
    }

    pub(super) fn partition(&mut self, ids: &[MemberId]) {
        self.cut.clear();
        let side: BTreeSet<MemberId> = ids.iter().copied().filter(|_| self.random.random_bool(0.5)).collect();
        for a in ids {
            for b in ids {
                if side.contains(a) != side.contains(b) {
                    self.cut.insert((*a, *b));
                }
            }
        }
    }

    pub(super) fn step_down(&mut self) {
        let Some((primary, _)) = self.views().find(|(_, s)| s.is_writable) else { return };
        let request = StepDownRequest {
            force: self.random.random_bool(0.3),
            catch_up: Duration::from_millis(self.random.random_range(0..3000)),
            freeze: Duration::from_millis(self.random.random_range(0..5000)),
            to: None,
            hand_off: self.random.random_bool(0.7),
        };
        if !self.is_handing_over(primary) {
            self.deliver(primary, Input::StepDown(request));
        }
    }

    /// Adds or removes one voter, or changes priorities.
    pub(super) fn reconfigure(&mut self) {
        let Some((primary, summary)) = self.views().find(|(_, s)| s.is_writable) else { return };
        let Some(mut next) = self.disk(primary).configuration.clone() else { return };
        next.version = ConfigurationVersion { term: summary.term, version: next.version.version + 1 };
        let outside: Vec<MemberId> = self.ids().filter(|id| next.member(*id).is_none()).collect();
        match self.random.random_range(0..3) {
            0 if !outside.is_empty() => {
                let id = outside[self.random.random_range(0..outside.len())];
                next.members.push(member(id, 1.0, false));
            }
            1 if next.voters().count() > 2 => {
                let others: Vec<MemberId> = next.members.iter().map(|m| m.id).filter(|id| *id != primary).collect();
                let id = others[self.random.random_range(0..others.len())];
                next.members.retain(|member| member.id != id);
            }
            _ => {
                for member in next.members.iter_mut().filter(|member| member.priority > 0.0) {
                    member.priority = f64::from(self.random.random_range(1..4));
                }
            }
        }
        let twice = self.weather.mutant == Mutant::AnyReconfiguration;
        if twice && next.voters().count() > 2 {
            next.members.retain(|member| member.id == primary || member.id.0 % 2 == 0);
        }
        self.deliver(primary, Input::Reconfigure { configuration: Box::new(next), force: false });
    }
}
