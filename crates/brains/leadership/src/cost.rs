//! What a task costs, learnt by kind and subject from what earlier ones cost; and whether moving leadership is worth it (the paper's
//! Policy 1).
//!
//! Everything is brought to one unit, seconds of the member's full service: processor time over its processors, bytes over what its
//! disk can do, and what is evicted from the cache as the time that reading it again takes. What clients feel of it is its product
//! with the load.
//!
//! Invariants:
//! - Predictions are finite and not negative, whatever was measured.
//! - One measurement changes a prediction by a quarter of the difference, and no more.
//! - What is learnt of one subject says of another of its kind no more than one voice among all, however often it was learnt: tables of
//!   the oplog that only change their level cost next to nothing, and come every few seconds.
//! - A move needs an absolute gain and a relative one, so that of a move and the opposite one, with the same figures, at most one
//!   is worthwhile.

use crate::figures::{Figures, within};
use crate::settings::Settings;
use crate::step::Work;
use baton_types::TaskKind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The weight of the newest measurement in what was learnt.
const WEIGHT: f64 = 0.25;
/// A task that costs so much of a fully loaded member is heavy: less is over before leadership would have moved.
const HEAVY_SECS: f64 = 0.5;
/// What does less than this share of what is usual teaches nothing: most of its cost is that of beginning.
const TAUGHT_BY_MIN: f64 = 0.01;
/// No figure of a cost counts for more: about thirty years, or a petabyte.
const FIGURE_MAX: f64 = 1e15;

/// What a task cost, or will.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Processor time, in seconds.
    pub cpu_secs: f64,
    /// Bytes read from disk.
    pub read_bytes: f64,
    /// Bytes written to disk.
    pub written_bytes: f64,
    /// Bytes of clients' data evicted from caches.
    pub evicted_bytes: f64,
    /// From its beginning to its end, in seconds.
    pub duration_secs: f64,
}

impl Cost {
    fn map(self, f: impl Fn(f64) -> f64) -> Self {
        Self {
            cpu_secs: f(self.cpu_secs),
            read_bytes: f(self.read_bytes),
            written_bytes: f(self.written_bytes),
            evicted_bytes: f(self.evicted_bytes),
            duration_secs: f(self.duration_secs),
        }
    }

    fn times(self, factor: f64) -> Self {
        self.map(|figure| figure * factor).bounded()
    }

    fn bounded(self) -> Self {
        self.map(|figure| within(figure, 0.0, FIGURE_MAX, 0.0))
    }

    /// A weighted mean of what was learnt and what is new.
    fn moved_towards(self, new: Self) -> Self {
        self.moved_by(new, WEIGHT)
    }

    /// The same with this weight of the new.
    fn moved_by(self, new: Self, weight: f64) -> Self {
        let mean = |old: f64, new: f64| old + weight * (new - old);
        Self {
            cpu_secs: mean(self.cpu_secs, new.cpu_secs),
            read_bytes: mean(self.read_bytes, new.read_bytes),
            written_bytes: mean(self.written_bytes, new.written_bytes),
            evicted_bytes: mean(self.evicted_bytes, new.evicted_bytes),
            duration_secs: mean(self.duration_secs, new.duration_secs),
        }
    }

    /// What it takes from a member that is fully loaded: seconds of its service.
    pub fn disturbance_secs(self, on: &Figures) -> f64 {
        let on = on.bounded();
        let moved = self.read_bytes + self.written_bytes + self.evicted_bytes;
        within(self.cpu_secs / on.cpus + moved / on.disk_bytes_per_sec, 0.0, FIGURE_MAX, 0.0)
    }
}

/// How much a task of this kind does when it does not say, in its units.
fn usual_units(kind: TaskKind) -> f64 {
    match kind {
        TaskKind::Flush => (32 << 20) as f64,
        TaskKind::Compaction => (256 << 20) as f64,
        TaskKind::IndexBuild | TaskKind::Validate => 1e6,
        TaskKind::OplogTruncation | TaskKind::DropCleanup => (64 << 20) as f64,
        TaskKind::TtlDeletion => 1e3,
        TaskKind::Checkpoint => 1.0,
        TaskKind::Backup | TaskKind::InitialSyncSource => (4_u64 << 30) as f64,
    }
}

