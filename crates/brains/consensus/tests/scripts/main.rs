//! Golden scripts of the protocol: a set of members, line by line, and below each line, after `>`, what its machines answer.
//!
//! The machines are the real ones ([`baton_consensus::Consensus`], and [`baton_consensus::judge`] for what is fetched). A message
//! waits until a line delivers it. So a script shows who tells whom what, in which order, and what comes of it.
//!
//! A line is `SECONDS COMMAND`; without a time it happens at that of the line before. Members are `a`, `b`, `c`; `a->b` is the way
//! from one to another, `a->` all ways from one, `->b` all ways to one. `2@7` is the entry of term 2 at second 7 of the log's clock.
//!
//! | line | does |
//! |---|---|
//! | `set members=3 seed=1` | members with one entry in their logs, `0@1`; the seed is that of all chance |
//! | `… primary=a` | one has been elected in term 1, and all know |
//! | `… priority=b:2` `arbiter=c` `nonvoting=d` `spare=1` | members of other kinds; spare ones are in no set yet |
//! | `… chaining=no` `catchup=5` `takeover=5` `majority=written` | settings of the set, in seconds |
//! | `disk a b log=0@1,1@2 term=2 committed=1@2` | those members begin with that on disk, if nobody is primary yet |
//! | `tick` `tick a` | everybody, or one, notices the time |
//! | `pass 9` | time passes until then. Machines look when they asked to, and heartbeats arrive; nothing else does |
//! | `deliver a->b` | the oldest message of that way arrives; on several ways, all that are under way; with `all`, those too that follow |
//! | `drop a->b` `duplicate a->b` | it is lost, and who waits for an answer learns that none comes; it arrives a second time later |
//! | `overtake a->b` | the newest message of that way becomes the oldest |
//! | `heartbeat a->b` `heartbeats` | the heartbeat under way arrives, and its answer; all do, until none is left |
//! | `settle` | everything arrives and everybody fetches until all is at rest |
//! | `cut a b` `cut a all` `cut a->b` `heal` | from now on all between them is lost; none is any more |
//! | `crash a` `restart a` | the process is gone, with what its disk had not synced; begins anew |
//! | `slow a` `persisted a` | what it writes is not on disk before `persisted` |
//! | `append a` `append a at=9` | the primary takes a write: at the next second of its log, or at that one |
//! | `fetch b` `fetch b most=1` | a batch from the source that the machine chose, judged and taken |
//! | `truncate a before=1@3` | its log loses what lies before that entry |
//! | `copy d` | its initial sync ends |
//! | `data a rollback` | what state its data is in: `initial-sync`, `recovering`, `rollback`, `ready` |
//! | `stand a` `stand a dry` `freeze a for=60` `abort-catch-up a` `syncfrom b source=c` | what operators ask for |
//! | `stepdown a` `interrupt a` | the same; with `force`, `within=10`, `freeze=60`, `to=b`, `alone` (tells nobody to follow) |
//! | `reconfig a add=d remove=c priority=b:2` | the same; with `force` |
//! | `occupied a` | heavy work keeps it from standing |
//! | `distance a b ms=40` | the time from request to answer between them, 1 ms otherwise |
//! | `mutant NAME` | builds a fault into all machines |
//! | `show` `show a` `show configuration` | what they are |
//!
//! What is told: effects by name, messages when they are sent, and what a machine is when it changes (`crate::print` says what is left
//! out). What is not: heartbeats, but those of a line of their own, and answers to reports of positions and requests to stand, which
//! come back at once and carry a term. Votes, configurations and entries are on disk at once, unless the disk is slow; who begins a
//! term writes its first entry at the next second.
//!
//! How members build an index together has scripts and lines of its own: [`index_build`].
//!
//! To change a script, change its lines, run the test, and take over what it prints once that is right.

mod commands;
mod fetching;
mod index_build;
mod member;
mod network;
mod print;
mod words;
mod world;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use world::World;

fn folder(below: &str) -> PathBuf {
    // Where it is now: it may have been compiled in another checkout that has the same target directory.
    let crate_folder = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs it, and says where the crate is");
    Path::new(&crate_folder).join("tests/scripts").join(below)
}

