//! The machine as one whose steps can be kept and taken again.

use crate::{Answer, Attempt, Effect, Following, Input, Progress};
use baton_consensus::Moment;
use baton_replay::Machine;

impl Machine for Following {
    const NAME: &'static str = "following";
    type Input = Input;
    type Effect = Effect;

    fn step(&mut self, now: Moment, input: Input) -> Vec<Effect> {
        Self::step(self, now, input)
    }

    fn bytes_behind(input: &Input) -> usize {
        match input {
            Input::Fetched { batch, .. } => size_of_val(batch.optimes.as_slice()),
            Input::Paged { theirs, .. } => size_of_val(theirs.as_slice()),
            Input::Failed { reason } => reason.len(),
            Input::Copied { answer, .. } => match answer {
                Answer::LogRead { optimes, .. } | Answer::Taken { optimes } => size_of_val(optimes.as_slice()),
                Answer::Listed(listed) => size_of_val(listed.as_slice()),
                Answer::Checkpoint { file_bytes, .. } => size_of_val(file_bytes.as_slice()),
                Answer::Failed(fault) => fault.reason.len(),
                Answer::Damaged { file } => file.len(),
                Answer::Applied(Attempt::Failed { reason, .. } | Attempt::Passing { reason }) => reason.len(),
                Answer::Done
                | Answer::Connected(_)
                | Answer::RollbackId(_)
                | Answer::Newest(_)
                | Answer::Bytes(_)
                | Answer::Batch { .. }
                | Answer::Kept { .. }
                | Answer::Applied(Attempt::Done | Attempt::NotYet)
                | Answer::Found(_)
                | Answer::Part { .. } => 0,
            },
            Input::Tick { .. }
            | Input::Source(_)
            | Input::Delay(_)
            | Input::Hold(_)
            | Input::Rest
            | Input::Connected { .. }
            | Input::Applied { .. }
            | Input::Spared(_)
            | Input::LookedBack { .. }
            | Input::TakenAway { .. } => 0,
        }
    }

    fn bytes_behind_effect(effect: &Effect) -> usize {
        match effect {
            Effect::Tell(told) => size_of_val(&**told),
            Effect::Refused(refusal) => size_of_val(&**refusal),
            Effect::Progress(progress) => {
                let behind = match &**progress {
                    Progress::Ordered(order) => size_of_val(order.as_slice()),
                    Progress::CollectionInterrupted { reason, .. } | Progress::Failed { reason, .. } => reason.len(),
                    Progress::Begun { .. }
                    | Progress::RollbackId(_)
                    | Progress::From(_)
                    | Progress::Until(_)
                    | Progress::Files { .. }
                    | Progress::CollectionBegun(_)
                    | Progress::CollectionEmptied(_)
                    | Progress::CollectionGone(_)
                    | Progress::CollectionEnded(_)
                    | Progress::Applied(_)
                    | Progress::Retried
                    | Progress::Whole(_) => 0,
                };
                size_of_val(&**progress) + behind
            }
            Effect::Stopped { reason, .. } | Effect::NotRolledBack { reason, .. } => reason.len(),
            Effect::Connect { .. }
            | Effect::Copy { .. }
            | Effect::Open { .. }
            | Effect::Read { .. }
            | Effect::Apply { .. }
            | Effect::Sync
            | Effect::AskToSpare
            | Effect::LookBack { .. }
            | Effect::Page { .. }
            | Effect::TakeAway { .. }
            | Effect::Close
            | Effect::HangUp { .. }
            | Effect::Rested
            | Effect::NoteNotWhole
            | Effect::Passed => 0,
        }
    }
}