/// What one unit of this kind's work costs before anything was learnt: orders of magnitude.
fn assumed(kind: TaskKind) -> Cost {
    let (cpu_secs, read_bytes, written_bytes, evicted_bytes, duration_secs) = match kind {
        // Bytes: written once, from memory.
        TaskKind::Flush => (4e-9, 0.0, 1.0, 0.0, 1e-8),
        // Bytes: merged at a hundred megabytes a second.
        TaskKind::Compaction => (1e-8, 1.0, 1.0, 0.1, 2e-8),
        // Documents.
        TaskKind::IndexBuild => (5e-6, 1e3, 1e2, 5e2, 1e-5),
        TaskKind::Validate => (1e-5, 1e3, 0.0, 1e3, 2e-5),
        TaskKind::TtlDeletion => (2e-5, 1e3, 2e3, 0.0, 5e-5),
        // Bytes that are dropped with their files.
        TaskKind::OplogTruncation | TaskKind::DropCleanup => (1e-10, 0.0, 1e-2, 0.0, 1e-10),
        // Links to files.
        TaskKind::Checkpoint => (0.05, 0.0, 1e6, 0.0, 0.2),
        // Bytes: everything is read once.
        TaskKind::Backup | TaskKind::InitialSyncSource => (5e-9, 1.0, 0.0, 1.0, 1e-8),
    };
    Cost { cpu_secs, read_bytes, written_bytes, evicted_bytes, duration_secs }
}

/// Of so many subjects it is known what their tasks cost. Who was learnt of longest ago is forgotten.
const SUBJECTS_MAX: usize = 256;

/// What is learnt apart: by kind, by whether the amount of work was known, since the two say different things, and by subject.
type Of = (TaskKind, bool, u64);

/// What one unit costs, and when that was last learnt, counted in lessons.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Learnt {
    per_unit: Cost,
    at: u64,
}

/// Costs of one unit of work.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CostModel {
    #[serde(with = "baton_replay::pairs")]
    learnt: BTreeMap<Of, Learnt>,
    lessons: u64,
    /// Smoothed seconds without a primary per move, once there was one.
    gap_secs: Option<f64>,
}

/// The gap of a move before any was measured.
const GAP_SECS_ASSUMED: f64 = 0.1;

impl CostModel {
    fn units(work: &Work) -> f64 {
        if work.expected == 0 { usual_units(work.kind) } else { work.expected as f64 }
    }

    /// Takes what a task has cost.
    pub fn learn(&mut self, work: &Work, cost: Cost) {
        if Self::units(work) < TAUGHT_BY_MIN * usual_units(work.kind) {
            return;
        }
        let new = cost.bounded().times(1.0 / Self::units(work));
        let per_unit = self.per_unit(work).moved_towards(new);
        self.lessons += 1;
        self.learnt.insert(Self::of(work), Learnt { per_unit, at: self.lessons });
        if self.learnt.len() > SUBJECTS_MAX
            && let Some(oldest) = self.learnt.iter().min_by_key(|(_, learnt)| learnt.at).map(|(of, _)| *of)
        {
            self.learnt.remove(&oldest);
        }
    }

    fn of(work: &Work) -> Of {
        (work.kind, work.expected > 0, work.subject)
    }

    /// What one unit of this work costs: as was learnt of its subject; else the mean of what is assumed and of what was learnt of others.
    fn per_unit(&self, work: &Work) -> Cost {
        if let Some(learnt) = self.learnt.get(&Self::of(work)) {
            return learnt.per_unit;
        }
        let (kind, is_known, _) = Self::of(work);
        let others = self.learnt.range((kind, is_known, 0)..=(kind, is_known, u64::MAX));
        let (mut count, mut mean) = (1.0, assumed(kind));
        for (_, other) in others {
            count += 1.0;
            mean = mean.moved_by(other.per_unit, 1.0 / count);
        }
        mean
    }

    /// Takes how long nobody took writes while leadership moved.
    pub fn learn_gap(&mut self, gap: Duration) {
        let new = gap.as_secs_f64();
        self.gap_secs = Some(self.gap_secs.map_or(new, |old| old + WEIGHT * (new - old)));
    }

