//! The checkers find every fault that is built in: a checker that finds nothing proves nothing.

use baton_consensus::Mutant;
use baton_sim::{Weather, run};

/// Worlds that a mutant may survive.
const WORLDS_MAX: u64 = 400;

/// Whether some world shows the fault, by one of the properties that it must break.
fn is_caught(mutant: Mutant, properties: &[&str]) {
    is_caught_from(0, mutant, properties);
}

/// The same with the worlds from `first` on: for a fault that few worlds show, near one that does.
fn is_caught_from(first: u64, mutant: Mutant, properties: &[&str]) {
    // Near the seeds that show them; truncation would make other worlds of those.
    let weather = Weather { mutant, truncates: false, ..Weather::default() };
    let failure = (first..first + WORLDS_MAX).find_map(|seed| run(seed, weather).err());
    let failure = failure.unwrap_or_else(|| unreachable!("{mutant:?} was not caught in {WORLDS_MAX} worlds"));
    println!("{mutant:?}: seed {}: {}", failure.seed, failure.property);
    assert!(properties.contains(&failure.property), "{mutant:?} broke something else: {failure}");
}

const ONE_PRIMARY: &str = "one primary per term";
const VOTES: &str = "a vote is durable before it is told, and there is one a term";
const MATCHING: &str = "log matching";
const OWN_LOG: &str = "no commit point beyond one's own log, and none that falls";
const STAYS: &str = "what is committed stays";
const COMPLETE: &str = "leader completeness";
const ORDER: &str = "OpTimes strictly increase";

#[test]
fn acknowledgements_of_members_that_voted_for_a_successor() {
    is_caught_from(4800, Mutant::AcknowledgementsOfAnyTerm, &[STAYS, COMPLETE]);
}

#[test]
fn commitment_of_entries_of_older_terms() {
    // An entry that was committed too early and is rolled back leaves the commit point behind.
    is_caught(Mutant::OlderTermsCommit, &[STAYS, COMPLETE, OWN_LOG]);
}

#[test]
fn the_appendix_rule_for_heartbeats() {
    is_caught(Mutant::CommitPointFromAnyHeartbeat, &[STAYS, COMPLETE]);
}

#[test]
fn a_commit_point_beyond_the_own_log() {
    is_caught(Mutant::CommitPointUnclamped, &[OWN_LOG]);
}

#[test]
fn fetching_on_as_primary() {
    is_caught(Mutant::FetchesOnAsPrimary, &[MATCHING, ORDER, STAYS, COMPLETE]);
}

#[test]
fn a_vote_told_before_it_is_on_disk() {
    is_caught(Mutant::VoteNotPersisted, &[VOTES, ONE_PRIMARY]);
}

#[test]
fn votes_for_stale_logs() {
    is_caught(Mutant::VoteForStaleLogs, &[STAYS, COMPLETE]);
}

#[test]
fn two_votes_a_term() {
    is_caught(Mutant::VoteTwice, &[VOTES, ONE_PRIMARY]);
}

#[test]
fn reconfiguration_without_its_conditions() {
    is_caught(Mutant::AnyReconfiguration, &[ONE_PRIMARY, STAYS, COMPLETE, MATCHING]);
}

#[test]
fn written_counted_as_durable() {
    is_caught(Mutant::CountWrittenAsDurable, &[STAYS, COMPLETE]);
}
