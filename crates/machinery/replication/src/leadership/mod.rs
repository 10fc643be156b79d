//! Carries out what `baton_leadership` decides: when leadership moves before heavy work, and to whom.
//!
//! ```text
//!  storage's tasks ──ask──▶ gate ─┐                          ┌─▶ order: step down with handoff ─▶ driver
//!  heartbeats ──────heard─────────┼─▶ Steward ── effects ──┼─▶ announce: gossip at once ──────▶ driver
//!  driver ─role, set, followers───┤   (one lock, one brain)  └─▶ logs, counts
//!  figures ──once a second────────┘
//! ```
//!
//! Whoever has news steps the brain under its lock, and goes on. What the brain asks for waits for the thread "leadership": storage's
//! own threads ask the gate, and must not be made to step consensus. That thread also measures, and keeps the brain's time.
//!
//! Invariants:
//! - Nobody who asks the gate waits for anything but the lock, which is held for a step and never while anything is carried out.
//! - What the driver has done of an order (`moves`) is told to the brain once, however it ended.
//! - Whatever changes the brain is recorded (`baton_replay`).
//! - What another member says of its tasks is believed only if its heartbeat was, and if it is understood whole (`messages::leadership`).
//!
//! What it deliberately does not do: decide. When, who and how often are the brain's, elections consensus's.

mod figures;
mod gate;
mod moves;
mod report;
mod set;

use crate::driver::Letter;
use crate::messages::leadership as words;
use crate::steps::{Gathered, Rings};
use baton_consensus::{self as consensus, Input as ToConsensus, Occupation};
use baton_leadership::{Call, CallOutcome, Decision, Effect, Gossip, Input, Leadership, MemberId, Moment, Rule, Start};
use baton_replay::{Bounds, Recorder, Recording};
use baton_types::{Pace, must_not_unwind};
use bson::{RawDocument, RawDocumentBuf};
pub(crate) use figures::Meter;
pub(crate) use moves::{Hands, Moves};
use parking_lot::{Condvar, Mutex};
pub use report::{LeadershipCounts, LeadershipStatus};
pub(crate) use set::{followers_of, role_of, set_of};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// How often the member measures itself.
const MEASURE_INTERVAL: Duration = Duration::from_secs(1);
/// The thread looks no more often than this, whatever the brain says is due.
const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(1);

/// A task that the gate was asked about.
struct Known {
    name: String,
    has_begun: bool,
}

struct State {
    brain: Leadership,
    recorder: Recorder<Leadership>,
    /// What the brain has asked for, and the thread has not carried out yet.
    effects: VecDeque<Effect>,
    known: BTreeMap<u64, Known>,
    counts: LeadershipCounts,
    is_closed: bool,
    /// When the thread looks by itself.
    looks_at: Moment,
}

/// See the file's header.
pub(crate) struct Steward {
    begun: Instant,
    /// Told of a broken invariant.
    rings: OnceLock<Arc<Rings>>,
    state: Mutex<State>,
    bell: Condvar,
}

impl Steward {
    /// Of this process of the member: see [`Start::incarnation`].
    pub fn new(incarnation: u64) -> Arc<Self> {
        let start = Start { incarnation, seed: rand::random() };
        let brain = Leadership::new(start);
        let state = State {
            recorder: Recorder::new(&brain, Moment::ZERO, Bounds::default()),
            brain,
            effects: VecDeque::new(),
            known: BTreeMap::new(),
            counts: LeadershipCounts::default(),
            is_closed: false,
            looks_at: Moment::MAX,
        };
        Arc::new(Self { begun: Instant::now(), rings: OnceLock::new(), state: Mutex::new(state), bell: Condvar::new() })
    }

    /// Where a broken invariant is told of.
    pub fn bind(&self, rings: &Arc<Rings>) {
        // There is one of each in a member.
        let _ = self.rings.set(Arc::clone(rings));
    }

    /// What the brain was told and asked for; none if it is in use for so long.
    pub fn recording(&self, patience: Duration) -> Option<Recording<Leadership>> {
        Some(self.state.try_lock_for(patience)?.recording())
    }

    /// Steps the brain with news.
    pub fn tell(&self, input: Input) {
        self.with(|state, now| state.step(now, input));
    }

    /// What this member says of its tasks, for one message.
    pub fn gossip(&self) -> RawDocumentBuf {
        let gossip = self.with(State::gossip);
        words::encode(&gossip)
    }

