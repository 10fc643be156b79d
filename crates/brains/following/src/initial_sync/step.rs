//! What the making of a copy asks for, and what it hears.
//!
//! Of collections and files it hears sizes, of entries OpTimes; names and bytes stay with the driver, which knows each by its place.

use crate::step::{Attempt, Copying};
use baton_consensus::MemberId;
use baton_types::OpTime;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One of several that work at the same time, each with a connection of its own and one task at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Lane {
    /// What comes once: questions, the beginning, catching up, the end.
    Main,
    /// Reads the source's log into the buffer.
    Log,
    /// Copies collections or files, one after the other.
    Copier(usize),
}

/// A point at which a test may have the copying wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HoldPoint {
    /// Before the collections are listed.
    BeforeCopying,
    /// After they, or the files, are copied.
    AfterCopying,
}

/// Where a batch of a collection's documents begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadFrom {
    /// At the collection's first document.
    Start,
    /// Behind the last document that came. The cursor is lost.
    LastId,
    /// Where the cursor is.
    Cursor,
}

/// A piece of work of a lane: answered by one [`Answer`], whatever becomes of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Task {
    /// Connect to the source. A lane that clones has it show that it is copied.
    Connect {
        /// Whether this lane clones.
        clones: bool,
    },
    /// Connect anew, after the connection was lost or the source could not answer.
    Reconnect,
    /// Ask how often the source has rolled back.
    AskRollbackId,
    /// Ask for the newest entry of the source's log.
    AskNewest,
    /// Ask how large the source's data are.
    AskBytes,
    /// Wait while a test wants that.
    Hold(HoldPoint),

    /// Note that the data are not whole, and empty the store.
    BeginClone,
    /// Take over the statements of retryable writes that the source's log has from the last seconds before this entry.
    CopyStatements {
        /// Up to there.
        until: OpTime,
        /// From so many seconds before.
        secs: u32,
    },
    /// Begin the log with the entry that was the source's newest when it was asked first.
    BeginLog,
    /// Drop this member's copy of the one collection that is copied.
    DropOwn,
    /// List the source's collections and views; or the one collection that is copied, if the source has it.
    List(Copying),
    /// Ask how large a collection is.
    Measure {
        /// Its place in the list.
        place: usize,
    },
    /// Create a collection. From here on places are those of the order that [`Progress::Ordered`] named.
    Create {
        /// Its place.
        place: usize,
        /// Whether it was begun before, and is to be filled from the start.
        again: bool,
    },
    /// Ask for a collection's indexes.
    AskIndexes {
        /// Its place.
        place: usize,
    },
    /// Build these indexes, or begin what the set is building.
    BuildIndexes {
        /// Its place.
        place: usize,
    },
    /// Ask for one batch of documents, and put them into the store.
    Read {
        /// The collection's place.
        place: usize,
        /// Where the batch begins.
        from: ReadFrom,
    },
    /// Drop a collection of the copy, to fill it from the start.
    Drop {
        /// Its place.
        place: usize,
    },
    /// Create the views.
    CreateViews,
    /// Sync all that was copied.
    Sync,

    /// Open a stream of the source's log that begins with this entry.
    Open {
        /// The entry.
        after: OpTime,
        /// How long a batch may take.
        within: Duration,
    },
    /// Wait for the stream's next batch.
    ReadLog {
        /// How long it may take.
        within: Duration,
    },
    /// Put entries of the batch into the buffer, from this place on, as far as there is room.
    Keep {
        /// The place.
        from: usize,
    },
    /// Take entries out of the buffer.
    Take {
        /// About so many bytes, at least one entry.
        bytes_max: u64,
    },
    /// Apply entries of those that were taken last.
    Apply {
        /// The first one's place.
        from: usize,
        /// The place after the last one's.
        until: usize,
    },
    /// Log an entry without doing what it says: the copy has it already.
    PassOver {
        /// Its place among those that were taken last.
        at: usize,
    },
    /// Look whether this member's log has this entry.
    LookUp {
        /// The entry.
        optime: OpTime,
    },
    /// Sync, and note that the data are whole.
    EndClone,

    /// Have the source make a checkpoint of its files.
    BeginCheckpoint,
    /// Make room for its files.
    BeginIncoming,
    /// Create a file.
    CreateFile {
        /// Its place in the list.
        place: usize,
    },
    /// Ask for a part of a file, compare it with its checksum, and append it.
    ReadPart {
        /// The file's place.
        place: usize,
        /// Where in the file.
        offset: u64,
        /// At most so many bytes.
        bytes_max: u64,
        /// How many parts of this file came damaged.
        damaged: u32,
    },
    /// Sync and close a file.
    FinishFile {
        /// Its place.
        place: usize,
    },
    /// Tell the source that the checkpoint is not needed any more.
    EndCheckpoint,
    /// Note that all files are here, and are to be begun with.
    Arrive,
    /// Remove the files that are here.
    Discard,
    /// Start the process anew. Answered only if that fails.
    Restart,
}

