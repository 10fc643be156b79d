//! Worlds of one door: the real admission machine, with requests, processors and time from one seed. Each seed has a world of [`starving`]
//! threads, too.
//!
//! Who computes shares the processors with those of his class, after those of higher ones: that is what niceness comes to. Beside the
//! machine a [`Checker`] counts for itself who waits, who is present and who computes, and judges every effect by that.
//!
//! What it deliberately does not do: simulate threads. That check-in and check-out lose nobody is another test's
//! (`service/commands/src/admission`).

mod checker;
mod oracle;
mod starving;

pub use oracle::{in_time_at_most, share_in_time};

use baton_admission::{
    Admission, Arrival, Effect, Estimate, Input, Mode, Moment, Mutant, Settings, ShedAbove, Ticket, Weights,
};
use baton_types::Class;
use checker::Checker;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// How often the runtime tells how much of the processors was idle.
const MEASURED_EVERY: Duration = Duration::from_millis(100);
/// Work that is less than this is done.
const NOTHING_SECS: f64 = 1e-9;

/// A request of a world.
#[derive(Clone, Debug)]
pub struct Job {
    /// When it comes.
    pub arrives: Moment,
    /// Its class.
    pub class: Class,
    /// When it is of no use any more.
    pub deadline: Option<Moment>,
    /// What it computes, with what it pauses for in between.
    pub parts: Vec<Part>,
    /// If it still waits then, it is killed.
    pub killed_at: Option<Moment>,
    /// What the door is told of how long it takes.
    pub estimate: Estimate,
}

/// A part of a request.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// It needs a processor for so long.
    Computes(Duration),
    /// It waits for something else for so long.
    Pauses(Duration),
}

/// What a world is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many processors.
    pub processors: usize,
    /// The door's settings, and what they become, when.
    pub settings: Vec<(Moment, Settings)>,
    /// The requests, by their arrival.
    pub jobs: Vec<Job>,
    /// Whether all are expected to take the same time, so that within a class deadlines alone decide.
    pub alike: bool,
}

/// What came of a world.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// How many came.
    pub arrived: usize,
    /// How many waited.
    pub waited: usize,
    /// How many began at the end of their wait.
    pub aged: usize,
    /// How many were refused.
    pub refused: usize,
    /// How many that had a deadline were over by it.
    pub in_time: usize,
    /// The longest wait.
    pub longest_wait: Duration,
    /// How many threads were helped that did not come to run.
    pub helped: usize,
}

/// A request that has begun.
struct Present {
    job: usize,
    class: Class,
    part: usize,
    left: Left,
}

enum Left {
    /// So many seconds of a processor.
    Work(f64),
    Until(Moment),
}

struct World<'p> {
    plan: &'p Plan,
    door: Admission,
    checker: Checker,
    now: Moment,
    next_job: usize,
    next_settings: usize,
    measured_at: Moment,
    woken_at: Option<Moment>,
    /// Seconds of idle processors since.
    idle: f64,
    waiting: BTreeMap<Ticket, usize>,
    present: Vec<Present>,
    outcome: Outcome,
}

/// Runs a plan to its end.
///
/// # Errors
/// The property that does not hold, and what was seen.
pub fn run_plan(plan: &Plan, mutant: Mutant) -> Result<Outcome, (&'static str, String)> {
    let first = plan.settings.first().map(|(_, settings)| settings.clone()).unwrap_or_default();
    let mut door = Admission::new(first.clone(), plan.processors);
    door.mutate(mutant);
    let mut world = World {
        plan,
        door,
        checker: Checker::new(first, plan.processors, plan.alike),
        now: Moment::ZERO,
        next_job: 0,
        next_settings: 1,
        measured_at: MEASURED_EVERY,
        woken_at: None,
        idle: 0.0,
        waiting: BTreeMap::new(),
        present: Vec::new(),
        outcome: Outcome::default(),
    };
    while world.step()? {}
    Ok(world.outcome)
}

/// Runs the worlds of a seed.
///
/// # Errors
/// As [`run_plan`].
pub fn run_seed(seed: u64, mutant: Mutant) -> Result<Outcome, (&'static str, String)> {
    let outcome = run_plan(&plan_of(seed), mutant)?;
    Ok(Outcome { helped: starving::run_seed(seed, mutant)?, ..outcome })
}

