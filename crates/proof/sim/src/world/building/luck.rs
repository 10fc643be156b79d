//! The clients and operators of a world that concern themselves with indexes: builds that are begun, killed, and get another quorum.

use super::{BuildId, World};
use crate::catalog::{BuildChange, BuildEntry, Quorum};
use crate::disk::DOCUMENTS;
use crate::world::event::Event;
use baton_consensus::MemberId;
use baton_consensus::index_build::BuildInput;
use baton_types::{Error, ErrorCode};
use rand::Rng;

/// So many indexes a collection has at most.
const INDEXES_MAX: usize = 3;
/// So often a client whose primary died looks for the next one.
const LOOKS_MAX: u16 = 400;
/// So often it asks that one.
const KILLS_MAX: u16 = 20;

impl World {
    /// A world with builds begins.
    pub(in crate::world) fn begin_builds(&mut self) {
        if self.building.are_there {
            self.schedule_ms(1500, Event::BuildLuck);
        }
    }

    /// Now and then somebody wants an index, or does not want it any more.
    pub(in crate::world) fn build_luck(&mut self) {
        let wait_ms = self.building.random.random_range(200..4000) * self.slowness();
        self.schedule_ms(wait_ms, Event::BuildLuck);
        let writers: Vec<MemberId> = self.writers();
        let Some(primary) = self.one_of(&writers) else { return };
        if self.healed {
            self.change_unsatisfiable_quorums(primary);
            return;
        }
        match self.building.random.random_range(0..10) {
            0..7 => self.begin_build(primary),
            7 => self.kill_some_build(),
            _ => {
                let builds: Vec<BuildEntry> = self.builds_at(primary);
                let Some(build) = self.one_of(&builds) else { return };
                let quorum = self.draw_quorum(primary);
                self.log_of_build(primary, BuildEntry { change: BuildChange::Start(quorum), ..build });
            }
        }
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        let at = self.building.random.random_range(0..of.len().max(1));
        of.get(at).copied()
    }

    fn builds_at(&self, id: MemberId) -> Vec<BuildEntry> {
        let entry = |build, document, quorum| BuildEntry { build, document, change: BuildChange::Start(quorum) };
        let catalog = &self.disk(id).catalog;
        catalog.under_way().map(|index| entry(index.build, index.document, index.quorum)).collect()
    }

    /// A quorum that all members together meet.
    fn draw_quorum(&mut self, primary: MemberId) -> Quorum {
        let quorum = match self.building.random.random_range(0..4) {
            0 => Quorum::Majority,
            1 | 2 => Quorum::Members(self.building.random.random_range(0..4)),
            _ => Quorum::VotingMembers,
        };
        if self.is_satisfiable(primary, quorum) { quorum } else { Quorum::Majority }
    }

    fn is_satisfiable(&self, primary: MemberId, quorum: Quorum) -> bool {
        let consensus = self.members[&primary].consensus.as_ref();
        let configuration = consensus.and_then(|consensus| consensus.configuration());
        configuration.is_some_and(|set| set.check_commit_quorum(&quorum.to_commit_quorum()).is_ok())
    }

    fn begin_build(&mut self, primary: MemberId) {
        let disk = self.disk(primary);
        let has_room = |document: &usize| {
            let catalog = &disk.catalog;
            disk.documents.exists(*document)
                && catalog.of(*document).count() < INDEXES_MAX
                && catalog.of(*document).all(|index| index.is_complete)
        };
        let documents: Vec<usize> = (0..DOCUMENTS).filter(has_room).collect();
        let Some(document) = self.one_of(&documents).and_then(|document| u8::try_from(document).ok()) else { return };
        let quorum = self.draw_quorum(primary);
        self.building.next_build += 1;
        let build: BuildId = self.building.next_build;
        self.tally.builds_begun += 1;
        self.log_of_build(primary, BuildEntry { build, document, change: BuildChange::Start(quorum) });
    }

    /// Somebody kills the operation of a build, on whatever member.
    fn kill_some_build(&mut self) {
        let builders =
            self.members.iter().flat_map(|(id, member)| member.builders.keys().map(move |build| (id, *build)));
        let builders: Vec<(MemberId, BuildId)> = builders.collect();
        if let Some((id, build)) = self.one_of(&builders) {
            self.kill_build_at(id, build);
        }
    }

    fn kill_build_at(&mut self, id: MemberId, build: BuildId) {
        self.tell_build(id, build, BuildInput::Killed(Error::new(ErrorCode::Interrupted, "killed")));
    }

    /// Now and then a primary dies just after it has ended a build: who has heard of that, and who has not, is what differs. Its
    /// client, who waits in vain, may not want the index any more.
    pub(super) fn may_die_of_end(&mut self, primary: MemberId, build: BuildId) {
        let is_calm = self.healed || self.duties().is_some_and(|duties| duties.is_calm);
        if !is_calm && self.building.random.random_bool(0.4) {
            let wait_ms = self.building.random.random_range(0..=2 * self.delay_ms_max);
            let boot = self.members[&primary].boot;
            self.schedule_ms(wait_ms, Event::ProcessEnds { by: primary, boot });
            self.schedule_ms(wait_ms + 1, Event::BuildKill { build, looks: LOOKS_MAX });
        }
    }

    /// A client who has lost its primary looks for the next one, and asks it to end the build.
    pub(in crate::world) fn kill_build_of_next(&mut self, build: BuildId, looks: u16) {
        if self.healed {
            return;
        }
        let writers = self.writers();
        let primary = self.one_of(&writers);
        if let Some(primary) = primary {
            self.kill_build_at(primary, build);
        }
        // Who has found one asks again: at first that one may not have noticed that it leads.
        let left = if primary.is_some() { looks.min(KILLS_MAX) } else { looks };
        if left > 1 {
            let wait_ms = self.building.random.random_range(10..150);
            self.schedule_ms(wait_ms, Event::BuildKill { build, looks: left - 1 });
        }
    }

    /// Who takes members away gives the builds another quorum that those who are left can meet.
    fn change_unsatisfiable_quorums(&mut self, primary: MemberId) {
        for build in self.builds_at(primary) {
            if let BuildChange::Start(quorum) = build.change
                && !self.is_satisfiable(primary, quorum)
            {
                self.log_of_build(primary, BuildEntry { change: BuildChange::Start(Quorum::Majority), ..build });
            }
        }
    }
}
