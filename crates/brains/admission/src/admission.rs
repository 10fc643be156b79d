//! The door: who begins, who waits, who is refused.
//!
//! A request *arrives*, *begins* at once or after a wait, may *pause* while it waits for a disk, a lock or other members, and *leaves* when
//! its reply is sent. It is *present* from its beginning to its leaving, and *computes* while it is present and does not pause.
//!
//! | mode | a request begins when |
//! |---|---|
//! | `off`, `nice` | it arrives |
//! | `checkpoint`, `both` | none of a higher class is present |
//! | `full` | fewer of its own and higher classes compute than the limit is, which follows the processors |
//! | `full` with weights | fewer of all classes compute than the limit is, and its class has had less than its share |
//!
//! With `workConserving` those who compute count in modes `checkpoint` and `both`, too, and without it those who are present in mode `full`.
//!
//! Invariants:
//! - Who waits begins, or is refused, before the worst wait is over, in every mode: the runtime sees to it that [`Admission::next_due`]
//!   is kept. Those whose own deadline is nearer are refused, or give up, by that.
//! - In strict order nobody begins while one of a higher class who could begin waits, but at the end of his own wait.
//! - Who has begun is not stopped, and who goes on after a pause does not wait for a place: he may hold what others wait for. So nobody
//!   waits for a place who could be waited for, and there are no cycles.
//! - No more than [`WAITING_MAX`] wait. Who is refused for that is the last that came of the lowest class.
//! - Where so many compute that those whose wait is at its end only add to them, one of a class that is to be shed is refused instead of
//!   waiting, and so is who waits already once his wait is at its end: the lowest class first.
//!
//! What it deliberately does not do: know what a request is, or keep those who have begun: who pauses and leaves says of which class he is.

use crate::estimates::Estimate;
use crate::limit::Limit;
use crate::mutant::{Fault, Mutant};
use crate::queue::{Queue, Waiting};
use crate::settings::{Mode, Settings};
use baton_types::Class;
use std::time::Duration;

/// A point in time: since the process began, by a monotone clock.
pub type Moment = Duration;

/// Names one request. Who comes later has a higher one.
pub type Ticket = u64;

/// The most that wait; who comes beyond that is refused, or somebody of a lower class.
pub const WAITING_MAX: usize = 4096;

/// What a class that has weight 1 advances by when one of it begins.
const STRIDE: u64 = 1 << 20;

/// A request at the door.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Its name.
    pub ticket: Ticket,
    /// Its class.
    pub class: Class,
    /// When it is of no use any more.
    pub deadline: Option<Moment>,
    /// How long it will take.
    pub estimate: Estimate,
}

/// What the machine is told.
#[derive(Clone, Debug)]
pub enum Input {
    /// A request is at the door.
    Arrives(Arrival),
    /// One that waits was killed, or its time is up, or its client has gone.
    GivesUp(Ticket),
    /// One of this class that has begun does not compute for now.
    Pauses(Class),
    /// It computes again.
    Resumes(Class),
    /// One of this class that has begun is over.
    Leaves {
        /// Its class.
        class: Class,
        /// Whether it paused, and did not resume.
        paused: bool,
    },
    /// So much of the processors was idle, of 1, since this was last told.
    Measured {
        /// That share.
        idle: f64,
    },
    /// There are other settings.
    Configured(Settings),
    /// It is time to look again.
    Wakes,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It could not be over by its deadline.
    Deadline,
    /// Too many wait, or compute.
    Overload,
}

/// What the machine asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The request begins.
    Begin {
        /// Which.
        ticket: Ticket,
        /// Of which class it is.
        class: Class,
        /// How long it has waited.
        waited: Duration,
        /// Its wait was at its end.
        aged: bool,
    },
    /// The request is refused.
    Refuse {
        /// Which.
        ticket: Ticket,
        /// Of which class it was.
        class: Class,
        /// How long it has waited.
        waited: Duration,
        /// Why.
        why: Refusal,
    },
}

/// How many there are, by class: low, normal, high.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// At the door.
    pub waiting: [usize; 3],
    /// Begun, and not over.
    pub present: [usize; 3],
    /// Of these, who compute.
    pub computing: [usize; 3],
    /// How many may compute at once.
    pub limit: usize,
}

/// The three classes of clients, lowest first, as they are counted.
const RANKS: [usize; 3] = [0, 1, 2];

/// See the file's header.
#[derive(Debug)]
pub struct Admission {
    settings: Settings,
    limit: Limit,
    now: Moment,
    queues: [Queue; 3],
    present: [usize; 3],
    computing: [usize; 3],
    /// With weights: how far each class has come.
    passes: [u64; 3],
    /// Whether anybody had to wait since processors were measured last.
    has_waited: bool,
    fault: Fault,
}