/// Runs so many worlds on so many threads; gives what came of all of them.
///
/// # Errors
/// The seed of one that breaks a property, the property, and what was seen.
pub fn run_seeds(from: u64, count: u64, threads: usize) -> Result<Outcome, (u64, &'static str, String)> {
    let next = AtomicU64::new(from);
    let run_some = || {
        let mut sum = Outcome::default();
        loop {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= from.saturating_add(count) {
                return Ok(sum);
            }
            let outcome = run_seed(seed, Mutant::None).map_err(|(property, what)| {
                next.store(u64::MAX / 2, Relaxed);
                (seed, property, what)
            })?;
            sum.add(&outcome);
        }
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(run_some)).collect();
        running.into_iter().try_fold(Outcome::default(), |mut sum, running| {
            let some = running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            sum.add(&some);
            Ok(sum)
        })
    })
}

impl Outcome {
    fn add(&mut self, other: &Self) {
        self.arrived += other.arrived;
        self.waited += other.waited;
        self.aged += other.aged;
        self.refused += other.refused;
        self.in_time += other.in_time;
        self.longest_wait = self.longest_wait.max(other.longest_wait);
        self.helped += other.helped;
    }
}

impl World<'_> {
    /// Goes to the next thing that happens; `false` if nothing does any more.
    fn step(&mut self) -> Result<bool, (&'static str, String)> {
        let rates = self.rates();
        let Some(at) = self.next_at(&rates) else { return Ok(false) };
        self.pass(at, &rates);
        // One thing at a time, each seen by the machine by itself.
        if let Some(index) = self.present.iter().position(|present| present.is_over(self.now)) {
            self.end_part(index)?;
        } else if self.plan.settings.get(self.next_settings).is_some_and(|(at, _)| *at <= self.now) {
            let settings = self.plan.settings[self.next_settings].1.clone();
            self.next_settings += 1;
            self.checker.settings = settings.clone();
            self.tell(Input::Configured(settings))?;
        } else if let Some(ticket) = self.who_gives_up() {
            self.waiting.remove(&ticket);
            self.checker.gave_up(ticket);
            self.tell(Input::GivesUp(ticket))?;
        } else if self.due().is_some_and(|due| due <= self.now) {
            self.woken_at = Some(self.now);
            self.tell(Input::Wakes)?;
        } else if self.plan.jobs.get(self.next_job).is_some_and(|job| job.arrives <= self.now) {
            self.arrive()?;
        } else if self.measured_at <= self.now {
            let idle = self.idle / (MEASURED_EVERY.as_secs_f64() * self.plan.processors as f64);
            (self.idle, self.measured_at) = (0.0, self.measured_at + MEASURED_EVERY);
            self.tell(Input::Measured { idle: idle.clamp(0.0, 1.0) })?;
        }
        Ok(true)
    }

    /// When the door is to be woken; not twice in one moment, whatever it says.
    fn due(&self) -> Option<Moment> {
        self.door.next_due().filter(|due| self.woken_at.is_none_or(|woken| woken < *due || woken < self.now))
    }

    /// What part of a processor each of those who are present has.
    fn rates(&self) -> Vec<f64> {
        let mut rates = vec![0.0; self.present.len()];
        let mut free = self.plan.processors as f64;
        for class in [Class::High, Class::Normal, Class::Low] {
            let computes = |present: &Present| present.class == class && matches!(present.left, Left::Work(_));
            let count = self.present.iter().filter(|present| computes(present)).count();
            // What rounding has left of the processors is nobody's.
            let is_nothing = count == 0 || free < 1e-9;
            let each = if is_nothing { 0.0 } else { (free / count as f64).min(1.0) };
            for (present, rate) in self.present.iter().zip(&mut rates).filter(|(present, _)| computes(present)) {
                let _ = present;
                *rate = each;
            }
            free -= each * count as f64;
        }
        rates
    }

    fn next_at(&self, rates: &[f64]) -> Option<Moment> {
        let of_present = self.present.iter().zip(rates).filter_map(|(present, rate)| match present.left {
            Left::Until(at) => Some(at),
            Left::Work(left) if left <= NOTHING_SECS => Some(self.now),
            Left::Work(left) if *rate > 0.0 => Some(self.now + Duration::from_secs_f64(left / rate + NOTHING_SECS)),
            Left::Work(_) => None,
        });
        let of_waiting = self.waiting.values().flat_map(|job| {
            let job = &self.plan.jobs[*job];
            [job.deadline, job.killed_at].into_iter().flatten()
        });
        let arrival = self.plan.jobs.get(self.next_job).map(|job| job.arrives);
        let settings = self.plan.settings.get(self.next_settings).map(|(at, _)| *at);
        let first = of_present.chain(of_waiting).chain(arrival).chain(settings).chain(self.due()).min()?;
        Some(first.min(self.measured_at).max(self.now))
    }

    /// Time passes until `at`.
    fn pass(&mut self, at: Moment, rates: &[f64]) {
        let seconds = (at - self.now).as_secs_f64();
        let mut busy = 0.0;
        for (present, rate) in self.present.iter_mut().zip(rates) {
            if let Left::Work(left) = &mut present.left {
                *left -= seconds * rate;
                busy += rate;
            }
        }
        self.idle += seconds * (self.plan.processors as f64 - busy);
        self.now = at;
    }

    fn who_gives_up(&self) -> Option<Ticket> {
        let is_over = |job: &Job| [job.deadline, job.killed_at].into_iter().flatten().any(|at| at <= self.now);
        self.waiting.iter().find(|(_, job)| is_over(&self.plan.jobs[**job])).map(|(ticket, _)| *ticket)
    }

    fn arrive(&mut self) -> Result<(), (&'static str, String)> {
        let (index, ticket) = (self.next_job, self.next_job as Ticket);
        self.next_job += 1;
        self.outcome.arrived += 1;
        let job = &self.plan.jobs[index];
        let arrival = Arrival { ticket, class: job.class, deadline: job.deadline, estimate: job.estimate };
        self.waiting.insert(ticket, index);
        self.checker.arrived(self.now, &arrival);
        self.tell(Input::Arrives(arrival))?;
        if self.waiting.contains_key(&ticket) {
            self.outcome.waited += 1;
        }
        Ok(())
    }

    /// What a request does next, or that it is over.
    fn end_part(&mut self, index: usize) -> Result<(), (&'static str, String)> {
        let present = &mut self.present[index];
        let job = &self.plan.jobs[present.job];
        let (class, paused) = (present.class, matches!(present.left, Left::Until(_)));
        present.part += 1;
        match job.parts.get(present.part) {
            Some(part) => {
                present.left = Left::of(*part, self.now);
                match (paused, matches!(present.left, Left::Until(_))) {
                    (false, true) => {
                        self.checker.paused(class);
                        self.tell(Input::Pauses(class))
                    }
                    (true, false) => {
                        self.checker.resumed(class);
                        self.tell(Input::Resumes(class))
                    }
                    _ => Ok(()),
                }
            }
            None => {
                self.outcome.in_time += usize::from(job.deadline.is_some_and(|deadline| self.now <= deadline));
                self.present.swap_remove(index);
                self.checker.left(class, paused);
                self.tell(Input::Leaves { class, paused })
            }
        }
    }

    fn tell(&mut self, input: Input) -> Result<(), (&'static str, String)> {
        let mut effects = Vec::new();
        self.door.step(self.now, input, &mut effects);
        for effect in effects {
            self.checker.judge(self.now, &effect, &self.door)?;
            match effect {
                Effect::Begin { ticket, class, waited, aged } => {
                    let Some(job) = self.waiting.remove(&ticket) else {
                        return Err(("who begins waits", format!("{effect:?}")));
                    };
                    self.outcome.aged += usize::from(aged);
                    self.outcome.longest_wait = self.outcome.longest_wait.max(waited);
                    let left = Left::of(self.plan.jobs[job].parts[0], self.now);
                    self.present.push(Present { job, class, part: 0, left });
                }
                Effect::Refuse { ticket, waited, .. } => {
                    self.waiting.remove(&ticket);
                    self.outcome.refused += 1;
                    self.outcome.longest_wait = self.outcome.longest_wait.max(waited);
                }
            }
        }
        self.checker.at_rest(self.now, &self.door)
    }
}

