//! The works of a world's members: what is wanted when, what begins, how long it takes; and what members measure of themselves.

use super::{Input, Leading, MemberId, SimTask, World};
use crate::world::event::Event;
use baton_consensus::StepDownRequest;
use baton_leadership::{Cost, Figures, Rule, TaskId, Work, interval};
use baton_types::TaskKind;
use rand::Rng;
use rand::rngs::StdRng;
use std::time::Duration;

fn work(kind: TaskKind, expected: u64) -> Work {
    Work { kind, subject: 0, expected, expected_duration: None }
}

/// What befalls a member besides what its process knows.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::world) struct Condition {
    is_sick: bool,
    is_full: bool,
    is_nonsense: bool,
    /// It follows nobody until then.
    pub lags_until: Duration,
}

impl World {
    /// Plans the first works.
    pub(in crate::world) fn begin_duties(&mut self) {
        let Some(duties) = &self.leading.duties else { return };
        let (work_ms, recurs, are_all_due) = (duties.work_ms, duties.recurs, duties.are_all_due);
        self.schedule_ms(work_ms, Event::Works);
        let Some(base) = recurs else { return };
        if are_all_due {
            self.schedule(base, Event::Due { member: None });
            return;
        }
        let ids: Vec<MemberId> = self.members.ids().collect();
        for id in ids {
            let wait = interval(base, self.leading.random.random());
            self.schedule(wait, Event::Due { member: Some(id) });
        }
    }

    /// What recurs is due: of one member, or of all.
    pub(in crate::world) fn due(&mut self, member: Option<MemberId>) {
        let Some(base) = self.leading.duties.as_ref().and_then(|duties| duties.recurs) else { return };
        if self.healed {
            return;
        }
        let due: Vec<MemberId> = self.awake().into_iter().filter(|id| member.is_none_or(|one| one == *id)).collect();
        let compaction = work(TaskKind::Compaction, 4 << 30);
        due.into_iter().for_each(|id| self.want(id, compaction, None));
        let wait = match member {
            Some(_) => interval(base, self.leading.random.random()),
            None => base,
        };
        self.schedule(wait, Event::Due { member });
    }

    /// Works and conditions, by chance.
    pub(in crate::world) fn give_out_works(&mut self) {
        let Some(duties) = &self.leading.duties else { return };
        if self.healed {
            return;
        }
        let duties = duties.clone();
        for id in self.awake() {
            self.change_condition(id, duties.sick_disk, duties.nonsense, duties.lag * duties.slowness as f64);
            if self.leading.random.random_bool(duties.pause) {
                let pause = Duration::from_millis(self.leading.random.random_range(100..3_000));
                self.pause(id, pause);
            }
            if self.leading.random.random_bool(duties.stand) {
                match self.brain_mut(id).is_some_and(|brain| brain.is_primary()) {
                    true => self.crash(id),
                    false => self.deliver(id, baton_consensus::Input::StandForElection { dry_run: false }),
                }
            }
            let random = &mut self.leading.random;
            // What every member does all the time, and nobody feels.
            if random.random_bool(0.05) {
                let kind = [TaskKind::TtlDeletion, TaskKind::OplogTruncation][random.random_range(0..2)];
                self.want(id, work(kind, 100), None);
            }
            if self.leading.random.random_bool(0.05) {
                self.begin_unasked(id, work(TaskKind::Flush, 0), 50);
            }
            let random = &mut self.leading.random;
            if random.random_bool(duties.heavy) {
                let (kind, expected) = match random.random_range(0..4) {
                    0 => (TaskKind::Backup, 0),
                    1 => (TaskKind::DropCleanup, 1 << 36),
                    _ => (TaskKind::Compaction, random.random_range(1_u64 << 20..8 << 30)),
                };
                let wait_ms = random.random_range(0..duties.task_ms_max);
                let wait_max = random.random_bool(0.2).then(|| Duration::from_millis(wait_ms));
                self.want(id, work(kind, expected), wait_max);
            }
            if self.leading.random.random_bool(duties.unasked) {
                let ms = self.leading.random.random_range(200..duties.task_ms_max);
                self.begin_unasked(id, work(TaskKind::IndexBuild, 10_000_000), ms);
            }
        }
        self.schedule_ms(duties.work_ms, Event::Works);
    }

