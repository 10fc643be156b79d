//! Worlds in which every property holds: seeds that once failed, and a few that the commit draws (BATON_SEED of build/env.sh).

use baton_sim::{Weather, run};

/// Seeds that showed a fault, whether there was truncation in it, and what it was.
const KEPT: [(u64, bool, &str); 8] = [
    (
        107,
        false,
        "a set with an arbiter lost one of its two members with data: the other committed alone under a configuration that \
           no majority had, while the removed one was elected under the old one",
    ),
    (194, false, "members without any data were elected"),
    (
        1_795_291_057_867_259_555,
        true,
        "two members rolled back so quickly that nobody heard of it, and fetched from each other for ever, each believing \
           the other's log to be as long as it had been",
    ),
    (
        1_000_010_165,
        true,
        "a member that had the beginning of what was committed fetched from one whose log ended in a later term than that \
           and was never committed, and rolled back what was",
    ),
    (
        1_000_001_931,
        true,
        "beside an arbiter a member was given its vote before it had what the other had committed alone, and was elected \
           without it",
    ),
    (4_000_006_590, true, "three members fetched from each other in a circle, each with as much as the next"),
    (1_000_022_975, true, "the same in another world"),
    (
        3_000_000_853,
        true,
        "a checker took it for a fault that a member of an earlier term rolled back what a later one had committed without it",
    ),
];

/// Worlds that a commit draws. Those that the clock draws are `make sim`'s and `make soak`'s.
const DRAWN: u64 = 150;

#[test]
fn kept_seeds_hold() {
    for (seed, truncates, story) in KEPT {
        let weather = Weather { truncates, ..Weather::default() };
        if let Err(failure) = run(seed, weather) {
            panic!("{story}, again: {failure}");
        }
    }
}

#[test]
fn seeds_of_the_commit_hold() {
    let drawn = std::env::var("BATON_SEED").ok().and_then(|seed| seed.parse::<u64>().ok()).unwrap_or(1);
    // So that neighbours' worlds are not each other's.
    let from = drawn.wrapping_mul(1_000_003);
    for seed in (0..DRAWN).map(|n| from.wrapping_add(n)) {
        if let Err(failure) = run(seed, Weather::default()) {
            panic!("again with: make sim SEED={seed}\n{failure}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_world() {
    let tally = |seed| format!("{:?}", run(seed, Weather::default()).map_err(|failure| failure.to_string()));
    for seed in 7..10 {
        assert_eq!(tally(seed), tally(seed));
    }
}
