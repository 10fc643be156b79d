//! What the members of a world have to do besides following each other, how leadership is set, and who lies.

use baton_consensus::{Configuration, Member, MemberId};
use baton_leadership::{Days, Mode, Ranking, Settings, TimeOfDay, Window};
use baton_types::TaskKind;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use std::collections::BTreeSet;
use std::time::Duration;

/// What kind of world it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Every fault there is, for less than a minute. Whatever takes minutes elsewhere takes seconds here.
    Storm,
    /// Three equals in calm weather who all have to compact at the same moments, with settings that forbid nothing: real members once
    /// moved leadership through all three within 0.4 s, and back 3.7 s later.
    Together,
    /// Four equals, of whom one may be busy at a time, who claim the slot all the time, under one primary after the other. In half of
    /// these worlds messages are often late and members pause; in the other half primaries change faster.
    Claims,
    /// More than an hour with the timing of real members, few faults or none.
    Hour,
}

/// See the file's header. Chances are for each member each time that works are given out.
#[derive(Clone, Debug)]
pub struct Duties {
    /// What kind of world it is.
    pub shape: Shape,
    /// `settings.leadership`, of every configuration.
    pub settings: Settings,
    /// No member crashes, pauses or is cut off, and no operator interferes.
    pub is_calm: bool,
    /// Members that say what nobody could honestly say.
    pub liars: BTreeSet<MemberId>,
    /// Chance of a heavy task that can wait.
    pub heavy: f64,
    /// Chance of a heavy task that cannot.
    pub unasked: f64,
    /// Every member's compaction recurs, at this interval at the soonest.
    pub recurs: Option<Duration>,
    /// At those moments every member is due.
    pub are_all_due: bool,
    /// When the world is healed every member is in a task that does not end, and the primary steps down.
    pub are_all_busy: bool,
    /// Chance of a disk that becomes sick, or well.
    pub sick_disk: f64,
    /// Chance of a member that begins to measure nonsense, or ceases to.
    pub nonsense: f64,
    /// Chance of a member that follows nobody for a while.
    pub lag: f64,
    /// How busy clients keep a primary.
    pub load: f64,
    /// How often works are given out.
    pub work_ms: u64,
    /// How often a member measures itself.
    pub measure_ms: u64,
    /// The longest heavy task.
    pub task_ms_max: u64,
    /// Share of messages that are overtaken by many later ones.
    pub stray: f64,
    /// Chance of a member that pauses for some moments, beside the faults there are.
    pub pause: f64,
    /// Chance of a member that stands for election, or crashes if it is primary, beside what faults bring about.
    pub stand: f64,
    /// What takes a millisecond in a storm takes so many here: clients' pauses, and faults'.
    pub slowness: u64,
}

impl Duties {
    pub(super) fn draw(random: &mut StdRng, shape: Option<Shape>) -> Self {
        let drawn = match random.random_range(0..100) {
            0..2 => Shape::Hour,
            2..10 => Shape::Together,
            10..20 => Shape::Claims,
            _ => Shape::Storm,
        };
        match shape.unwrap_or(drawn) {
            Shape::Storm => Self::storm(random),
            Shape::Together => Self::together(random),
            Shape::Claims => Self::claims(random),
            Shape::Hour => Self::hour(random),
        }
    }

