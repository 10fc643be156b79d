//! How the members of a world build indexes: what carries `baton_consensus::index_build` out, as `commands::ddl::builds` does.
//!
//! ```text
//!  startIndexBuild in the log ──▶ Disk::catalog ── supervise ──▶ Builder: machine ─▶ task ─▶ pass, vote, entry ─▶ machine …
//! ```
//!
//! Each build that a member's catalog has gets a builder, whatever brought it there: an entry, a restart, a copy, a rollback. As
//! the thread of a real one, a builder looks around from time to time and is woken by what it is told; between the decision to end a
//! build and the entry that ends it some time passes. Nothing of it survives its process but how far the index is filled.
//!
//! Builds are in a third of the worlds, and what is drawn for them is drawn by a generator of its own.
//!
//! What it deliberately does not do: judge. The checkers do, by the catalogs and by what is noted here in [`Ended`] and [`Builder`].

mod luck;
mod observing;
mod passes;

pub use observing::{Builder, BuildingMutant, Ended, ToldToEnd, Voted};

use super::World;
use super::event::Event;
use crate::catalog::{BuildChange, BuildEntry, BuildId, Index};
use crate::disk::Entry;
use baton_consensus::index_build::{BuildInput, BuildSet, BuildTask, IndexBuild};
use baton_consensus::{MemberId, MemberState};
use baton_replay::{Bounds, Recorder};
use baton_types::{Error, Term};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::time::Duration;

/// How much later a healed world with builds may come to rest than one without.
pub(super) const BUILD_WITHIN: Duration = Duration::from_secs(40);

/// How often a builder that waits for votes looks around by itself; a real one more often, which brings nothing else about.
const LOOK_MS: u64 = 250;
/// How often a member says again that it has built.
const VOTE_MS: u64 = 500;
/// How long a primary waits before it tries again to log an end, while it may not write.
const BLOCKED_MS: u64 = 20;

/// What the whole world knows of builds.
pub(crate) struct Building {
    /// Draws of its own, so that worlds without builds are what they were before there were any.
    random: StdRng,
    /// Whether there are builds in this world.
    pub are_there: bool,
    /// How long a part of a pass takes at most.
    part_ms_max: u64,
    next_build: BuildId,
    next_work: u64,
    /// Builds that primaries ended in the last step.
    pub ended: Vec<Ended>,
    /// Votes that members sent in the last step.
    pub voted: Vec<Voted>,
    /// Primaries that were told to end a build in the last step.
    pub told_to_end: Vec<ToldToEnd>,
}

/// What a builder does next.
#[derive(Clone, Debug)]
pub(super) enum Work {
    /// Looks what is to be done.
    Look,
    /// Has passed over a part of the collection.
    Part,
    /// Logs the end of the build, which was decided like this.
    End(Box<Decided>),
}

/// What a member says to the primary of a build.
#[derive(Clone, Debug)]
pub(super) enum Word {
    Built,
    Objection(Error),
}

/// An end that was decided, by what was known then.
#[derive(Clone, Debug)]
pub(super) struct Decided {
    pub task: BuildTask,
    pub set: BuildSet,
}

impl Building {
    pub fn new(seed: u64, may_be: bool) -> Self {
        let mut random = StdRng::seed_from_u64(seed.rotate_left(24) ^ 0x1db0_11d5);
        let are_there = random.random_ratio(1, 3) && may_be;
        let part_ms_max = *[20, 100, 400, 1500].get(random.random_range(0..4)).unwrap_or(&100);
        Self {
            random,
            are_there,
            part_ms_max,
            next_build: 0,
            next_work: 0,
            ended: Vec::new(),
            voted: Vec::new(),
            told_to_end: Vec::new(),
        }
    }
}

