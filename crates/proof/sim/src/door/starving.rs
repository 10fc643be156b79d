//! Worlds of threads that more urgent ones keep from the processors: the real [`Starving`], with threads, processors and time from one seed.
//!
//! Urgent work has all processors whenever it is there, but for those who are helped. Beside the machine it is counted here who has stood for how
//! long, and what those who were helped have had.

use baton_admission::{ENOUGH, LASTS_MAX, Moment, Mutant, PART, SAVED, Starving, Thread};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::time::Duration;

/// Time passes in steps of this.
const TICK: Duration = Duration::from_millis(1);

const PATIENCE: &str = "nobody is helped who has not stood for long";
const LONGEST: &str = "who has stood for the longest is helped first";
const AT_ONCE: &str = "no more are helped at once than there are processors";
const THEIR_PART: &str = "who is helped has no more than a part of the processors' time";
const TURN: &str = "who has had enough, or has nothing to do, is not helped any more";
const BOUND: &str = "nobody stands for longer than it takes to help those who stand";

/// What a world is made of.
struct Plan {
    processors: u32,
    /// How many threads there are.
    threads: usize,
    /// In so many of a hundred ticks urgent work has no processor.
    calm_percent: u32,
    /// A thread that has nothing to do is asked for something in so many of a thousand ticks, and for as much as this.
    asked_permille: u32,
    longest_ticks: u32,
    /// In so many of a hundred ticks one who would run is at the disk.
    disk_percent: u32,
    patience: Duration,
    /// Whoever looks does so every so many ticks, and looks at those whom he helps so often.
    look_every: u32,
    check_every: u32,
}

/// A thread, and what is counted of it.
#[derive(Clone, Default)]
struct One {
    /// What it has to do yet.
    left: Duration,
    ran: Duration,
    /// It was busy at every look since then, when it had run for so long.
    seen: Option<(Moment, Duration)>,
    /// When it was woken.
    woken: Moment,
    /// When it ran last.
    ran_at: Moment,
    /// When it was helped last.
    was_helped_at: Moment,
    /// When it was helped, if it is, and what it had run then.
    helped: Option<(Moment, Duration)>,
}

impl One {
    fn is_busy(&self) -> bool {
        !self.left.is_zero()
    }

    /// Since when it stands, if it was woken then: since then while it has had little, and since it ran last if it has had more.
    fn stands_since(&self, woken: Moment) -> Moment {
        let has_little = self.seen.is_none_or(|(_, before)| self.ran - before < ENOUGH);
        let since = if has_little { woken } else { woken.max(self.ran_at) };
        since.max(self.was_helped_at)
    }

    /// The same, as far as can be seen: who has nothing to do between two looks alone has something to do all the time.
    fn seems_to_stand_since(&self) -> Moment {
        self.stands_since(self.seen.map_or(self.woken, |(since, _)| since))
    }
}

struct World {
    plan: Plan,
    random: StdRng,
    starving: Starving,
    now: Moment,
    threads: Vec<One>,
    /// What all who were helped have had.
    had: Duration,
    helped: usize,
}

