//! Who has what in hand, and asking again: a lane whose connection was lost connects anew for a while, and goes on where it was.
//!
//! Not here: the log's stream, which is opened again elsewhere ([`super::log`]).

use super::{Answer, Fault, FaultKind, InitialSync, Lane, Progress, ReadFrom, Task};
use crate::mutant::Mutant;
use crate::step::{Effect, Here};
use baton_consensus::Moment;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long a source that does not answer is tried again, before another attempt is made, perhaps with another.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// Between two tries.
pub(super) const TRY_AGAIN: Duration = Duration::from_millis(100);

/// What a lane is at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum At {
    UnderWay,
    /// The task is to be carried out then,
    Pausing {
        until: Moment,
    },
    /// or the lane to be connected anew.
    Disconnected {
        until: Moment,
    },
    Reconnecting,
    /// The buffer has no room for what came.
    AwaitingRoom,
}

/// A lane's task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Work {
    pub task: Task,
    at: At,
    /// It was asked for before.
    again: bool,
    /// A lane that is not connected gives up then.
    patient_until: Moment,
    /// What keeps it.
    fault: Option<String>,
}

impl Work {
    /// Whether an answer will come.
    pub fn is_under_way(&self) -> bool {
        match self.at {
            At::UnderWay | At::Reconnecting => true,
            At::Pausing { .. } | At::Disconnected { .. } | At::AwaitingRoom => false,
        }
    }

    pub fn reconnects(&self) -> bool {
        self.at == At::Reconnecting
    }

    fn deadline(&self) -> Option<Moment> {
        match self.at {
            At::Pausing { until } | At::Disconnected { until } => Some(until),
            At::UnderWay | At::Reconnecting | At::AwaitingRoom => None,
        }
    }
}

impl Task {
    /// Whether it only asks, so that it may be asked again once.
    fn is_question(&self) -> bool {
        match self {
            Self::AskRollbackId
            | Self::AskNewest
            | Self::AskBytes
            | Self::Measure { .. }
            | Self::AskIndexes { .. }
            | Self::BeginCheckpoint => true,
            Self::Connect { .. }
            | Self::Reconnect
            | Self::Hold(_)
            | Self::BeginClone
            | Self::CopyStatements { .. }
            | Self::BeginLog
            | Self::DropOwn
            | Self::List(_)
            | Self::Create { .. }
            | Self::BuildIndexes { .. }
            | Self::Read { .. }
            | Self::Drop { .. }
            | Self::CreateViews
            | Self::Sync
            | Self::Open { .. }
            | Self::ReadLog { .. }
            | Self::Keep { .. }
            | Self::Take { .. }
            | Self::Apply { .. }
            | Self::PassOver { .. }
            | Self::LookUp { .. }
            | Self::EndClone
            | Self::BeginIncoming
            | Self::CreateFile { .. }
            | Self::ReadPart { .. }
            | Self::FinishFile { .. }
            | Self::EndCheckpoint
            | Self::Arrive
            | Self::Discard
            | Self::Restart => false,
        }
    }
}

impl InitialSync {
    /// Has a lane carry a task out.
    pub(super) fn give(&mut self, lane: Lane, task: Task) {
        self.effects.push(Effect::Copy { lane, task: task.clone() });
        self.put(lane, task, At::UnderWay);
    }

    fn put(&mut self, lane: Lane, task: Task, at: At) {
        let work = Work { task, at, again: false, patient_until: self.now + PATIENCE, fault: None };
        self.work.insert(lane, work);
    }

    pub(super) fn release(&mut self, lane: Lane) {
        self.work.remove(&lane);
    }

    pub(super) fn is_idle(&self, lane: Lane) -> bool {
        !self.work.contains_key(&lane)
    }

    /// Whether the lane is carrying this out.
    pub(super) fn is_under_way(&self, lane: Lane, task: &Task) -> bool {
        self.work.get(&lane).is_some_and(|work| work.is_under_way() && work.task == *task)
    }

    pub(super) fn has_copiers(&self) -> bool {
        self.work.keys().any(|lane| matches!(lane, Lane::Copier(_)))
    }

    /// Carries a task out after a while.
    pub(super) fn pause(&mut self, lane: Lane, task: Task, pause: Duration, fault: Option<String>) {
        let at = At::Pausing { until: self.now + pause };
        self.put(lane, task, at);
        if let Some(work) = self.work.get_mut(&lane) {
            work.fault = fault;
        }
    }

    pub(super) fn await_room(&mut self, task: Task) {
        self.put(Lane::Log, task, At::AwaitingRoom);
    }