    /// Whoever does not pause.
    fn awake(&self) -> Vec<MemberId> {
        let awake = self.members.iter().filter(|(_, member)| member.paused_until <= self.now);
        awake.map(|(id, _)| id).collect()
    }

    fn change_condition(&mut self, id: MemberId, sick_disk: f64, nonsense: f64, lag: f64) {
        let now = self.now;
        let Leading { random, filling, .. } = &mut self.leading;
        let Some(condition) = self.members.get_mut(&id).map(|member| &mut member.condition) else { return };
        condition.is_full ^= filling.random_bool(sick_disk);
        condition.is_sick ^= random.random_bool(sick_disk);
        condition.is_nonsense ^= random.random_bool(nonsense);
        if condition.lags_until <= now && random.random_bool(lag.min(1.0)) {
            condition.lags_until = now + Duration::from_millis(random.random_range(500..20_000));
        }
    }

    /// Everybody is in a task that does not end, and nobody leads.
    pub(in crate::world) fn busy_all(&mut self) {
        if !self.leading.duties.as_ref().is_some_and(|duties| duties.are_all_busy) {
            return;
        }
        /// Longer than the world.
        const FOR_EVER_MS: u64 = 3_600_000;
        let ids: Vec<MemberId> = self.members.ids().collect();
        ids.into_iter().for_each(|id| self.begin_unasked(id, work(TaskKind::Backup, 0), FOR_EVER_MS));
        let primary = self.views().find(|(_, summary)| summary.is_writable).map(|(id, _)| id);
        if let Some(primary) = primary {
            let now = Duration::ZERO;
            let request = StepDownRequest { force: true, catch_up: now, freeze: now, to: None, hand_off: false };
            self.deliver(primary, baton_consensus::Input::StepDown(request));
        }
    }

    // ---- a task's life ----

    fn want(&mut self, id: MemberId, work: Work, wait_max: Option<Duration>) {
        let now = self.now;
        self.leading.next_task += 1;
        let task = self.leading.next_task;
        let gives_up = self.leading.random.random_bool(0.02).then(|| self.leading.random.random_range(0..5_000));
        let Some(boot) = self.members.get(&id).map(|member| member.boot) else { return };
        let Some(brain) = self.brain_to_change(id) else { return };
        let postpone = brain.set.as_ref().map_or(Duration::ZERO, |set| set.settings.postpone_max);
        let deadline = now + postpone.min(wait_max.unwrap_or(Duration::MAX));
        let known = SimTask { work, deadline: Some(deadline), is_waiting: true, in_slot_since: None };
        brain.tasks.insert(task, known);
        self.tally.tasks += 1;
        if let Some(wait_ms) = gives_up {
            self.schedule_ms(wait_ms, Event::TaskEnds { to: id, boot, task, has_run: false });
        }
        self.step_brain(id, Input::Wanted { task, work, wait_max });
    }

    pub(super) fn admitted(&mut self, id: MemberId, task: TaskId, why: Rule) {
        let now = self.now;
        let random = &mut self.leading.random;
        let wait_ms = if random.random_bool(0.5) { 0 } else { random.random_range(0..300) };
        let Some(boot) = self.members.get(&id).map(|member| member.boot) else { return };
        let Some(known) = self.brain_to_change(id).and_then(|brain| brain.tasks.get_mut(&task)) else { return };
        known.is_waiting = false;
        let is_in_slot =
            matches!(why, Rule::SlotConfirmed | Rule::NotWorthwhile | Rule::NoMoveInTime | Rule::NoOtherMember);
        known.in_slot_since = is_in_slot.then_some(now);
        self.schedule_ms(wait_ms, Event::TaskBegins { to: id, boot, task });
    }

    fn begin_unasked(&mut self, id: MemberId, work: Work, takes_ms: u64) {
        self.leading.next_task += 1;
        let task = self.leading.next_task;
        let Some(boot) = self.members.get(&id).map(|member| member.boot) else { return };
        let Some(brain) = self.brain_to_change(id) else { return };
        brain.tasks.insert(task, SimTask { work, deadline: None, is_waiting: false, in_slot_since: None });
        self.schedule_ms(takes_ms, Event::TaskEnds { to: id, boot, task, has_run: true });
        self.step_brain(id, Input::Begun { task, work });
    }

