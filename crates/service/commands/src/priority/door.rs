//! The door: who asks, and what `baton_admission` says of him, carried out with threads that wait.
//!
//! Check-in is [`Door::enter`], check-out is the end of a [`Pass`]. In between a pass can be put aside while its request does not
//! compute ([`Pass::pause`]).
//!
//! As long as all are normal and none is in a hurry there is nothing to tell apart: then nobody is counted, and a request costs one look at
//! a flag. The first that differs *engages* the door, which is so until none has differed for a while. Who was let in uncounted before is
//! soon gone. Nor is anybody counted of whom it is known that he computes but briefly, where his thread's niceness orders him already
//! ([`Settings::lets_pass`]): he leaves what he took for the next of his kind.
//!
//! Invariants: who was let in counted is counted off, once, whatever becomes of him; who waits is told once, or gives up by himself;
//! nobody is told while the door is locked; whoever waits looks ten times a second whether he still is to.
//! What it deliberately does not do: decide.

use super::figures::{Figures, Histogram, Services};
use arc_swap::ArcSwap;
use baton_admission::{
    Admission, Arrival, Computed, Counts, Effect, Estimates, Input, Moment, Refusal, Settings, Ticket,
};
use baton_machine::{Idleness, LendingGuard, LendingMutex, Right, ThreadTime, about_to_wait};
use baton_types::{Class, Error, ErrorCode, Result};
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How often one who waits looks whether he still is to.
const SLICE: Duration = Duration::from_millis(100);
/// How often it is looked how much of the processors is idle, while the door is engaged.
const MEASURED_EVERY: Duration = Duration::from_millis(100);
/// After so long without one that differs nobody is counted any more.
const ENGAGED_FOR: Duration = Duration::from_secs(1);

/// One who is at the door.
pub(crate) struct Visitor<'v> {
    pub class: Class,
    /// `maxTimeMS`, from the request's arrival on.
    pub deadline: Option<Instant>,
    /// Equal for requests that take about the same time; asked only of one who is looked at more closely.
    pub kind: &'v dyn Fn() -> u64,
    /// Whether he is still to wait.
    pub check: &'v dyn Fn() -> Result<()>,
    /// Told before he waits.
    pub waits: &'v dyn Fn(),
}

/// What one who waits is told.
#[derive(Clone, Copy, Debug)]
enum Told {
    Begin,
    Refused(Refusal),
}

/// Where one who waits hears.
#[derive(Default)]
struct Waiter {
    told: Mutex<Option<Told>>,
    heard: Condvar,
}

struct State {
    admission: Admission,
    effects: Vec<Effect>,
    waiters: HashMap<Ticket, Arc<Waiter>>,
    next_ticket: Ticket,
    figures: Figures,
    /// Until when who looks after the door rests.
    tended_at: Option<Moment>,
    stopping: bool,
}

/// Whether something has happened lately, for those who look at every request.
#[derive(Default)]
struct Lately {
    has: AtomicBool,
    /// When it last did, in milliseconds since the door is there.
    last_ms: AtomicU64,
}

impl Lately {
    fn has(&self) -> bool {
        self.has.load(Relaxed)
    }

    /// It happens; whether it had not lately.
    fn note(&self, now: Moment) -> bool {
        let now_ms = now.as_millis() as u64;
        if self.last_ms.load(SeqCst) != now_ms {
            self.last_ms.store(now_ms, SeqCst);
        }
        !self.has.load(SeqCst) && !self.has.swap(true, SeqCst)
    }

    /// Forgets it, if it is so long ago.
    fn forget(&self, now: Moment, after: Duration) {
        let last_ms = self.last_ms.load(SeqCst);
        if now.saturating_sub(Duration::from_millis(last_ms)) >= after {
            self.has.store(false, SeqCst);
            // Whoever came meanwhile may have found it so still.
            if self.last_ms.load(SeqCst) != last_ms {
                self.has.store(true, SeqCst);
            }
        }
    }
}

/// See the file's header.
pub(crate) struct Door {
    began: Instant,
    /// Whether anybody may be made to wait, by the mode.
    is_there: AtomicBool,
    /// Whether one has come that differs.
    differed: Lately,
    /// The same of one of another class than normal.
    of_another_class: Lately,
    settings: ArcSwap<Settings>,
    is_nice: bool,
    estimates: Estimates,
    services: Services,
    state: LendingMutex<State>,
    tend: Condvar,
}