impl Present {
    fn is_over(&self, now: Moment) -> bool {
        match self.left {
            Left::Work(left) => left <= NOTHING_SECS,
            Left::Until(at) => at <= now,
        }
    }
}

impl Left {
    fn of(part: Part, now: Moment) -> Self {
        match part {
            Part::Computes(work) => Self::Work(work.as_secs_f64()),
            Part::Pauses(pause) => Self::Until(now + pause),
        }
    }
}

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// The world of a seed.
fn plan_of(seed: u64) -> Plan {
    let mut random = StdRng::seed_from_u64(seed);
    let processors = random.random_range(1..=4);
    let alike = random.random_bool(0.3);
    let mut settings = vec![(Moment::ZERO, settings_of(&mut random))];
    if random.random_bool(0.2) {
        settings.push((micros(random.random_range(0..400_000)), settings_of(&mut random)));
    }
    // Mostly two or three times what there are processors for, for a while, or next to nothing.
    let load = *[0.3, 0.9, 1.5, 3.0].get(random.random_range(0..4)).unwrap_or(&1.0);
    let mean_micros = *[200, 2_000, 20_000].get(random.random_range(0..3)).unwrap_or(&2_000);
    let count = random.random_range(10..150);
    let all_at_once = random.random_bool(0.1);
    let mut arrives = Moment::ZERO;
    let jobs = (0..count)
        .map(|_| {
            if !all_at_once {
                let gap = mean_micros as f64 / (load * processors as f64);
                arrives += micros((-(1.0 - random.random::<f64>()).ln() * gap) as u64);
            }
            job_of(&mut random, arrives, mean_micros, alike)
        })
        .collect();
    Plan { processors, settings, jobs, alike }
}

