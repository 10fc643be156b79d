//! The tasks of this member: those that wait, those that were admitted, those that run.
//!
//! Invariants:
//! - A task that waits has a deadline, which does not move.
//! - What others are told is bounded, however many tasks there are.
//! - Light tasks neither wait nor make a member busy.

use crate::gossip::GossipedTask;
use crate::rule::Rule;
use crate::step::{Moment, TaskId, Work};
use baton_types::TaskKind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Others are told of no more tasks that run, and of no more that wait.
const GOSSIPED_MAX: usize = 8;

/// Where a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Phase {
    Waiting {
        deadline: Moment,
        /// The reason that was told last.
        told: Option<Rule>,
    },
    /// It may begin, and has not said that it has.
    Admitted,
    Running,
}

/// One task.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub work: Work,
    pub is_heavy: bool,
    /// How long it is predicted to run.
    pub predicted: Duration,
    /// Since when it has been in its phase.
    pub since: Moment,
    pub phase: Phase,
    /// It was admitted on a primary because it could wait no longer.
    pub is_reluctant: bool,
    /// It runs, and was told to end.
    pub is_told_to_end: bool,
}

impl Task {
    /// Whether somebody waits for its end: a client, an operator, another member. Nobody does for what a member does for itself.
    pub fn is_awaited(&self) -> bool {
        match self.work.kind {
            TaskKind::IndexBuild
            | TaskKind::Validate
            | TaskKind::Checkpoint
            | TaskKind::Backup
            | TaskKind::InitialSyncSource => true,
            TaskKind::Flush
            | TaskKind::Compaction
            | TaskKind::OplogTruncation
            | TaskKind::TtlDeletion
            | TaskKind::DropCleanup => false,
        }
    }

    fn waits(&self) -> bool {
        matches!(self.phase, Phase::Waiting { .. })
    }

    /// Whether it waits for a window to open, which may be hours away.
    fn waits_for_window(&self) -> bool {
        matches!(self.phase, Phase::Waiting { told: Some(Rule::WindowClosed), .. })
    }

    /// Whether it waits without making anybody else wait meanwhile.
    fn stands_aside(&self) -> bool {
        self.waits_for_window() || matches!(self.phase, Phase::Waiting { told: Some(Rule::NeededAsPrimary), .. })
    }
}

/// See the file's header.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tasks(BTreeMap<TaskId, Task>);

impl Tasks {
    pub fn get(&self, id: TaskId) -> Option<&Task> {
        self.0.get(&id)
    }

    pub fn insert(&mut self, id: TaskId, task: Task) {
        self.0.insert(id, task);
    }

    pub fn remove(&mut self, id: TaskId) -> Option<Task> {
        self.0.remove(&id)
    }

    /// Puts a task into another phase.
    pub fn set_phase(&mut self, id: TaskId, now: Moment, phase: Phase) {
        if let Some(task) = self.0.get_mut(&id) {
            if std::mem::discriminant(&task.phase) != std::mem::discriminant(&phase) {
                task.since = now;
            }
            task.phase = phase;
        }
    }

    pub fn set_reluctant(&mut self, id: TaskId) {
        if let Some(task) = self.0.get_mut(&id) {
            task.is_reluctant = true;
        }
    }

    /// Tasks that wait, with their deadlines; the one that has waited longest first.
    pub fn waiting(&self) -> impl Iterator<Item = (TaskId, &Task, Moment)> {
        let mut waiting: Vec<_> = self
            .0
            .iter()
            .filter_map(|(id, task)| match task.phase {
                Phase::Waiting { deadline, .. } => Some((*id, task, deadline)),
                Phase::Admitted | Phase::Running => None,
            })
            .collect();
        waiting.sort_by_key(|(id, task, _)| (task.since, *id));
        waiting.into_iter()
    }

    /// Whether any task waits.
    pub fn has_waiting(&self) -> bool {
        self.0.values().any(Task::waits)
    }

    /// Whether any task waits that does not stand aside.
    pub fn has_pressing(&self) -> bool {
        self.0.values().any(|task| task.waits() && !task.stands_aside())
    }

    /// The heavy tasks that somebody waits for.
    pub fn awaited(&self) -> impl Iterator<Item = &Task> {
        self.0.values().filter(|task| task.is_heavy && task.is_awaited())
    }

    /// The heavy tasks that run and were not told to end yet; from now on they were.
    pub fn tell_to_end(&mut self) -> Vec<TaskId> {
        let running = self.0.iter_mut().filter(|(_, task)| task.is_heavy && task.phase == Phase::Running);
        running.filter_map(|(id, task)| (!std::mem::replace(&mut task.is_told_to_end, true)).then_some(*id)).collect()
    }

    /// The kinds of the tasks that wait for a window.
    pub fn waiting_for_window(&self) -> impl Iterator<Item = TaskKind> {
        self.0.values().filter(|task| task.waits_for_window()).map(|task| task.work.kind)
    }

    /// When the next task that waits must begin.
    pub fn next_deadline(&self) -> Option<Moment> {
        let deadlines = self.0.values().filter_map(|task| match task.phase {
            Phase::Waiting { deadline, .. } => Some(deadline),
            Phase::Admitted | Phase::Running => None,
        });
        deadlines.min()
    }

    /// Whether a heavy task was admitted or runs.
    pub fn is_busy(&self) -> bool {
        self.0.values().any(|task| task.is_heavy && !task.waits())
    }

    /// Of which tasks others are told: some of the heavy ones that run and some of those that wait and do not stand aside, those that
    /// were named first. Each with whether it runs.
    pub fn told(&self) -> impl Iterator<Item = (&Task, bool)> {
        let is_told = |task: &&Task| task.is_heavy && !task.stands_aside();
        let heavy = move |waits: bool| self.0.values().filter(is_told).filter(move |task| task.waits() == waits);
        let (running, waiting) = (heavy(false).take(GOSSIPED_MAX), heavy(true).take(GOSSIPED_MAX));
        running.map(|task| (task, true)).chain(waiting.map(|task| (task, false)))
    }

    /// What they are told of them.
    pub fn gossip(&self, now: Moment) -> Vec<GossipedTask> {
        let gossiped = self.told().map(|(task, is_running)| {
            let age = now.saturating_sub(task.since);
            let ends_in = is_running.then(|| task.predicted.saturating_sub(age));
            GossipedTask { kind: task.work.kind, is_running, age, ends_in }
        });
        gossiped.collect()
    }

    /// The first heavy task that runs or is about to.
    pub fn running(&self) -> Option<&Task> {
        self.told().find(|(_, is_running)| *is_running).map(|(task, _)| task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_many_tasks_wait_gossip_is_short_and_tells_of_those_that_run() {
        let work = Work { kind: TaskKind::Backup, subject: 1, expected: 0, expected_duration: None };
        let phase = Phase::Waiting { deadline: Moment::MAX, told: None };
        let (predicted, since) = (Duration::ZERO, Moment::ZERO);
        let waiting =
            Task { work, is_heavy: true, predicted, since, phase, is_reluctant: false, is_told_to_end: false };
        let mut tasks = Tasks::default();
        (0..10_000).for_each(|id| tasks.insert(id, waiting));
        tasks.set_phase(9_999, Moment::ZERO, Phase::Running);
        let told = tasks.gossip(Moment::ZERO);
        assert_eq!((told.len(), told.iter().filter(|task| task.is_running).count()), (GOSSIPED_MAX + 1, 1));
    }
}