type Broken = (&'static str, String);

/// Runs the world of a seed; says how often somebody was helped.
///
/// # Errors
/// The property that does not hold, and what was seen.
pub(super) fn run_seed(seed: u64, mutant: Mutant) -> Result<usize, Broken> {
    let mut random = StdRng::seed_from_u64(seed);
    let plan = Plan {
        processors: random.random_range(1..=4),
        threads: random.random_range(1..=12),
        calm_percent: [0, 0, 1, 20][random.random_range(0..4)],
        asked_permille: [2, 20, 500][random.random_range(0..3)],
        longest_ticks: [1, 4, 30][random.random_range(0..3)],
        disk_percent: [0, 10, 95][random.random_range(0..3)],
        patience: TICK * random.random_range(5..=100),
        look_every: random.random_range(1..=20),
        check_every: random.random_range(1..=3),
    };
    let mut starving = Starving::new(plan.processors);
    starving.mutate(mutant);
    let threads = vec![One::default(); plan.threads];
    let mut world = World { plan, random, starving, now: Moment::ZERO, threads, had: Duration::ZERO, helped: 0 };
    for tick in 0..world.random.random_range(50..1500) {
        world.tick(tick)?;
    }
    Ok(world.helped)
}

impl World {
    fn tick(&mut self, tick: u32) -> Result<(), Broken> {
        self.ask();
        self.run();
        self.now += TICK;
        if tick.is_multiple_of(self.plan.check_every) {
            self.check()?;
        }
        if tick.is_multiple_of(self.plan.look_every) {
            self.look()?;
        }
        self.judge()
    }

    /// Some have something to do.
    fn ask(&mut self) {
        for one in &mut self.threads {
            if one.left.is_zero() && self.random.random_range(0..1000) < self.plan.asked_permille {
                one.left = TICK * self.random.random_range(1..=self.plan.longest_ticks);
                one.woken = self.now;
            }
        }
    }

    /// Who is helped runs, and the others where nobody is more urgent: some of them, where there are more of them than processors.
    fn run(&mut self) {
        let is_calm = self.random.random_range(0..100) < self.plan.calm_percent;
        let mut order: Vec<usize> = (0..self.threads.len()).filter(|one| self.threads[*one].is_busy()).collect();
        let from = self.random.random_range(0..self.threads.len());
        order.sort_by_key(|one| (self.threads[*one].helped.is_none(), (one + from) % self.threads.len()));
        for index in order.into_iter().take(self.plan.processors as usize) {
            let one = &mut self.threads[index];
            if one.helped.is_none() && !is_calm {
                break;
            }
            if self.random.random_range(0..100) < self.plan.disk_percent {
                continue;
            }
            one.left -= TICK;
            one.ran += TICK;
            one.ran_at = self.now + TICK;
            if one.helped.is_some() {
                self.had += TICK;
            }
        }
    }

    fn check(&mut self) -> Result<(), Broken> {
        for thread in self.starving.helped().collect::<Vec<_>>() {
            let one = &mut self.threads[thread as usize];
            let (is_busy, (since, before)) = (one.is_busy(), one.helped.unwrap_or_default());
            let is_helped = self.starving.check(self.now, thread, Some((is_busy, one.ran)));
            let used = one.ran - before;
            if is_helped && (!is_busy || used >= ENOUGH || self.now >= since + LASTS_MAX) {
                return Err((TURN, format!("{thread} at {:?}, busy: {is_busy}, after {used:?}", self.now)));
            }
            if !is_helped {
                (one.helped, one.was_helped_at) = (None, self.now);
            }
        }
        Ok(())
    }

    fn look(&mut self) -> Result<(), Broken> {
        for one in &mut self.threads {
            one.seen = one.is_busy().then_some(one.seen.unwrap_or((self.now, one.ran)));
        }
        let busy = self.threads.iter().enumerate().filter(|(_, one)| one.is_busy());
        let busy: Vec<_> = busy.map(|(index, one)| (index as Thread, one.ran)).collect();
        // What happens between two looks is seen at the second.
        let between = TICK * self.plan.look_every;
        for thread in self.starving.look(self.now, self.plan.patience, busy) {
            let one = &self.threads[thread as usize];
            let since = one.seems_to_stand_since();
            let told = |property| Err((property, format!("{thread} at {:?}, stands since {since:?}", self.now)));
            if !one.is_busy() || self.now < since + self.plan.patience {
                return told(PATIENCE);
            }
            let waits = |other: &&One| other.is_busy() && other.helped.is_none();
            if self.threads.iter().filter(waits).any(|other| other.stands_since(other.woken) + between < since) {
                return told(LONGEST);
            }
            self.threads[thread as usize].helped = Some((self.now, one.ran));
            self.helped += 1;
        }
        Ok(())
    }

    fn judge(&self) -> Result<(), Broken> {
        let Plan { processors, threads, patience, look_every, check_every, .. } = self.plan;
        let helped = self.threads.iter().filter(|one| one.helped.is_some()).count();
        if helped > processors as usize {
            return Err((AT_ONCE, format!("{helped} of {processors} at {:?}", self.now)));
        }
        // Who is helped last may have what he is not looked at for.
        let longest = ENOUGH + TICK * check_every;
        let part = self.now * processors / PART + (SAVED + longest) * processors;
        if self.had > part {
            return Err((THEIR_PART, format!("{:?} at {:?}", self.had, self.now)));
        }
        let of_all = longest * threads as u32 * PART / processors;
        let at_disks = (LASTS_MAX + TICK * check_every) * threads as u32 / processors;
        let bound = patience + of_all + at_disks + TICK * look_every * (threads as u32 + 2) + longest * PART;
        let stands =
            |one: &&One| one.is_busy() && one.helped.is_none() && self.now > one.stands_since(one.woken) + bound;
        match self.threads.iter().find(stands) {
            Some(one) => Err((BOUND, format!("since {:?}, at {:?}", one.stands_since(one.woken), self.now))),
            None => Ok(()),
        }
    }
}
