//! The lanes of a copy that work beside the follower's worker: a thread each, from a lane's first task until the copy is over.

use super::{Closings, Next, Shared};
use crate::initial_sync::{Context, LaneWorker, Session};
use baton_following::{Answer, Input, Lane, Progress, Task};
use baton_machine::work_when_idle;
use baton_types::must_not_unwind;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// What the lanes are to do. A lane is there from its first task until the machine copies no more: all it was given is answered by then, and
/// its thread ends before another copy begins.
#[derive(Default)]
pub(super) struct Lanes {
    /// The task of each lane that has a thread, or is to have one, and is not carrying it out.
    tasks: BTreeMap<Lane, Option<(Task, Closings)>>,
    unmanned: VecDeque<Lane>,
}

/// Whether the follower's worker notes this, after what was asked for before. Everything else is noted before anything that was asked for
/// with it is begun.
pub(super) fn is_for_worker(progress: &Progress) -> bool {
    matches!(progress, Progress::Begun { .. } | Progress::Failed { .. } | Progress::Whole(_))
}

impl Lanes {
    pub fn give(&mut self, lane: Lane, task: Task, closings: Closings) {
        if self.tasks.insert(lane, Some((task, closings))).is_none() {
            self.unmanned.push_back(lane);
        }
    }

    /// The copy is over.
    pub fn dismiss(&mut self) {
        self.tasks.clear();
        self.unmanned.clear();
    }

    pub fn pop_unmanned(&mut self) -> Option<Lane> {
        self.unmanned.pop_front()
    }

    fn next(&mut self, lane: Lane) -> Next<(Task, Closings)> {
        match self.tasks.get_mut(&lane) {
            Some(task) => task.take().map_or(Next::Wait, Next::Do),
            None => Next::Leave,
        }
    }
}

impl Shared {
    /// Carries out a copy's task.
    pub(super) fn carry_out_copying(
        &self,
        worker: &mut LaneWorker,
        lane: Lane,
        task: Task,
        closings: Closings,
    ) -> Input {
        let context = Context {
            storage: &self.parts.storage,
            apply_command: &self.parts.apply_command,
            hooks: &self.parts.initial_sync_hooks,
            is_closed: &|| self.is_closed(closings),
            opened: &|closer| self.opened(closings, Some(lane), closer),
        };
        let answer = worker.carry_out(&context, task);
        self.copied(lane, answer)
    }

    pub(super) fn copied(&self, lane: Lane, answer: Answer) -> Input {
        Input::Copied { here: self.parts.own_term.here(&self.parts.storage), lane, answer }
    }

    /// A lane's thread: does what there is to do until the copy is over.
    pub(super) fn run_lane(&self, lane: Lane, session: &Arc<Session>) {
        let _guard = must_not_unwind("an initial sync");
        let mut worker = LaneWorker::new(lane, session, None);
        if worker.yields() && lane != Lane::Log {
            work_when_idle();
        }
        self.parts.rings.or_last_words(|| {
            while let Some((task, closings)) = self.next(|state| state.lanes.next(lane)) {
                let answer = self.carry_out_copying(&mut worker, lane, task, closings);
                self.step(&mut self.state.lock(), answer);
            }
        });
    }
}
