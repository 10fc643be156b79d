//! What goes into the step machine, and what it asks for.
//!
//! Time is a [`Moment`]: how long ago this process began, by a clock that never goes back. Calendars play no part here.

use crate::configuration::{Configuration, ConfigurationVersion, MemberId};
use crate::message::{ElectionReason, Position, Request, Response};
use baton_types::{Error, OpTime, Term, Timestamp};
use bson::RawDocumentBuf;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// A point in time: since the process began, by a monotone clock.
pub type Moment = Duration;

/// Names one request between its sending and its answer. The sender of the request draws it.
pub type RequestId = u64;

/// The last vote, kept on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastVote {
    /// The term it was cast in.
    pub term: Term,
    /// For whom.
    pub candidate: Option<MemberId>,
}

/// Whether this member has data that may be read, fetched and voted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DataState {
    /// There is none yet: initial sync. Such a member neither votes nor acknowledges.
    InitialSync,
    /// There is some, not yet (or no longer) consistent: after a crash.
    Recovering,
    /// What the set never committed is being removed.
    Rollback,
    /// Consistent.
    Ready,
}

/// How a step-down is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepDownRequest {
    /// Step down at the end of `catch_up` even if nobody has caught up.
    pub force: bool,
    /// How long another member may take to catch up.
    pub catch_up: Duration,
    /// For how long this member then does not stand for election.
    pub freeze: Duration,
    /// Who is to follow, if the operator says so.
    pub to: Option<MemberId>,
    /// Whether the one that has caught up is told to stand for election at once.
    pub hand_off: bool,
}

/// What heavy work keeps a member from. In the midst of it a member is a bad primary, but a better one than none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Occupation {
    /// It stands for election only after two election timeouts without a sign of a primary: others have one to notice that, and
    /// another to stand. At once, if there is nobody else who could.
    pub stands_last: bool,
    /// It takes over from no primary that works; from one that waits for entries which only this member has two election timeouts later.
    pub leaves_primary_alone: bool,
}

/// Everything that can happen to a member.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Input {
    /// Time has passed; nothing else. Due at [`Consensus::next_deadline`](crate::Consensus::next_deadline).
    Tick,
    /// Somebody asks. Answered, perhaps later, by [`Effect::Respond`] with the same `id`.
    Request {
        /// The receiver's name for it.
        id: RequestId,
        /// What is asked.
        request: Request,
    },
    /// Somebody answers.
    Response {
        /// Who.
        from: MemberId,
        /// What.
        response: Response,
        /// Time from sending to answer.
        round_trip: Duration,
    },
    /// A request was not answered in time, or there is no way to the member.
    Unreachable {
        /// Who.
        to: MemberId,
        /// Whether its process is certainly gone: its host refuses connections at its port.
        gone: bool,
        /// What was asked.
        request: RequestKind,
    },
    /// This member's log has grown, or is applied or synced further, or (after a rollback) has become shorter.
    Log(Position),
    /// The state of this member's data has changed.
    Data(DataState),
    /// The vote of [`Effect::PersistVote`] is on disk.
    VotePersisted(LastVote),
    /// The configuration of [`Effect::PersistConfiguration`] is on disk.
    ConfigurationPersisted(ConfigurationVersion),
    /// No more writes come: [`Effect::BlockWrites`] has been carried out, and this is where the log ends.
    WritesBlocked(Position),
    /// What [`Effect::FetchConfiguration`] brought.
    ConfigurationFetched(Box<Configuration>),
    /// The first entry of the term this member is primary of is in its log: [`Effect::BeginTerm`] has been carried out.
    TermBegun(Term),
    /// A batch that follows this member's log has come from the sync source and is applied, if there was anything in it. This is
    /// what the source said of itself with it.
    BatchTaken {
        /// Who.
        source: MemberId,
        /// Its term.
        term: Term,
        /// The last entry it knows to be committed.
        commit_point: OpTime,
        /// The end of its log.
        last: OpTime,
    },
    /// The sync source answers no more, or has nothing for us; do not choose it again for a while.
    SourceFailed {
        /// Who.
        source: MemberId,
        /// For how long not.
        avoid: Duration,
    },
    /// The sync source no longer has what follows this member's log: its own begins at `oldest`.
    SourceTooStale {
        /// Who.
        source: MemberId,
        /// The oldest entry it has.
        oldest: Timestamp,
    },
    /// An operator, or a member that was started with a configuration, gives the set its first one.
    Initiate(Box<Configuration>),
    /// An operator's replSetReconfig. Answered by [`Effect::Reconfigured`].
    Reconfigure {
        /// The configuration that is to be.
        configuration: Box<Configuration>,
        /// Skip what makes it safe.
        force: bool,
    },
    /// An operator's replSetStepDown or handoff. Answered by [`Effect::SteppedDown`].
    StepDown(StepDownRequest),
    /// The wait of a step-down is over: its client has gone.
    StepDownInterrupted,
    /// An operator's replSetStepUp: stand for election.
    StandForElection {
        /// Ask first how the others would vote.
        dry_run: bool,
    },
    /// An operator's replSetFreeze: do not stand for so long; zero ends it.
    Freeze(Duration),
    /// An operator's replSetSyncFrom.
    SyncFrom(MemberId),
    /// An operator's replSetAbortPrimaryCatchUp.
    AbortCatchUp,
    /// An operator's replSetMaintenance.
    Maintenance(bool),
    /// What this member's heavy work keeps it from has changed.
    Occupied(Occupation),
    /// The other members that heavy work keeps busy, as far as is known.
    Busy(BTreeSet<MemberId>),
    /// What [`Gossip::leadership`](crate::Gossip::leadership) says has changed: have every other member asked at once.
    Announce,
}