impl Door {
    pub fn new(settings: Settings) -> Arc<Self> {
        let processors = Idleness::default().processors();
        Arc::new(Self {
            began: Instant::now(),
            is_there: AtomicBool::new(settings.mode.has_door()),
            differed: Lately::default(),
            of_another_class: Lately::default(),
            settings: ArcSwap::from_pointee(settings.clone()),
            is_nice: baton_machine::right() == Right::All,
            estimates: Estimates::default(),
            services: Services::default(),
            state: LendingMutex::new(State {
                admission: Admission::new(settings, processors),
                effects: Vec::new(),
                waiters: HashMap::new(),
                next_ticket: 0,
                figures: Figures::default(),
                tended_at: None,
                stopping: false,
            }),
            tend: Condvar::new(),
        })
    }

    fn now(&self) -> Moment {
        self.began.elapsed()
    }

    /// There are other settings.
    pub fn configure(&self, settings: &Settings) {
        self.is_there.store(settings.mode.has_door(), Relaxed);
        self.settings.store(Arc::new(settings.clone()));
        self.step(self.state.lock(), Input::Configured(settings.clone()));
    }

    /// Check-in: returns when the request may begin; with nothing, if nobody is counted.
    ///
    /// # Errors
    /// `MaxTimeMSExpired` (50) if it could not be over by its deadline, `IngressRequestRateLimitExceeded` (462) if too many wait, and what
    /// the visitor's own check says.
    pub fn enter(self: &Arc<Self>, visitor: &Visitor<'_>) -> Result<Option<Pass>> {
        if !self.is_there.load(Relaxed) {
            if visitor.class != Class::Normal && self.settings.load().mode.is_nice() {
                // Nobody waits here, but the kernel is to tell them apart.
                self.engage(visitor.class);
            }
            return Ok(None);
        }
        let deadline = visitor.deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let deadline = deadline.filter(|left| Settings::is_hurry(*left));
        if Settings::differs(visitor.class, deadline) {
            self.engage(visitor.class);
        } else if !self.is_engaged() {
            return Ok(None);
        }
        let kind = (visitor.kind)();
        let estimate = self.estimates.of(kind);
        let is_long = estimate.is_long();
        if self.settings.load().lets_pass(&estimate, self.is_nice, deadline.is_some()) {
            return Ok(Some(Pass::new(self, visitor.class, kind, is_long, false)));
        }
        let mut state = self.state.lock();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        let waiter = Arc::new(Waiter::default());
        state.waiters.insert(ticket, Arc::clone(&waiter));
        let arrival =
            Arrival { ticket, class: visitor.class, deadline: deadline.map(|left| self.now() + left), estimate };
        self.step(state, Input::Arrives(arrival));
        let told_at_once = waiter.told.lock().take();
        let told = match told_at_once {
            Some(told) => told,
            None => self.wait(ticket, &waiter, visitor)?,
        };
        match told {
            Told::Begin => Ok(Some(Pass::new(self, visitor.class, kind, is_long, true))),
            Told::Refused(why) => Err(refusal(why)),
        }
    }

    /// Whether one has come lately that differs.
    pub fn is_engaged(&self) -> bool {
        self.differed.has()
    }

    /// Whether one of another class than normal has come lately, or somebody has waited since then.
    pub fn has_classes(&self) -> bool {
        self.of_another_class.has()
    }

    /// One of this class has come that differs, whether he is counted or not: from now on all others are looked at.
    fn engage(&self, class: Class) {
        let now = self.now();
        if class != Class::Normal {
            self.of_another_class.note(now);
        }
        if self.differed.note(now) {
            // Locked, so that who looks after the door does not go to rest just now.
            let _state = self.state.lock();
            self.tend.notify_one();
        }
    }

    /// Waits until the visitor is told, or is not to wait any more.
    fn wait(&self, ticket: Ticket, waiter: &Waiter, visitor: &Visitor<'_>) -> Result<Told> {
        (visitor.waits)();
        let _waiting = about_to_wait();
        let began = Instant::now();
        loop {
            let slice = Instant::now() + SLICE;
            let slice = visitor.deadline.map_or(slice, |deadline| slice.min(deadline));
            let mut told = waiter.told.lock();
            if told.is_none() {
                waiter.heard.wait_until(&mut told, slice);
            }
            if let Some(told) = told.take() {
                return Ok(told);
            }
            drop(told);
            let Err(error) = (visitor.check)() else { continue };
            let mut state = self.state.lock();
            let told_meanwhile = waiter.told.lock().take();
            let input = match told_meanwhile {
                // He was let in just now, and does not come.
                Some(Told::Begin) => Input::Leaves { class: visitor.class, paused: false },
                Some(Told::Refused(_)) => return Err(error),
                None => Input::GivesUp(ticket),
            };
            state.waiters.remove(&ticket);
            state.figures.gave_up(visitor.class, began.elapsed());
            self.step(state, input);
            return Err(error);
        }
    }

