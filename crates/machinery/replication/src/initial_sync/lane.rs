//! A lane: carries out one task after the other, over a connection of its own.

use super::options::InitialSyncHooks;
use super::session::Session;
use super::source::{Line, Source, fault, unreachable_source};
use crate::log_stream;
use baton_following::{Answer, HoldPoint, Lane, Task};
use baton_net::{Closer, Outgoing};
use baton_storage::tasks::{GivingWay, Share};
use baton_storage::{IncomingFile, Storage, Writer};
use baton_types::{Error, Result};
use bson::{RawBson, RawDocument, RawDocumentBuf};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a test's request to wait is looked at again.
const HOLD_INTERVAL: Duration = Duration::from_millis(10);
/// The longest that a lane rests between two of its steps.
const REST_MAX: Duration = Duration::from_millis(200);

/// What a task is carried out with.
pub(crate) struct Context<'a> {
    pub storage: &'a Storage,
    pub apply_command: &'a (dyn Fn(Writer<'_>, &RawDocument) -> Result<()> + Send + Sync),
    pub hooks: &'a InitialSyncHooks,
    /// Whether what was asked for is of no use any more.
    pub is_closed: &'a dyn Fn() -> bool,
    /// Hears of every connection.
    pub opened: &'a dyn Fn(Closer),
}

/// See the file's header.
pub(crate) struct LaneWorker {
    lane: Lane,
    pub(super) session: Arc<Session>,
    pub(super) source: Option<Source>,
    /// Whether the source shows its connection as one that copies it.
    clones: bool,
    /// The entry that cannot be applied, if one collection is copied for it.
    pub(super) refused: Option<RawDocumentBuf>,
    /// The entry that was the source's newest when it was asked first.
    pub(super) begin: Option<RawDocumentBuf>,
    /// The commands that make the indexes of the collection that is copied.
    pub(super) indexes: Vec<(&'static str, RawDocumentBuf)>,
    /// The `_id` of the last document that came.
    pub(super) last_id: Option<RawBson>,
    pub(super) file: Option<IncomingFile>,
    pub(super) stream: Option<LogStream>,
    /// Entries of the log's batch that are not kept yet, and the first one's place in it.
    pub(super) batch: VecDeque<RawDocumentBuf>,
    pub(super) batch_from: usize,
    /// Entries that were taken out of the buffer.
    pub(super) hand: Vec<RawDocumentBuf>,
    giving_way: Option<GivingWay>,
}

/// A cursor on the source's log.
pub(super) struct LogStream {
    pub connection: Outgoing,
    pub cursor_id: i64,
    /// All that follows was asked for.
    pub goes_on: bool,
}

impl LogStream {
    pub fn request_more(&mut self) -> Result<()> {
        if !self.goes_on {
            log_stream::go_on(&mut self.connection, self.cursor_id).map_err(|error| unreachable_source(&error))?;
            self.goes_on = true;
        }
        Ok(())
    }
}

impl LaneWorker {
    pub fn new(lane: Lane, session: &Arc<Session>, refused: Option<RawDocumentBuf>) -> Self {
        Self {
            lane,
            session: Arc::clone(session),
            source: None,
            clones: false,
            refused,
            begin: None,
            indexes: Vec::new(),
            last_id: None,
            file: None,
            stream: None,
            batch: VecDeque::new(),
            batch_from: 0,
            hand: Vec::new(),
            giving_way: None,
        }
    }

    /// Whether the source and this member are to prefer their clients to what this lane does.
    pub fn yields(&self) -> bool {
        self.lane != Lane::Main && self.session.options.yields_to_clients
    }

    /// A step of what this lane does for nobody who waits is over, and nothing is held: it rests if others want the processors, and
    /// clients of the set are among them.
    pub(super) fn rest(&mut self, context: &Context<'_>) {
        if !self.yields() || !context.storage.company().is_there(Instant::now()) {
            self.giving_way = None;
            return;
        }
        let giving_way = self.giving_way.get_or_insert_with(|| GivingWay::new(Share::Eighth));
        let rest = giving_way.rest();
        if rest > Duration::ZERO {
            std::thread::sleep(rest.min(REST_MAX));
            giving_way.rested();
        }
    }