impl Admission {
    /// A door before so many processors.
    pub fn new(settings: Settings, processors: usize) -> Self {
        Self {
            settings,
            limit: Limit::new(processors),
            now: Moment::ZERO,
            queues: Default::default(),
            present: [0; 3],
            computing: [0; 3],
            passes: [0; 3],
            has_waited: false,
            fault: Fault::default(),
        }
    }

    /// Takes an input, and adds what it leads to.
    pub fn step(&mut self, now: Moment, input: Input, effects: &mut Vec<Effect>) {
        self.now = self.now.max(now);
        match input {
            Input::Arrives(arrival) => self.arrive(arrival, effects),
            Input::GivesUp(ticket) => {
                if !self.fault.is(Mutant::ForgetsNobody) {
                    let _ = self.queues.iter_mut().find_map(|queue| queue.remove(ticket));
                }
            }
            Input::Pauses(class) => {
                if !self.fault.is(Mutant::PausesInPlace) {
                    self.computing[class.rank()] -= 1;
                }
            }
            Input::Resumes(class) => {
                if !self.fault.is(Mutant::PausesInPlace) {
                    self.computing[class.rank()] += 1;
                }
            }
            Input::Leaves { class, paused } => {
                if !self.fault.is(Mutant::KeepsPlaces) {
                    self.present[class.rank()] -= 1;
                    if !paused || self.fault.is(Mutant::PausesInPlace) {
                        self.computing[class.rank()] -= 1;
                    }
                }
            }
            Input::Measured { idle } => {
                let has_waited = std::mem::take(&mut self.has_waited) || self.waiting() > 0;
                self.limit.measured(idle, has_waited);
            }
            Input::Configured(settings) => self.configure(settings),
            Input::Wakes => {}
        }
        self.settle(effects);
    }

    /// When to [wake](Input::Wakes) it, if anybody waits who must not wait for ever.
    pub fn next_due(&self) -> Option<Moment> {
        self.queues.iter().filter_map(Queue::forced_at).min()
    }

    /// How many there are.
    pub fn counts(&self) -> Counts {
        Counts {
            waiting: RANKS.map(|rank| self.queues[rank].len()),
            present: self.present,
            computing: self.computing,
            limit: self.limit.now(),
        }
    }

    /// For whom one of this class waits who has no room, by their classes: nobody, if he has some whoever else is there.
    pub fn before(&self, class: Class) -> [usize; 3] {
        self.before_rank(class.rank())
    }

    fn before_rank(&self, of: usize) -> [usize; 3] {
        let from = match self.settings.mode {
            Mode::Off | Mode::Nice => return [0; 3],
            Mode::Checkpoint | Mode::Both => of + 1,
            Mode::Full if self.settings.weights.is_some() => 0,
            Mode::Full => of,
        };
        let counted = if self.settings.conserves_work() { self.computing } else { self.present };
        RANKS.map(|rank| if rank < from { 0 } else { counted[rank] })
    }

    fn waiting(&self) -> usize {
        self.queues.iter().map(Queue::len).sum()
    }

    fn configure(&mut self, settings: Settings) {
        let worst_before = self.settings.worst_wait;
        self.settings = settings;
        if self.settings.worst_wait != worst_before {
            for queue in &mut self.queues {
                queue.rearrange(self.now, self.settings.worst_wait);
            }
        }
    }

    fn arrive(&mut self, arrival: Arrival, effects: &mut Vec<Effect>) {
        let Arrival { ticket, class, deadline, estimate } = arrival;
        let (now, worst) = (self.now, self.settings.worst_wait);
        let waiting =
            Waiting { ticket, class, arrived: now, stated: deadline, deadline, estimate }.of_worst_wait(worst);
        let of = class.rank();
        if self.settings.mode.has_door() && waiting.is_hopeless(now) && !self.fault.is(Mutant::BeginsTheHopeless) {
            return self.refuse(&waiting, Refusal::Deadline, effects);
        }
        let is_free = self.queues[of..].iter().all(Queue::is_empty) && self.has_room(of);
        if is_free && (self.settings.weights.is_none() || self.waiting() == 0) {
            return self.begin(&waiting, false, effects);
        }
        if self.sheds(class) {
            return self.refuse(&waiting, Refusal::Overload, effects);
        }
        if self.waiting() >= WAITING_MAX && !self.fault.is(Mutant::NeverSheds) {
            let lowest = self.queues[..of].iter_mut().find(|queue| !queue.is_empty());
            let Some(shed) = lowest.and_then(|queue| queue.newest().and_then(|newest| queue.remove(newest))) else {
                return self.refuse(&waiting, Refusal::Overload, effects);
            };
            self.refuse(&shed, Refusal::Overload, effects);
        }
        self.has_waited = true;
        self.queues[of].push(waiting, now, worst);
    }

