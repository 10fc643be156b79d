//! What can happen in a world.

use super::building::{Word, Work};
use super::leading::Errand;
use crate::catalog::BuildId;
use crate::disk::Entry;
use baton_consensus::{Configuration, MemberId, Moment, Request, RequestKind, Response, SourceState};
use baton_following::{Copying, Lane};
use baton_leadership::TaskId;
use baton_types::{OpTime, Term};

#[derive(Clone, Debug)]
pub(super) enum Event {
    /// A member's timer.
    Tick {
        to: MemberId,
        boot: u64,
    },
    /// A request arrives; `asker` is told of the answer under `exchange`.
    Request {
        to: MemberId,
        asker: MemberId,
        asker_boot: u64,
        sent: Moment,
        request: Request,
    },
    Response {
        to: MemberId,
        boot: u64,
        from: MemberId,
        sent: Moment,
        response: Response,
    },
    Unreachable {
        to: MemberId,
        boot: u64,
        member: MemberId,
        gone: bool,
        kind: RequestKind,
    },
    /// Something is on disk.
    Persisted {
        to: MemberId,
        boot: u64,
        what: Persisted,
    },
    Synced {
        to: MemberId,
        boot: u64,
        len: usize,
    },
    TermBegun {
        to: MemberId,
        boot: u64,
        term: Term,
    },
    WritesBlocked {
        to: MemberId,
        boot: u64,
    },
    /// A member that follows another looks whether there is something new.
    Poll {
        by: MemberId,
        boot: u64,
        work: u64,
    },
    /// Work that following asked for is done.
    Worked {
        by: MemberId,
        boot: u64,
        work: u64,
        answer: Box<Answer>,
    },
    /// A task of a copy is done.
    CopyWorked {
        by: MemberId,
        boot: u64,
        lane: Lane,
        work: u64,
    },
    /// A process ends by itself, to be begun again.
    ProcessEnds {
        by: MemberId,
        boot: u64,
    },
    /// The timer of a member's following.
    FollowTick {
        by: MemberId,
        boot: u64,
    },
    /// Somebody's store has trouble for a while, or until it is copied anew.
    Trouble,
    Client,
    Fault,
    /// Somebody's log has become too large.
    Truncate,
    /// An operator looks at a set that should be well by now.
    Operator,
    Restart {
        member: MemberId,
    },
    Resume {
        member: MemberId,
    },
    /// The timer of a member's leadership.
    Look {
        to: MemberId,
        boot: u64,
    },
    /// What leadership asked for is carried out.
    Errand {
        to: MemberId,
        boot: u64,
        what: Errand,
    },
    /// A member measures itself.
    Measure {
        to: MemberId,
        boot: u64,
    },
    /// A task that was admitted begins.
    TaskBegins {
        to: MemberId,
        boot: u64,
        task: TaskId,
    },
    /// A task ends, or gives up waiting.
    TaskEnds {
        to: MemberId,
        boot: u64,
        task: TaskId,
        has_run: bool,
    },
    /// Works are given out.
    Works,
    /// Work at an index build is done, or due.
    BuildWork {
        by: MemberId,
        boot: u64,
        build: BuildId,
        work: u64,
        what: Work,
    },
    /// A member hears another say something of an index build.
    BuildWord {
        to: MemberId,
        from: MemberId,
        build: BuildId,
        word: Word,
    },
    /// Somebody wants an index, or does not any more.
    BuildLuck,
    /// Somebody looks for a primary, the last of so many times, to ask it to end a build.
    BuildKill {
        build: BuildId,
        looks: u16,
    },
    /// What recurs is due: of one member, or of all.
    Due {
        member: Option<MemberId>,
    },
}

#[derive(Clone, Debug)]
pub(super) enum Persisted {
    Vote(baton_consensus::LastVote),
    Configuration(Box<Configuration>),
}

/// What comes of work; where this member is then is looked up when it comes.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Connected,
    Failed(&'static str),
    Copied { from: MemberId, what: Copying },
    Fetched { entries: Vec<Entry>, source: SourceState, commit_point: OpTime },
    Applied { from: usize, until: usize },
    Paged { theirs: Vec<OpTime>, source: SourceState },
    TakenAway { common: OpTime },
}

impl Event {
    /// The member this is about, and the boot it belongs to.
    pub fn addressee(&self) -> Option<(MemberId, Option<u64>)> {
        match self {
            Self::Tick { to, boot }
            | Self::Response { to, boot, .. }
            | Self::Unreachable { to, boot, .. }
            | Self::Persisted { to, boot, .. }
            | Self::Synced { to, boot, .. }
            | Self::TermBegun { to, boot, .. }
            | Self::WritesBlocked { to, boot }
            | Self::Look { to, boot }
            | Self::Errand { to, boot, .. }
            | Self::Measure { to, boot }
            | Self::TaskBegins { to, boot, .. }
            | Self::TaskEnds { to, boot, .. } => Some((*to, Some(*boot))),
            Self::Poll { by, boot, .. }
            | Self::Worked { by, boot, .. }
            | Self::CopyWorked { by, boot, .. }
            | Self::ProcessEnds { by, boot }
            | Self::BuildWork { by, boot, .. }
            | Self::FollowTick { by, boot } => Some((*by, Some(*boot))),
            Self::Request { to, .. } | Self::BuildWord { to, .. } => Some((*to, None)),
            Self::Client
            | Self::Fault
            | Self::Truncate
            | Self::Operator
            | Self::Trouble
            | Self::Restart { .. }
            | Self::Resume { .. }
            | Self::Works
            | Self::BuildLuck
            | Self::BuildKill { .. }
            | Self::Due { .. } => None,
        }
    }
}