impl World {
    /// After a step: each build that the catalog of a member has, which the step changed, has a builder.
    pub(super) fn supervise_builds(&mut self) {
        if !self.building.are_there {
            return;
        }
        for at in 0..self.touched.len() {
            let id = self.touched[at];
            let Some(member) = self.members.get(&id).filter(|member| member.consensus.is_some()) else { continue };
            let is_new = |build: &BuildId| !member.builders.contains_key(build);
            let new: Vec<BuildId> = member.disk.catalog.under_way().map(|index| index.build).filter(is_new).collect();
            new.into_iter().for_each(|build| self.enter_build(id, build));
        }
    }

    fn enter_build(&mut self, id: MemberId, build: BuildId) {
        // An entry begins a build at once; what else brings one, the supervisor finds.
        let wait_ms = if self.building.random.random_bool(0.7) { 1 } else { self.building.random.random_range(0..250) };
        let (mutant, now, records) = (self.weather.build_mutant, self.now, self.rings.is_some());
        let is_forgotten = self.weather.building_mutant == BuildingMutant::ForgetsBuildsAtRestart;
        let Some(member) = self.members.get_mut(&id) else { return };
        let Some(index) = member.disk.catalog.building(build) else { return };
        if is_forgotten && index.filled() > 0 {
            return;
        }
        let mut machine = IndexBuild::new(index.quorum.to_commit_quorum(), index.filled() > 0);
        machine.mutate(mutant);
        let recorder = records.then(|| Recorder::new(&machine, now, Bounds::default()));
        member.builders.insert(build, Builder::new(machine, recorder, now));
        self.builder_works(id, build, wait_ms, Work::Look);
    }

    /// Has a builder do this next, and nothing that it was to do.
    fn builder_works(&mut self, id: MemberId, build: BuildId, wait_ms: u64, what: Work) {
        self.building.next_work += 1;
        let work = self.building.next_work;
        let Some(member) = self.members.get_mut(&id) else { return };
        let Some(builder) = member.builders.get_mut(&build) else { return };
        builder.work = work;
        builder.is_resting = matches!(what, Work::Look);
        let boot = member.boot;
        self.schedule_ms(wait_ms, Event::BuildWork { by: id, boot, build, work, what });
    }

    pub(super) fn build_worked(&mut self, id: MemberId, build: BuildId, work: u64, what: Work) {
        let Some(member) = self.members.get_mut(&id) else { return };
        if member.builders.get(&build).is_none_or(|builder| builder.work != work) {
            return;
        }
        self.touch(id);
        if !self.is_build_under_way(id, build) {
            // If the catalog has it, it was begun anew, and so it is here.
            self.leave_build(id, build);
            return;
        }
        match what {
            Work::Look => self.look_at_build(id, build),
            Work::Part => self.pass_part(id, build),
            Work::End(decided) => self.end_build(id, build, *decided),
        }
    }

    /// Whether the catalog has the build, and, if this builder has filled its index, a filled one: a rollback or a copy may have it
    /// filled anew.
    fn is_build_under_way(&self, id: MemberId, build: BuildId) -> bool {
        let member = &self.members[&id];
        let Some(index) = member.disk.catalog.building(build) else { return false };
        let looks = self.weather.building_mutant != BuildingMutant::BuildsOnWhatIsBegunAnew;
        let has_built = member.builders.get(&build).is_some_and(|builder| builder.machine.is_filled());
        index.is_filled() || !has_built || !looks
    }

    /// The builder of a build that has ended here ends.
    fn leave_build(&mut self, id: MemberId, build: BuildId) {
        let Some(member) = self.members.get_mut(&id) else { return };
        let Some(builder) = member.builders.remove(&build) else { return };
        if let Some(rings) = &mut self.rings {
            rings.build_ended(id, build, builder);
        }
    }

