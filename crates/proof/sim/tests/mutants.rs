//! The checkers find every fault that is built in: a checker that finds nothing proves nothing.
//!
//! A change of a machine makes other worlds of the same seeds. With `MUTANT_WORLDS=20000` each test tells which of so many worlds show
//! its fault: let it begin where several lie close together.

use baton_consensus::Mutant;
use baton_consensus::index_build::Mutant as BuildMutant;
use baton_following::Mutant as FollowingMutant;
use baton_leadership::Mutant as BrainMutant;
use baton_sim::world::BuildingMutant;
use baton_sim::{Failure, Shape, Weather, run};
use std::fmt::Debug;
use std::ops::Range;

/// Worlds that a mutant may survive.
const WORLDS_MAX: u64 = 400;

/// Whether one of these worlds shows the fault, by one of the properties that it must break, and holds without it.
fn shows(worlds: Range<u64>, mutant: &dyn Debug, faulty: Weather, sound: Weather, properties: &[&str]) {
    if let Some(count) = std::env::var("MUTANT_WORLDS").ok().and_then(|count| count.parse().ok()) {
        let of_fault = |failure: &Failure| properties.contains(&failure.property);
        let seeds: Vec<u64> =
            (0..count).filter(|seed| run(*seed, faulty).is_err_and(|failure| of_fault(&failure))).collect();
        println!("{mutant:?}: {seeds:?}");
        return;
    }
    let (from, to) = (worlds.start, worlds.end);
    let failure = worlds.clone().find_map(|seed| run(seed, faulty).err());
    let failure = failure.unwrap_or_else(|| unreachable!("{mutant:?} was not caught in the worlds {from} to {to}"));
    println!("{mutant:?}: seed {}: {}", failure.seed, failure.property);
    assert!(properties.contains(&failure.property), "{mutant:?} broke something else: {failure}");
    if let Err(without) = run(failure.seed, sound) {
        unreachable!("it is not the mutant's fault: {without}");
    }
}

/// Whether some world shows the fault, by one of the properties that it must break.
fn is_caught(mutant: Mutant, properties: &[&str]) {
    is_caught_from(0, mutant, properties);
}

/// The same with the worlds from `first` on: for a fault that few worlds show, near one that does.
fn is_caught_from(first: u64, mutant: Mutant, properties: &[&str]) {
    // Near the seeds that show them; truncation, leadership, index builds and copies that take their time would make other worlds
    // of those.
    let sound = Weather {
        truncates: false,
        troubles: false,
        copies: false,
        builds: false,
        leadership: None,
        ..Weather::default()
    };
    shows(first..first + WORLDS_MAX, &mutant, Weather { mutant, ..sound }, sound, properties);
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
    is_caught_from(1_000, Mutant::AcknowledgementsOfAnyTerm, &[STAYS, COMPLETE]);
}

