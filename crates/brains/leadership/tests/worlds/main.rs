//! Worlds of several members, each from a seed, and what must hold in them; and faults built into the machine, which the checkers find.

mod checkers;
mod elections;
mod luck;
mod weather;
mod world;

use baton_leadership::{Mutant, Rule};
use checkers::{DEADLINE, EXPLAINED, FIGURE, HOUR, MAJORITY, OFF, PRIMARY, PRIORITY, QUIET, SPACING, TARGET};
use std::collections::BTreeMap;

const WORLDS: u64 = 60;
const WORLDS_LONG: u64 = 10_000;
/// Worlds that a fault may survive.
const MUTANT_WORLDS_MAX: u64 = 400;

/// How often each rule decided in these worlds, and the most members that were busy by confirmed claims at once.
fn survive(worlds: std::ops::Range<u64>) -> (BTreeMap<&'static str, usize>, usize) {
    let (mut rules, mut in_slots) = (BTreeMap::new(), 0);
    for seed in worlds {
        // One in eight is stormy.
        match world::run(seed, Mutant::None, seed % 8 == 7) {
            Ok(world) => {
                world.rules.into_iter().for_each(|(rule, count)| *rules.entry(rule).or_default() += count);
                in_slots = in_slots.max(world.in_slots);
            }
            Err(failure) => unreachable!("{failure:?}"),
        }
    }
    println!("{rules:?}, at most {in_slots} busy at once");
    (rules, in_slots)
}

#[test]
fn every_property_holds_in_every_world_and_every_rule_decides_in_some() {
    let (rules, in_slots) = survive(0..WORLDS);
    // Members of a world are in a set, and have no operators.
    let never = [Rule::NoSet, Rule::Asked, Rule::Unasked];
    let unseen: Vec<_> =
        Rule::ALL.iter().filter(|rule| !rules.contains_key(rule.name()) && !never.contains(rule)).collect();
    assert!(unseen.is_empty() && in_slots >= 2, "hardly anything happens in these worlds: never {unseen:?}");
}

#[test]
#[ignore = "takes an hour: cargo test -p baton-leadership --test worlds -- --ignored"]
fn every_property_holds_in_ten_thousand_worlds() {
    survive(0..WORLDS_LONG);
}

/// Whether some world shows the fault, by the property that it must break.
fn is_caught(mutant: Mutant, property: &str) {
    is_caught_in(false, 0, mutant, property);
}

/// The same in the worlds from `first` on: for a fault that few show, near one that does.
fn is_caught_from(first: u64, mutant: Mutant, property: &str) {
    is_caught_in(false, first, mutant, property);
}

/// The same in worlds in which many primaries follow each other.
fn is_caught_in_storms(first: u64, mutant: Mutant, property: &str) {
    is_caught_in(true, first, mutant, property);
}

fn is_caught_in(is_stormy: bool, first: u64, mutant: Mutant, property: &str) {
    let failure = (first..first + MUTANT_WORLDS_MAX).find_map(|seed| world::run(seed, mutant, is_stormy).err());
    let failure = failure.unwrap_or_else(|| unreachable!("{mutant:?} was not caught in {MUTANT_WORLDS_MAX} worlds"));
    println!("{mutant:?}: {failure:?}");
    assert_eq!(failure.property, property, "{mutant:?} broke something else: {failure:?}");
    let without = world::run(failure.seed, Mutant::None, is_stormy);
    assert!(without.is_ok(), "it is not the mutant's fault: {:?}", without.err());
}

#[test]
fn moving_with_the_mode_off() {
    is_caught(Mutant::MovesWhenOff, OFF);
}

#[test]
fn postponing_for_ever() {
    is_caught(Mutant::PostponesForEver, DEADLINE);
}

#[test]
fn believing_old_gossip() {
    is_caught(Mutant::TrustsOldGossip, TARGET);
}

#[test]
fn handing_over_to_who_works() {
    is_caught(Mutant::IgnoresTheirTasks, TARGET);
}

#[test]
fn handing_over_to_who_lags() {
    is_caught_from(70, Mutant::IgnoresLag, TARGET);
}

#[test]
fn confirming_every_claim() {
    is_caught(Mutant::GrantsEverybody, MAJORITY);
}

#[test]
fn confirming_before_having_heard_who_is_busy() {
    is_caught_in_storms(0, Mutant::GrantsUnheard, MAJORITY);
}

#[test]
fn beginning_by_what_a_primary_of_another_term_confirms() {
    is_caught_in_storms(0, Mutant::BelievesAnyTerm, MAJORITY);
}

#[test]
fn beginning_by_a_confirmation_that_was_given_to_another_since() {
    is_caught_in_storms(120, Mutant::BelievesLateGrants, MAJORITY);
}

#[test]
fn moving_too_soon() {
    is_caught(Mutant::NoCooldown, SPACING);
}

#[test]
fn counting_no_moves() {
    is_caught(Mutant::CountsNoMoves, HOUR);
}

#[test]
fn taking_everything_for_heavy() {
    is_caught(Mutant::EverythingIsHeavy, QUIET);
}

#[test]
fn handing_over_to_the_worst() {
    is_caught(Mutant::TakesTheWorst, PRIORITY);
}

#[test]
fn not_standing_while_everybody_is_busy() {
    is_caught(Mutant::NeverStandsBusy, PRIMARY);
}

#[test]
fn explaining_the_best_candidate_only() {
    is_caught(Mutant::ExplainsTheBestOnly, EXPLAINED);
}

#[test]
fn skipping_the_state_between_two() {
    is_caught(Mutant::SkipsStates, FIGURE);
}
