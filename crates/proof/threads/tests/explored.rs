//! Every scenario in many orders, and every mutant found. The seed is the commit's (BATON_SEED of build/env.sh).

use baton_threads::{MUTANTS, PARTS, explore, finds};

const ORDERS: usize = 4000;

fn seed() -> u64 {
    std::env::var("BATON_SEED").ok().and_then(|seed| seed.parse::<u64>().ok()).unwrap_or(1)
}

#[test]
fn every_scenario_holds_in_every_order_that_is_tried() {
    std::thread::scope(|scope| {
        for (part, scenarios) in PARTS {
            for (name, scenario) in *scenarios {
                println!("{part}: {name}");
                scope.spawn(move || explore(*scenario, ORDERS, seed()));
            }
        }
    });
}

#[test]
fn every_mutant_is_found() {
    for (name, scenario) in MUTANTS {
        assert!(finds(*scenario, 10 * ORDERS, seed()), "nobody notices {name}");
    }
}