    /// Steps the machine, and tells whoever is concerned.
    fn step(&self, mut state: LendingGuard<'_, State>, input: Input) {
        let now = self.now();
        let mut effects = std::mem::take(&mut state.effects);
        state.admission.step(now, input, &mut effects);
        let mut told = smallvec::SmallVec::<[(Arc<Waiter>, Told); 4]>::new();
        for effect in effects.drain(..) {
            let (ticket, tell) = match effect {
                Effect::Begin { ticket, class, waited, aged } => {
                    state.figures.began(class, (waited > Duration::ZERO).then_some(waited), aged);
                    (ticket, Told::Begin)
                }
                Effect::Refuse { ticket, class, waited, why } => {
                    state.figures.refused(class, why, waited);
                    (ticket, Told::Refused(why))
                }
            };
            if let Some(waiter) = state.waiters.remove(&ticket) {
                // Before the door is open again: who gives up looks there while it is locked.
                *waiter.told.lock() = Some(tell);
                told.push((waiter, tell));
            }
        }
        state.effects = effects;
        let due = state.admission.next_due();
        if due.is_some_and(|due| state.tended_at.is_none_or(|at| due < at)) {
            self.tend.notify_one();
        }
        drop(state);
        for (waiter, _) in told {
            waiter.heard.notify_one();
        }
    }

    /// Looks after those who wait, until [`Self::stop`].
    pub fn tend(&self) {
        let mut idleness = Idleness::default();
        let mut measured = Instant::now();
        loop {
            let mut state = self.state.lock();
            if state.stopping {
                return;
            }
            let is_engaged = self.is_engaged();
            let due = state.admission.next_due();
            let measures_at = is_engaged.then(|| (measured + MEASURED_EVERY).saturating_duration_since(self.began));
            let until = due.into_iter().chain(measures_at).min();
            let now = self.now();
            match until {
                Some(until) if until <= now => {}
                Some(until) => {
                    state.tended_at = Some(until);
                    state.wait_until(&self.tend, self.began + until);
                    continue;
                }
                None => {
                    state.tended_at = None;
                    state.wait(&self.tend);
                    // What nobody measured is not known.
                    measured = Instant::now();
                    let _ = idleness.since_last();
                    continue;
                }
            }
            if is_engaged && measured.elapsed() >= MEASURED_EVERY {
                measured = Instant::now();
                if state.waiters.is_empty() {
                    self.of_another_class.forget(now, ENGAGED_FOR);
                    self.differed.forget(now, ENGAGED_FOR);
                }
                let idle = idleness.since_last().unwrap_or(0.0);
                self.step(state, Input::Measured { idle });
            } else {
                self.step(state, Input::Wakes);
            }
        }
    }

    /// [`Self::tend`] returns.
    pub fn stop(&self) {
        self.state.lock().stopping = true;
        self.tend.notify_all();
    }

    /// How long requests of each class took so far, the most urgent class first.
    pub fn times(&self) -> [(Class, Histogram); 3] {
        self.services.so_far()
    }

    /// For whom one of this class would wait just now, by their classes.
    pub fn before(&self, class: Class) -> [usize; 3] {
        self.state.lock().admission.before(class)
    }

    /// What is counted, and who is there.
    pub fn look(&self) -> (Counts, Figures) {
        let (counts, mut figures) = {
            let state = self.state.lock();
            (state.admission.counts(), state.figures.clone())
        };
        figures.set_services(&self.services);
        (counts, figures)
    }
}

fn refusal(why: Refusal) -> Error {
    match why {
        Refusal::Deadline => Error::new(
            ErrorCode::MaxTimeMSExpired,
            "operation exceeded time limit: it could not have been over in time, and was not begun",
        ),
        Refusal::Overload => Error::new(
            ErrorCode::IngressRequestRateLimitExceeded,
            "this member has more requests than it can serve; try again later, or give what can wait a lower priority",
        )
        .with_label("SystemOverloadedError")
        .with_label("RetryableError"),
    }
}

