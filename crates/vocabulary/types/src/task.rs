//! Background work: its kinds, what a gate is asked before it begins, and what it may answer.
//!
//! A policy over these is pure: it sees what is proposed and for how long it has waited, and no clock.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What kind of work a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TaskKind {
    /// A memtable on its way to disk.
    Flush,
    /// Files merged into others.
    Compaction,
    /// An index filled from its collection.
    IndexBuild,
    /// Old entries dropped from the oplog.
    OplogTruncation,
    /// Expired documents deleted.
    TtlDeletion,
    /// The keys of a dropped collection or index deleted.
    DropCleanup,
    /// A collection checked against its indexes.
    Validate,
    /// The member's files put together as of one moment.
    Checkpoint,
    /// A backup, announced by its tool.
    Backup,
    /// This member's data copied by another, by file or by cloning.
    InitialSyncSource,
}

impl TaskKind {
    /// Every kind.
    pub const ALL: [Self; 10] = [
        Self::Flush,
        Self::Compaction,
        Self::IndexBuild,
        Self::OplogTruncation,
        Self::TtlDeletion,
        Self::DropCleanup,
        Self::Validate,
        Self::Checkpoint,
        Self::Backup,
        Self::InitialSyncSource,
    ];

    /// The kind of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The name in `currentOp`, serverStatus and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flush => "flush",
            Self::Compaction => "compaction",
            Self::IndexBuild => "indexBuild",
            Self::OplogTruncation => "oplogTruncation",
            Self::TtlDeletion => "ttlDeletion",
            Self::DropCleanup => "dropCleanup",
            Self::Validate => "validate",
            Self::Checkpoint => "checkpoint",
            Self::Backup => "backup",
            Self::InitialSyncSource => "initialSyncSource",
        }
    }
}

/// A task that is to begin.
#[derive(Clone, Copy, Debug)]
pub struct Proposal<'a> {
    /// Names the task from its first asking to its end, within the process; 0 for what is no task yet.
    pub task: u64,
    /// What kind of work.
    pub kind: TaskKind,
    /// On what: a namespace, an index, a column family.
    pub name: &'a str,
    /// How much is to be done, in the units of the task's progress (documents, bytes or keys by kind); 0 if unknown.
    pub expected: u64,
    /// How long it takes, if who asks says so.
    pub expected_duration: Option<Duration>,
    /// How long it has waited so far.
    pub waited: Duration,
}

/// What a task cost, as far as that was measured. What a measure cannot know is `None`, never 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskCost {
    /// Processor time.
    pub cpu: Option<Duration>,
    /// Bytes read: from the disk, or by RocksDB from its files.
    pub read_bytes: Option<u64>,
    /// Bytes written to files.
    pub written_bytes: Option<u64>,
    /// From its beginning to its end.
    pub duration: Duration,
}

/// How hard an admitted task works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pace {
    /// As fast as it can.
    #[default]
    Full,
    /// Half of the time: after each step it rests for as long as the step took.
    Half,
}

/// What a gate answers about a task that can wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Go on.
    Begin(Pace),
    /// Not now; ask again.
    Wait {
        /// Why, for who looks.
        why: &'static str,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_kinds_have_one_name() {
        let names: std::collections::BTreeSet<_> = TaskKind::ALL.iter().map(|kind| kind.name()).collect();
        assert_eq!(names.len(), TaskKind::ALL.len());
        assert!(TaskKind::ALL.into_iter().all(|kind| TaskKind::from_name(kind.name()) == Some(kind)));
    }
}
