//! One simulated world: some members, the network between them, their disks, clients, and bad luck, all from one seed.
//!
//! The members run the step machines of `baton-consensus` (that of index builds too), `baton-leadership` and `baton-following` as a
//! real member does; what is simulated is what those do not do themselves: time, sending, the store, tasks. Nothing here depends on anything but the seed, so a
//! seed is a reproduction.
//!
//! A world has two phases. While it is *unsafe*, messages are lost, delayed and repeated, links fail one way or both, members crash and
//! lose what they had not synced, pause, and have clocks that disagree; operators step down, freeze and reconfigure. Then it is
//! *healed*, and must come to rest: one writable primary, everybody with the same log, all of it committed.
//!
//! What it deliberately does not do: judge. The checkers do, after every step.

mod agenda;
mod building;
mod clients;
mod configuration;
mod copying;
mod event;
mod following;
mod leading;
mod log;
mod luck;
mod network;
mod observing;
mod rings;
mod tally;
mod trouble;

pub use building::{Builder, BuildingMutant, Ended};
pub use leading::{Acted, Brain, Duties, Move, Seen, Shape, Silence, SimTask};
pub use observing::{Applied, WentBack};
pub use tally::Tally;

use crate::ByMember;
use crate::catalog::BuildId;
use crate::disk::{Disk, Entry};
use agenda::Agenda;
use baton_consensus::{
    Configuration, Consensus, DataState, Effect, Input, MemberId, Moment, Mutant, Request, RequestId, Start, Summary,
};
use baton_types::{OpTime, Term, Timestamp};
use building::{BUILD_WITHIN, Building};
use configuration::{first_configuration, host};
use event::{Event, Persisted};
use following::Follower;
use leading::{Condition, Leading};
use network::Unanswered;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rings::Rings;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use trouble::Trouble;

/// The member that initiates the set.
const FOUNDER: MemberId = MemberId(0);
const SET_NAME: &str = "rs0";

/// What a world is to be like.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Members in the first configuration, 1 to 7; drawn if absent.
    pub members: Option<usize>,
    /// How long bad luck lasts.
    pub unsafe_for: Duration,
    /// How long the world may then take to come to rest.
    pub heal_within: Duration,
    /// Whether members drop the old end of their logs, as far as it is committed, until the world is healed.
    pub truncates: bool,
    /// Whether every step of a member, with what came of it, is written to stderr.
    pub trace: bool,
    /// Whether stores get into trouble: entries that they cannot apply, or not yet; members that stay behind.
    pub troubles: bool,
    /// Whether in some worlds, those that are drawn, copies take their time; else all is copied at once.
    pub copies: bool,
    /// A fault built into the members' consensus, which the checkers are to find.
    pub mutant: Mutant,
    /// A fault built into how they follow.
    pub following_mutant: baton_following::Mutant,
    /// Whether leadership moves before heavy work; and in which kind of world, or in one that is drawn.
    pub leadership: Option<Option<Shape>>,
    /// A fault built into that.
    pub brain_mutant: baton_leadership::Mutant,
    /// Whether in some worlds, those that are drawn, indexes are built.
    pub builds: bool,
    /// A fault built into the machines of index builds.
    pub build_mutant: baton_consensus::index_build::Mutant,
    /// A fault built into what carries them out.
    pub building_mutant: BuildingMutant,
    /// Whether what the machines are told is kept: [`World::recordings`].
    pub records: bool,
}

/// Two of the longest pauses between attempts at an entry that cannot be applied, and time for a copy of everything: of two members that
/// have the same trouble the one may try again a moment before it hears that the other has come back, and may not give up its copy yet.
const HEAL_WITHIN: Duration = Duration::from_secs(2 * baton_following::PAUSE_MAX.as_secs() + 30);

impl Default for Weather {
    fn default() -> Self {
        Self {
            members: None,
            unsafe_for: Duration::from_secs(40),
            heal_within: HEAL_WITHIN,
            truncates: true,
            trace: false,
            troubles: true,
            copies: true,
            mutant: Mutant::None,
            following_mutant: baton_following::Mutant::None,
            leadership: Some(None),
            brain_mutant: baton_leadership::Mutant::None,
            builds: true,
            build_mutant: baton_consensus::index_build::Mutant::None,
            building_mutant: BuildingMutant::None,
            records: false,
        }
    }
}