fn settings_of(random: &mut StdRng) -> Settings {
    let mode = Mode::ALL[if random.random_bool(0.6) { 4 } else { random.random_range(0..5) }];
    let mut weight = || random.random_range(1..=16);
    let weights = Weights { high: weight(), normal: weight(), low: weight() };
    let weights = random.random_bool(0.2).then_some(weights);
    let worst_wait = Duration::from_millis(random.random_range(10..=400));
    // Fewer than a member takes: worlds are small.
    let shed_above = match random.random_bool(0.3) {
        true => {
            let low = random.random_range(1..=8);
            let normal = random.random_bool(0.5).then(|| low + random.random_range(0..=8));
            ShedAbove { low: Some(low), normal, high: normal.filter(|_| random.random_bool(0.3)) }
        }
        false => ShedAbove::default(),
    };
    let work_conserving = random.random_bool(0.3).then(|| random.random());
    Settings { mode, weights, work_conserving, worst_wait, shed_above, ..Settings::default() }
}

fn job_of(random: &mut StdRng, arrives: Moment, mean_micros: u64, alike: bool) -> Job {
    let class = [Class::Low, Class::Normal, Class::High][random.random_range(0..3)];
    let works =
        |random: &mut StdRng| micros(if alike { mean_micros } else { random.random_range(1..=2 * mean_micros) });
    let mut parts = vec![Part::Computes(works(random))];
    if random.random_bool(0.3) {
        parts.push(Part::Pauses(micros(random.random_range(1..=20_000))));
        if random.random_bool(0.5) {
            parts.push(Part::Computes(works(random)));
        }
    }
    let takes: Duration = match alike {
        true => micros(mean_micros),
        false => parts
            .iter()
            .map(|part| match part {
                Part::Computes(time) | Part::Pauses(time) => *time,
            })
            .sum(),
    };
    let estimate = if random.random_bool(0.1) {
        Estimate::default()
    } else {
        Estimate { mean: takes, least: takes / 2, most: takes * 2, computes: None }
    };
    let estimate = if alike { Estimate { mean: takes, least: takes, most: takes, computes: None } } else { estimate };
    let deadline =
        random.random_bool(0.5).then(|| arrives + micros(random.random_range(0..=100 * mean_micros.max(1_000))));
    let killed_at = random.random_bool(0.1).then(|| arrives + micros(random.random_range(0..=20 * mean_micros)));
    Job { arrives, class, deadline, parts, killed_at, estimate }
}
