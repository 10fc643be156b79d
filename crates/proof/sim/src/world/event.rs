//! What can happen in a world.

use crate::disk::Entry;
use baton_consensus::{Configuration, MemberId, Moment, Request, RequestKind, Response, SourceState};
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
    Fetch {
        by: MemberId,
        boot: u64,
        generation: u64,
        from: MemberId,
    },
    Fetched {
        by: MemberId,
        boot: u64,
        generation: u64,
        from: MemberId,
        asked: OpTime,
        answer: Option<FetchAnswer>,
    },
    RolledBack {
        by: MemberId,
        boot: u64,
        from: MemberId,
    },
    Client,
    Fault,
    /// Somebody's log has become too large.
    Truncate,
    Restart {
        member: MemberId,
    },
    Resume {
        member: MemberId,
    },
}

#[derive(Clone, Debug)]
pub(super) enum Persisted {
    Vote(baton_consensus::LastVote),
    Configuration(Box<Configuration>),
}

#[derive(Clone, Debug)]
pub(super) struct FetchAnswer {
    pub state: SourceState,
    pub term: Term,
    pub commit_point: OpTime,
    pub entries: Vec<Entry>,
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
            | Self::WritesBlocked { to, boot } => Some((*to, Some(*boot))),
            Self::Fetch { by, boot, .. } | Self::Fetched { by, boot, .. } | Self::RolledBack { by, boot, .. } => {
                Some((*by, Some(*boot)))
            }
            Self::Request { to, .. } => Some((*to, None)),
            Self::Client | Self::Fault | Self::Truncate | Self::Restart { .. } | Self::Resume { .. } => None,
        }
    }
}
