//! Passes over the documents of a collection, part by part; what a store has against completing an index; and which writes an index
//! refuses.
//!
//! A document of the world stands for a collection, and is what its indexes do not allow while its last write was one of those
//! ([`Entry::is_violation`]): it lies in one of the collection's parts. A pass that asks finds it at its end, if the primary of that
//! term has asked that part. As a real primary does, one whose index is filled refuses such a write.

use super::{BuildingMutant, Work, World};
use crate::catalog::{BuildChange, BuildId, PARTS};
use crate::disk::{Documents, Entry};
use baton_consensus::MemberId;
use baton_consensus::index_build::{BuildInput, BuildPass};
use baton_types::{Error, ErrorCode, Term};
use rand::Rng;

/// How long a pass of a follower that failed is left before it is tried again.
const TRY_AGAIN_MS: u64 = 1000;
/// How long a part of a pass takes at most once the world is healed: a member may have to build one index after the other.
const HEALED_PART_MS: u64 = 200;

/// A pass that a builder makes.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) struct Passing {
    pass: BuildPass,
    /// Whether its member leads, and in which term: if that changes it is of no use any more.
    leads: Option<Term>,
    /// Of one that verifies: parts that are done. Others go on from what is filled.
    verified: usize,
}

/// The part of its collection in which a document lies that was set to this value and that indexes do not allow.
pub(in crate::world) fn violation(documents: &Documents, document: usize) -> Option<usize> {
    let value = documents.value(document);
    Entry::is_of_violation(value).then_some((value / 7) as usize % PARTS)
}

impl World {
    /// How long a part of a pass takes.
    fn part_ms(&mut self) -> u64 {
        let max = if self.healed { self.building.part_ms_max.min(HEALED_PART_MS) } else { self.building.part_ms_max };
        self.building.random.random_range(1..=max)
    }

    pub(super) fn begin_pass(&mut self, id: MemberId, build: BuildId, pass: BuildPass, leads: Option<Term>) {
        let wait_ms = self.part_ms();
        let Some(builder) = self.builder_mut(id, build) else { return };
        builder.passing = Some(Passing { pass, leads, verified: 0 });
        self.builder_works(id, build, wait_ms, Work::Part);
    }

    /// A part of a pass is done, if there was one to do.
    pub(super) fn pass_part(&mut self, id: MemberId, build: BuildId) {
        let leads = self.leads_builds(id);
        let wait_ms = self.part_ms();
        let now = self.now;
        let Some(member) = self.members.get_mut(&id) else { return };
        let Some(builder) = member.builders.get_mut(&build) else { return };
        let Some(passing) = builder.passing.filter(|passing| passing.leads == leads && !builder.machine.is_ending())
        else {
            builder.passing = None;
            self.look_at_build(id, build);
            return;
        };
        builder.is_at_work(now);
        let filled = member.disk.catalog.building(build).map_or(PARTS, |index| index.filled());
        let at = if passing.pass == BuildPass::Verify { passing.verified } else { filled };
        if at < PARTS {
            builder.asked[at] = leads.filter(|_| passing.pass != BuildPass::Follow);
            match passing.pass {
                BuildPass::Verify => builder.passing = Some(Passing { verified: at + 1, ..passing }),
                BuildPass::Decide | BuildPass::Follow => {
                    let len = member.disk.log.len();
                    member.disk.catalog.fill(build, len);
                }
            }
        }
        if at + 1 < PARTS {
            self.builder_works(id, build, wait_ms, Work::Part);
        } else {
            builder.passing = None;
            self.end_pass(id, build, passing);
        }
    }

    fn end_pass(&mut self, id: MemberId, build: BuildId, passing: Passing) {
        let is_unlucky = !self.healed && self.building.random.random_bool(0.03);
        if is_unlucky && passing.pass == BuildPass::Follow {
            self.builder_works(id, build, TRY_AGAIN_MS, Work::Look);
            return;
        }
        let member = &self.members[&id];
        let Some(index) = member.disk.catalog.building(build) else { return };
        let found = violation(&member.disk.documents, index.document.into());
        let asked = member.builders.get(&build).map(|builder| builder.asked).unwrap_or_default();
        let is_seen = passing.pass != BuildPass::Follow
            && found.is_some_and(|part| asked[part].is_some() && asked[part] == passing.leads);
        let input = if is_seen {
            BuildInput::Failed(Error::new(ErrorCode::DuplicateKey, "two documents have one key"))
        } else {
            BuildInput::Passed(passing.pass)
        };
        self.tell_build(id, build, input);
        self.builder_works(id, build, 0, Work::Look);
    }

    /// Whether the entry at `at` of those that a member lacks completes an index that it has not built. Who builds it is told that it
    /// is complete elsewhere.
    pub(in crate::world) fn is_unbuilt(&mut self, id: MemberId, lacked: &[Entry], at: usize) -> bool {
        let change = lacked.get(at).and_then(|entry| entry.build);
        let Some(change) = change.filter(|change| change.change == BuildChange::Commit) else { return false };
        let mutant = self.weather.building_mutant;
        if mutant == BuildingMutant::PassesWhatIsNotBuilt {
            return false;
        }
        let begins = |entry: &Entry| entry.build.is_some_and(|before| before.build == change.build);
        let Some(index) = self.disk(id).catalog.building(change.build) else {
            return lacked[..at].iter().any(begins);
        };
        let is_filled = index.is_filled() || mutant == BuildingMutant::BuildsOnWhatIsBegunAnew;
        let says_built = self.builder_mut(id, change.build).is_some_and(|builder| builder.machine.is_filled());
        self.tell_build(id, change.build, BuildInput::Committed);
        !(is_filled && says_built)
    }

    /// A member that builds is told of entries that change its builds' quorums.
    pub(in crate::world) fn note_quorum(&mut self, id: MemberId, entry: &Entry) {
        let Some(build) = entry.build else { return };
        if let BuildChange::Start(quorum) = build.change {
            self.tell_build(id, build.build, BuildInput::Quorum(quorum.to_commit_quorum()));
        }
    }

    /// Whether a primary refuses to log this, for the sake of an index that it has filled.
    pub(in crate::world) fn is_refused_by_index(&self, id: MemberId, entry: &Entry) -> bool {
        let catalog = &self.disk(id).catalog;
        Entry::is_of_violation(entry.value)
            && !entry.is_drop()
            && catalog.of(entry.document()).any(|index| index.is_complete || index.is_filled())
    }
}