    /// Lets a builder learn something, and wakes it.
    pub(super) fn tell_build(&mut self, id: MemberId, build: BuildId, input: BuildInput) {
        self.touch(id);
        let (now, traces) = (self.now, self.weather.trace);
        let leads = self.leads_builds(id);
        let Some(builder) = self.builder_mut(id, build) else { return };
        if traces {
            eprintln!("{now:?} member {id} builds {build}: {input:?}");
        }
        let ends = matches!(input, BuildInput::Failed(_) | BuildInput::Killed(_) | BuildInput::Objection(_));
        // One that was deposed, and has not noticed, may have been told that its successor has committed.
        let is_to_end = ends && builder.leads.is_some() && builder.leads == leads;
        builder.step(now, input);
        let told = ToldToEnd { member: id, build, is_ending: builder.machine.is_ending() };
        let is_resting = builder.is_resting;
        self.building.told_to_end.extend(is_to_end.then_some(told));
        if is_resting {
            self.builder_works(id, build, 0, Work::Look);
        }
    }

    fn builder_mut(&mut self, id: MemberId, build: BuildId) -> Option<&mut Builder> {
        self.members.get_mut(&id)?.builders.get_mut(&build)
    }

    /// The term in which a member may log, as primary, or may again in a moment: it has logged in it.
    fn leads_builds(&self, id: MemberId) -> Option<Term> {
        let member = &self.members[&id];
        let consensus = member.consensus.as_ref()?;
        let is_primary = member.summary.state == MemberState::Primary && consensus.is_writable_primary();
        is_primary.then_some(member.summary.term)
    }

    /// Looks what is to be done, and begins it.
    fn look_at_build(&mut self, id: MemberId, build: BuildId) {
        let (now, traces) = (self.now, self.weather.trace);
        let leads = self.leads_builds(id);
        let takes_over = self.weather.building_mutant != BuildingMutant::LeavesBuildsToWhoBeganThem;
        let Some(member) = self.members.get_mut(&id) else { return };
        let (Some(consensus), Some(builder)) = (&member.consensus, member.builders.get_mut(&build)) else { return };
        builder.began_leading |= leads.is_some() && !builder.has_looked;
        if takes_over || leads.is_none() || builder.began_leading {
            builder.leads = leads;
            builder.step(now, BuildInput::Leads(leads));
        }
        builder.has_looked = true;
        let (me, configuration) = (consensus.me(), consensus.configuration());
        let set = BuildSet { me, configuration: configuration.cloned() };
        if !builder.machine.knows(me, configuration) {
            builder.step(now, BuildInput::Set(Box::new(set.clone())));
        }
        let task = builder.machine.task();
        builder.says(now, &task);
        if traces {
            eprintln!("{now:?} member {id} builds {build}: leads {leads:?}, {task:?}");
        }
        if !matches!(task, BuildTask::Pass(_)) {
            builder.passing = None;
        }
        let has_voted = std::mem::replace(&mut builder.has_voted, matches!(task, BuildTask::Vote));
        match task {
            BuildTask::Pass(pass) => self.begin_pass(id, build, pass, leads),
            BuildTask::Vote => {
                let has_built = member.disk.catalog.building(build).is_some_and(Index::is_filled);
                self.building.voted.push(Voted { member: id, build, has_built });
                if !(has_voted && self.weather.building_mutant == BuildingMutant::VotesOnce) {
                    self.say_to_primary(id, build, Word::Built);
                }
                self.builder_works(id, build, VOTE_MS, Work::Look);
            }
            BuildTask::Object(error) => {
                self.say_to_primary(id, build, Word::Objection(error));
                self.builder_works(id, build, VOTE_MS, Work::Look);
            }
            BuildTask::AwaitVotes => self.builder_works(id, build, LOOK_MS, Work::Look),
            BuildTask::Commit(_) | BuildTask::Abort(_) => {
                let slow = !self.healed && self.building.random.random_bool(0.2);
                let wait_ms = self.building.random.random_range(0..if slow { 1500 } else { 5 });
                self.builder_works(id, build, wait_ms, Work::End(Box::new(Decided { task, set })));
            }
        }
    }

