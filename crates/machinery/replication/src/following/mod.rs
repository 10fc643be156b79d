//! Runs the step machine of `baton-following` in a member: it follows its sync source's oplog, and goes back or copies where it must.
//!
//! ```text
//!  driver ──source, delay, rest──▶ ┌───────────┐ ──connect, open, read, page──▶ the source
//!                                  │  machine  │ ──apply, sync, take away─────▶ storage
//!  driver ◀──Tell────────────────  └───────────┘ ──copy───────────────────────▶ initial sync
//!                                    one worker, and one for each further lane of a copy ([`lanes`])
//! ```
//!
//! Whoever brings news steps the machine with it, under the lock; what comes of it is left to the worker, in its order. Connections are
//! closed at once, and so is who rests told of it: the worker may be waiting for the very connection.
//!
//! Invariants:
//! - One piece of work is under way at a time, of a copy one a lane, and is answered once.
//! - What is waited for on a connection that the machine wants closed ends; one that is opened for an older wish is closed at once.
//! - After [`Follower::rest`] returns nothing more is applied until a source is set again.
//!
//! What it deliberately does not do: decide. What is judged, applied, tried again, copied or taken back is the machine's.

mod batch;
mod lanes;
mod own_term;
mod refused;
mod stream;
mod worker;

pub(crate) use own_term::OwnTerm;
pub use refused::RefusedEntry;

use crate::figures::Figures;
use crate::initial_sync::{InitialSyncHooks, InitialSyncStatus, Session};
use crate::steps::{Gathered, Rings};
use crate::waiters::Waiters;
use baton_consensus::{Input as Told, MemberId};
use baton_following::{Effect, Following, Input, Lane};
use baton_net::Closer;
use baton_replay::{Bounds, Recorder, Recording};
use baton_storage::{Storage, Writer};
use baton_types::{Error, ErrorCode, Result, must_not_unwind};
use bson::RawDocument;
use lanes::Lanes;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use worker::Worker;

/// Connections in sight: what an initial sync has at once, and more.
const CLOSERS_MAX: usize = 64;

type ApplyCommand = Box<dyn Fn(Writer<'_>, &RawDocument) -> Result<()> + Send + Sync>;

/// What a follower works with.
pub(crate) struct FollowerParts {
    pub storage: Arc<Storage>,
    pub apply_command: ApplyCommand,
    /// This member's term, and whether it leads.
    pub own_term: Arc<OwnTerm>,
    /// How far an initial sync is, for who asks.
    pub initial_sync: Arc<Mutex<Option<InitialSyncStatus>>>,
    pub initial_sync_hooks: InitialSyncHooks,
    /// An entry that cannot be applied, for who asks.
    pub refused: Arc<Mutex<Option<RefusedEntry>>>,
    /// Whether the set can spare this member's copy for as long as it takes to make another.
    pub can_spare_copy: Box<dyn Fn() -> bool + Send + Sync>,
    /// The member's own, for what must not fill the memory.
    pub data_directory: PathBuf,
    /// Where what is rolled back is kept.
    pub rollback_directory: PathBuf,
    pub figures: Arc<Figures>,
    /// Those who wait for entries that may be rolled back.
    pub waiters: Arc<Waiters>,
    /// Where the machine is.
    pub ring: Ring,
    /// Told of a broken invariant.
    pub rings: Arc<Rings>,
    /// Brings the machine's news to consensus.
    pub tell: Arc<dyn Fn(Told) + Send + Sync>,
}

/// How often the machine has wanted connections closed: what was asked for before the last time is of no use any more.
type Closings = u64;

struct State {
    machine: Following,
    recorder: Recorder<Following>,
    /// Asked for and not begun, each with the closings until then.
    effects: VecDeque<(Effect, Closings)>,
    /// Where the source listens that is set.
    host: Option<String>,
    closings: Closings,
    /// The connections that are in use, or were since the last closing, and the copy's lanes that use them.
    closers: Vec<(Option<Lane>, Closer)>,
    /// The copy that is being made.
    session: Option<Arc<Session>>,
    /// What its lanes are to do, but for the main one, which is the worker.
    lanes: Lanes,
    rested: bool,
    stopping: bool,
}

impl State {
    fn new() -> Self {
        let machine = Following::default();
        Self {
            recorder: Recorder::new(&machine, Duration::ZERO, Bounds::default()),
            machine,
            effects: VecDeque::new(),
            host: None,
            closings: 0,
            closers: Vec::new(),
            session: None,
            lanes: Lanes::default(),
            rested: false,
            stopping: false,
        }
    }

    fn recording(&mut self) -> Recording<Following> {
        self.recorder.recording(&self.machine)
    }
}

/// The machine, for who wants to know what it was told and asked for.
#[derive(Clone)]
pub(crate) struct Ring(Arc<Mutex<State>>);

impl Ring {
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(State::new())))
    }

    /// None if it is in use for so long.
    pub fn recording(&self, patience: Duration) -> Option<Recording<Following>> {
        Some(self.0.try_lock_for(patience)?.recording())
    }
}

struct Shared {
    parts: FollowerParts,
    begun: Instant,
    state: Arc<Mutex<State>>,
    changed: Condvar,
}

/// What there is for whoever looks for something to do.
enum Next<T> {
    Do(T),
    Wait,
    /// There will be nothing.
    Leave,
}

/// What the worker does.
enum Job {
    CarryOut(Effect, Closings),
    /// A lane of the copy has nobody.
    Man(Lane),
}

/// See the file's header. Dropped, it stops.
pub(crate) struct Follower {
    shared: Arc<Shared>,
    worker: Option<JoinHandle<()>>,
}