/// A vote that a member told a candidate, or won with itself.
#[derive(Clone, Copy, Debug)]
pub struct ToldVote {
    /// Who voted.
    pub voter: MemberId,
    /// In which term.
    pub term: Term,
    /// For whom.
    pub candidate: MemberId,
}

/// An entry that a member rolled back.
#[derive(Clone, Copy, Debug)]
pub struct Removed {
    /// The member's term when it decided to: it may learn of another while its disk is at work.
    pub term: Term,
    /// The entry.
    pub entry: Entry,
}

struct SimMember {
    disk: Disk,
    consensus: Option<Consensus>,
    /// There while `consensus` is, if leadership is simulated.
    brain: Option<Brain>,
    condition: Condition,
    summary: Summary,
    boot: u64,
    /// Does nothing until then.
    paused_until: Moment,
    /// Until then something may come late that was due in a pause, though that was ended by the healing.
    late_until: Moment,
    /// Its clock's error, in seconds.
    skew_secs: i64,
    takes_writes: bool,
    syncing: bool,
    follower: Follower,
    /// What works at index builds, while the process lives.
    builders: BTreeMap<BuildId, Builder>,
    trouble: Trouble,
    /// Stays that far behind.
    delay: Duration,
    tick_at: Moment,
    /// The time of the tick that was put down last.
    ticks_at: Moment,
    unanswered: Vec<Unanswered>,
}

/// See the file's header.
pub struct World {
    weather: Weather,
    founding: Option<Configuration>,
    random: StdRng,
    /// Draws what is truncated when: of its own, so that worlds without it are what they were before there was any.
    truncating: StdRng,
    /// Draws whose store gets into trouble when, likewise.
    troubling: StdRng,
    /// Draws whether copies take their time, and what happens to them, likewise.
    copying: StdRng,
    copies_take_time: bool,
    next_copy_work: u64,
    leading: Leading,
    building: Building,
    rings: Option<Rings>,
    now: Moment,
    agenda: Agenda,
    members: ByMember<SimMember>,
    /// Links that lose everything, from and to.
    cut: BTreeSet<(MemberId, MemberId)>,
    loss: f64,
    delay_ms_max: u64,
    healed: bool,
    next_request: RequestId,
    next_value: u64,
    /// Majority writes whose client waits, by the member that took them.
    waiting: BTreeMap<MemberId, Vec<(Term, Entry)>>,
    // What happened in the last step, for the checkers.
    touched: Vec<MemberId>,
    told: Vec<ToldVote>,
    removed: Vec<Removed>,
    newly_acknowledged: Vec<Entry>,
    applied: Vec<Applied>,
    went_back: Vec<WentBack>,
    /// Counts, for the report.
    pub tally: Tally,
}