    /// Entries were taken out of the buffer.
    pub(super) fn end_wait_for_room(&mut self) {
        if let Some(work) = self.work.get(&Lane::Log).filter(|work| work.at == At::AwaitingRoom) {
            let task = work.task.clone();
            self.give(Lane::Log, task);
        }
    }

    /// Leaves the lanes nothing but what is under way, which ends.
    pub(super) fn drop_all_work(&mut self) {
        self.work.retain(|_, work| work.is_under_way());
        self.effects.extend(self.work.keys().map(|lane| Effect::HangUp { lane: *lane }));
    }

    /// A task of the main lane or of a copier has failed.
    pub(super) fn take_fault(&mut self, here: Here, lane: Lane, task: Task, fault: Fault) {
        let Some(work) = self.work.get_mut(&lane) else { return };
        if work.reconnects() {
            if self.now >= work.patient_until {
                self.release(lane);
                self.fail(fault.reason);
            } else {
                work.at = At::Disconnected { until: self.now + TRY_AGAIN };
                work.fault = Some(fault.reason);
            }
            return;
        }
        let (again, is_lost) = (work.again, fault.kind == FaultKind::Lost);
        let may_answer = is_lost || fault.kind == FaultKind::Forgotten;
        match (&task, fault.kind) {
            (Task::EndCheckpoint, _) => {
                self.release(lane);
                self.main_lane(here, task, Answer::Done);
            }
            (Task::Measure { .. }, FaultKind::Gone) => {
                self.release(lane);
                self.main_lane(here, task, Answer::Bytes(0));
            }
            (Task::AskIndexes { place } | Task::BuildIndexes { place } | Task::Read { place, .. }, FaultKind::Gone) => {
                self.tell(Progress::CollectionGone(*place));
                self.release(lane);
                self.end_piece(lane, *place);
            }
            (Task::Read { place, .. }, _) if may_answer => {
                self.tell(Progress::CollectionInterrupted { place: *place, reason: fault.reason.clone() });
                self.reconnect(lane, fault.reason);
            }
            (Task::ReadPart { .. }, _) if is_lost => self.reconnect(lane, fault.reason),
            _ if task.is_question() && may_answer && !again => self.reconnect(lane, fault.reason),
            _ => {
                self.release(lane);
                self.fail(fault.reason);
            }
        }
    }

    fn reconnect(&mut self, lane: Lane, fault: String) {
        self.tell(Progress::Retried);
        let (now, forgets) = (self.now, self.is_mutant(Mutant::ForgetsALostCopier));
        let Some(work) = self.work.get_mut(&lane) else { return };
        let pause = if forgets { Duration::MAX / 2 } else { TRY_AGAIN };
        work.again = true;
        work.at = At::Disconnected { until: now.saturating_add(pause) };
        work.patient_until = now + PATIENCE;
        work.fault = (!forgets).then_some(fault);
    }

    /// A lane is connected again, and goes on.
    pub(super) fn resume(&mut self, lane: Lane) {
        let Some(work) = self.work.get(&lane) else { return };
        let task = match work.task {
            Task::Read { place, .. } if self.pieces.get(place).is_some_and(|piece| piece.is_capped) => {
                Task::Drop { place }
            }
            Task::Read { place, .. } => Task::Read { place, from: ReadFrom::LastId },
            _ => work.task.clone(),
        };
        self.give(lane, task);
        if let Some(work) = self.work.get_mut(&lane) {
            work.again = true;
        }
    }

    /// Those whose time has come go on.
    pub(super) fn end_pauses(&mut self) {
        let now = self.now;
        for (lane, work) in &mut self.work {
            let due = work.deadline().is_some_and(|deadline| deadline <= now);
            let (at, task) = match work.at {
                At::Pausing { .. } if due => (At::UnderWay, work.task.clone()),
                At::Disconnected { .. } if due => (At::Reconnecting, Task::Reconnect),
                At::UnderWay | At::Reconnecting | At::AwaitingRoom | At::Pausing { .. } | At::Disconnected { .. } => {
                    continue;
                }
            };
            work.at = at;
            self.effects.push(Effect::Copy { lane: *lane, task });
        }
    }

    /// When time is to be told.
    pub fn next_deadline(&self) -> Option<Moment> {
        self.work.values().filter_map(Work::deadline).min()
    }

    /// What keeps a lane, if anything does.
    pub fn fault(&self) -> Option<&str> {
        self.work.values().find_map(|work| work.fault.as_deref())
    }
}