    pub fn carry_out(&mut self, context: &Context<'_>, task: Task) -> Answer {
        let done = match task {
            Task::Connect { clones } => self.connect(context, clones),
            Task::Reconnect => self.reconnect(context),
            Task::AskRollbackId => self.ask(|source| Ok(Answer::RollbackId(source.rollback_id()?))),
            Task::AskNewest => self.ask_newest(),
            Task::AskBytes => self.ask(|source| Ok(Answer::Bytes(source.bytes()?))),
            Task::Hold(HoldPoint::BeforeCopying) => hold(context, "initialSyncHangBeforeCopyingDatabases"),
            Task::Hold(HoldPoint::AfterCopying) => hold(context, "initialSyncHangAfterDataCloning"),
            Task::BeginClone => context.storage.follower().begin_clone().map(|()| Answer::Done),
            Task::CopyStatements { until, secs } => self.copy_statements(context, until, secs),
            Task::BeginLog => self.begin_log(context),
            Task::DropOwn => self.drop_own(context),
            Task::List(what) => self.list(what),
            Task::Measure { place } => self.measure(place),
            Task::Create { place, .. } => self.create(context, place),
            Task::AskIndexes { place } => self.ask_indexes(place),
            Task::BuildIndexes { place } => self.build_indexes(context, place),
            Task::Read { place, from } => self.read(context, place, from),
            Task::Drop { place } => self.drop(context, place),
            Task::CreateViews => self.create_views(context),
            Task::Sync => {
                context.storage.sync();
                Ok(Answer::Done)
            }
            Task::Open { after, within } => self.open_log(context, after, within),
            Task::ReadLog { within } => self.read_log(within),
            Task::Keep { from } => self.keep(context, from),
            Task::Take { bytes_max } => self.take(bytes_max),
            Task::Apply { from, until } => Ok(self.apply(context, from..until)),
            Task::PassOver { at } => self.pass_over(context, at),
            Task::LookUp { optime } => {
                context.storage.oplog().entry_at(optime).map(|entry| Answer::Found(entry.is_some()))
            }
            Task::EndClone => {
                context.storage.sync();
                context.storage.follower().end_clone();
                Ok(Answer::Done)
            }
            Task::BeginCheckpoint => self.begin_checkpoint(),
            Task::BeginIncoming => self.begin_incoming(context),
            Task::CreateFile { place } => self.create_file(place),
            Task::ReadPart { place, offset, bytes_max, .. } => self.read_part(context, place, offset, bytes_max),
            Task::FinishFile { place } => self.finish_file(place),
            Task::EndCheckpoint => self.end_checkpoint(),
            Task::Arrive => self.arrive(),
            Task::Discard => self.discard(),
            Task::Restart => self.restart(context),
        };
        done.unwrap_or_else(|error| Answer::Failed(fault(&error)))
    }

    pub(super) fn line<'a>(&'a self, context: &'a Context<'_>) -> Line<'a> {
        Line { host: &self.session.host, opened: context.opened, in_background: self.yields(), clones: self.clones }
    }

    fn connect(&mut self, context: &Context<'_>, clones: bool) -> Result<Answer> {
        self.clones = clones;
        self.source = Some(Source::connect(&self.line(context))?);
        Ok(match self.lane {
            Lane::Main => Answer::Connected(context.hooks.settings()),
            Lane::Log | Lane::Copier(_) => Answer::Done,
        })
    }

    fn reconnect(&mut self, context: &Context<'_>) -> Result<Answer> {
        self.source = Some(Source::reconnect(&self.line(context))?);
        Ok(Answer::Done)
    }

    pub(super) fn source(&mut self) -> Result<&mut Source> {
        self.source.as_mut().ok_or_else(|| unreachable_source(&"this lane is not connected"))
    }

    fn ask(&mut self, question: impl FnOnce(&mut Source) -> Result<Answer>) -> Result<Answer> {
        question(self.source()?)
    }

    fn ask_newest(&mut self) -> Result<Answer> {
        let newest = self.source()?.newest_entry()?;
        let optime = baton_storage::optime_of(&newest)
            .ok_or_else(|| Error::failed_to_parse("the source's newest entry has no OpTime"))?;
        self.begin.get_or_insert(newest);
        Ok(Answer::Newest(optime))
    }
}

/// Waits while a test wants that, and somebody wants the answer.
pub(super) fn hold(context: &Context<'_>, point: &str) -> Result<Answer> {
    while (context.hooks.holds)(point) && !(context.is_closed)() {
        std::thread::sleep(HOLD_INTERVAL);
    }
    Ok(Answer::Done)
}
