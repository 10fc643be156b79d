//! One lane: a thread that carries one request after the other to a member, and watches its connection meanwhile.
//!
//! ```text
//!  push ──▶ waiting ──▶ the thread: sends, waits for the answer ─────────────┐
//!     └───▶ parked: sent by who brings it; the thread wakes for the answer ──┴──▶ on_input
//! ```
//!
//! While the thread has nothing to do its connection is parked where whoever brings a request may send it: a thread less is woken
//! on the way of a position to the primary, and a writer waits for each of these.
//!
//! A process that dies closes its connections, and its port refuses new ones. So a lane whose idle connection is closed by the
//! other side tries to connect again at once; if it is refused, the process is gone, and nobody had to wait for a timeout.
//! The closing may overtake the refusing by a moment, while the dying process still listens: then the lane tries again, first
//! at once, then at growing intervals. What remains is the system's: it frees the memory of a process before it closes its
//! sockets, some 0.1 ms for each resident megabyte.
//!
//! Invariants: at most one request of each kind waits; an exchange ends in one [`Input`], or in none if the lane is ending;
//! a request is sent a second time only if the connection ended before its answer (every request may be received twice).
//! What it does not do: repeat what was not answered in time.

use crate::lanes::OnInput;
use crate::messages::{decode_response, encode_request};
use baton_consensus::{Input, MemberId, Request, RequestKind, Response};
use baton_net::{CallError, Closer, Idle, Outgoing, Waker};
use baton_types::{Class, must_not_unwind};
use bson::RawDocument;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::{Duration, Instant};
use tracing::{debug, info};

/// A lane's stack: it reads and writes small messages, the largest a configuration.
const STACK_SIZE_BYTES: usize = 512 * 1024;
/// How often a request is sent whose connection ends before its answer.
const ATTEMPTS_MAX: usize = 3;
/// How long a lane that was not asked tries to connect again.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The first pause before a lost connection is made again, after the attempt that is made at once, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(512);
/// By so much a request may outlast its timeout that was sent by who brought it: how often an idle thread looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// What a lane is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Heartbeats. This lane reports, unasked, that the process is gone; it alone, because one report is enough.
    Heartbeats,
    /// Votes, positions, step-ups.
    Others,
}

/// A request on its way.
#[derive(Debug)]
pub(crate) struct Job {
    /// Where to.
    pub(crate) host: String,
    pub(crate) request: Request,
    /// How long it may take.
    pub(crate) timeout: Duration,
}

/// The handle of a lane. When it is dropped the thread ends, some time after.
pub(crate) struct Lane {
    shared: Arc<Shared>,
    thread: ThreadId,
}

struct Shared {
    state: Mutex<State>,
    /// Signalled when the thread has ended.
    ended: Condvar,
    waker: Waker,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    /// The connection, while the thread only watches it.
    parked: Option<Connection>,
    /// A request that was sent over the parked connection, and its answer to come.
    sent: Option<Sent>,
    /// Shuts the present connection down.
    closer: Option<Closer>,
    /// The thread is with the name service or waits for a connection, where it cannot be reached.
    away: bool,
    /// The thread is to end.
    ending: bool,
    ended: bool,
}

impl State {
    /// Sends a request over the parked connection; gives it back if that is not to be had.
    fn send_at_once(&mut self, job: Job) -> Option<Job> {
        if !self.waiting.is_empty() || self.parked.as_ref().is_none_or(|parked| parked.host != job.host) {
            return Some(job);
        }
        let Some(mut connection) = self.parked.take() else { return Some(job) };
        let at = Instant::now();
        if connection.outgoing.ask(&encode_request(&job.request), job.timeout).is_err() {
            // It is closed; the thread finds that out when it tries.
            self.parked = Some(connection);
            return Some(job);
        }
        self.sent = Some(Sent { job, connection, at });
        None
    }
}

impl Lane {
    pub(crate) fn start(to: MemberId, purpose: Purpose, on_input: OnInput) -> io::Result<Self> {
        let (state, ended) = (Mutex::new(State::default()), Condvar::new());
        let shared = Arc::new(Shared { state, ended, waker: Waker::new()? });
        let carrier = Carrier {
            to,
            purpose,
            on_input,
            shared: Arc::clone(&shared),
            connection: None,
            lost: None,
            losses: 0,
            failure: None,
        };
        let name = match purpose {
            Purpose::Heartbeats => format!("heartbeats{to}"),
            Purpose::Others => format!("member{to}"),
        };
        let thread =
            std::thread::Builder::new().name(name).stack_size(STACK_SIZE_BYTES).spawn(move || carrier.run())?;
        Ok(Self { shared, thread: thread.thread().id() })
    }

    /// Has a request sent: at once, if nothing else is under way, or when its turn comes.
    pub(crate) fn push(&self, job: Job) {
        {
            let mut state = self.shared.state.lock();
            let Some(job) = state.send_at_once(job) else { return };
            let kind = job.request.kind();
            match state.waiting.iter_mut().find(|older| older.request.kind() == kind) {
                Some(older) => *older = job,
                None => state.waiting.push_back(job),
            }
        }
        self.shared.waker.wake();
    }