impl Follower {
    pub fn start(parts: FollowerParts) -> Result<Self> {
        let (begun, state) = (Instant::now(), Arc::clone(&parts.ring.0));
        let shared = Arc::new(Shared { parts, begun, state, changed: Condvar::new() });
        let worker = {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name("follower".into()).spawn(move || run(&shared))
        };
        let worker = worker
            .map_err(|error| Error::new(ErrorCode::InternalError, format!("no thread for the follower: {error}")))?;
        Ok(Self { shared, worker: Some(worker) })
    }

    /// Follows this member from now on.
    pub fn set_source(&self, source: Option<(MemberId, String)>) {
        let mut state = self.shared.state.lock();
        let (id, host) = source.unzip();
        state.host = host;
        self.shared.step(&mut state, Input::Source(id));
    }

    /// Stays that far behind from now on.
    pub fn set_delay(&self, delay: Duration) {
        self.shared.step(&mut self.shared.state.lock(), Input::Delay(delay));
    }

    /// Applies nothing, or goes on; what was fetched meanwhile is fetched anew.
    pub fn hold(&self, on: bool) {
        self.shared.step(&mut self.shared.state.lock(), Input::Hold(on));
    }

    /// Follows nobody, and waits until what is in hand is done.
    pub fn rest(&self) {
        let mut state = self.shared.state.lock();
        state.host = None;
        state.rested = false;
        self.shared.step(&mut state, Input::Rest);
        while !state.rested {
            self.shared.changed.wait(&mut state);
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.shared.state.lock().stopping = true;
        self.set_source(None);
        if let Some(worker) = self.worker.take()
            && worker.join().is_err()
        {
            tracing::error!(target: "REPL", "The follower's thread panicked");
        }
    }
}

impl Shared {
    /// Has the machine take what has happened, and does at once what must not wait for the worker.
    fn step(&self, state: &mut State, input: Input) {
        let now = self.begun.elapsed();
        let stepped = catch_unwind(AssertUnwindSafe(|| state.recorder.step(&mut state.machine, now, input)));
        let effects = stepped.unwrap_or_else(|panic| {
            // Under the lock: nobody goes on from half a step.
            self.parts.rings.last_words(Gathered { following: Some(state.recording()), ..Gathered::default() });
            resume_unwind(panic)
        });
        for effect in effects {
            match effect {
                Effect::Close => {
                    state.closings += 1;
                    state.closers.drain(..).for_each(|(_, closer)| closer.close());
                }
                Effect::HangUp { lane } => {
                    let hung_up = state.closers.extract_if(.., |(of, _)| *of == Some(lane));
                    hung_up.for_each(|(_, closer)| closer.close());
                }
                Effect::Rested => state.rested = true,
                Effect::Copy { lane: lane @ (Lane::Log | Lane::Copier(_)), task } => {
                    state.lanes.give(lane, task, state.closings);
                }
                Effect::Progress(progress) if !lanes::is_for_worker(&progress) => {
                    if let Some(session) = &state.session {
                        session.progressed(*progress);
                    }
                }
                effect => state.effects.push_back((effect, state.closings)),
            }
        }
        if !state.machine.is_copying() {
            state.lanes.dismiss();
        }
        self.changed.notify_all();
    }

    /// What is to be done next of what `pop` finds; `None` when it is time to stop.
    fn next<T>(&self, mut pop: impl FnMut(&mut State) -> Next<T>) -> Option<T> {
        let mut state = self.state.lock();
        loop {
            if state.stopping {
                return None;
            }
            match pop(&mut state) {
                Next::Do(what) => return Some(what),
                Next::Leave => return None,
                Next::Wait => {}
            }
            // A deadline that time does not reach is none.
            match state.machine.next_deadline().and_then(|deadline| self.begun.checked_add(deadline)) {
                Some(deadline) if deadline <= Instant::now() => {
                    self.step(&mut state, Input::Tick { wall: own_term::wall() });
                }
                Some(deadline) => {
                    self.changed.wait_until(&mut state, deadline);
                }
                None => self.changed.wait(&mut state),
            }
        }
    }

    /// Whether what was asked for then is of no use any more.
    fn is_closed(&self, closings: Closings) -> bool {
        let state = self.state.lock();
        state.closings != closings || state.stopping
    }

    /// Keeps a connection in sight, or closes it.
    fn opened(&self, closings: Closings, lane: Option<Lane>, closer: Closer) {
        let mut state = self.state.lock();
        if state.closings != closings {
            closer.close();
            return;
        }
        if state.closers.len() == CLOSERS_MAX {
            state.closers.remove(0);
        }
        state.closers.push((lane, closer));
    }
}

fn run(shared: &Arc<Shared>) {
    // A half applied batch, a half done rollback: nobody goes on from there.
    let _guard = must_not_unwind("the follower, which applies and rolls back");
    let next = |state: &mut State| match (state.lanes.pop_unmanned(), state.effects.pop_front()) {
        (Some(lane), effect) => {
            effect.into_iter().for_each(|effect| state.effects.push_front(effect));
            Next::Do(Job::Man(lane))
        }
        (None, Some((effect, closings))) => Next::Do(Job::CarryOut(effect, closings)),
        (None, None) => Next::Wait,
    };
    let work = || {
        let mut worker = Worker::new(shared);
        while let Some(job) = shared.next(next) {
            baton_machine::as_class(shared.parts.storage.queue().urgency().class());
            let answer = match job {
                Job::CarryOut(effect, closings) => worker.carry_out(effect, closings),
                Job::Man(lane) => worker.man(lane),
            };
            if let Some(answer) = answer {
                shared.step(&mut shared.state.lock(), answer);
            }
        }
        worker.dismiss();
    };
    shared.parts.rings.or_last_words(work);
}
