//! The door keeps what it promises, in worlds of many seeds, and the checkers find every fault that is built in.

use baton_admission::{Estimate, Mode, Mutant, Settings};
use baton_sim::door::{Job, Part, Plan, in_time_at_most, run_plan, run_seed, share_in_time};
use baton_types::Class;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::time::Duration;

const WORLDS: u64 = 3000;

#[test]
fn a_door_keeps_what_it_promises() {
    let (mut waited, mut aged, mut refused, mut helped) = (0, 0, 0, 0);
    for seed in 0..WORLDS {
        match run_seed(seed, Mutant::None) {
            Ok(outcome) => {
                waited += outcome.waited;
                aged += outcome.aged;
                refused += outcome.refused;
                helped += outcome.helped;
            }
            Err((property, what)) => unreachable!("seed {seed}: {property}: {what}"),
        }
    }
    // That all of it happens in these worlds.
    assert!(waited > 1000 && aged > 100 && refused > 100, "{waited} waited, {aged} aged, {refused} refused");
    assert!(helped > 1000, "{helped} helped");
}

fn is_caught(mutant: Mutant, properties: &[&str]) {
    let found = (0..WORLDS).find_map(|seed| run_seed(seed, mutant).err().map(|broken| (seed, broken)));
    let Some((seed, (property, what))) = found else { unreachable!("{mutant:?} was not caught") };
    assert!(properties.contains(&property), "{mutant:?} broke something else, seed {seed}: {property}: {what}");
    run_seed(seed, Mutant::None).expect("it is the mutant's fault");
}

#[test]
fn every_fault_is_found() {
    let order = "none of a lower class begins while a higher one that could begin waits";
    is_caught(Mutant::LowerFirst, &[order]);
    is_caught(Mutant::NoBound, &["nobody waits longer than the worst wait"]);
    is_caught(Mutant::KeepsPlaces, &["nobody waits while there is room for him"]);
    is_caught(Mutant::PausesInPlace, &["nobody waits while there is room for him"]);
    is_caught(
        Mutant::BeginsTheHopeless,
        &["who can be in time is not refused for that, and who cannot does not begin"],
    );
    is_caught(Mutant::FirstComeFirstServed, &["among equals the earliest deadline is first"]);
    is_caught(Mutant::NeverSheds, &["where too many compute for a class none of it begins for its wait alone"]);
    is_caught(Mutant::ShedsAnybody, &["so many wait, and the last of the lowest class is refused"]);
    is_caught(Mutant::ForgetsNobody, &["who has given up does not begin"]);
    let stood = "nobody is helped who has not stood for long";
    is_caught(Mutant::HelpsAtOnce, &[stood]);
    is_caught(Mutant::HelpsWhoRuns, &[stood, "who has stood for the longest is helped first"]);
    is_caught(Mutant::HelpsTheLastFirst, &["who has stood for the longest is helped first"]);
    is_caught(Mutant::HelpsNobody, &["nobody stands for longer than it takes to help those who stand"]);
    is_caught(Mutant::HelpsEverybody, &["no more are helped at once than there are processors"]);
    is_caught(Mutant::HelpsForNothing, &["who is helped has no more than a part of the processors' time"]);
    is_caught(Mutant::HelpsToTheEnd, &["who has had enough, or has nothing to do, is not helped any more"]);
    is_caught(Mutant::HelpsTheIdle, &["who has had enough, or has nothing to do, is not helped any more"]);
    is_caught(Mutant::RaisesTheAged, &["no more compute than the limit", "nobody waits while there is room for him"]);
}

/// So many at once that not all of them may wait, the low ones in between.
fn a_crowd() -> Plan {
    let jobs = (0..6000)
        .map(|index| Job {
            arrives: Duration::from_micros(index / 100),
            class: [Class::Low, Class::Normal, Class::High][index as usize % 3],
            deadline: None,
            parts: vec![Part::Computes(Duration::from_micros(50))],
            killed_at: None,
            estimate: Estimate::default(),
        })
        .collect();
    Plan { processors: 1, settings: vec![(Duration::ZERO, Settings::default())], jobs, alike: false }
}

#[test]
fn of_a_crowd_the_last_of_the_lowest_class_are_refused() {
    let outcome =
        run_plan(&a_crowd(), Mutant::None).unwrap_or_else(|(property, what)| unreachable!("{property}: {what}"));
    assert!(outcome.refused > 1000, "{outcome:?}");
    let (property, _) = run_plan(&a_crowd(), Mutant::NeverSheds).expect_err("nobody is refused");
    assert_eq!(property, "so many wait, and the last of the lowest class is refused");
}

/// Requests with deadlines of 1 to 100 ms, at so many times of what one processor can do.
fn with_deadlines(seed: u64, load: f64, takes_micros: std::ops::Range<u64>) -> Plan {
    let mut random = StdRng::seed_from_u64(seed);
    let mean = (takes_micros.start + takes_micros.end) as f64 / 2.0;
    let mut arrives = Duration::ZERO;
    let jobs = (0..1500)
        .map(|_| {
            arrives += Duration::from_secs_f64(-(1.0 - random.random::<f64>()).ln() * mean * 1e-6 / load);
            let takes = Duration::from_micros(random.random_range(takes_micros.clone()));
            Job {
                arrives,
                class: Class::Normal,
                deadline: Some(arrives + Duration::from_micros(random.random_range(1_000..100_000))),
                parts: vec![Part::Computes(takes)],
                killed_at: None,
                estimate: Estimate { mean: takes, least: takes, most: takes, computes: None },
            }
        })
        .collect();
    let settings = Settings { mode: Mode::Full, ..Settings::default() };
    Plan { processors: 1, settings: vec![(Duration::ZERO, settings)], jobs, alike: false }
}

#[test]
fn of_half_as_much_again_as_there_is_time_for_nearly_all_are_in_time_that_could_be() {
    for (name, takes) in [("alike", 2_000..2_001), ("one to three", 1_000..3_000), ("half to eight", 500..8_000)] {
        let mut of_oracle = Vec::new();
        for seed in 0..5 {
            let plan = with_deadlines(seed, 1.5, takes.clone());
            let outcome =
                run_plan(&plan, Mutant::None).unwrap_or_else(|(property, what)| unreachable!("{property}: {what}"));
            let most = in_time_at_most(&plan.jobs);
            let (share, in_turn) = (outcome.in_time as f64 / 1500.0, share_in_time(&plan.jobs));
            of_oracle.push(outcome.in_time as f64 / most as f64);
            assert!(share >= 3.0 * in_turn, "{name}, seed {seed}: {share:.2}, first come first served {in_turn:.2}");
        }
        of_oracle.sort_by(f64::total_cmp);
        println!("{name}: of what an oracle has in time: {of_oracle:.3?}");
        assert!(of_oracle[2] >= 0.95, "{name}: {of_oracle:.3?}");
    }
}

#[test]
fn below_what_there_is_time_for_hardly_any_is_late() {
    let plan = with_deadlines(7, 0.6, 500..1_000);
    let outcome = run_plan(&plan, Mutant::None).unwrap_or_else(|(property, what)| unreachable!("{property}: {what}"));
    assert!(outcome.in_time as f64 >= 0.97 * in_time_at_most(&plan.jobs) as f64, "{outcome:?}");
}