    /// Tells the thread to end.
    pub(crate) fn end(&self) {
        {
            let mut state = self.shared.state.lock();
            state.ending = true;
            state.waiting.clear();
            if let Some(closer) = state.closer.take() {
                closer.close();
            }
        }
        self.shared.waker.wake();
    }

    /// After [`Self::end`]: waits until the thread has ended, or is away and will only end.
    pub(crate) fn wait_for_end(&self) {
        if std::thread::current().id() == self.thread {
            return;
        }
        let mut state = self.shared.state.lock();
        while !state.ended && !state.away {
            self.shared.ended.wait(&mut state);
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.end();
    }
}

/// A connection and where it leads.
struct Connection {
    outgoing: Outgoing,
    host: String,
}

/// A request that was sent by who brought it.
struct Sent {
    job: Job,
    connection: Connection,
    at: Instant,
}

/// A connection that the other side closed, to be made again.
struct Lost {
    host: String,
    again_at: Instant,
}

/// What a lane's thread does next.
enum Task {
    Carry(Box<Job>),
    /// Take the answer to what was sent already.
    TakeAnswer(Box<Sent>),
    /// The other side has closed the connection.
    Lose,
    /// It is time to make a lost connection again.
    Reconnect,
}

/// Why an exchange failed.
enum Failure {
    Call(CallError),
    /// It was answered, but by an error, or by what cannot be read.
    Answer(baton_types::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(error) => error.fmt(f),
            Self::Answer(error) => error.fmt(f),
        }
    }
}

/// The thread's own half.
struct Carrier {
    to: MemberId,
    purpose: Purpose,
    on_input: OnInput,
    shared: Arc<Shared>,
    connection: Option<Connection>,
    lost: Option<Lost>,
    /// Connections lost since the last answer.
    losses: u32,
    /// How the last exchange failed, if it did: told once, not with every heartbeat.
    failure: Option<String>,
}

impl Carrier {
    fn run(mut self) {
        // Without it this member hears nothing more of the other.
        let _guard = must_not_unwind("a lane to another member");
        // Signs of life, votes and positions are short, and others wait for them.
        baton_machine::as_class(Class::High);
        while let Some(task) = self.next_task() {
            match task {
                Task::Carry(job) => self.carry(&job),
                Task::TakeAnswer(sent) => self.take_answer(*sent),
                Task::Lose => self.lose(),
                Task::Reconnect => self.reconnect(),
            }
        }
    }

    /// Waits for something to do; `None` when it is to end.
    fn next_task(&mut self) -> Option<Task> {
        loop {
            {
                let mut state = self.shared.state.lock();
                if state.ending {
                    return None;
                }
                if let Some(job) = state.waiting.pop_front() {
                    return Some(Task::Carry(Box::new(job)));
                }
            }
            if let Some(connection) = self.connection.take() {
                match self.watch(connection) {
                    Some(task) => return Some(task),
                    None => continue,
                }
            }
            match &self.lost {
                Some(lost) => {
                    let pause = lost.again_at.saturating_duration_since(Instant::now());
                    if !self.shared.waker.wait(Some(pause)) {
                        return Some(Task::Reconnect);
                    }
                }
                None => {
                    self.shared.waker.wait(None);
                }
            }
        }
    }

    /// Leaves the connection to who brings a request, until there is something to do.
    fn watch(&mut self, connection: Connection) -> Option<Task> {
        let watch = connection.outgoing.watch();
        {
            let mut state = self.shared.state.lock();
            if state.ending || !state.waiting.is_empty() {
                self.connection = Some(connection);
                return None;
            }
            state.parked = Some(connection);
        }
        let idle = watch.idle(&self.shared.waker, LOOK_INTERVAL);
        let mut state = self.shared.state.lock();
        if let Some(sent) = state.sent.take() {
            return Some(Task::TakeAnswer(Box::new(sent)));
        }
        self.connection = state.parked.take();
        (idle == Idle::Stirred).then_some(Task::Lose)
    }

    fn take_answer(&mut self, sent: Sent) {
        let Sent { job, mut connection, at } = sent;
        let answer = connection.outgoing.answer(job.timeout.saturating_sub(at.elapsed()));
        let kind = job.request.kind();
        self.connection = Some(connection);
        let outcome = match answer {
            Ok(reply) => {
                let round_trip = at.elapsed();
                decode_response(kind, &reply).map(|response| (response, round_trip)).map_err(Failure::Answer)
            }
            Err(CallError::Closed) => {
                self.lose();
                return self.carry(&job);
            }
            Err(error) => {
                self.disconnect();
                Err(Failure::Call(error))
            }
        };
        self.report_outcome(&job, outcome);
    }

    /// One exchange, from a request to its [`Input`].
    fn carry(&mut self, job: &Job) {
        if self.connection.as_ref().is_some_and(|connection| connection.host != job.host) {
            // The member has moved.
            self.disconnect();
            self.losses = 0;
        }
        self.lost = None;
        let outcome = self.exchange(job, job.request.kind());
        self.report_outcome(job, outcome);
    }

