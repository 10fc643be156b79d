//! What checkers see of index builds.

use super::passes::{Passing, violation};
use crate::catalog::{BuildId, PARTS, Quorum};
use crate::disk::{Documents, Entry};
use crate::world::World;
use baton_consensus::index_build::{BuildInput, BuildSet, BuildTask, IndexBuild};
use baton_consensus::{MemberId, Moment};
use baton_replay::{Recorder, Recording};
use baton_types::Term;
use std::time::Duration;

/// A fault built into how builds are carried out, or into what the store makes of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BuildingMutant {
    /// Right.
    #[default]
    None,
    /// A member keeps to itself that it has built once it has said so.
    VotesOnce,
    /// A member that comes to the entry that completes an index passes it, whether or not it has built.
    PassesWhatIsNotBuilt,
    /// A rollback that takes back the start of a build leaves the build.
    KeepsRolledBackStarts,
    /// Whoever becomes primary leaves builds to whoever began them.
    LeavesBuildsToWhoBeganThem,
    /// What a member says of an earlier build counts for the next one.
    CountsVotesOfEarlierBuilds,
    /// A primary logs the end that it decided in an earlier term.
    CommitsInAnyTerm,
    /// A primary completes a build as it decided that, whatever quorum the build was given since.
    CommitsAsDecidedBefore,
    /// A builder does not notice that the index it has filled is to be filled anew.
    BuildsOnWhatIsBegunAnew,
    /// A restart forgets the builds that its disk has.
    ForgetsBuildsAtRestart,
}

/// What works at a build in a member, while its process lives.
pub struct Builder {
    pub(super) machine: IndexBuild,
    recorder: Option<Recorder<IndexBuild>>,
    /// Names what it does next: what an older work brings is dropped.
    pub(super) work: u64,
    /// Whether it may be woken.
    pub(super) is_resting: bool,
    pub(super) passing: Option<Passing>,
    pub(super) has_voted: bool,
    pub(super) has_looked: bool,
    /// Whether its machine was told last that its member leads, and in which term.
    pub(super) leads: Option<Term>,
    /// It led when it looked for the first time.
    pub(super) began_leading: bool,
    /// The term in which this process, as primary, asked each part of the documents last; none of what it put in unasked.
    pub(super) asked: [Option<Term>; PARTS],
    said: (&'static str, Moment),
}

/// A build that a primary has ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Who.
    pub member: MemberId,
    /// Which.
    pub build: BuildId,
    /// Its collection.
    pub document: usize,
    /// Whether its index is complete.
    pub is_commit: bool,
    /// The entry.
    pub entry: Entry,
    /// The quorum that the build had.
    pub quorum: Quorum,
    /// The set by which the votes were counted.
    pub set: BuildSet,
    /// The terms in which this primary asked the parts of the documents.
    pub asked: [Option<Term>; PARTS],
    /// The documents.
    pub documents: Documents,
}

/// A vote that a member sent.
#[derive(Clone, Copy, Debug)]
pub struct Voted {
    /// Who.
    pub member: MemberId,
    /// For which build.
    pub build: BuildId,
    /// Whether its index is filled.
    pub has_built: bool,
}

/// A primary that has found what the index does not allow, or was asked to end the build.
#[derive(Clone, Copy, Debug)]
pub struct ToldToEnd {
    /// Who.
    pub member: MemberId,
    /// Which build.
    pub build: BuildId,
    /// Whether it gives the build up.
    pub is_ending: bool,
}

impl Ended {
    /// Whether there is something in the collection that an index does not allow.
    pub fn is_violated(&self) -> bool {
        violation(&self.documents, self.document).is_some()
    }
}

impl Builder {
    pub(super) fn new(machine: IndexBuild, recorder: Option<Recorder<IndexBuild>>, now: Moment) -> Self {
        Self {
            machine,
            recorder,
            work: 0,
            is_resting: true,
            passing: None,
            has_voted: false,
            has_looked: false,
            leads: None,
            began_leading: false,
            asked: [None; PARTS],
            said: ("begins", now),
        }
    }

    pub(super) fn step(&mut self, now: Moment, input: BuildInput) {
        baton_replay::step(self.recorder.as_mut(), &mut self.machine, now, input);
    }

    pub(super) fn says(&mut self, now: Moment, task: &BuildTask) {
        let words = match task {
            BuildTask::Pass(_) => "passes over the documents",
            BuildTask::Vote => "waits for the primary's commit entry",
            BuildTask::Object(_) => "asks the primary to give it up",
            BuildTask::Commit(_) => "completes it",
            BuildTask::Abort(_) => "gives it up",
            BuildTask::AwaitVotes => "waits for the commit quorum",
        };
        self.said = (words, now);
    }

    pub(super) fn is_at_work(&mut self, now: Moment) {
        self.said.1 = now;
    }

    /// What it is at, and when it said so last.
    pub fn said(&self) -> (&'static str, Moment) {
        self.said
    }

    pub(in crate::world) fn recording(mut self) -> Option<Recording<IndexBuild>> {
        Some(self.recorder.as_mut()?.recording(&self.machine))
    }
}

impl World {
    /// Whether indexes are built in this world.
    pub fn builds_indexes(&self) -> bool {
        self.building.are_there
    }

    /// Builds that primaries ended in the last step.
    pub fn builds_ended(&self) -> &[Ended] {
        &self.building.ended
    }

    /// Votes that members sent in the last step.
    pub fn build_votes(&self) -> &[Voted] {
        &self.building.voted
    }

    /// Primaries that were told to end a build in the last step.
    pub fn told_to_end_builds(&self) -> &[ToldToEnd] {
        &self.building.told_to_end
    }

    /// What works at a build in a member, if something does.
    pub fn builder(&self, id: MemberId, build: BuildId) -> Option<&Builder> {
        self.members[&id].builders.get(&build)
    }

    /// How long a builder may be at one part of a pass.
    pub fn build_part_max(&self) -> Duration {
        Duration::from_millis(self.building.part_ms_max)
    }
}