    /// Takes what another member says of its own, if it is understood.
    pub fn hear(&self, from: MemberId, said: &RawDocument) {
        match words::decode(said) {
            Ok(gossip) => self.with(|state, now| {
                state.step(now, Input::Gossip { from, gossip: Box::new(gossip), heard_at: now });
            }),
            Err(error) => {
                tracing::warn!(target: "REPL", from, error = %error, "What a member says of its tasks is not understood")
            }
        }
    }

    /// What this member's heavy work keeps it from.
    fn occupation(&self) -> Occupation {
        self.look(|brain, _| Occupation {
            stands_last: brain.standing_obstacle(Duration::ZERO).is_some(),
            leaves_primary_alone: brain.takeover_obstacle().is_some(),
        })
    }

    /// The other members that say that they run heavy tasks.
    fn busy_others(&self) -> BTreeSet<consensus::MemberId> {
        self.look(|brain, _| {
            let busy = brain.heard().filter(|(_, gossip, _)| gossip.running().is_some());
            busy.map(|(id, _, _)| consensus::MemberId(id)).collect()
        })
    }

    /// Who would get leadership if somebody asked now, and how each member stands.
    pub fn explain(&self) -> Option<Decision> {
        self.with(State::explain)
    }

    /// Looks at the brain, and changes nothing.
    pub fn look<T>(&self, look: impl FnOnce(&Leadership, Moment) -> T) -> T {
        let state = self.state.lock();
        look(&state.brain, self.begun.elapsed())
    }

    /// Whatever is done to the brain is done here: the thread hears if there is something for it.
    fn with<T>(&self, act: impl FnOnce(&mut State, Moment) -> T) -> T {
        // What the brain holds is one state machine, whose half a step is nobody's to go on from.
        let _guard = must_not_unwind("a step of leadership");
        let mut state = self.state.lock();
        let now = self.begun.elapsed();
        let result = catch_unwind(AssertUnwindSafe(|| act(&mut state, now))).unwrap_or_else(|panic| {
            if let Some(rings) = self.rings.get() {
                rings.last_words(Gathered { leadership: Some(state.recording()), ..Gathered::default() });
            }
            resume_unwind(panic)
        });
        let is_due_sooner = state.brain.next_deadline().is_some_and(|at| at < state.looks_at);
        if !state.effects.is_empty() || is_due_sooner {
            self.bell.notify_one();
        }
        result
    }

    /// Starts the thread that carries out, measures and keeps time.
    pub fn start(self: &Arc<Self>, meter: Meter, hands: Hands) -> std::io::Result<JoinHandle<()>> {
        let steward = Arc::clone(self);
        std::thread::Builder::new().name("leadership".into()).spawn(move || {
            let _guard = must_not_unwind("leadership");
            steward.run(&meter, &hands);
        })
    }