    fn report_outcome(&mut self, job: &Job, outcome: Result<(Response, Duration), Failure>) {
        let kind = job.request.kind();
        match outcome {
            Ok((response, round_trip)) => {
                self.losses = 0;
                if self.failure.take().is_some() {
                    info!(target: "REPL", member = self.to.0, host = job.host, ?kind, "A member answers again");
                }
                self.report(Input::Response { from: self.to, response, round_trip });
            }
            Err(failure) => {
                self.log_failure(&failure, &job.host, kind);
                let gone = matches!(failure, Failure::Call(CallError::Refused));
                self.report(Input::Unreachable { to: self.to, gone, request: kind });
            }
        }
    }

    fn exchange(&mut self, job: &Job, kind: RequestKind) -> Result<(Response, Duration), Failure> {
        let command = encode_request(&job.request);
        let begun = Instant::now();
        for _ in 0..ATTEMPTS_MAX {
            let left = job.timeout.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Err(Failure::Call(CallError::TimedOut));
            }
            match self.call(&command, &job.host, left) {
                Ok((response, round_trip)) => {
                    let response = decode_response(kind, &response).map_err(Failure::Answer)?;
                    return Ok((response, round_trip));
                }
                // Perhaps it was an old connection to a process that has been started anew; the next one tells.
                Err(CallError::Closed) => self.lose(),
                Err(error) => {
                    self.disconnect();
                    self.lost = None;
                    return Err(Failure::Call(error));
                }
            }
        }
        Err(Failure::Call(CallError::Closed))
    }

    /// Sends the command, over a new connection if there is none, and waits for the reply.
    fn call(
        &mut self,
        command: &RawDocument,
        host: &str,
        timeout: Duration,
    ) -> Result<(bson::RawDocumentBuf, Duration), CallError> {
        let begun = Instant::now();
        if self.connection.is_none() {
            self.connect(host, timeout)?;
        }
        let Some(connection) = &mut self.connection else { return Err(CallError::Closed) };
        let sent_at = Instant::now();
        let reply = connection.outgoing.call(command, timeout.saturating_sub(sent_at - begun))?;
        Ok((reply, sent_at.elapsed()))
    }

    fn connect(&mut self, host: &str, timeout: Duration) -> Result<(), CallError> {
        if !self.set_away(true) {
            return Err(CallError::Closed);
        }
        let connected = Outgoing::connect(host, timeout);
        if !self.set_away(false) {
            return Err(CallError::Closed);
        }
        let outgoing = connected?;
        let mut state = self.shared.state.lock();
        if state.ending {
            return Err(CallError::Closed);
        }
        state.closer = Some(outgoing.closer());
        drop(state);
        self.connection = Some(Connection { outgoing, host: host.to_owned() });
        self.lost = None;
        Ok(())
    }

    /// Says whether the thread is where nobody can reach it. Returns whether it is to go on.
    fn set_away(&self, away: bool) -> bool {
        let mut state = self.shared.state.lock();
        if state.ending {
            // If it was away it stays so for those who wait: all that it does from here is end.
            return false;
        }
        state.away = away;
        true
    }

    fn disconnect(&mut self) {
        self.connection = None;
        self.shared.state.lock().closer = None;
    }

    /// The other side closed the connection: the lane that watches makes it again, the first time at once.
    fn lose(&mut self) {
        let host = self.connection.take().map(|connection| connection.host);
        self.disconnect();
        if let (Some(host), Purpose::Heartbeats) = (host, self.purpose) {
            let pause = match self.losses {
                0 => Duration::ZERO,
                losses => PAUSE_MAX.min(PAUSE_MIN.saturating_mul(1 << (losses - 1).min(16))),
            };
            self.losses = self.losses.saturating_add(1);
            self.lost = Some(Lost { host, again_at: Instant::now() + pause });
        }
    }

    fn reconnect(&mut self) {
        let Some(Lost { host, .. }) = self.lost.take() else { return };
        match self.connect(&host, RECONNECT_TIMEOUT) {
            Ok(()) => {}
            Err(CallError::Refused) => {
                let kind = RequestKind::Heartbeat;
                self.log_failure(&Failure::Call(CallError::Refused), &host, kind);
                self.report(Input::Unreachable { to: self.to, gone: true, request: kind });
            }
            // Not certain: the next heartbeat finds out.
            Err(error) => debug!(target: "REPL", member = self.to.0, host, %error, "Not connected again"),
        }
    }

    fn report(&self, input: Input) {
        // After this the lane's end waits for this call to return.
        if !self.shared.state.lock().ending {
            (self.on_input)(input);
        }
    }

    fn log_failure(&mut self, failure: &Failure, host: &str, kind: RequestKind) {
        if self.shared.state.lock().ending {
            return;
        }
        let text = failure.to_string();
        if self.failure.as_ref() != Some(&text) {
            info!(target: "REPL", member = self.to.0, host, ?kind, error = text, "A member does not answer");
            self.failure = Some(text);
        }
    }
}

impl Drop for Carrier {
    /// Also if `on_input` panicked.
    fn drop(&mut self) {
        self.shared.state.lock().ended = true;
        self.shared.ended.notify_all();
    }
}