/// Which request it was that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum RequestKind {
    Heartbeat,
    RequestVotes,
    UpdatePosition,
    StepUp,
}

impl Response {
    /// To which request.
    pub fn kind(&self) -> RequestKind {
        match self {
            Self::Heartbeat(_) => RequestKind::Heartbeat,
            Self::RequestVotes(_) => RequestKind::RequestVotes,
            Self::UpdatePosition { .. } => RequestKind::UpdatePosition,
            Self::StepUp { .. } => RequestKind::StepUp,
        }
    }
}

impl Request {
    /// Which one it is.
    pub fn kind(&self) -> RequestKind {
        match self {
            Self::Heartbeat(_) => RequestKind::Heartbeat,
            Self::RequestVotes(_) => RequestKind::RequestVotes,
            Self::UpdatePosition(_) => RequestKind::UpdatePosition,
            Self::StepUp { .. } => RequestKind::StepUp,
        }
    }
}

/// Everything that the machinery is asked to do, in the order of the list.
#[derive(Clone, Debug, Serialize)]
pub enum Effect {
    /// Ask a member; bring the answer, or its failure, back.
    Send {
        /// Whom.
        to: MemberId,
        /// What.
        request: Request,
    },
    /// Answer a request.
    Respond {
        /// Which.
        id: RequestId,
        /// With what: a failure is the asker's (another set, not a member).
        response: Result<Response, Error>,
    },
    /// Write the vote to disk and sync it, then say [`Input::VotePersisted`].
    PersistVote(LastVote),
    /// Write the configuration to disk and sync it, then say [`Input::ConfigurationPersisted`].
    PersistConfiguration(Box<Configuration>),
    /// Ask a host that is in no configuration known here for its own, by a heartbeat; bring it as
    /// [`Input::ConfigurationFetched`].
    FetchConfiguration {
        /// `name:port`.
        host: String,
    },
    /// The term has risen: every later answer of this member carries it.
    TermAdopted(Term),
    /// This member won an election. It fetches on until [`Effect::BeginTerm`], and takes no writes yet.
    Won {
        /// The term it is primary of.
        term: Term,
        /// Why it stood.
        reason: ElectionReason,
    },
    /// Stop fetching, apply what was fetched, write the configuration's term and the term's first entry (with a timestamp above
    /// every one in the log), take writes, and say [`Input::TermBegun`].
    BeginTerm(Term),
    /// Take no writes from now on: another member is about to have everything.
    BlockWrites,
    /// Take writes again: the step-down did not come about.
    UnblockWrites,
    /// This member is primary no more. Writes in progress fail, and so do those who wait for a majority.
    Resign {
        /// Why, for the log.
        reason: ResignReason,
    },
    /// Answers [`Input::StepDown`]: stepped down, or why not.
    SteppedDown(Result<(), Error>),
    /// Answers [`Input::Reconfigure`] and [`Input::Initiate`].
    Reconfigured(Result<(), Error>),
    /// Answers [`Input::StandForElection`].
    Stood(Result<(), Error>),
    /// Everything up to here is committed. Never falls.
    Committed(OpTime),
    /// Fetch from this member from now on, or from nobody.
    SyncSource(Option<MemberId>),
    /// Another member cannot be worked with, for this reason. Said once, until it can be again.
    RefusedMember {
        /// Who.
        member: MemberId,
        /// Why.
        reason: String,
    },
    /// What another member says of its heavy tasks, in a message that is believed.
    Heard {
        /// Who.
        from: MemberId,
        /// What.
        #[serde(serialize_with = "baton_replay::documents::serialize")]
        leadership: RawDocumentBuf,
    },
    /// What drivers are told in `hello` has changed. Comes before what answers an operator.
    TopologyChanged,
}

impl Effect {
    /// Whether an operator who waits hears by this that what he wanted is done, or refused.
    pub(crate) fn is_answer_to_operator(&self) -> bool {
        matches!(self, Self::SteppedDown(_) | Self::Reconfigured(_) | Self::Stood(_))
    }
}

/// Why a primary resigns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResignReason {
    /// There is a higher term.
    HigherTerm(Term),
    /// It does not reach a majority.
    NoMajority,
    /// It was asked to.
    Request,
    /// A new configuration does not let it.
    Configuration,
    /// Its data is not what its log says: an entry cannot be applied.
    Data,
}
