//! What goes into the machine, and what it asks for.
//!
//! Of entries it hears OpTimes alone; the batch itself stays with the driver until the next one.

use crate::initial_sync::{Answer, Lane, Progress, Task};
use crate::refusal::{Refusal, Remedy};
use baton_consensus::{MemberId, Position, SourceState};
use baton_types::{OpTime, Term, Timestamp};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What this member is at the moment at which an answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Here {
    /// The end of its log.
    pub last: OpTime,
    /// Its term.
    pub term: Term,
    /// Whether it is primary of that.
    pub leads: bool,
    /// Up to where it knows its log to be committed.
    pub committed: Timestamp,
    /// The time since 1970-01-01, by the clock that entries are stamped by.
    pub wall: Duration,
}

/// A batch of a source's log, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// Its entries' OpTimes, in their order.
    pub optimes: Vec<OpTime>,
    /// What the source says of itself.
    pub source: SourceState,
    /// What the source knows to be committed.
    pub commit_point: OpTime,
    /// Whether more will come.
    pub is_open: bool,
}

/// How an attempt to apply entries went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attempt {
    /// All of them are applied.
    Done,
    /// One completes an index that is not built here yet. Those before it may be applied.
    NotYet,
    /// It failed for what this member is doing, and not for an entry: it stops, or writes entries of its own.
    Passing {
        /// Why.
        reason: String,
    },
    /// An entry cannot be applied. Those before it may be.
    Failed {
        /// Why.
        reason: String,
        /// Whether the first of them concerns one collection alone.
        is_of_collection: bool,
    },
}

/// How it went to take away what the source does not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TakenAway {
    /// It is gone, and that is on disk.
    Done,
    /// History does not bring back what there was: only a copy helps.
    Unrecoverable {
        /// Why.
        reason: String,
    },
    /// Nothing has changed.
    Failed {
        /// Why.
        reason: String,
    },
}

/// Everything that can happen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    /// Time has passed. Due at [`Following::next_deadline`](crate::Following::next_deadline).
    Tick {
        /// As in [`Here`].
        wall: Duration,
    },
    /// Follow this member from now on, or nobody. What belongs to the one before is dropped.
    Source(Option<MemberId>),
    /// Stay that far behind from now on: an entry is applied when it is that old.
    Delay(Duration),
    /// Apply nothing, or go on.
    Hold(bool),
    /// Follow nobody, finish what is in hand, and say [`Effect::Rested`].
    Rest,

    /// Answers [`Effect::Connect`].
    Connected {
        /// This member.
        here: Here,
        /// Whether it has data, and they are whole.
        is_whole: bool,
        /// If they are not whole, where the log ended that this member gave up for a copy. Zero, if none that counted.
        given_up: OpTime,
    },
    /// Answers [`Effect::Copy`].
    Copied {
        /// This member.
        here: Here,
        /// Who has carried it out.
        lane: Lane,
        /// What came of it.
        answer: Answer,
    },
    /// Answers [`Effect::Open`] and [`Effect::Read`].
    Fetched {
        /// This member.
        here: Here,
        /// What came.
        batch: Batch,
    },
    /// Answers [`Effect::Connect`], [`Effect::Open`], [`Effect::Read`], [`Effect::LookBack`] and [`Effect::Page`]: there is no answer, or
    /// not as it should be.
    Failed {
        /// Why.
        reason: String,
    },
    /// Answers [`Effect::Apply`].
    Applied {
        /// How it went.
        attempt: Attempt,
        /// As in [`Here`].
        wall: Duration,
    },
    /// Answers [`Effect::AskToSpare`].
    Spared(bool),
    /// Answers [`Effect::LookBack`].
    LookedBack {
        /// This member's entry there; its oldest, if there is none.
        own: OpTime,
        /// Whether there is none before.
        is_oldest: bool,
    },
    /// Answers [`Effect::Page`].
    Paged {
        /// This member.
        here: Here,
        /// What the source says of itself with it.
        source: SourceState,
        /// The source's entries from there on, at most as many as were asked for.
        theirs: Vec<OpTime>,
        /// How many of them, from the first on, this member has.
        known: usize,
    },
    /// Answers [`Effect::TakeAway`].
    TakenAway {
        /// Where this member's log ends now.
        position: Position,
        /// How it went.
        outcome: TakenAway,
    },
}

/// What is copied anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Copying {
    /// The data of the set.
    Everything,
    /// The collection that this entry is of, which could not be applied.
    CollectionOf(OpTime),
}

/// Everything that the driver is asked to do, in the order of the list.
///
/// From [`Self::Connect`] to [`Self::TakeAway`] it is *work*: each is answered by one input, whatever becomes of it, and no other work is
/// asked for before.
#[derive(Clone, Debug, Serialize)]
pub enum Effect {
    /// Connect to the source.
    Connect {
        /// Whom to.
        source: MemberId,
        /// How long that may take.
        within: Duration,
    },
    /// Do this for a copy of the source. Work of its lane; several lanes may have some at the same time.
    Copy {
        /// Who is to carry it out.
        lane: Lane,
        /// What.
        task: Task,
    },
    /// Open a stream of the source's log, from the timestamp of this member's last entry on.
    Open {
        /// That entry.
        after: OpTime,
        /// How long the first batch may take.
        within: Duration,
    },
    /// Wait for what follows, and take together what is there.
    Read {
        /// How long a batch may take, be it empty.
        within: Duration,
    },
    /// Apply entries of the batch that came last.
    Apply {
        /// The first one's place in it.
        from: usize,
        /// The place after the last one's.
        until: usize,
    },
    /// Ask consensus whether the set can spare this member's copy.
    AskToSpare,
    /// Find this member's newest entry that is so many seconds older than its last one.
    LookBack {
        /// How many.
        secs: u32,
    },
    /// Read OpTimes of the source's log.
    Page {
        /// From here on.
        from: Timestamp,
        /// At most so many.
        entries_max: usize,
        /// How long that may take.
        within: Duration,
    },
    /// Take away every entry after this one, and what it did.
    TakeAway {
        /// The last entry that both logs have.
        common: OpTime,
    },

    /// Have what was applied synced, soon. What comes next need not wait for that.
    Sync,
    /// Close every connection to the source: what waits for it fails.
    Close,
    /// Close a lane's connections to the source: what waits for it fails.
    HangUp {
        /// Whose.
        lane: Lane,
    },
    /// Answers [`Input::Rest`]: nothing is in hand, and nothing will be until a source is set.
    Rested,
    /// Note on disk that what is here is of no use any more.
    NoteNotWhole,
    /// Bring this to consensus.
    Tell(Box<baton_consensus::Input>),
    /// For the log and for whoever asks: how far a copy is.
    Progress(Box<Progress>),
    /// For the log: fetching from a source has ended.
    Stopped {
        /// From whom.
        source: MemberId,
        /// Why.
        reason: String,
    },
    /// For the log and for whoever asks: an entry cannot be applied.
    Refused(Box<Refusal>),
    /// For the log: an entry that could not be applied no longer stands in the way.
    Passed,
    /// For the log, loudly: this member's log has parted from the source's, and is not rolled back.
    NotRolledBack {
        /// From whom.
        source: MemberId,
        /// Why.
        reason: String,
        /// What comes of it.
        remedy: Remedy,
    },
}