    /// Logs the end that was decided, if this member may.
    fn end_build(&mut self, id: MemberId, build: BuildId, decided: Decided) {
        let leads = self.leads_builds(id);
        let in_any_term = self.weather.building_mutant == BuildingMutant::CommitsInAnyTerm;
        let looks_again = self.weather.building_mutant != BuildingMutant::CommitsAsDecidedBefore;
        let may = match decided.task {
            BuildTask::Commit(term) => leads == Some(term) || (in_any_term && leads.is_some()),
            _ => leads.is_some(),
        };
        let member = &self.members[&id];
        let Some(index) = member.disk.catalog.building(build) else { return };
        let is_still_so = |task| std::mem::discriminant(&task) == std::mem::discriminant(&decided.task);
        let next = member.builders.get(&build).map(|builder| builder.machine.task());
        if looks_again && !next.is_some_and(is_still_so) {
            self.look_at_build(id, build);
            return;
        }
        if may && !member.takes_writes {
            self.builder_works(id, build, BLOCKED_MS, Work::End(Box::new(decided)));
            return;
        }
        let is_commit = matches!(decided.task, BuildTask::Commit(_));
        if !may {
            self.tell_build(id, build, BuildInput::Refused);
            self.builder_works(id, build, 50, Work::Look);
            return;
        }
        let (document, quorum) = (index.document, index.quorum);
        let (asked, documents) = (member.builders.get(&build).map(|builder| builder.asked), member.disk.documents);
        let change = if is_commit { BuildChange::Commit } else { BuildChange::Abort };
        let entry = self.log_of_build(id, BuildEntry { build, document, change });
        self.building.ended.push(Ended {
            member: id,
            build,
            document: document.into(),
            is_commit,
            entry,
            quorum,
            set: decided.set,
            asked: asked.unwrap_or_default(),
            documents,
        });
        self.tally.builds_completed += u64::from(is_commit);
        self.tally.builds_given_up += u64::from(!is_commit);
        self.leave_build(id, build);
        self.may_die_of_end(id, build);
    }

    fn log_of_build(&mut self, id: MemberId, build: BuildEntry) -> Entry {
        let entry = Entry { build: Some(build), ..self.next_entry(id) };
        self.append(id, &[entry]);
        // A builder that is there is told of a quorum that its build was given.
        self.note_quorum(id, &entry);
        entry
    }

    fn say_to_primary(&mut self, id: MemberId, build: BuildId, word: Word) {
        let Some(primary) = self.members[&id].summary.primary.filter(|primary| *primary != id) else { return };
        if self.members.get(&primary).is_none() || self.cut.contains(&(id, primary)) {
            return;
        }
        let loss = self.loss;
        let random = &mut self.building.random;
        if random.random_bool(loss.clamp(0.0, 1.0)) {
            return;
        }
        // Whoever asks once more may be heard twice, and late.
        let is_twice = !self.healed && random.random_bool(0.05);
        let waits_us = [random.random_range(0..=self.delay_ms_max * 1000), random.random_range(0..3_000_000)];
        for wait_us in waits_us.into_iter().take(1 + usize::from(is_twice)) {
            let event = Event::BuildWord { to: primary, from: id, build, word: word.clone() };
            self.schedule(Duration::from_micros(wait_us), event);
        }
    }

    /// A member says something of a build: to whoever builds it here, if the configuration has the member.
    pub(super) fn hear_of_build(&mut self, to: MemberId, from: MemberId, build: BuildId, word: Word) {
        let Some(consensus) = self.members.get(&to).and_then(|member| member.consensus.as_ref()) else { return };
        let is_member = consensus.configuration().is_some_and(|configuration| configuration.member(from).is_some());
        let build = self.meant_build(to, build);
        match word {
            Word::Built if is_member => self.tell_build(to, build, BuildInput::Vote(from)),
            Word::Built => {}
            Word::Objection(error) => self.tell_build(to, build, BuildInput::Objection(error)),
        }
    }

    /// The build that a word is for. The mutant takes a word of an earlier build for one of the collection's next.
    fn meant_build(&self, to: MemberId, build: BuildId) -> BuildId {
        let builders = &self.members[&to].builders;
        if self.weather.building_mutant != BuildingMutant::CountsVotesOfEarlierBuilds || builders.contains_key(&build) {
            return build;
        }
        builders.keys().copied().find(|other| *other > build).unwrap_or(build)
    }
}