    /// Whether one of this class may begin by its mode, whoever waits.
    fn has_room(&self, of: usize) -> bool {
        let before: usize = self.before_rank(of).iter().sum();
        match self.settings.mode {
            Mode::Off | Mode::Nice | Mode::Checkpoint | Mode::Both => before == 0,
            Mode::Full => before < self.limit.now(),
        }
    }

    /// Whether so many compute that one of this class is not begun for his wait alone.
    fn sheds(&self, class: Class) -> bool {
        let class = if self.fault.is(Mutant::ShedsAnybody) { Class::Low } else { class };
        let Some(per_processor) = self.settings.shed_above.of(class).filter(|_| self.settings.mode.has_door()) else {
            return false;
        };
        let most = self.limit.processors().saturating_mul(per_processor as usize);
        self.computing.iter().sum::<usize>() >= most && !self.fault.is(Mutant::NeverSheds)
    }

    /// The class of which one begins next, if any may.
    fn next_class(&self) -> Option<usize> {
        let may = |of: &usize| !self.queues[*of].is_empty() && self.has_room(*of);
        if self.fault.is(Mutant::LowerFirst) {
            return RANKS.into_iter().find(may);
        }
        if self.settings.weights.is_some() && self.settings.mode == Mode::Full {
            return RANKS.into_iter().filter(may).min_by_key(|of| (self.passes[*of], 2 - *of));
        }
        RANKS.into_iter().rev().find(may)
    }

    fn settle(&mut self, effects: &mut Vec<Effect>) {
        if self.waiting() == 0 {
            return;
        }
        while let Some(of) = self.next_class() {
            let queue = &self.queues[of];
            let next = match self.fault.is(Mutant::FirstComeFirstServed) {
                true => queue.oldest(),
                false => queue.next(self.now, self.limit.now()),
            };
            let Some(waiting) = next.and_then(|ticket| self.queues[of].remove(ticket)) else { return };
            self.take_out(of, &waiting, false, effects);
        }
        if self.fault.is(Mutant::NoBound) {
            return;
        }
        for of in RANKS {
            while self.queues[of].forced_at().is_some_and(|at| at <= self.now) {
                let oldest = self.queues[of].oldest_patient();
                let Some(waiting) = oldest.and_then(|ticket| self.queues[of].remove(ticket)) else { break };
                if self.sheds(waiting.class) {
                    self.refuse(&waiting, Refusal::Overload, effects);
                    self.queues[of].moved(self.now, self.settings.worst_wait);
                } else {
                    self.take_out(of, &waiting, true, effects);
                }
            }
        }
    }

    /// One who waited begins, or is hopeless.
    fn take_out(&mut self, of: usize, waiting: &Waiting, aged: bool, effects: &mut Vec<Effect>) {
        if waiting.is_hopeless(self.now) && !self.fault.is(Mutant::BeginsTheHopeless) {
            return self.refuse(waiting, Refusal::Deadline, effects);
        }
        self.begin(waiting, aged, effects);
        self.queues[of].moved(self.now, self.settings.worst_wait);
    }

    fn begin(&mut self, waiting: &Waiting, aged: bool, effects: &mut Vec<Effect>) {
        let of = waiting.class.rank();
        if let Some(weights) = &self.settings.weights {
            // Who was not here for a while does not catch up on what he did not ask for.
            let least =
                RANKS.into_iter().filter(|rank| !self.queues[*rank].is_empty()).map(|rank| self.passes[rank]).min();
            let from = least.map_or(self.passes[of], |least| self.passes[of].max(least));
            self.passes[of] = from + STRIDE / u64::from(weights.of(waiting.class).max(1));
        }
        let counted = if aged && self.fault.is(Mutant::RaisesTheAged) { of.max(Class::Normal.rank()) } else { of };
        self.present[counted] += 1;
        self.computing[counted] += 1;
        let Waiting { ticket, class, arrived, .. } = *waiting;
        effects.push(Effect::Begin { ticket, class, waited: self.now - arrived, aged });
    }

    fn refuse(&self, waiting: &Waiting, why: Refusal, effects: &mut Vec<Effect>) {
        let waited = self.now - waiting.arrived;
        effects.push(Effect::Refuse { ticket: waiting.ticket, class: waiting.class, waited, why });
    }

    /// Builds a fault in.
    #[cfg(feature = "mutants")]
    pub fn mutate(&mut self, mutant: Mutant) {
        self.fault = Fault(mutant);
    }
}
