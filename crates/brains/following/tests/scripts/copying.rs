//! A copy's lines: a lane's name, and what came of its task; several after one another with `;` between them.

use super::{Script, Words, number, optime, show_optime};
use baton_following::{
    Answer, Attempt, Copying, Fault, FaultKind, HoldPoint, Input, Lane, Listed, Method, Progress, ReadFrom, Settings,
    Task,
};

/// The lane that a command is the name of.
pub fn lane(command: &str) -> Option<Lane> {
    match command {
        "main" => Some(Lane::Main),
        "log" => Some(Lane::Log),
        _ => command.strip_prefix("copier").map(|copier| Lane::Copier(number(copier))),
    }
}

fn show_lane(lane: Lane) -> String {
    match lane {
        Lane::Main => "main".to_owned(),
        Lane::Log => "log".to_owned(),
        Lane::Copier(copier) => format!("copier{copier}"),
    }
}

impl Script {
    pub fn copied(&mut self, lane: Lane, answer: &str) -> Input {
        let mut words: Vec<&str> = answer.split_whitespace().collect();
        let command = words.remove(0);
        let words = Words(words);
        let first = || words.0.first().copied().unwrap_or_default();
        let failed = |kind| Answer::Failed(Fault { kind, reason: words.0.join(" ") });
        let answer = match command {
            "done" => Answer::Done,
            "lost" => failed(FaultKind::Lost),
            "forgotten" => failed(FaultKind::Forgotten),
            "gone" => failed(FaultKind::Gone),
            "failed" => failed(FaultKind::Other),
            "connected" => Answer::Connected(Settings {
                method: match (words.has("by-file"), words.value("file-from")) {
                    (true, _) => Method::File,
                    (false, Some(bytes)) => Method::Auto { file_bytes_min: number(bytes) },
                    (false, None) => Method::Cloning,
                },
                can_restart: words.has("can-restart"),
                copiers: words.value("copiers").map_or(1, number),
            }),
            "rbid" => Answer::RollbackId(number(first())),
            "newest" => Answer::Newest(optime(first())),
            "bytes" => Answer::Bytes(number(first())),
            "listed" => Answer::Listed(words.0.iter().map(|word| Listed { is_capped: *word == "capped" }).collect()),
            "batch" => Answer::Batch { is_last: false },
            "last-batch" => Answer::Batch { is_last: true },
            "read" => Answer::LogRead { optimes: words.optimes(), is_open: !words.has("closed") },
            "kept" => Answer::Kept { until: number(first()) },
            "taken" => {
                self.batch = words.optimes();
                Answer::Taken { optimes: self.batch.clone() }
            }
            "applied" => {
                self.here.last = self.batch[self.applying.1 - 1];
                Answer::Applied(Attempt::Done)
            }
            "not-yet" => Answer::Applied(Attempt::NotYet),
            "refused" => Answer::Applied(Attempt::Failed {
                reason: "there is no such document".to_owned(),
                is_of_collection: words.has("of-it"),
            }),
            "passed-over" => {
                self.here.last = self.batch[self.applying.0];
                Answer::Done
            }
            "found" => Answer::Found(first() == "yes"),
            "checkpoint" => Answer::Checkpoint {
                newest: words.value("newest").map_or(optime("1:9"), optime),
                file_bytes: words.0.iter().filter(|word| !word.contains('=')).map(|word| number(word)).collect(),
            },
            "part" => Answer::Part { bytes: number(first()) },
            "damaged" => Answer::Damaged { file: "000007.sst".to_owned() },
            _ => unreachable!("{command} is no answer"),
        };
        Input::Copied { here: self.here, lane, answer }
    }

