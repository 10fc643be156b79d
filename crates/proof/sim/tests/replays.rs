//! What the members of simulated worlds were told is written down, read, and stepped through again, all of it as it was.

use baton_sim::replay::{MACHINES, replay_file};
use baton_sim::{Shape, Weather, World};
use std::collections::BTreeMap;

/// The files of all processes of a world.
fn files(seed: u64, weather: Weather) -> Result<Vec<Vec<u8>>, String> {
    let mut world = World::new(seed, Weather { records: true, ..weather });
    while world.step()? {}
    Ok(world.recordings())
}

/// Every kind of input, effect and state that worlds bring about comes back from the file as it was, and every machine does the same
/// again. Fails if a field is not written, or a machine is changed by anything but what is recorded.
#[test]
fn whatever_a_world_brings_about_is_replayed_as_recorded() {
    let mut steps = BTreeMap::new();
    let drawn = std::env::var("BATON_SEED").ok().and_then(|seed| seed.parse::<u64>().ok()).unwrap_or(1);
    let shapes = [None, Some(Shape::Storm), Some(Shape::Together), Some(Shape::Claims)];
    for (n, shape) in (0..8).zip(shapes.into_iter().cycle()) {
        let seed = drawn.wrapping_mul(1_000_003).wrapping_add(n);
        for file in files(seed, Weather { leadership: Some(shape), ..Weather::default() }).unwrap() {
            for machine in MACHINES {
                match replay_file(file.as_slice(), Some(machine), &mut |_| {}) {
                    Ok(report) => *steps.entry(machine).or_insert(0) += report.steps,
                    Err(why) => panic!("seed {seed}: {why}"),
                }
            }
        }
    }
    for machine in MACHINES {
        assert!(steps[machine] > 1000, "hardly anything happens: {steps:?}");
    }
}

/// Of each machine the first step that had something told, applied, committed or said.
#[test]
fn a_step_that_is_left_out_is_noticed() {
    let whole = files(3, Weather { members: Some(3), copies: false, ..Weather::default() }).unwrap();
    let mut noticed = BTreeMap::new();
    for file in &whole {
        let lines: Vec<&str> = std::str::from_utf8(file).unwrap().lines().collect();
        for effect in ["{\"Apply\":", "{\"Committed\":", "{\"TermAdopted\":", "{\"Said\":"] {
            let is_of_effect =
                |line: &&str| line.split_once("\"effects\":").is_some_and(|(_, told)| told.contains(effect));
            let Some(at) = lines.iter().position(is_of_effect) else { continue };
            let left = [&lines[..at], &lines[at + 1..]].concat().join("\n");
            let is_noticed = replay_file(left.as_bytes(), None, &mut |_| {}).is_err();
            noticed.entry(effect).or_insert_with(Vec::new).push(is_noticed);
        }
    }
    assert_eq!(noticed.len(), 4, "{noticed:?}");
    for (effect, noticed) in noticed {
        assert!(noticed.len() > 2 && noticed.iter().all(|is_noticed| *is_noticed), "{effect}: {noticed:?}");
    }
}