/// What one has who was let in. Its end is the check-out.
pub(crate) struct Pass {
    door: Arc<Door>,
    class: Class,
    is_counted: bool,
    kind: u64,
    /// Whether it is known to compute for long.
    is_long: bool,
    began: Instant,
    /// What its thread had computed before, if its kind is in doubt.
    computing: Option<ThreadTime>,
    /// What it has computed, once it has left its thread.
    computed: OnceLock<Computed>,
    paused: AtomicBool,
}

impl Pass {
    fn new(door: &Arc<Door>, class: Class, kind: u64, is_long: bool, is_counted: bool) -> Self {
        Self {
            door: Arc::clone(door),
            class,
            is_counted,
            kind,
            is_long,
            began: Instant::now(),
            computing: door.estimates.is_in_doubt(kind).then(ThreadTime::now),
            computed: OnceLock::new(),
            paused: AtomicBool::new(false),
        }
    }

    /// Whether its request is one of those that compute for long.
    pub fn is_long(&self) -> bool {
        self.is_long
    }

    /// Its request does not compute for now.
    pub fn pause(&self) {
        if self.is_counted && !self.paused.swap(true, Relaxed) {
            self.door.step(self.door.state.lock(), Input::Pauses(self.class));
        }
    }

    /// The same, and its thread goes on to something else.
    pub fn leave_thread(&self) {
        self.computed.get_or_init(|| self.computed_until(self.began.elapsed()));
        self.pause();
    }

    /// What it has computed on this thread, `served` for so long.
    fn computed_until(&self, served: Duration) -> Computed {
        match &self.computing {
            // Of one whose thread is another now it is not known; that is long.
            Some(before) => Computed::Measured(before.elapsed().unwrap_or(served)),
            None => Computed::AtMost(served),
        }
    }