#[test]
fn commitment_of_entries_of_older_terms() {
    // An entry that was committed too early and is rolled back leaves the commit point behind.
    is_caught_from(8, Mutant::OlderTermsCommit, &[STAYS, COMPLETE, OWN_LOG]);
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
fn a_vote_told_before_it_is_on_disk() {
    is_caught(Mutant::VoteNotPersisted, &[VOTES, ONE_PRIMARY]);
}

#[test]
fn an_election_won_before_the_own_vote_is_on_disk() {
    is_caught(Mutant::WinsWithoutOwnVote, &[VOTES, ONE_PRIMARY]);
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
    is_caught_from(480, Mutant::AnyReconfiguration, &[ONE_PRIMARY, STAYS, COMPLETE, MATCHING]);
}

#[test]
fn written_counted_as_durable() {
    is_caught(Mutant::CountWrittenAsDurable, &[STAYS, COMPLETE]);
}

// ---- following ----

/// Worlds that a fault in how a member follows may survive.
const FOLLOWING_WORLDS_MAX: u64 = 400;
/// Worlds that a fault in how it copies may.
const COPYING_WORLDS_MAX: u64 = 2000;

/// Whether some world shows the fault, by one of the properties that it must break, and holds without it.
fn is_caught_following(first: u64, following_mutant: FollowingMutant, properties: &[&str]) {
    let sound = Weather { copies: false, builds: false, leadership: None, ..Weather::default() };
    let worlds = first..first + FOLLOWING_WORLDS_MAX;
    shows(worlds, &following_mutant, Weather { following_mutant, ..sound }, sound, properties);
}

/// The same of a fault in how a member copies, where copies take their time.
fn is_caught_copying(first: u64, following_mutant: FollowingMutant, properties: &[&str]) {
    let sound = Weather { builds: false, leadership: None, ..Weather::default() };
    let worlds = first..first + COPYING_WORLDS_MAX;
    shows(worlds, &following_mutant, Weather { following_mutant, ..sound }, sound, properties);
}

const ONCE: &str = "no entry is left out or applied twice";
const SAYS_WHY: &str = "whoever makes no progress says why";
const BACK: &str = "nobody goes back for a source that is not ahead";
const SPARED: &str = "at most one voter has given up its copy";
const AT_REST: &str = "liveness";

#[test]
fn fetching_on_as_primary() {
    is_caught_following(5028, FollowingMutant::FetchesOnAsPrimary, &[MATCHING, ORDER, STAYS, COMPLETE, ONCE]);
}

#[test]
fn resting_with_entries_in_hand() {
    is_caught_following(100, FollowingMutant::RestsAtOnce, &[MATCHING, ORDER, ONCE]);
}

#[test]
fn appending_what_does_not_follow() {
    is_caught_following(0, FollowingMutant::AppendsUnjudged, &[MATCHING, ORDER, ONCE]);
}

#[test]
fn leaving_out_what_cannot_be_applied() {
    is_caught_following(0, FollowingMutant::SkipsRefused, &[MATCHING, ONCE]);
}

#[test]
fn saying_nothing_of_what_cannot_be_applied() {
    is_caught_following(0, FollowingMutant::RefusesSilently, &[SAYS_WHY, AT_REST]);
}

#[test]
fn giving_up_a_copy_that_the_set_cannot_spare() {
    is_caught_following(2000, FollowingMutant::NeverAsksToSpare, &[SPARED]);
}

#[test]
fn never_giving_up_a_copy() {
    is_caught_following(0, FollowingMutant::NeverGivesUpItsCopy, &[AT_REST]);
}

#[test]
fn forgetting_what_is_not_built_yet() {
    is_caught_following(0, FollowingMutant::ForgetsWhatIsNotYetBuilt, &[AT_REST]);
}

#[test]
fn leaving_a_source_silently() {
    is_caught_following(0, FollowingMutant::FailsSilently, &[SAYS_WHY, AT_REST]);
}

#[test]
fn guessing_the_common_entry() {
    is_caught_following(0, FollowingMutant::GuessesTheCommonEntry, &[STAYS, COMPLETE, OWN_LOG, AT_REST]);
}

#[test]
fn rolling_back_without_looking_again() {
    is_caught_following(0, FollowingMutant::RollsBackWithoutLookingAgain, &[BACK, STAYS, COMPLETE]);
}

#[test]
fn never_telling_of_the_end_of_a_rollback() {
    is_caught_following(0, FollowingMutant::NeverReadyAgain, &[AT_REST]);
}

// ---- copies ----

const WHOLE: &str = "who is not whole serves nobody and has no vote";
const DOCUMENTS: &str = "who has applied the same entry has the same documents";

#[test]
fn being_ready_while_it_copies() {
    is_caught_copying(0, FollowingMutant::ReadyWhileItCopies, &[WHOLE]);
}

#[test]
fn counting_as_whole_too_early() {
    is_caught_copying(0, FollowingMutant::CountsAsWholeTooEarly, &[DOCUMENTS]);
}

#[test]
fn trusting_a_source_that_rolled_back() {
    is_caught_copying(500, FollowingMutant::TrustsARolledBackSource, &[DOCUMENTS]);
}

#[test]
fn leaving_a_gap_in_the_copied_log() {
    is_caught_copying(0, FollowingMutant::LeavesAGapInTheCopiedLog, &[ONCE, MATCHING, DOCUMENTS]);
}

#[test]
fn forgetting_a_copier_that_lost_its_connection() {
    is_caught_copying(0, FollowingMutant::ForgetsALostCopier, &[SAYS_WHY, AT_REST]);
}

#[test]
fn abandoning_a_copy_that_is_whole() {
    is_caught_copying(0, FollowingMutant::AbandonsAWholeCopy, &[SAYS_WHY, AT_REST]);
}

#[test]
fn never_ending_a_copy() {
    is_caught_copying(0, FollowingMutant::NeverEndsACopy, &[SAYS_WHY, AT_REST]);
}

// ---- leadership ----

/// Whether some world of this kind shows the fault, by the property that it must break, and holds without it.
fn is_caught_leading(shape: Option<Shape>, first: u64, brain_mutant: BrainMutant, property: &str) {
    let sound = Weather { copies: false, builds: false, leadership: Some(shape), ..Weather::default() };
    shows(first..first + WORLDS_MAX, &brain_mutant, Weather { brain_mutant, ..sound }, sound, &[property]);
}

const DEADLINE: &str = "a task that waits begins by its deadline";
const MAJORITY: &str = "never a majority busy while claims are honoured";
const ENDED: &str = "a task is ended before its time only where a primary needs its member";
const TARGET: &str = "leadership is handed only to who was level and free, as far as could be known";
const SPACING: &str = "between two moves lies the cooldown, whoever made them";
const PING_PONG: &str = "nobody hands leadership on that it has only just got";
const BOUNDED: &str = "moves within an hour are bounded, whatever is gossiped";
const QUIET: &str = "a set that does nothing heavy makes no moves";
const OFF: &str = "with the mode off nothing waits and nothing moves";
const PRIORITY: &str = "priorities of the configuration stand above every ranking";
const EXPLAINED: &str = "every move is explained, and what is kept is bounded";
const WINDOW: &str = "outside of the windows only what must begin does";
const AWAITED: &str = "what nobody waits for does not begin beside what somebody waits for";
const FIGURE: &str = "every change of state is a transition of Figure 1";
const PRIMARY: &str = "the set always gets a primary";

#[test]
fn moving_with_the_mode_off() {
    is_caught_leading(None, 0, BrainMutant::MovesWhenOff, OFF);
}

#[test]
fn postponing_for_ever() {
    is_caught_leading(None, 0, BrainMutant::PostponesForEver, DEADLINE);
}

#[test]
fn believing_old_gossip() {
    is_caught_leading(None, 0, BrainMutant::TrustsOldGossip, TARGET);
}

#[test]
fn handing_over_to_who_works() {
    is_caught_leading(None, 0, BrainMutant::IgnoresTheirTasks, TARGET);
}

#[test]
fn handing_over_to_who_lags() {
    is_caught_leading(None, 0, BrainMutant::IgnoresLag, TARGET);
}

#[test]
fn confirming_every_claim() {
    is_caught_leading(None, 0, BrainMutant::GrantsEverybody, MAJORITY);
}

#[test]
fn confirming_before_having_heard_who_is_busy() {
    is_caught_leading(None, 20, BrainMutant::GrantsUnheard, MAJORITY);
}

#[test]
fn giving_up_who_was_not_heard_of_after_one_election_timeout() {
    is_caught_leading(Some(Shape::Claims), 1430, BrainMutant::GivesUpUnheardSoon, MAJORITY);
}

#[test]
fn ending_tasks_for_anybody() {
    is_caught_leading(None, 0, BrainMutant::EndsTasksForAnybody, ENDED);
}

#[test]
fn beginning_by_what_a_primary_of_another_term_confirms() {
    is_caught_leading(Some(Shape::Claims), 1000, BrainMutant::BelievesAnyTerm, MAJORITY);
}

#[test]
fn beginning_by_a_confirmation_that_was_given_to_another_since() {
    is_caught_leading(Some(Shape::Claims), 4600, BrainMutant::BelievesLateGrants, MAJORITY);
}

#[test]
fn moving_too_soon() {
    is_caught_leading(None, 0, BrainMutant::NoCooldown, SPACING);
}

#[test]
fn forgetting_the_moves_of_others() {
    is_caught_leading(None, 400, BrainMutant::CountsOwnMovesOnly, SPACING);
}

#[test]
fn handing_on_at_once() {
    is_caught_leading(Some(Shape::Together), 0, BrainMutant::PassesOnAtOnce, PING_PONG);
}

#[test]
fn counting_no_moves() {
    is_caught_leading(None, 57, BrainMutant::CountsNoMoves, BOUNDED);
}

#[test]
fn taking_everything_for_heavy() {
    is_caught_leading(None, 140, BrainMutant::EverythingIsHeavy, QUIET);
}

#[test]
fn a_window_that_holds_nothing_back() {
    is_caught_leading(None, 0, BrainMutant::IgnoresWindows, WINDOW);
}

#[test]
fn beginning_beside_what_somebody_waits_for() {
    is_caught_leading(None, 0, BrainMutant::BeginsBesideTheAwaited, AWAITED);
}

#[test]
fn handing_over_to_the_worst() {
    is_caught_leading(None, 15, BrainMutant::TakesTheWorst, PRIORITY);
}

#[test]
fn explaining_the_best_candidate_only() {
    is_caught_leading(None, 0, BrainMutant::ExplainsTheBestOnly, EXPLAINED);
}

#[test]
fn skipping_the_state_between_two() {
    is_caught_leading(None, 15, BrainMutant::SkipsStates, FIGURE);
}

#[test]
fn leaving_it_to_others_to_stand_when_everybody_is_busy() {
    let sound = Weather { builds: false, ..Weather::default() };
    let mutant = Mutant::LeavesStandingForEver;
    shows(0..WORLDS_MAX, &mutant, Weather { mutant, ..sound }, sound, &[PRIMARY]);
}

// ---- index builds ----

/// Worlds that a fault in index builds may survive. A third of them has any.
const BUILDING_WORLDS_MAX: u64 = 2000;

/// Whether some world from `first` on shows the fault, by one of the properties that it must break, and holds without it.
fn is_caught_building(first: u64, faulty: Weather, properties: &[&str]) {
    let what = (faulty.build_mutant, faulty.building_mutant);
    shows(first..first + BUILDING_WORLDS_MAX, &what, faulty, Weather::default(), properties);
}

fn machine(build_mutant: BuildMutant) -> Weather {
    Weather { build_mutant, ..Weather::default() }
}

fn driver(building_mutant: BuildingMutant) -> Weather {
    Weather { building_mutant, ..Weather::default() }
}

const QUORUM: &str = "a build is completed once its commit quorum has built";
const VOTED: &str = "who votes for a build has built";
const GIVEN_UP: &str = "a primary gives up a build that is to end";
const ASKED: &str = "who completes a build has asked every document in its term";
const INDEXES: &str = "who has applied the same entry has the same indexes, and whole ones";
const ENDS: &str = "a build ends in bounded time after healing";
const BUILDS_SAY: &str = "whoever has an index build under way says what it is at";

#[test]
fn completing_without_the_quorum() {
    is_caught_building(0, machine(BuildMutant::QuorumUnasked), &[QUORUM]);
}

#[test]
fn completing_what_was_taken_for_facts() {
    is_caught_building(0, machine(BuildMutant::FactsUnverified), &[ASKED]);
}

#[test]
fn completing_what_was_asked_before_another_led() {
    is_caught_building(0, machine(BuildMutant::StaysChecked), &[ASKED]);
}

#[test]
fn completing_what_was_half_taken_for_facts() {
    is_caught_building(0, machine(BuildMutant::ForgetsHalfAPass), &[ASKED]);
}

#[test]
fn voting_for_what_is_not_built() {
    is_caught_building(0, machine(BuildMutant::VotesEarly), &[VOTED]);
}

#[test]
fn counting_votes_of_strangers() {
    is_caught_building(0, machine(BuildMutant::StrangersCount), &[QUORUM]);
}

#[test]
fn ending_what_is_committed() {
    is_caught_building(0, machine(BuildMutant::EndsWhatIsCommitted), &[ENDS, AT_REST]);
}

#[test]
fn taking_for_committed_what_another_primary_wrote_in_vain() {
    is_caught_building(4000, machine(BuildMutant::StaysCommitted), &[GIVEN_UP, ENDS]);
}

#[test]
fn voting_once() {
    is_caught_building(0, driver(BuildingMutant::VotesOnce), &[ENDS, AT_REST]);
}

#[test]
fn passing_the_completion_of_what_is_not_built() {
    is_caught_building(0, driver(BuildingMutant::PassesWhatIsNotBuilt), &[INDEXES]);
}

#[test]
fn keeping_a_build_whose_start_is_rolled_back() {
    is_caught_building(0, driver(BuildingMutant::KeepsRolledBackStarts), &[INDEXES]);
}

#[test]
fn leaving_builds_to_the_primary_that_began_them() {
    is_caught_building(0, driver(BuildingMutant::LeavesBuildsToWhoBeganThem), &[ENDS, AT_REST]);
}

#[test]
fn counting_votes_of_earlier_builds() {
    is_caught_building(0, driver(BuildingMutant::CountsVotesOfEarlierBuilds), &[QUORUM]);
}

#[test]
fn completing_in_a_term_in_which_nothing_was_asked() {
    is_caught_building(7100, driver(BuildingMutant::CommitsInAnyTerm), &[ASKED]);
}

#[test]
fn completing_as_decided_before_the_quorum_was_changed() {
    is_caught_building(0, driver(BuildingMutant::CommitsAsDecidedBefore), &[QUORUM]);
}

#[test]
fn building_on_what_is_begun_anew() {
    is_caught_building(8_000, driver(BuildingMutant::BuildsOnWhatIsBegunAnew), &[VOTED, INDEXES]);
}

#[test]
fn forgetting_builds_at_a_restart() {
    is_caught_building(0, driver(BuildingMutant::ForgetsBuildsAtRestart), &[BUILDS_SAY]);
}