    /// What a task will cost.
    pub fn predict(&self, work: &Work) -> Cost {
        let cost = self.per_unit(work).times(Self::units(work));
        match work.expected_duration {
            // Who asks knows how long: it does as much per second as others of its kind.
            Some(stated) if work.expected == 0 && cost.duration_secs > 0.0 => {
                cost.times(stated.as_secs_f64() / cost.duration_secs)
            }
            Some(stated) => Cost { duration_secs: stated.as_secs_f64(), ..cost },
            None => cost,
        }
    }

    /// Whether a task will be felt at all by the clients of a loaded member.
    pub fn is_heavy(&self, work: &Work, on: &Figures) -> bool {
        self.predict(work).disturbance_secs(on) >= HEAVY_SECS
    }

    /// What clients here will lose if the task runs here: seconds of service.
    pub fn staying_secs(&self, work: &Work, here: &Figures) -> f64 {
        let here = here.bounded();
        here.load * self.predict(work).disturbance_secs(&here)
    }

    /// What clients will lose if leadership moves to a member with these figures: the gap, what the successor has to read that is in
    /// this member's caches, and what large statements under way have done so far, which are ended. Without figures: as if somebody were
    /// as warm as this member.
    pub fn moving_secs(&self, here: &Figures, there: Option<&Figures>) -> f64 {
        let here = here.bounded();
        let hit_ratio_there = there.map_or(1.0, |there| there.bounded().cache_hit_ratio);
        let colder = (here.cache_hit_ratio - hit_ratio_there).max(0.0);
        here.load * (self.gap_secs() + colder * here.warm_up_secs()) + here.undone_secs
    }

    /// The gap that the next move is predicted to have, in seconds.
    pub fn gap_secs(&self) -> f64 {
        self.gap_secs.unwrap_or(GAP_SECS_ASSUMED)
    }
}