/// Why a task failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FaultKind {
    /// The connection is lost, or the source cannot answer now: it may, if it is asked again.
    Lost,
    /// The source has forgotten what was begun there: a cursor, a checkpoint.
    Forgotten,
    /// The source has no such collection any more.
    Gone,
    /// Asking again does not help.
    Other,
}

/// A task that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Of which kind.
    pub kind: FaultKind,
    /// Why.
    pub reason: String,
}

/// How this member comes to its data, if it may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Method {
    /// By file, if the source has so many bytes and this process can start itself anew.
    Auto {
        /// So many.
        file_bytes_min: u64,
    },
    /// By cloning collections.
    Cloning,
    /// By file.
    File,
}

/// What an operator has set when an attempt begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// How.
    pub method: Method,
    /// Whether this process can start itself anew.
    pub can_restart: bool,
    /// Collections or files copied at once.
    pub copiers: usize,
}

/// A collection in the source's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Whether its order is that of insertion, in which there is no place to go on from.
    pub is_capped: bool,
}

/// What came of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It is done.
    Done,
    /// It is not.
    Failed(Fault),
    /// Answers [`Task::Connect`] of the main lane.
    Connected(Settings),
    /// Answers [`Task::AskRollbackId`].
    RollbackId(i32),
    /// Answers [`Task::AskNewest`].
    Newest(OpTime),
    /// Answers [`Task::AskBytes`] and [`Task::Measure`].
    Bytes(u64),
    /// Answers [`Task::List`]: the collections, without the views.
    Listed(Vec<Listed>),
    /// Answers [`Task::Read`].
    Batch {
        /// Whether it was the collection's last.
        is_last: bool,
    },
    /// Answers [`Task::Open`] and [`Task::ReadLog`].
    LogRead {
        /// The batch's entries.
        optimes: Vec<OpTime>,
        /// Whether more will come.
        is_open: bool,
    },
    /// Answers [`Task::Keep`].
    Kept {
        /// How many entries of the batch are kept or were skipped, from its first on.
        until: usize,
    },
    /// Answers [`Task::Take`].
    Taken {
        /// The entries.
        optimes: Vec<OpTime>,
    },
    /// Answers [`Task::Apply`]. Of one collection is here what is of the one that is copied.
    Applied(Attempt),
    /// Answers [`Task::LookUp`].
    Found(bool),
    /// Answers [`Task::BeginCheckpoint`].
    Checkpoint {
        /// An entry that its log has.
        newest: OpTime,
        /// The sizes of its files.
        file_bytes: Vec<u64>,
    },
    /// Answers [`Task::ReadPart`].
    Part {
        /// So many bytes of the file came.
        bytes: u64,
    },
    /// Answers [`Task::ReadPart`]: the part is not what its checksum says.
    Damaged {
        /// The file's name.
        file: String,
    },
}

/// For whoever asks how far an attempt is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Progress {
    /// An attempt begins.
    Begun {
        /// From whom.
        source: MemberId,
        /// What is copied.
        what: Copying,
    },
    /// The source's count of rollbacks.
    RollbackId(i32),
    /// The log is applied from here on,
    From(OpTime),
    /// and the copy is whole here.
    Until(OpTime),
    /// The order in which collections or files are copied, by their places in the list.
    Ordered(Vec<usize>),
    /// Files are copied, of so many bytes.
    Files {
        /// So many.
        bytes: u64,
    },
    /// A collection's copying has begun,
    CollectionBegun(usize),
    /// begins anew,
    CollectionEmptied(usize),
    /// was interrupted, and is gone on with,
    CollectionInterrupted {
        /// Its place.
        place: usize,
        /// By what.
        reason: String,
    },
    /// is over, as the source has it no more; the log says so,
    CollectionGone(usize),
    /// or is done.
    CollectionEnded(usize),
    /// So many entries more are applied.
    Applied(usize),
    /// Something is asked for again.
    Retried,
    /// The copy is whole.
    Whole(OpTime),
    /// An attempt has failed.
    Failed {
        /// Why.
        reason: String,
        /// How many have, one after the other.
        attempts: u32,
        /// Whether the process is to end for it.
        gives_up: bool,
    },
}