    fn storm(random: &mut StdRng) -> Self {
        let ms = Duration::from_millis;
        let is_quiet = random.random_bool(0.1);
        let settings = Settings {
            postpone_max: ms(*[0, 2_000, 10_000, 30_000].choose(random).unwrap_or(&0)),
            cooldown: ms(*[0, 1_000, 4_000, 10_000].choose(random).unwrap_or(&0)),
            tenure_min: ms(*[0, 0, 3_000].choose(random).unwrap_or(&0)),
            // Ten seconds after the beginning; and for those that compact, before.
            windows: match random.random_range(0..10) {
                0 => window(None, 0, 5).into_iter().collect(),
                1 => window(None, 0, 5).into_iter().chain(window(Some(TaskKind::Compaction), 1_430, 1_440)).collect(),
                _ => Vec::new(),
            },
            ..settings(random)
        };
        let mut sometimes = |chance: f64, value: f64| if random.random_bool(chance) { value } else { 0.0 };
        let busy = |value: f64| if is_quiet { 0.0 } else { value };
        let heavy = busy(0.03 + sometimes(0.4, 0.15));
        let (unasked, sick_disk) = (busy(sometimes(0.3, 0.02)), busy(sometimes(0.2, 0.02)));
        let (nonsense, lag) = (busy(sometimes(0.2, 0.05)), sometimes(0.4, 0.03));
        let liars = if random.random_bool(0.15) { random.random_range(1..8_u32) } else { 0 };
        Self {
            shape: Shape::Storm,
            settings,
            is_calm: random.random_bool(0.25),
            liars: (0..3).filter(|id| liars >> id & 1 == 1).map(MemberId).collect(),
            heavy,
            unasked,
            recurs: (!is_quiet && random.random_bool(0.3)).then(|| ms(random.random_range(3_000..10_000))),
            are_all_due: !is_quiet && random.random_bool(0.1),
            are_all_busy: !is_quiet && random.random_bool(0.1),
            sick_disk,
            nonsense,
            lag,
            load: *[0.8, 0.8, 0.01].choose(random).unwrap_or(&0.8),
            work_ms: 400,
            measure_ms: 500,
            task_ms_max: *[2_000, 8_000].choose(random).unwrap_or(&2_000),
            stray: 0.02,
            pause: 0.0,
            stand: 0.0,
            slowness: 1,
        }
    }

    fn claims(random: &mut StdRng) -> Self {
        let (stray, pause, stand, task_ms_max) =
            if random.random_bool(0.5) { (0.3, 0.05, 0.05, 4_000) } else { (0.05, 0.02, 0.1, 6_000) };
        let settings = Settings {
            mode: Mode::Always,
            ranking: Ranking::Mrc,
            cooldown: Duration::ZERO,
            tenure_min: Duration::ZERO,
            moves_per_hour_max: 3600,
            ..Settings::default()
        };
        Self {
            shape: Shape::Claims,
            settings,
            is_calm: false,
            liars: BTreeSet::new(),
            heavy: 0.15,
            unasked: 0.0,
            recurs: None,
            are_all_due: false,
            are_all_busy: false,
            sick_disk: 0.0,
            nonsense: 0.0,
            lag: 0.0,
            task_ms_max,
            stray,
            pause,
            stand,
            ..Self::storm(random)
        }
    }

    fn together(random: &mut StdRng) -> Self {
        let settings = Settings {
            mode: Mode::Always,
            cooldown: Duration::ZERO,
            tenure_min: Duration::ZERO,
            postpone_max: Duration::from_secs(30),
            moves_per_hour_max: 3600,
            ..settings(random)
        };
        Self {
            shape: Shape::Together,
            settings,
            is_calm: true,
            liars: BTreeSet::new(),
            heavy: 0.0,
            unasked: 0.0,
            recurs: Some(Duration::from_secs(random.random_range(4..15))),
            are_all_due: true,
            are_all_busy: false,
            sick_disk: 0.0,
            nonsense: 0.0,
            lag: 0.0,
            load: 0.8,
            work_ms: 400,
            measure_ms: 500,
            task_ms_max: 4_000,
            stray: 0.02,
            pause: 0.0,
            stand: 0.0,
            slowness: 1,
        }
    }