    fn run(&self, meter: &Meter, hands: &Hands) {
        let mut measure_at = Moment::ZERO;
        let mut occupation = Occupation::default();
        let mut busy = BTreeSet::new();
        loop {
            if measure_at <= self.begun.elapsed() {
                measure_at = self.begun.elapsed() + MEASURE_INTERVAL;
                self.tell(Input::Figures(Box::new(meter.measure())));
                // A clock from before 1970 knows no windows.
                if let Ok(wall) = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
                    self.tell(Input::WallClock(wall));
                }
            }
            let effects = self.with(|state, now| {
                if state.brain.next_deadline().is_some_and(|at| at <= now) {
                    state.step(now, Input::Tick);
                }
                std::mem::take(&mut state.effects)
            });
            effects.into_iter().for_each(|effect| self.carry_out(effect, hands));
            let occupied = self.occupation();
            if occupied != occupation {
                occupation = occupied;
                hands.post(Letter::Input(ToConsensus::Occupied(occupied)));
            }
            let busy_now = self.busy_others();
            if busy_now != busy {
                busy.clone_from(&busy_now);
                hands.post(Letter::Input(ToConsensus::Busy(busy_now)));
            }
            if !self.rest(measure_at) {
                return;
            }
        }
    }

    /// Waits until something is due, or there is something to carry out; `false` if the member stops.
    fn rest(&self, measure_at: Moment) -> bool {
        let mut state = self.state.lock();
        let soonest = self.begun.elapsed() + LOOK_INTERVAL_MIN;
        while !state.is_closed && state.effects.is_empty() {
            let due = state.brain.next_deadline().map_or(measure_at, |at| at.max(soonest).min(measure_at));
            if due <= self.begun.elapsed() {
                break;
            }
            state.looks_at = due;
            self.bell.wait_until(&mut state, self.begun + due);
        }
        state.looks_at = Moment::ZERO;
        !state.is_closed
    }

    /// Ends the thread.
    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.bell.notify_one();
    }

    fn carry_out(&self, effect: Effect, hands: &Hands) {
        match effect {
            // Small work comes every second, and no rule kept it waiting.
            Effect::Admit { task, why: why @ Rule::Light, .. } => {
                let name = self.name_of(task);
                tracing::debug!(target: "REPL", id = 9_100_001, task, name, rule = why.name(), "A task may begin: {why}");
            }
            Effect::Admit { task, pace, why } => {
                let name = self.name_of(task);
                tracing::info!(target: "REPL", id = 9_100_001, task, name, rule = why.name(), isAtHalfPace = pace == Pace::Half, "A task may begin: {why}");
            }
            Effect::Defer { task, why, until } => {
                let (name, waits) = (self.name_of(task), until.saturating_sub(self.begun.elapsed()));
                tracing::info!(target: "REPL", id = 9_100_002, task, name, rule = why.name(), waitsSecsMax = waits.as_secs(), "A task waits: {why}");
            }
            Effect::HandOver { to, decision } | Effect::Resume { to, decision } => {
                let here = self.with(State::gossip).figures;
                moves::order(to, &decision, &here, hands);
            }
            Effect::Claim { number } => {
                tracing::info!(target: "REPL", id = 9_100_003, number, "This member asks whether it may be busy");
            }
            Effect::End { task, why } => {
                let name = self.name_of(task);
                tracing::warn!(target: "REPL", id = 9_100_009, task, name, rule = why.name(), "A task is to end: {why}");
                hands.end(task, why);
            }
            Effect::Release { number } => {
                tracing::info!(target: "REPL", id = 9_100_004, number, "This member needs to be busy no more");
            }
            Effect::Transition(transition) => {
                tracing::info!(target: "REPL", id = 9_100_005, transition = ?transition, "Leadership and tasks: the state has changed");
            }
            Effect::Gossip => hands.post(Letter::Input(ToConsensus::Announce)),
        }
    }

    fn name_of(&self, task: u64) -> String {
        self.state.lock().known.get(&task).map(|known| known.name.clone()).unwrap_or_default()
    }
}

impl State {
    fn recording(&mut self) -> Recording<Leadership> {
        self.recorder.recording(&self.brain)
    }

    /// What this member says of its tasks now.
    fn gossip(&mut self, now: Moment) -> Gossip {
        let said = |gossip: &Gossip| vec![CallOutcome::Said(Box::new(gossip.clone()))];
        self.recorder.observe(&mut self.brain, now, Call::Gossip, |brain| brain.gossip(now), said)
    }

    /// Where leadership would move now.
    fn explain(&mut self, now: Moment) -> Option<Decision> {
        let told = |decision: &Option<Decision>| vec![CallOutcome::Explained(decision.clone().map(Box::new))];
        self.recorder.observe(&mut self.brain, now, Call::Explain, |brain| brain.explain(now), told)
    }

    fn step(&mut self, now: Moment, input: Input) {
        if let Input::Handoff(outcome) = &input {
            self.counts.end(outcome);
        }
        let as_outcomes = |effects: &Vec<Effect>| effects.iter().cloned().map(CallOutcome::Effect).collect();
        let call = Call::Take(input.clone());
        let effects = self.recorder.observe(&mut self.brain, now, call, |brain| brain.step(now, input), as_outcomes);
        for effect in &effects {
            match effect {
                Effect::Admit { why, .. } => self.counts.admit(*why),
                Effect::Defer { why, .. } => self.counts.defer(*why),
                Effect::HandOver { decision, .. } | Effect::Resume { decision, .. } => self.counts.order(decision),
                Effect::End { .. }
                | Effect::Claim { .. }
                | Effect::Release { .. }
                | Effect::Transition(_)
                | Effect::Gossip => {}
            }
        }
        self.effects.extend(effects);
    }
}