    pub(in crate::world) fn task_begins(&mut self, id: MemberId, boot: u64, task: TaskId) {
        let Some(task_ms_max) = self.leading.duties.as_ref().map(|duties| duties.task_ms_max) else { return };
        let Some(known) = self.brain_mut(id).and_then(|brain| brain.tasks.get(&task)) else { return };
        let work = known.work;
        let is_light = matches!(work.kind, TaskKind::TtlDeletion | TaskKind::OplogTruncation);
        let random = &mut self.leading.random;
        if random.random_bool(0.03) {
            // It does not want to any more.
            self.task_ends(id, task, false, true);
            return;
        }
        let takes_ms = random.random_range(if is_light { 5..100 } else { 200..task_ms_max });
        self.schedule_ms(takes_ms, Event::TaskEnds { to: id, boot, task, has_run: true });
        self.step_brain(id, Input::Begun { task, work });
    }

    /// Most tasks can end before their time, soon after they were told to.
    pub(super) fn told_to_end(&mut self, id: MemberId, task: TaskId) {
        let filling = &mut self.leading.filling;
        let (can_end, wait_ms) = (filling.random_bool(0.8), filling.random_range(1..500));
        let Some(boot) = self.members.get(&id).map(|member| member.boot).filter(|_| can_end) else { return };
        self.schedule_ms(wait_ms, Event::TaskEnds { to: id, boot, task, has_run: true });
    }

    /// Ends a task; one that gives up only while it waits still, unless it is `certain`.
    pub(in crate::world) fn task_ends(&mut self, id: MemberId, task: TaskId, has_run: bool, certain: bool) {
        let factor = self.leading.random.random_range(0.5..1.5);
        let Some(brain) = self.brain_to_change(id) else { return };
        let Some(known) = brain.tasks.get(&task).copied() else { return };
        if !has_run && !known.is_waiting && !certain {
            return;
        }
        brain.tasks.remove(&task);
        // About what is predicted, give or take.
        let predicted = brain.machine.costs().predict(&known.work);
        let cost = has_run.then_some(Cost {
            cpu_secs: predicted.cpu_secs * factor,
            read_bytes: predicted.read_bytes * factor,
            ..predicted
        });
        self.step_brain(id, Input::Ended { task, cost });
    }

    // ---- figures ----

    pub(in crate::world) fn measure(&mut self, id: MemberId, boot: u64) {
        let Some(duties) = &self.leading.duties else { return };
        let (load, is_quiet, measure_ms) = (duties.load, duties.is_quiet(), duties.measure_ms);
        let Some(member) = self.members.get(&id) else { return };
        let Some(brain) = &member.brain else { return };
        let busy = brain.tasks().filter(|task| !task.is_waiting).count() as u64;
        let (leads, condition) = (brain.is_primary(), member.condition);
        let random = &mut self.leading.random;
        let nonsense = |sane: f64, random: &mut StdRng| match random.random_range(0..5) {
            0 if condition.is_nonsense => f64::NAN,
            1 if condition.is_nonsense => -1e9,
            2 if condition.is_nonsense => f64::INFINITY,
            _ => sane,
        };
        let usual_us = random.random_range(800..1500) * (1 + busy);
        let figures = Figures {
            debt_bytes: random.random_range(0..2 << 30) * if random.random_bool(0.01) { 8 } else { 1 },
            debt_levels: 1,
            stall_nearness: nonsense(0.2, random),
            cache_hit_ratio: nonsense(if leads { 0.95 } else { 0.8 }, random),
            cache_hot_bytes: 1 << 30,
            sync_latency: Duration::from_micros(if condition.is_sick { 90_000 } else { usual_us }),
            disk_free: if is_quiet { 0.5 } else { nonsense(if condition.is_full { 0.01 } else { 0.5 }, random) },
            load: nonsense(if leads { load } else { 0.0 }, random),
            cpus: 2.0,
            disk_bytes_per_sec: 2e8,
            undone_secs: 0.0,
        };
        self.schedule_ms(measure_ms, Event::Measure { to: id, boot });
        self.step_brain(id, Input::Figures(Box::new(figures)));
        self.step_brain(id, Input::WallClock(self.wall()));
    }
}