    pub fn show_task(&mut self, lane: Lane, task: &Task) -> String {
        let what = match task {
            Task::Connect { clones: true } => "connect, to clone".to_owned(),
            Task::Connect { clones: false } => "connect".to_owned(),
            Task::Reconnect => "connect anew".to_owned(),
            Task::AskRollbackId => "ask how often it has rolled back".to_owned(),
            Task::AskNewest => "ask for its newest entry".to_owned(),
            Task::AskBytes => "ask how much it has".to_owned(),
            Task::Hold(HoldPoint::BeforeCopying) => "wait for tests, before the copying".to_owned(),
            Task::Hold(HoldPoint::AfterCopying) => "wait for tests, after the copying".to_owned(),
            Task::BeginClone => "note that the data are not whole, and empty the store".to_owned(),
            Task::CopyStatements { until, secs } => {
                format!("take over statements of the {secs} s until {}", show_optime(*until))
            }
            Task::BeginLog => "begin the log".to_owned(),
            Task::DropOwn => "drop the own copy of the collection".to_owned(),
            Task::List(Copying::Everything) => "list the collections".to_owned(),
            Task::List(Copying::CollectionOf(_)) => "list the collection".to_owned(),
            Task::Measure { place } => format!("measure collection {place}"),
            Task::Create { place, .. } => format!("create collection {place}"),
            Task::AskIndexes { place } => format!("ask for the indexes of {place}"),
            Task::BuildIndexes { place } => format!("build the indexes of {place}"),
            Task::Read { place, from: ReadFrom::Start } => format!("read {place} from the start"),
            Task::Read { place, from: ReadFrom::LastId } => format!("read {place} from the last document that came"),
            Task::Read { place, from: ReadFrom::Cursor } => format!("read more of {place}"),
            Task::Drop { place } => format!("drop collection {place}"),
            Task::CreateViews => "create the views".to_owned(),
            Task::Sync => "sync".to_owned(),
            Task::Open { after, .. } => format!("open a stream from {}", show_optime(*after)),
            Task::ReadLog { .. } => "read on".to_owned(),
            Task::Keep { from } => format!("keep what came, from place {from}"),
            Task::Take { .. } => "take from the buffer".to_owned(),
            Task::Apply { from, until } => {
                self.applying = (*from, *until);
                let entries: Vec<String> = self.batch[*from..*until].iter().map(|entry| show_optime(*entry)).collect();
                format!("apply {}", entries.join(" "))
            }
            Task::PassOver { at } => {
                self.applying = (*at, at + 1);
                format!("pass over {}", show_optime(self.batch[*at]))
            }
            Task::LookUp { optime } => format!("look whether {} is here", show_optime(*optime)),
            Task::EndClone => "sync, and note that the data are whole".to_owned(),
            Task::BeginCheckpoint => "have it make a checkpoint".to_owned(),
            Task::BeginIncoming => "make room for files".to_owned(),
            Task::CreateFile { place } => format!("create file {place}"),
            Task::ReadPart { place, offset, .. } => format!("read file {place} from byte {offset}"),
            Task::FinishFile { place } => format!("sync file {place}"),
            Task::EndCheckpoint => "give the checkpoint up".to_owned(),
            Task::Arrive => "note that all files are here".to_owned(),
            Task::Discard => "remove the files".to_owned(),
            Task::Restart => "start anew".to_owned(),
        };
        format!("{}: {what}", show_lane(lane))
    }
}

pub fn show_hang_up(lane: Lane) -> String {
    format!("{}: hang up", show_lane(lane))
}

pub fn show_progress(progress: &Progress) -> String {
    match progress {
        Progress::Begun { source, what: Copying::Everything } => format!("log: copying {source}"),
        Progress::Begun { source, what: Copying::CollectionOf(entry) } => {
            format!("log: copying from {source} the collection that {} is of", show_optime(*entry))
        }
        Progress::RollbackId(id) => format!("status: it has rolled back {id} times"),
        Progress::From(from) => format!("status: the log is applied from {}", show_optime(*from)),
        Progress::Until(until) => format!("status: the copy is whole at {}", show_optime(*until)),
        Progress::Ordered(order) => format!("status: in the order {order:?}"),
        Progress::Files { bytes } => format!("status: by file, {bytes} bytes"),
        Progress::CollectionBegun(place) => format!("status: {place} begins"),
        Progress::CollectionEmptied(place) => format!("status: {place} begins anew"),
        Progress::CollectionInterrupted { place, reason } => format!("log: {place} is interrupted: {reason}"),
        Progress::CollectionGone(place) => format!("log: {place} is gone"),
        Progress::CollectionEnded(place) => format!("status: {place} ends"),
        Progress::Applied(entries) => format!("status: {entries} more applied"),
        Progress::Retried => "status: once more".to_owned(),
        Progress::Whole(until) => format!("log: the copy is whole at {}", show_optime(*until)),
        Progress::Failed { reason, attempts, gives_up } => {
            let then = if *gives_up { "; the process ends" } else { "" };
            format!("log: attempt {attempts} failed: {reason}{then}")
        }
    }
}