    fn hour(random: &mut StdRng) -> Self {
        let secs = |secs| Duration::from_secs(secs);
        let is_quiet = random.random_bool(0.2);
        let settings = Settings {
            postpone_max: secs(*[0, 20, 120, 600].choose(random).unwrap_or(&600)),
            cooldown: secs(*[0, 30, 120].choose(random).unwrap_or(&120)),
            tenure_min: secs(*[0, 10, 60].choose(random).unwrap_or(&60)),
            windows: match random.random_range(0..5) {
                0 => window(Some(TaskKind::Compaction), 10, 30).into_iter().chain(window(None, 50, 70)).collect(),
                _ => Vec::new(),
            },
            ..settings(random)
        };
        let mut sometimes = |chance: f64, value: f64| if random.random_bool(chance) { value } else { 0.0 };
        let busy = |value: f64| if is_quiet { 0.0 } else { value };
        let heavy = busy(0.005 + sometimes(0.4, 0.02) + sometimes(0.2, 0.15));
        let (unasked, sick_disk) = (busy(sometimes(0.3, 0.01)), busy(sometimes(0.3, 0.003)));
        let (nonsense, lag) = (busy(sometimes(0.2, 0.05)), sometimes(0.5, 0.01));
        Self {
            shape: Shape::Hour,
            settings,
            is_calm: random.random_bool(0.6),
            liars: random.random_bool(0.1).then_some(MemberId(random.random_range(0..3))).into_iter().collect(),
            heavy,
            unasked,
            recurs: (!is_quiet && random.random_bool(0.7)).then(|| secs(random.random_range(200..1_800))),
            are_all_due: !is_quiet && random.random_bool(0.2),
            are_all_busy: !is_quiet && random.random_bool(0.1),
            sick_disk,
            nonsense,
            lag,
            load: *[0.8, 0.8, 0.8, 0.01].choose(random).unwrap_or(&0.8),
            work_ms: 5_000,
            measure_ms: 2_000,
            task_ms_max: 180_000,
            stray: 0.02,
            pause: 0.0,
            stand: 0.0,
            slowness: 40,
        }
    }

    /// Whether nothing heavy ever happens, and no disk fails.
    pub fn is_quiet(&self) -> bool {
        self.heavy == 0.0 && self.unasked == 0.0 && self.recurs.is_none() && self.sick_disk == 0.0 && !self.are_all_busy
    }

    /// For how long bad luck lasts, and how long the world may then take to come to rest; none: as the weather has it.
    pub fn length(&self) -> Option<(Duration, Duration)> {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        (self.shape == Shape::Hour).then_some((minutes(75), minutes(5)))
    }

    /// Makes the first configuration one of this kind of world.
    pub(in crate::world) fn shape(&self, configuration: &mut Configuration) {
        configuration.settings.leadership = self.settings.clone();
        match self.shape {
            Shape::Storm => {}
            Shape::Together | Shape::Claims => {
                let count = if self.shape == Shape::Claims { 4 } else { 3 };
                configuration.members.truncate(count);
                for id in configuration.members.len()..count {
                    configuration.members.push(crate::world::configuration::member(MemberId(id as i32), 1.0, false));
                }
                for member in &mut configuration.members {
                    (member.arbiter, member.priority) = (false, 1.0);
                }
                if self.shape == Shape::Claims {
                    configuration.settings.election_timeout = Duration::from_secs(2);
                    configuration.settings.heartbeat_timeout = Duration::from_secs(2);
                }
            }
            Shape::Hour => {
                configuration.members.truncate(5);
                if !configuration.members.iter().any(Member::is_electable) {
                    configuration.members[0].priority = 1.0;
                }
                let timing = &mut configuration.settings;
                timing.election_timeout = Duration::from_secs(10);
                timing.heartbeat_timeout = Duration::from_secs(10);
                timing.catch_up_timeout = None;
                timing.catch_up_takeover_delay = Some(Duration::from_secs(30));
            }
        }
    }
}

/// From the first minute to the second, of each day.
fn window(kind: Option<TaskKind>, from: u16, to: u16) -> Option<Window> {
    let (from, to) = (TimeOfDay::from_minutes(from)?, TimeOfDay::from_minutes(to)?);
    Some(Window { kind, days: Days::ALL, from, to })
}

fn settings(random: &mut StdRng) -> Settings {
    let modes = [Mode::Always, Mode::Always, Mode::CostBased, Mode::CostBased, Mode::Off];
    Settings {
        mode: *modes.choose(random).unwrap_or(&Mode::Off),
        ranking: *Ranking::ALL.choose(random).unwrap_or(&Ranking::Mrc),
        moves_per_hour_max: *[2, 3, 6, 12].choose(random).unwrap_or(&12),
        is_lab: true,
        ..Settings::default()
    }
}