impl World {
    /// The world of this seed.
    pub fn new(seed: u64, weather: Weather) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let count =
            weather.members.unwrap_or_else(|| *[1, 3, 3, 3, 4, 5, 5, 7].get(random.random_range(0..8)).unwrap_or(&3));
        let spare = random.random_range(0..3);
        let mut configuration = first_configuration(&mut random, count);
        let leading = Leading::new(seed, weather.leadership);
        let weather = match &leading.duties {
            Some(duties) => {
                duties.shape(&mut configuration);
                let (unsafe_for, heal_within) = duties.length().unwrap_or((weather.unsafe_for, weather.heal_within));
                Weather { unsafe_for, heal_within, ..weather }
            }
            None => weather,
        };
        let building = Building::new(seed, weather.builds);
        // Who has come to rest otherwise may still build.
        let heal_within = weather.heal_within + if building.are_there { BUILD_WITHIN } else { Duration::ZERO };
        let weather = Weather { heal_within, ..weather };
        let count = count.max(configuration.members.len());
        let loss = if random.random_bool(0.3) { 0.0 } else { random.random_range(0.0..0.1) };
        let delay_ms_max = *[2, 10, 50, 200].get(random.random_range(0..4)).unwrap_or(&10);
        let mut world = Self {
            weather,
            founding: None,
            random,
            truncating: StdRng::seed_from_u64(!seed),
            troubling: StdRng::seed_from_u64(seed.rotate_left(32) ^ 0x7_0b1e),
            copying: StdRng::seed_from_u64(seed.rotate_left(16) ^ 0xc0_b1ed),
            copies_take_time: false,
            next_copy_work: 0,
            leading,
            building,
            rings: weather.records.then(Rings::default),
            now: Moment::ZERO,
            agenda: Agenda::default(),
            members: ByMember::default(),
            cut: BTreeSet::new(),
            loss,
            delay_ms_max,
            healed: false,
            next_request: 0,
            next_value: 0,
            waiting: BTreeMap::new(),
            touched: Vec::new(),
            told: Vec::new(),
            removed: Vec::new(),
            newly_acknowledged: Vec::new(),
            applied: Vec::new(),
            went_back: Vec::new(),
            tally: Tally::default(),
        };
        world.copies_take_time = weather.copies && world.copying.random_bool(0.5);
        for id in 0..(count + spare) as i32 {
            world.add_member(MemberId(id));
        }
        world.founding = Some(configuration);
        world.found();
        world.schedule_ms(100, Event::Client);
        world.schedule_ms(300, Event::Fault);
        // Some worlds are large enough for their logs.
        if weather.truncates && world.truncating.random_bool(0.6) {
            world.schedule_ms(2000, Event::Truncate);
        }
        if weather.troubles && world.troubling.random_bool(0.5) {
            world.schedule_ms(3000, Event::Trouble);
        }
        world.begin_duties();
        world.begin_builds();
        world
    }

    /// Has the first member initiate the set, unless that is done.
    fn found(&mut self) {
        if let Some(configuration) = self.founding.clone()
            && self.members.values().all(|member| member.disk.configuration.is_none())
        {
            self.deliver(FOUNDER, Input::Initiate(Box::new(configuration)));
        }
    }

    fn add_member(&mut self, id: MemberId) {
        let skew_secs = self.random.random_range(-5..=5);
        let stays_behind = self.weather.troubles && self.troubling.random_bool(0.03);
        let delay = if stays_behind { Duration::from_secs(self.troubling.random_range(1..4)) } else { Duration::ZERO };
        let mut disk = Disk::default();
        if id == FOUNDER {
            // Who initiates a set begins its log; the others have none until they fetched this.
            let optime = OpTime { term: 0, timestamp: Timestamp { seconds: 900, increment: 1 } };
            disk.apply(Entry::new(optime, 0));
            disk.durable = 1;
        }
        let member = SimMember {
            disk,
            consensus: None,
            brain: None,
            condition: Condition::default(),
            summary: Summary::default(),
            boot: 0,
            paused_until: Moment::ZERO,
            late_until: Moment::ZERO,
            skew_secs,
            takes_writes: false,
            syncing: false,
            follower: Follower::default(),
            builders: BTreeMap::new(),
            trouble: Trouble::default(),
            delay,
            tick_at: Moment::MAX,
            ticks_at: Moment::ZERO,
            unanswered: Vec::new(),
        };
        self.members.push(member);
        self.boot_member(id);
    }

    fn touch(&mut self, id: MemberId) {
        if !self.touched.contains(&id) {
            self.touched.push(id);
        }
    }

    /// Goes on to the next event. False when the world is over.
    pub fn step(&mut self) -> Result<bool, String> {
        self.touched.clear();
        self.told.clear();
        self.removed.clear();
        self.newly_acknowledged.clear();
        self.applied.clear();
        self.went_back.clear();
        self.leading.acted.clear();
        self.leading.silences.clear();
        self.building.ended.clear();
        self.building.voted.clear();
        self.building.told_to_end.clear();
        if !self.healed && self.now >= self.weather.unsafe_for {
            self.heal();
        }
        if self.healed && self.is_at_rest() {
            return Ok(false);
        }
        if self.now > self.weather.unsafe_for + self.weather.heal_within {
            return Err(format!("the healed world did not come to rest within {:?}", self.weather.heal_within));
        }
        let Some((at, event)) = self.agenda.next() else {
            return Err("nothing happens any more".to_owned());
        };
        self.now = self.now.max(at);
        self.happen(event);
        self.supervise_builds();
        Ok(true)
    }

    /// Whether the newest configuration has a writable primary, and all its members its log, entirely committed and without builds
    /// that are under way.
    fn is_at_rest(&self) -> bool {
        let Some((primary, summary)) = self.views().filter(|(_, s)| s.is_writable).max_by_key(|(_, s)| s.term) else {
            return false;
        };
        let Some(configuration) = &self.disk(primary).configuration else { return false };
        let last = self.disk(primary).last();
        summary.commit_point == last
            && self.disk(primary).catalog.under_way().next().is_none()
            && configuration.members.iter().filter(|member| member.bears_data()).all(|member| {
                let other = &self.members[&member.id];
                other.disk.last() == last
                    && other.summary.commit_point == last
                    && other.summary.primary == Some(primary)
                    && other.disk.configuration.as_ref().map(|c| c.version) == Some(configuration.version)
            })
    }

    fn schedule(&mut self, after: Duration, event: Event) {
        self.agenda.put_down(self.now + after, event);
    }

    fn schedule_ms(&mut self, after_ms: u64, event: Event) {
        self.schedule(Duration::from_millis(after_ms), event);
    }

    fn happen(&mut self, event: Event) {
        // Who pauses finds everything late, in the order it came.
        if let Some((member, boot)) = event.addressee() {
            let Some(state) = self.members.get(&member) else { return };
            if boot.is_some_and(|boot| boot != state.boot || state.consensus.is_none()) {
                return;
            }
            if state.paused_until > self.now {
                let wait = state.paused_until - self.now;
                self.schedule(wait, event);
                return;
            }
        }
        match event {
            Event::Tick { to, .. } => {
                if self.members[&to].tick_at <= self.now {
                    self.deliver(to, Input::Tick);
                }
            }
            Event::Request { to, asker, asker_boot, sent, request } => {
                self.receive(to, asker, asker_boot, sent, request)
            }
            Event::Response { to, from, sent, response, .. } => {
                let round_trip = self.now - sent;
                self.deliver(to, Input::Response { from, response, round_trip });
            }
            Event::Unreachable { to, member, gone, kind, .. } => {
                self.deliver(to, Input::Unreachable { to: member, gone, request: kind });
            }
            Event::Persisted { to, what, .. } => self.persisted(to, what),
            Event::Synced { to, len, .. } => self.synced(to, len),
            Event::TermBegun { to, term, .. } => self.begin_term(to, term),
            Event::WritesBlocked { to, .. } => {
                let position = self.disk(to).position();
                self.deliver(to, Input::WritesBlocked(position));
            }
            Event::Poll { by, work, .. } => self.poll(by, work),
            Event::Worked { by, work, answer, .. } => self.take_answer(by, work, *answer),
            Event::CopyWorked { by, lane, work, .. } => self.copy_worked(by, lane, work),
            Event::ProcessEnds { by, .. } => self.crash(by),
            Event::FollowTick { by, .. } => self.follow_tick(by),
            Event::Trouble => self.trouble(),
            Event::Client => self.client(),
            Event::Fault => self.fault(),
            Event::Truncate => self.truncate(),
            Event::Operator => self.repair_who_keeps_others_from_leading(),
            Event::Restart { member } => {
                if self.members[&member].consensus.is_none() {
                    self.boot_member(member);
                }
            }
            Event::Resume { member } => self.deliver(member, Input::Tick),
            Event::Look { to, .. } => self.look(to),
            Event::Errand { to, what, .. } => self.run_errand(to, what),
            Event::Measure { to, boot } => self.measure(to, boot),
            Event::TaskBegins { to, boot, task } => self.task_begins(to, boot, task),
            Event::TaskEnds { to, task, has_run, .. } => self.task_ends(to, task, has_run, false),
            Event::Works => self.give_out_works(),
            Event::Due { member } => self.due(member),
            Event::BuildWork { by, build, work, what, .. } => self.build_worked(by, build, work, what),
            Event::BuildWord { to, from, build, word } => self.hear_of_build(to, from, build, word),
            Event::BuildLuck => self.build_luck(),
            Event::BuildKill { build, looks } => self.kill_build_of_next(build, looks),
        }
    }

    fn boot_member(&mut self, id: MemberId) {
        let seed = self.random.random();
        let now = self.now;
        let mutant = self.weather.mutant;
        let Some(member) = self.members.get_mut(&id) else { return };
        member.boot += 1;
        member.takes_writes = false;
        member.syncing = false;
        member.follower = Follower::default();
        member.follower.machine.mutate(self.weather.following_mutant);
        member.follower.moved_at = now;
        member.tick_at = now;
        member.ticks_at = Moment::ZERO;
        member.unanswered.clear();
        let start = Start {
            host: host(id),
            set_name: SET_NAME.into(),
            protocol_version: baton_consensus::PROTOCOL_VERSION,
            configuration: member.disk.configuration.clone(),
            vote: member.disk.vote,
            position: member.disk.position(),
            commit_point: member.disk.commit_point,
            data: if member.disk.log.is_empty() || !member.disk.is_whole {
                DataState::InitialSync
            } else {
                DataState::Ready
            },
            given_up: member.disk.given_up,
            seed,
        };
        let mut consensus = Consensus::new(now, start);
        consensus.mutate(mutant);
        member.summary = consensus.summary();
        member.consensus = Some(consensus);
        self.touch(id);
        self.boot_brain(id);
        self.begin_rings(id);
        self.boot_follower(id);
        self.deliver(id, Input::Tick);
    }

    fn deliver(&mut self, id: MemberId, input: Input) {
        let Some(member) = self.members.get_mut(&id) else { return };
        let Some(consensus) = &mut member.consensus else { return };
        let told = self.weather.trace.then(|| format!("{:?} member {id}: {input:?}", self.now));
        let is_sign = leading::is_sign_of_life(&input);
        let recorder = self.rings.as_mut().and_then(|rings| rings.consensus.get_mut(&id));
        let effects = baton_replay::step(recorder, consensus, self.now, input);
        if let Some(told) = told {
            let summary = consensus.summary();
            eprintln!("{told}\n    {summary:?}");
            effects.iter().for_each(|effect| eprintln!("    -> {effect:?}"));
        }
        let deadline = consensus.next_deadline();
        let before = std::mem::replace(&mut member.summary, consensus.summary());
        let has_changed = before != member.summary;
        member.tick_at = deadline;
        let boot = member.boot;
        // Most steps leave the deadline where it was.
        let ticks_then = deadline > self.now && std::mem::replace(&mut member.ticks_at, deadline) == deadline;
        if has_changed {
            self.touch(id);
        }
        self.tally.steps += 1;
        self.tally.stepped(self.now, id);
        if !ticks_then {
            self.schedule(deadline.saturating_sub(self.now), Event::Tick { to: id, boot });
        }
        self.tell_brain(id, &effects, is_sign);
        for effect in effects {
            self.carry_out(id, effect);
        }
    }

    fn carry_out(&mut self, id: MemberId, effect: Effect) {
        let boot = self.members[&id].boot;
        match effect {
            Effect::Send { to, mut request } => {
                self.speak_in_request(id, &mut request);
                if matches!(request, Request::StepUp { .. }) {
                    self.entrust(id, to);
                }
                self.send(id, to, request);
            }
            Effect::Respond { id: request, mut response } => {
                if let Ok(response) = &mut response {
                    self.speak_in_response(id, response);
                }
                self.respond(id, request, response);
            }
            Effect::PersistVote(vote) => {
                let wait = self.disk_delay();
                self.schedule(wait, Event::Persisted { to: id, boot, what: Persisted::Vote(vote) });
            }
            Effect::PersistConfiguration(configuration) => {
                let wait = self.disk_delay();
                self.schedule(wait, Event::Persisted { to: id, boot, what: Persisted::Configuration(configuration) });
            }
            Effect::FetchConfiguration { host } => self.fetch_configuration(id, &host),
            Effect::Won { term, .. } => {
                self.tally.elections += 1;
                self.touch(id);
                self.told.push(ToldVote { voter: id, term, candidate: id });
            }
            Effect::BeginTerm(term) => {
                if let Some(member) = self.members.get_mut(&id) {
                    member.follower.begins = Some(term);
                }
                self.follow(id, baton_following::Input::Rest);
            }
            Effect::BlockWrites => {
                self.set_takes_writes(id, false);
                self.writes_blocked(id);
                let wait = self.disk_delay();
                self.schedule(wait, Event::WritesBlocked { to: id, boot });
            }
            Effect::UnblockWrites => self.set_takes_writes(id, true),
            Effect::Resign { .. } => {
                self.set_takes_writes(id, false);
                self.waiting.remove(&id);
            }
            Effect::Committed(optime) => self.committed(id, optime),
            Effect::SyncSource(source) => self.follow(id, baton_following::Input::Source(source)),
            Effect::SteppedDown(outcome) => {
                self.tally.step_downs += u64::from(outcome.is_ok());
                self.stepped_down(id, outcome);
            }
            Effect::Heard { from, leadership } => self.hear(id, from, &leadership),
            Effect::TermAdopted(_)
            | Effect::Reconfigured(_)
            | Effect::Stood(_)
            | Effect::RefusedMember { .. }
            | Effect::TopologyChanged => {}
        }
    }
}