/// Whether what is saved is worth what it costs: by an absolute margin and by a relative one.
pub fn is_worthwhile(staying_secs: f64, moving_secs: f64, settings: &Settings) -> bool {
    staying_secs - moving_secs >= settings.gain_secs_min && staying_secs >= settings.gain_ratio_min * moving_secs
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn work(kind: TaskKind, expected: u64) -> Work {
        Work { kind, subject: 1, expected, expected_duration: None }
    }

    fn loaded() -> Figures {
        Figures { load: 1.0, cache_hit_ratio: 0.9, cache_hot_bytes: 1 << 30, cpus: 2.0, ..Figures::default() }
    }

    #[test]
    fn what_is_assumed_calls_flushes_light_and_backups_heavy() {
        let model = CostModel::default();
        let is_heavy = |kind, expected| model.is_heavy(&work(kind, expected), &loaded());
        for (kind, expected) in [
            (TaskKind::Flush, 0),
            (TaskKind::Flush, 64 << 20),
            (TaskKind::Compaction, 4 << 20),
            (TaskKind::OplogTruncation, 1 << 30),
            (TaskKind::TtlDeletion, 0),
            (TaskKind::Checkpoint, 0),
        ] {
            assert!(!is_heavy(kind, expected), "{kind:?} of {expected}");
        }
        for (kind, expected) in [
            (TaskKind::Compaction, 0),
            (TaskKind::Compaction, 1 << 30),
            (TaskKind::Backup, 0),
            (TaskKind::InitialSyncSource, 0),
            (TaskKind::IndexBuild, 0),
            (TaskKind::Validate, 0),
        ] {
            assert!(is_heavy(kind, expected), "{kind:?} of {expected}");
        }
    }

    #[test]
    fn a_statement_under_way_is_not_ended_for_less_than_it_has_taken() {
        let (model, settings) = (CostModel::default(), Settings::default());
        let is_worth = |undone_secs| {
            let here = Figures { undone_secs, ..loaded() };
            let staying = model.staying_secs(&work(TaskKind::Compaction, 1 << 30), &here);
            is_worthwhile(staying, model.moving_secs(&here, None), &settings)
        };
        assert!(is_worth(0.0) && is_worth(0.01));
        assert!(!is_worth(60.0));
    }

    #[test]
    fn who_knows_how_long_a_backup_takes_is_believed() {
        let model = CostModel::default();
        let stated = |secs| Work { expected_duration: Some(Duration::from_secs(secs)), ..work(TaskKind::Backup, 0) };
        let (short, long) = (model.predict(&stated(10)), model.predict(&stated(20)));
        assert_eq!((short.duration_secs, long.duration_secs), (10.0, 20.0));
        assert!((long.read_bytes - 2.0 * short.read_bytes).abs() < 1.0);
    }

    #[test]
    fn a_kind_that_proves_cheap_is_soon_predicted_so_and_a_single_one_is_not_believed_at_once() {
        let mut model = CostModel::default();
        let compaction = work(TaskKind::Compaction, 1 << 30);
        let before = model.predict(&compaction).disturbance_secs(&loaded());
        model.learn(&compaction, Cost::default());
        let once = model.predict(&compaction).disturbance_secs(&loaded());
        assert!((once - before * 0.75).abs() < 1e-6);
        (0..20).for_each(|_| model.learn(&compaction, Cost::default()));
        assert!(!model.is_heavy(&compaction, &loaded()));
        assert!(model.is_heavy(&work(TaskKind::Compaction, 0), &loaded()), "of an unknown amount nothing was learnt");
    }

    /// They were learnt as one: tables of the oplog that only change their level made a collection's compaction look cheap, and it ran on
    /// the primary.
    #[test]
    fn what_is_learnt_often_of_one_subject_says_little_of_another() {
        let mut model = CostModel::default();
        let of = |subject| Work { subject, ..work(TaskKind::Compaction, 256 << 20) };
        (0..1000).for_each(|_| model.learn(&of(1), Cost::default()));
        assert!(!model.is_heavy(&of(1), &loaded()));
        assert!(model.is_heavy(&of(2), &loaded()), "nobody has seen what it costs");
        let dear = Cost { cpu_secs: 20.0, ..Cost::default() };
        model.learn(&of(2), dear);
        (0..1000).for_each(|_| model.learn(&of(1), Cost::default()));
        assert!(model.is_heavy(&of(2), &loaded()));
    }

    #[test]
    fn of_many_subjects_the_latest_are_remembered() {
        let mut model = CostModel::default();
        let of = |subject| Work { subject, ..work(TaskKind::Compaction, 256 << 20) };
        for subject in 0..3 * SUBJECTS_MAX as u64 {
            (0..30).for_each(|_| model.learn(&of(subject), Cost { cpu_secs: 1e6, ..Cost::default() }));
            model.learn(&of(0), Cost::default());
        }
        assert_eq!(model.learnt.len(), SUBJECTS_MAX);
        assert!(model.learnt.contains_key(&CostModel::of(&of(0))), "what comes again and again is known");
        assert!(!model.learnt.contains_key(&CostModel::of(&of(1))));
    }

    #[test]
    fn what_a_tiny_task_cost_makes_no_larger_one_heavy() {
        let mut model = CostModel::default();
        let cost = Cost { cpu_secs: 0.02, read_bytes: 1e5, ..Cost::default() };
        (0..20).for_each(|_| model.learn(&work(TaskKind::Validate, 2), cost));
        assert!(!model.is_heavy(&work(TaskKind::Validate, 1000), &loaded()));
    }

    #[test]
    fn a_lone_clients_trickle_is_not_worth_a_move_and_a_full_load_is() {
        let (model, settings) = (CostModel::default(), Settings::default());
        let backup = work(TaskKind::Backup, 4 << 30);
        let is_worth = |load| {
            let here = Figures { load, ..loaded() };
            is_worthwhile(model.staying_secs(&backup, &here), model.moving_secs(&here, Some(&loaded())), &settings)
        };
        assert!(is_worth(1.0) && is_worth(0.2) && !is_worth(0.005) && !is_worth(0.0));
    }

    fn figures() -> impl Strategy<Value = Figures> {
        let share = || prop_oneof![8 => 0.0..=1.0, 1 => Just(f64::NAN), 1 => Just(f64::INFINITY)];
        (share(), share(), any::<u64>(), 0.0..64.0).prop_map(|(load, hit_ratio, hot, cpus)| Figures {
            load,
            cache_hit_ratio: hit_ratio,
            cache_hot_bytes: hot,
            cpus,
            ..Figures::default()
        })
    }

    fn any_cost() -> impl Strategy<Value = Cost> {
        let figure = || prop_oneof![6 => 0.0..1e12, 1 => Just(f64::NAN), 1 => Just(f64::INFINITY), 1 => Just(-1e9)];
        (figure(), figure(), figure(), figure(), figure()).prop_map(|(cpu, read, written, evicted, duration)| Cost {
            cpu_secs: cpu,
            read_bytes: read,
            written_bytes: written,
            evicted_bytes: evicted,
            duration_secs: duration,
        })
    }

    fn settings() -> impl Strategy<Value = Settings> {
        (0.01..10.0, 1.0..10.0).prop_map(|(gain_secs_min, gain_ratio_min)| Settings {
            gain_secs_min,
            gain_ratio_min,
            ..Settings::default()
        })
    }

    /// What staying must cost at least for a move of that cost to be worthwhile.
    fn worthwhile_from(moving: f64, settings: &Settings) -> f64 {
        (moving + settings.gain_secs_min).max(moving * settings.gain_ratio_min)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn predictions_can_be_reckoned_with_whatever_was_measured(
            costs in prop::collection::vec((0usize..10, any_cost(), any::<u64>()), 0..20),
            here in figures(),
            asked in (0usize..10, any::<u64>()),
            gap_ms in any::<u32>(),
        ) {
            let mut model = CostModel::default();
            for (kind, cost, expected) in costs {
                model.learn(&work(TaskKind::ALL[kind], expected), cost);
            }
            model.learn_gap(Duration::from_millis(u64::from(gap_ms)));
            let (staying, moving) = (
                model.staying_secs(&work(TaskKind::ALL[asked.0], asked.1), &here),
                model.moving_secs(&here, Some(&here)),
            );
            prop_assert!(staying.is_finite() && staying >= 0.0 && moving.is_finite() && moving >= 0.0);
        }

        #[test]
        fn a_move_and_the_opposite_move_are_never_both_worthwhile(
            here in 0.0..1e6, there in 0.0..1e6, settings in settings(),
        ) {
            prop_assert!(!(is_worthwhile(here, there, &settings) && is_worthwhile(there, here, &settings)));
        }

        #[test]
        fn between_a_move_and_the_opposite_one_lies_a_band_that_noise_does_not_cross(
            moving in 0.0..1e4, surplus in 1e-6..1.0, noise in 0.0..1.0, settings in settings(),
        ) {
            let staying = worthwhile_from(moving, &settings) * (1.0 + surplus);
            prop_assert!(is_worthwhile(staying, moving, &settings));
            // Half of the margin lost on either side is not enough for the way back.
            let margin = settings.gain_secs_min.max((settings.gain_ratio_min - 1.0) * moving);
            let (less, more) = (staying - noise * margin / 2.0, moving + noise * margin / 2.0);
            prop_assert!(!is_worthwhile(more, less, &settings));
        }

        #[test]
        fn what_costs_more_here_or_less_there_is_not_less_worth_a_move(
            moving in 0.0..1e4, surplus in 1e-6..1.0, more in 0.0..1e3, less in 0.0..1.0, settings in settings(),
        ) {
            let staying = worthwhile_from(moving, &settings) * (1.0 + surplus);
            prop_assert!(is_worthwhile(staying + more, moving * less, &settings));
        }

        #[test]
        fn what_is_learnt_lies_between_what_was_assumed_and_what_was_measured(
            kind in 0usize..10, cpu in 0.0..1e6, times in 1usize..30, expected in 1_u64..1 << 40,
        ) {
            let work = work(TaskKind::ALL[kind], expected);
            let measured = Cost { cpu_secs: cpu, ..Cost::default() };
            let mut model = CostModel::default();
            let before = model.predict(&work).cpu_secs;
            let (least, most) = (before.min(cpu) * (1.0 - 1e-9), before.max(cpu) * (1.0 + 1e-9));
            for _ in 0..times {
                model.learn(&work, measured);
                let predicted = model.predict(&work).cpu_secs;
                prop_assert!(least <= predicted && predicted <= most, "{least} <= {predicted} <= {most}");
            }
        }
    }
}