/// Runs a script's lines and compares what is told with what is in it.
fn holds(folder: &Path, name: &str, mut run_line: impl FnMut(&str) -> Vec<String>) {
    let text = std::fs::read_to_string(folder.join(format!("{name}.txt"))).expect("the script is there");
    let mut actual = String::new();
    for line in text.lines().filter(|line| !line.starts_with('>')) {
        actual.push_str(line);
        actual.push('\n');
        let command = line.split('#').next().unwrap_or_default().trim();
        if !command.is_empty() {
            run_line(command).iter().for_each(|told| actual.push_str(&format!("> {told}\n")));
        }
    }
    if actual != text {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.txt"));
        std::fs::write(&path, &actual).expect("the answers can be written down");
        unreachable!(
            "the machines answer differently; with their answers the script is in {}:\n{actual}",
            path.display()
        );
    }
}

macro_rules! scripts {
    ($all:ident in $folder:literal by $world:ty: $($name:ident)*) => {
        $(#[test]
        fn $name() {
            let mut world = <$world>::default();
            holds(&folder($folder), stringify!($name), |line| world.run_line(line));
        })*

        const $all: &[&str] = &[$(stringify!($name)),*];
    };
}

scripts! {
    SCRIPTS in "" by World:
    a_candidate_asks_before_its_own_vote_is_on_disk
    a_chained_member_does_not_look_dead
    a_change_waits_for_earlier_commits
    a_commit_point_needs_an_entry_of_the_present_term
    a_commit_point_outlives_a_crash
    a_heartbeat_tells_a_commit_point_only_within_a_term
    a_member_in_heavy_work_has_the_longest_log
    a_much_nearer_source_is_preferred
    a_new_primary_fetches_what_others_have
    a_new_primary_stamps_the_configuration
    a_primary_hands_over
    a_stale_member_of_high_priority_disturbs_nobody
    a_step_down_that_cannot_succeed_leaves_writes_alone
    a_sync_source_is_ahead
    a_vote_is_on_disk_before_it_is_told
    an_arbiter_refuses_a_dry_run_while_it_sees_a_primary
    an_election_begins_with_a_dry_run
    catch_up_ends_after_its_timeout
    catch_up_takes_only_entries_of_older_terms
    figure2_a_stale_primary_is_pulled_from
    initial_sync_neither_votes_nor_acknowledges
    members_follow_a_new_primary_at_once
    members_without_a_vote_do_not_count
    one_vote_a_term
    one_voter_at_a_time
    pulled_entries_are_reported_and_committed
    reports_go_up_a_chain_one_at_a_time
    the_highest_priority_takes_over
    too_stale_is_not_diverged
    unsafe_appendix_a_heartbeat_rule
    unsafe_figure2_counting_replicas
    unsafe_older_terms_commit
    voters_refuse_an_older_configuration
    voters_refuse_an_older_log
    what_is_not_durable_does_not_count
    who_is_ahead_takes_over_from_a_primary_that_waits
    who_is_in_heavy_work_stands_if_nobody_else_can
    who_refuses_a_shorter_log_stands_next
    with_an_arbiter_a_secondary_takes_over_but_commits_nothing
    without_chaining_all_fetch_from_the_primary
}

scripts! {
    INDEX_BUILD_SCRIPTS in "index_build" by index_build::World:
    a_build_that_was_killed_ends_under_whoever_leads
    a_committed_build_is_built_by_who_was_asked_to_end_it
    a_crashed_member_builds_on_and_votes_again
    a_document_that_the_index_does_not_allow
    a_failed_member_holds_the_build_up_until_the_quorum_is_less
    a_late_vote_counts_for_the_next_primary
    a_member_that_is_removed_is_not_waited_for
    a_primary_gives_up_what_the_index_does_not_allow
    a_primary_that_hands_over_in_the_middle
    a_primary_that_returns_asks_again
    a_removed_member_does_not_count
    all_voting_members_have_built
    commit_quorum_as_a_number
    commit_quorum_by_tags
    commit_quorum_majority
    votes_are_given_again_to_the_next_primary
    what_a_deposed_primary_logs_is_refused
    what_a_quorum_counts
}

fn run_all_of(folder: &Path, run: &[&str]) {
    let files = std::fs::read_dir(folder).expect("the folder is there").map(|entry| entry.expect("a file").path());
    let scripts: BTreeSet<String> = files
        .filter(|path| path.extension().is_some_and(|it| it == "txt"))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    let run: BTreeSet<String> = run.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(scripts, run);
}

#[test]
fn every_script_runs() {
    run_all_of(&folder(""), SCRIPTS);
    run_all_of(&folder("index_build"), INDEX_BUILD_SCRIPTS);
}
