//! What must hold at a door, judged by counts that the machine has no part in.

use baton_admission::{Admission, Arrival, Effect, Mode, Moment, Refusal, Settings, Ticket, WAITING_MAX};
use baton_types::Class;
use std::collections::BTreeMap;
use std::time::Duration;

type Broken = (&'static str, String);

pub(super) const WORST_WAIT: &str = "nobody waits longer than the worst wait";
pub(super) const ORDER: &str = "none of a lower class begins while a higher one that could begin waits";
pub(super) const ROOM: &str = "no more compute than the limit";
pub(super) const WORK: &str = "nobody waits while there is room for him";
pub(super) const CHECKPOINT: &str = "none begins while one of a higher class is present";
pub(super) const DEADLINE: &str = "who can be in time is not refused for that, and who cannot does not begin";
pub(super) const EARLIEST: &str = "among equals the earliest deadline is first";
pub(super) const BOUNDED: &str = "so many wait, and the last of the lowest class is refused";
pub(super) const SHED: &str = "where too many compute for a class none of it begins for its wait alone";
pub(super) const GONE: &str = "who has given up does not begin";
pub(super) const LIMIT: &str = "the limit follows the processors";

/// The counts.
pub(super) struct Checker {
    pub settings: Settings,
    processors: usize,
    alike: bool,
    waiting: BTreeMap<Ticket, (Moment, Arrival)>,
    present: Counts,
    computing: Counts,
}

/// How many there are of each class.
#[derive(Debug, Default)]
struct Counts(BTreeMap<Class, usize>);

impl Counts {
    fn add(&mut self, class: Class) {
        *self.0.entry(class).or_default() += 1;
    }

    fn take(&mut self, class: Class) {
        *self.0.get_mut(&class).expect("one of it is there") -= 1;
    }

    fn all(&self) -> usize {
        self.0.values().sum()
    }

    /// Of this class and those above it.
    fn from(&self, class: Class) -> usize {
        self.0.range(class..).map(|(_, count)| count).sum()
    }

    fn above(&self, class: Class) -> usize {
        self.from(class) - self.0.get(&class).copied().unwrap_or_default()
    }
}

impl Checker {
    pub fn new(settings: Settings, processors: usize, alike: bool) -> Self {
        Self {
            settings,
            processors,
            alike,
            waiting: BTreeMap::new(),
            present: Counts::default(),
            computing: Counts::default(),
        }
    }

    pub fn arrived(&mut self, now: Moment, arrival: &Arrival) {
        self.waiting.insert(arrival.ticket, (now, *arrival));
    }

    pub fn gave_up(&mut self, ticket: Ticket) {
        self.waiting.remove(&ticket);
    }

    pub fn paused(&mut self, class: Class) {
        self.computing.take(class);
    }

    pub fn resumed(&mut self, class: Class) {
        self.computing.add(class);
    }

    pub fn left(&mut self, class: Class, paused: bool) {
        self.present.take(class);
        if !paused {
            self.computing.take(class);
        }
    }

    /// Judges an effect, and counts it.
    pub fn judge(&mut self, now: Moment, effect: &Effect, door: &Admission) -> Result<(), Broken> {
        let (Effect::Begin { ticket, .. } | Effect::Refuse { ticket, .. }) = effect;
        let Some((since, arrival)) = self.waiting.remove(ticket) else { return Err((GONE, format!("{effect:?}"))) };
        let is_hopeless = |arrival: &Arrival| {
            self.deadline_of(since, arrival).is_some_and(|deadline| now + arrival.estimate.least > deadline)
        };
        match *effect {
            Effect::Refuse { why: Refusal::Deadline, .. } => {
                if !is_hopeless(&arrival) {
                    return Err((DEADLINE, format!("{effect:?} of {arrival:?} at {now:?}")));
                }
            }
            Effect::Refuse { why: Refusal::Overload, .. } => {
                let is_last_of_lowest = self.waiting.values().all(|(_, other)| {
                    other.class > arrival.class || (other.class == arrival.class && other.ticket < arrival.ticket)
                });
                // The one that it made room for is among them.
                let is_crowded = self.waiting.len() >= WAITING_MAX && (is_last_of_lowest || self.made_room(&arrival));
                if !is_crowded && !self.is_overloaded_for(arrival.class) {
                    return Err((BOUNDED, format!("{effect:?} with {} waiting", self.waiting.len())));
                }
            }
            Effect::Begin { class, aged, .. } => {
                if is_hopeless(&arrival) && self.settings.mode.has_door() {
                    return Err((DEADLINE, format!("{effect:?} of {arrival:?} at {now:?}")));
                }
                if !aged {
                    self.judge_order(now, since, &arrival, effect, door)?;
                } else if self.is_overloaded_for(arrival.class) {
                    return Err((SHED, format!("{effect:?} at {now:?}, computing {:?}", self.computing)));
                }
                self.present.add(class);
                self.computing.add(class);
            }
        }
        Ok(())
    }

    fn is_overloaded_for(&self, class: Class) -> bool {
        let bound = self.settings.shed_above.of(class).filter(|_| self.settings.mode.has_door());
        bound.is_some_and(|bound| self.computing.all() >= bound as usize * self.processors)
    }

    /// Whether it was the last of the lowest class but for the one that has just come, of a higher one.
    fn made_room(&self, shed: &Arrival) -> bool {
        let newest = self.waiting.last_key_value().map(|(ticket, _)| *ticket);
        self.waiting
            .values()
            .filter(|(_, other)| Some(other.ticket) != newest)
            .all(|(_, other)| other.class > shed.class || (other.class == shed.class && other.ticket < shed.ticket))
    }

    fn judge_order(
        &self,
        now: Moment,
        since: Moment,
        begins: &Arrival,
        effect: &Effect,
        door: &Admission,
    ) -> Result<(), Broken> {
        let of = begins.class;
        let told = |property| Err((property, format!("{effect:?} at {now:?}, computing {:?}", self.computing)));
        let has_weights = self.settings.weights.is_some();
        match self.settings.mode {
            Mode::Off | Mode::Nice => return Ok(()),
            Mode::Checkpoint | Mode::Both => {
                if self.counted().above(of) > 0 {
                    return told(CHECKPOINT);
                }
            }
            Mode::Full => {
                let counted = if has_weights { self.counted().all() } else { self.counted().from(of) };
                if counted >= door.counts().limit {
                    return told(ROOM);
                }
            }
        }
        let higher = self.waiting.values().find(|(_, other)| other.class > of);
        if higher.is_some() && !(has_weights && self.settings.mode == Mode::Full) {
            return told(ORDER);
        }
        let due = |since: &Moment, arrival: &Arrival| {
            self.deadline_of(*since, arrival).unwrap_or(*since + self.settings.worst_wait)
        };
        let own = self.deadline_of(since, begins);
        let earlier = self
            .waiting
            .values()
            .find(|(since, other)| other.class == begins.class && own.is_some_and(|own| due(since, other) < own));
        if self.alike && earlier.is_some() {
            return told(EARLIEST);
        }
        Ok(())
    }

    /// Those for whom others may have to wait.
    fn counted(&self) -> &Counts {
        // As the modes have it: those of the paper count who is present.
        let by_mode = self.settings.mode == Mode::Full;
        if self.settings.work_conserving.unwrap_or(by_mode) { &self.computing } else { &self.present }
    }

    /// The deadline that the door goes by: one that is nearer than the end of the worst wait.
    fn deadline_of(&self, since: Moment, arrival: &Arrival) -> Option<Moment> {
        arrival.deadline.filter(|deadline| *deadline < since + self.settings.worst_wait)
    }

    /// What must hold when the machine has taken an input.
    pub fn at_rest(&self, now: Moment, door: &Admission) -> Result<(), Broken> {
        let limit = door.counts().limit;
        if !(self.processors..=16 * self.processors).contains(&limit) {
            return Err((LIMIT, format!("{limit} of {} processors", self.processors)));
        }
        if self.waiting.len() > WAITING_MAX {
            return Err((BOUNDED, format!("{} wait", self.waiting.len())));
        }
        for (since, arrival) in self.waiting.values() {
            // Who has a deadline gives up by that.
            let longest = self.settings.worst_wait + Duration::from_nanos(1);
            if self.deadline_of(*since, arrival).is_none() && now > *since + longest {
                return Err((WORST_WAIT, format!("{arrival:?} since {since:?}, at {now:?}")));
            }
            let of = arrival.class;
            let has_room = match self.settings.mode {
                Mode::Off | Mode::Nice => true,
                Mode::Checkpoint | Mode::Both => self.counted().above(of) == 0,
                Mode::Full if self.settings.weights.is_some() => self.counted().all() < limit,
                Mode::Full => self.counted().from(of) < limit,
            };
            if has_room {
                return Err((WORK, format!("{arrival:?} at {now:?}, computing {:?} of {limit}", self.computing)));
            }
        }
        Ok(())
    }
}
