//! The machine as one whose steps can be kept and taken again. What comes of a step is what is to be done after it.
//!
//! Invariant: of an error only the code is written. The machine asks for no more of it, and its text may have a document's
//! values.

use super::{BuildInput, BuildTask, CommitQuorum, IndexBuild};
use crate::recorded::CONFIGURATION_BYTES;
use baton_replay::Machine;
use baton_types::Error;
use std::time::Duration;

/// Errors as their codes, for `#[serde(with)]`.
pub(super) mod code {
    use baton_types::{Error, ErrorCode};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    fn with_code(code: i32) -> Error {
        Error::new(ErrorCode(code), "")
    }

    /// The number.
    pub fn serialize<S: Serializer>(error: &Error, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i32(error.code.0)
    }

    /// An error without a text.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Error, D::Error> {
        i32::deserialize(deserializer).map(with_code)
    }

    /// One that may be absent.
    pub mod optional {
        use super::*;

        /// The number, or null.
        pub fn serialize<S: Serializer>(error: &Option<Error>, serializer: S) -> Result<S::Ok, S::Error> {
            error.as_ref().map(|error| error.code.0).serialize(serializer)
        }

        /// An error without a text, or none.
        pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Error>, D::Error> {
            Ok(Option::deserialize(deserializer)?.map(with_code))
        }
    }
}

fn of_error(error: &Error) -> usize {
    let info = error.info.as_ref().map_or(0, |info| size_of_val(info) + info.as_bytes().len());
    error.message.len() + info + size_of_val(error.labels.as_slice())
}

impl Machine for IndexBuild {
    const NAME: &'static str = "index_build";
    type Input = BuildInput;
    type Effect = BuildTask;

    fn step(&mut self, _: Duration, input: BuildInput) -> Vec<BuildTask> {
        Self::step(self, input);
        vec![self.task()]
    }

    fn bytes_behind(input: &BuildInput) -> usize {
        match input {
            BuildInput::Set(_) => CONFIGURATION_BYTES,
            BuildInput::Failed(error) | BuildInput::Objection(error) | BuildInput::Killed(error) => of_error(error),
            BuildInput::Quorum(CommitQuorum::Mode(mode)) => mode.len(),
            BuildInput::Quorum(CommitQuorum::VotingMembers | CommitQuorum::Majority | CommitQuorum::Members(_))
            | BuildInput::Leads(_)
            | BuildInput::Passed(_)
            | BuildInput::Vote(_)
            | BuildInput::Committed
            | BuildInput::Refused => 0,
        }
    }

    fn bytes_behind_effect(task: &BuildTask) -> usize {
        match task {
            BuildTask::Object(error) | BuildTask::Abort(error) => of_error(error),
            BuildTask::Pass(_) | BuildTask::Vote | BuildTask::Commit(_) | BuildTask::AwaitVotes => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_replay::{Bounds, FORMAT, Header, Recorder, read, replay, write};
    use baton_types::ErrorCode;
    use bson::rawdoc;

    #[test]
    fn of_what_a_document_had_nothing_is_written_and_the_machine_does_the_same_without() {
        let mut machine = IndexBuild::new(CommitQuorum::Majority, false);
        let mut recorder = Recorder::new(&machine, Duration::ZERO, Bounds::default());
        let mut error = Error::new(ErrorCode::DuplicateKey, "dup key: { name: \"of a person\" }");
        error.info = Some(Box::new(rawdoc! { "keyValue": { "name": "of a person" } }));
        for input in [BuildInput::Leads(Some(1)), BuildInput::Failed(error.clone()), BuildInput::Objection(error)] {
            recorder.step(&mut machine, Duration::ZERO, input);
        }
        let mut file = Vec::new();
        Header { format: FORMAT, baton: String::new(), member: String::new(), written_secs: 0 }
            .write(&mut file)
            .unwrap();
        recorder.changed(&machine, Duration::ZERO);
        recorder.step(&mut machine, Duration::ZERO, BuildInput::Leads(None));
        write(&recorder.recording(&machine), Some("a build"), &mut file).unwrap();
        let text = std::str::from_utf8(&file).unwrap();
        assert!(!text.contains("person") && text.contains(r#""effects":[{"Abort":11000}]"#), "{text}");
        assert_eq!(
            replay::<IndexBuild>(&read(file.as_slice()).unwrap(), Some("a build"), &mut |_| {}).unwrap().steps,
            4
        );
    }
}
