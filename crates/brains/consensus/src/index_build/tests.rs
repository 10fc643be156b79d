//! Stories of single builds. Whole sets build in the worlds of `baton-sim`.

use super::{BuildInput, BuildPass, BuildSet, BuildTask, CommitQuorum, IndexBuild};
use crate::configuration::MemberId;
use baton_types::{Error, ErrorCode};

fn killed(why: &str) -> BuildInput {
    BuildInput::Killed(Error::new(ErrorCode::Interrupted, why))
}

/// The member kept asking for the end, and the entry waited for it for ever.
#[test]
fn a_member_that_is_asked_to_end_what_is_committed_builds_it() {
    let mut build = IndexBuild::new(CommitQuorum::Majority, false);
    build.step(killed("killed"));
    assert!(matches!(build.task(), BuildTask::Object(_)));
    build.step(BuildInput::Committed);
    build.step(killed("killed again"));
    assert!(matches!(build.task(), BuildTask::Pass(BuildPass::Follow)));
}

/// It had waited for the entry of a primary that died before anybody else had it; elected itself, it could not give the build up any
/// more, whatever it found in the documents, and asked them again and again for ever.
#[test]
fn a_primary_ends_a_build_whose_commit_was_another_primarys_and_is_lost() {
    let mut build = IndexBuild::new(CommitQuorum::Members(1), false);
    build.step(BuildInput::Leads(None));
    build.step(BuildInput::Committed);
    build.step(BuildInput::Leads(Some(5)));
    build.step(BuildInput::Passed(BuildPass::Follow));
    assert!(matches!(build.task(), BuildTask::Pass(BuildPass::Verify)));
    build.step(BuildInput::Failed(Error::new(ErrorCode::DuplicateKey, "twice")));
    assert!(matches!(build.task(), BuildTask::Abort(_)));
}

/// Another primary had let in what only a whole index tells, and this one never heard that it had not been primary.
#[test]
fn a_primary_of_another_term_asks_again_even_if_it_never_heard_of_the_one_between() {
    let mut build = IndexBuild::new(CommitQuorum::Members(1), false);
    build.step(BuildInput::Leads(Some(3)));
    build.step(BuildInput::Passed(BuildPass::Decide));
    assert!(matches!(build.task(), BuildTask::AwaitVotes), "it does not know yet who votes");
    build.step(BuildInput::Set(Box::new(BuildSet { me: Some(MemberId(0)), configuration: None })));
    assert!(matches!(build.task(), BuildTask::Commit(3)));
    build.step(BuildInput::Leads(Some(5)));
    assert!(matches!(build.task(), BuildTask::Pass(BuildPass::Verify)));
    build.step(BuildInput::Passed(BuildPass::Verify));
    assert!(matches!(build.task(), BuildTask::Commit(5)));
}