    /// It computes again.
    pub fn resume(&self) {
        if self.is_counted && self.paused.swap(false, Relaxed) {
            self.door.step(self.door.state.lock(), Input::Resumes(self.class));
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let served = self.began.elapsed();
        let computed = self.computed.get().copied().unwrap_or_else(|| self.computed_until(served));
        self.door.estimates.note(self.kind, served, computed);
        self.door.services.ended(self.class, served);
        if self.is_counted {
            let paused = *self.paused.get_mut();
            self.door.step(self.door.state.lock(), Input::Leaves { class: self.class, paused });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_admission::Mode;
    use std::sync::atomic::AtomicUsize;

    fn goes_on() -> Result<()> {
        Ok(())
    }

    fn visitor(class: Class) -> Visitor<'static> {
        Visitor { class, deadline: None, kind: &|| 1, check: &goes_on, waits: &|| {} }
    }

    fn door(mode: Mode) -> Arc<Door> {
        Door::new(Settings { mode, worst_wait: Duration::from_secs(60), ..Settings::default() })
    }

    /// Until nobody is there any more: who is told counts off before his thread ends.
    fn assert_empty(door: &Door) {
        let (counts, _) = door.look();
        assert_eq!((counts.waiting, counts.present, counts.computing), ([0; 3], [0; 3], [0; 3]));
    }

    #[test]
    fn where_nothing_is_to_be_told_apart_nobody_is_counted() {
        let door = door(Mode::Full);
        assert!(door.enter(&visitor(Class::Normal)).unwrap().is_none());
        let high = door.enter(&visitor(Class::High)).unwrap();
        assert!(high.is_some());
        assert!(door.enter(&visitor(Class::Normal)).unwrap().is_some());
        drop(high);
        assert_empty(&door);
        let off = self::door(Mode::Off);
        assert!(off.enter(&visitor(Class::High)).unwrap().is_none());
        assert!(!off.is_engaged());
    }

    #[test]
    fn where_only_niceness_tells_them_apart_nobody_is_counted_but_one_that_differs_is_noticed() {
        let door = door(Mode::Nice);
        assert!(door.enter(&visitor(Class::Normal)).unwrap().is_none());
        assert!(!door.is_engaged());
        assert!(door.enter(&visitor(Class::High)).unwrap().is_none());
        assert!(door.is_engaged());
        assert_empty(&door);
    }

    #[test]
    fn one_in_a_hurry_has_the_others_looked_at_and_no_class_differs_by_that() {
        let door = door(Mode::Full);
        let hurries = Visitor { deadline: Some(Instant::now() + Duration::from_secs(1)), ..visitor(Class::Normal) };
        drop(door.enter(&hurries).unwrap());
        assert!(door.is_engaged() && !door.has_classes());
        drop(door.enter(&visitor(Class::Low)).unwrap());
        assert!(door.is_engaged() && door.has_classes());
        assert_empty(&door);
    }

    #[test]
    fn classes_differ_for_as_long_as_somebody_waits() {
        let door = door(Mode::Checkpoint);
        std::thread::scope(|scope| {
            scope.spawn(|| door.tend());
            let patient = Settings { mode: Mode::Checkpoint, worst_wait: 10 * ENGAGED_FOR, ..Settings::default() };
            door.configure(&patient);
            let high = door.enter(&visitor(Class::High)).unwrap();
            let low = scope.spawn(|| drop(door.enter(&visitor(Class::Low)).unwrap()));
            std::thread::sleep(2 * ENGAGED_FOR);
            let seen = (low.is_finished(), door.has_classes());
            drop(high);
            low.join().unwrap();
            while door.has_classes() {
                std::thread::sleep(MEASURED_EVERY);
            }
            door.stop();
            assert_eq!(seen, (false, true));
        });
    }

    #[test]
    fn one_that_differs_has_the_others_looked_at_though_he_passes_unseen_himself() {
        let door = door(Mode::Full);
        door.estimates.note(1, Duration::from_micros(50), Computed::Measured(Duration::from_micros(20)));
        door.estimates.note(2, Duration::from_secs(1), Computed::Measured(Duration::from_secs(1)));
        let long = Visitor { kind: &|| 2, ..visitor(Class::Normal) };
        assert!(door.enter(&long).unwrap().is_none());
        let high = door.enter(&visitor(Class::High)).unwrap().unwrap();
        assert_eq!(high.is_counted, !door.is_nice);
        assert!(door.enter(&long).unwrap().unwrap().is_counted);
        drop(high);
        assert_empty(&door);
    }

    #[test]
    fn a_low_one_waits_while_a_high_one_is_present_and_begins_when_that_leaves() {
        let door = door(Mode::Checkpoint);
        let high = door.enter(&visitor(Class::High)).unwrap();
        std::thread::scope(|scope| {
            let low = scope.spawn(|| door.enter(&visitor(Class::Low)).unwrap());
            while door.look().0.waiting != [1, 0, 0] {
                std::thread::yield_now();
            }
            assert_eq!([Class::Low, Class::High].map(|class| door.before(class)), [[0, 0, 1], [0; 3]]);
            drop(high);
            drop(low.join().unwrap().unwrap());
        });
        let (_, figures) = door.look();
        assert_eq!((figures.of(Class::Low).waited, figures.of(Class::High).waited), (1, 0));
        assert_empty(&door);
    }

    #[test]
    fn one_that_only_waits_for_others_keeps_nobody_from_beginning() {
        let door = door(Mode::Full);
        let limit = door.look().0.limit;
        let high: Vec<_> = (0..limit).map(|_| door.enter(&visitor(Class::High)).unwrap().unwrap()).collect();
        high[0].pause();
        high[0].pause();
        let low = door.enter(&visitor(Class::Low)).unwrap().unwrap();
        high[0].resume();
        assert_eq!(door.look().0.computing, [1, 0, limit]);
        assert_eq!([Class::Low, Class::Normal].map(|class| door.before(class)), [[1, 0, limit], [0, 0, limit]]);
        drop((low, high));
        assert_empty(&door);
    }

    #[test]
    fn whom_one_that_only_waits_for_others_keeps_waiting_is_said_by_the_mode_unless_the_settings_do() {
        for (mode, work_conserving, keeps) in [
            (Mode::Checkpoint, None, true),
            (Mode::Checkpoint, Some(true), false),
            (Mode::Both, Some(true), false),
            (Mode::Both, Some(false), true),
            (Mode::Full, None, false),
            (Mode::Full, Some(false), true),
        ] {
            let door = Door::new(Settings { mode, work_conserving, ..Settings::default() });
            let limit = door.look().0.limit;
            let high: Vec<_> = (0..limit).map(|_| door.enter(&visitor(Class::High)).unwrap().unwrap()).collect();
            high.iter().for_each(Pass::pause);
            let before = if keeps { [0, 0, limit] } else { [0; 3] };
            assert_eq!(door.before(Class::Low), before, "{mode:?}, {work_conserving:?}");
            drop(high);
            assert_empty(&door);
        }
    }

    #[test]
    fn who_is_killed_while_he_waits_is_gone() {
        let door = door(Mode::Checkpoint);
        let high = door.enter(&visitor(Class::High)).unwrap();
        let killed = || Err(Error::new(ErrorCode::Interrupted, "operation was interrupted"));
        let waits = AtomicUsize::new(0);
        let told = || {
            waits.fetch_add(1, Relaxed);
        };
        let low = Visitor { check: &killed, waits: &told, ..visitor(Class::Low) };
        assert_eq!(door.enter(&low).err().map(|error| error.code), Some(ErrorCode::Interrupted));
        assert_eq!((waits.load(Relaxed), door.look().1.of(Class::Low).gave_up), (1, 1));
        drop(high);
        assert_empty(&door);
    }

    #[test]
    fn who_cannot_be_in_time_is_refused_before_he_begins() {
        let door = door(Mode::Full);
        for _ in 0..20 {
            door.estimates.note(7, Duration::from_secs(2), Computed::Measured(Duration::from_secs(2)));
        }
        let late = Visitor {
            deadline: Some(Instant::now() + Duration::from_millis(500)),
            kind: &|| 7,
            ..visitor(Class::Normal)
        };
        assert_eq!(door.enter(&late).err().map(|error| error.code), Some(ErrorCode::MaxTimeMSExpired));
        assert_eq!(door.look().1.of(Class::Normal).refused_late, 1);
        assert_empty(&door);
    }

    #[test]
    fn whose_wait_is_at_its_end_begins_and_counts_in_his_own_class() {
        let door = Door::new(Settings {
            mode: Mode::Checkpoint,
            worst_wait: Duration::from_millis(20),
            ..Settings::default()
        });
        let high = door.enter(&visitor(Class::High)).unwrap();
        std::thread::scope(|scope| {
            let tending = scope.spawn(|| door.tend());
            let _aged = door.enter(&visitor(Class::Low)).unwrap().unwrap();
            assert_eq!(door.look().0.present, [1, 0, 1]);
            door.stop();
            tending.join().unwrap();
        });
        drop(high);
        assert_eq!(door.look().1.of(Class::Low).aged, 1);
        assert_empty(&door);
    }

    /// As many as there can be, in every class, some killed while they wait: at the end nobody is left, and nobody was lost.
    #[test]
    fn of_a_crowd_that_comes_and_goes_nobody_is_lost() {
        for mode in [Mode::Full, Mode::Checkpoint] {
            let door = Door::new(Settings { mode, worst_wait: Duration::from_millis(10), ..Settings::default() });
            let (served, gone) = (AtomicUsize::new(0), AtomicUsize::new(0));
            std::thread::scope(|scope| {
                let tending = scope.spawn(|| door.tend());
                let crowd: Vec<_> = (0..24)
                    .map(|thread| {
                        let (door, served, gone) = (&door, &served, &gone);
                        scope.spawn(move || {
                            for turn in 0..200 {
                                let class = Figures::CLASSES[(thread + turn) % 3];
                                let asked = AtomicUsize::new(0);
                                let check = || match asked.fetch_add(1, Relaxed) {
                                    0 if turn % 7 == 0 => Err(Error::new(ErrorCode::Interrupted, "killed")),
                                    _ => Ok(()),
                                };
                                let deadline = (turn % 5 == 0).then(|| Instant::now() + Duration::from_millis(2));
                                match door.enter(&Visitor { deadline, check: &check, ..visitor(class) }) {
                                    Ok(pass) => {
                                        if turn % 3 == 0 {
                                            pass.iter().for_each(Pass::pause);
                                            std::thread::yield_now();
                                        }
                                        served.fetch_add(1, Relaxed);
                                    }
                                    Err(_) => {
                                        gone.fetch_add(1, Relaxed);
                                    }
                                }
                            }
                        })
                    })
                    .collect();
                for one in crowd {
                    one.join().unwrap();
                }
                door.stop();
                tending.join().unwrap();
            });
            assert_eq!(served.load(Relaxed) + gone.load(Relaxed), 24 * 200);
            assert!(served.load(Relaxed) > 1000, "{served:?} served, {gone:?} gone");
            assert_empty(&door);
        }
    }
}
