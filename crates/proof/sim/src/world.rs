//! One simulated world: some members, the network between them, their disks, clients, and bad luck, all from one seed.
//!
//! The members run the step machines of `baton-consensus` as a real member does; what is simulated is what those do not do
//! themselves: time, sending, the disk, the fetching of entries. Nothing here depends on anything but the seed, so a
//! seed is a reproduction.
//!
//! A world has two phases. While it is *unsafe*, messages are lost, delayed and repeated, links fail one way or both, members crash and
//! lose what they had not synced, pause, and have clocks that disagree; operators step down, freeze and reconfigure. Then it is
//! *healed*, and must come to rest: one writable primary, everybody with the same log, all of it committed.
//!
//! What it deliberately does not do: judge. The checkers do, after every step.

use crate::disk::{Disk, Entry, common_prefix};
use baton_consensus::{
    Configuration, ConfigurationVersion, Consensus, DataState, Effect, Input, Member, MemberId, MemberState, Moment,
    Mutant, Request, RequestId, RequestKind, Response, Settings, SourceState, Start, StepDownRequest, Summary, Verdict,
    judge,
};
use baton_types::{Error, OpTime, Term, Timestamp};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

/// The member that initiates the set.
const FOUNDER: MemberId = MemberId(0);

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
    /// A fault built into the members, which the checkers are to find.
    pub mutant: Mutant,
}

impl Default for Weather {
    fn default() -> Self {
        Self {
            members: None,
            unsafe_for: Duration::from_secs(40),
            heal_within: Duration::from_secs(60),
            truncates: true,
            trace: false,
            mutant: Mutant::None,
        }
    }
}

/// A vote that a member told a candidate.
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
    /// The member's term.
    pub term: Term,
    /// The entry.
    pub entry: Entry,
}

#[derive(Clone, Debug)]
enum Event {
    /// A member's timer.
    Tick {
        to: MemberId,
        boot: u64,
    },
    /// A request arrives; `asker` is told of the answer under `exchange`.
    Request {
        to: MemberId,
        asker: MemberId,
        asker_boot: u64,
        sent: Moment,
        request: Request,
    },
    Response {
        to: MemberId,
        boot: u64,
        from: MemberId,
        sent: Moment,
        response: Response,
    },
    Unreachable {
        to: MemberId,
        boot: u64,
        member: MemberId,
        gone: bool,
        kind: RequestKind,
    },
    /// Something is on disk.
    Persisted {
        to: MemberId,
        boot: u64,
        what: Persisted,
    },
    Synced {
        to: MemberId,
        boot: u64,
        len: usize,
    },
    TermBegun {
        to: MemberId,
        boot: u64,
        term: Term,
    },
    WritesBlocked {
        to: MemberId,
        boot: u64,
    },
    Fetch {
        by: MemberId,
        boot: u64,
        generation: u64,
        from: MemberId,
    },
    Fetched {
        by: MemberId,
        boot: u64,
        generation: u64,
        from: MemberId,
        asked: OpTime,
        answer: Option<FetchAnswer>,
    },
    RolledBack {
        by: MemberId,
        boot: u64,
        from: MemberId,
    },
    Client,
    Fault,
    /// Somebody's log has become too large.
    Truncate,
    Restart {
        member: MemberId,
    },
    Resume {
        member: MemberId,
    },
}

#[derive(Clone, Debug)]
enum Persisted {
    Vote(baton_consensus::LastVote),
    Configuration(Box<Configuration>),
}

#[derive(Clone, Debug)]
struct FetchAnswer {
    state: SourceState,
    term: Term,
    commit_point: OpTime,
    entries: Vec<Entry>,
}

struct SimMember {
    disk: Disk,
    consensus: Option<Consensus>,
    summary: Summary,
    boot: u64,
    /// Does nothing until then.
    paused_until: Moment,
    /// Its clock's error, in seconds.
    skew_secs: i64,
    takes_writes: bool,
    syncing: bool,
    fetch_generation: u64,
    fetches_from: Option<MemberId>,
    tick_at: Moment,
    /// Requests it has not answered: who is to be told.
    unanswered: BTreeMap<RequestId, (MemberId, u64, Moment, Request)>,
}

/// See the file's header.
pub struct World {
    weather: Weather,
    founding: Option<Configuration>,
    random: StdRng,
    /// Draws what is truncated when: of its own, so that worlds without it are what they were before there was any.
    truncating: StdRng,
    now: Moment,
    /// When what happens: in the order of time, and of scheduling. The last number is a place in `pending`.
    events: BinaryHeap<Reverse<(Moment, u64, usize)>>,
    pending: Vec<Option<Event>>,
    /// Places of `pending` that are free.
    vacant: Vec<usize>,
    sequence: u64,
    members: BTreeMap<MemberId, SimMember>,
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
    /// Counts, for the report.
    pub tally: Tally,
}

/// What a world went through.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Steps of any member.
    pub steps: u64,
    /// Elections won.
    pub elections: u64,
    /// Entries written by clients.
    pub writes: u64,
    /// Of them acknowledged by a majority.
    pub acknowledged: u64,
    /// Rollbacks.
    pub rollbacks: u64,
    /// Crashes.
    pub crashes: u64,
    /// Configurations installed.
    pub configurations: u64,
    /// Step-downs that came about on request.
    pub step_downs: u64,
    /// Sources that lacked what followed a member's log.
    pub too_stale: u64,
}

impl World {
    /// The world of this seed.
    pub fn new(seed: u64, weather: Weather) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let count =
            weather.members.unwrap_or_else(|| *[1, 3, 3, 3, 4, 5, 5, 7].get(random.random_range(0..8)).unwrap_or(&3));
        let spare = random.random_range(0..3);
        let configuration = first_configuration(&mut random, count);
        let loss = if random.random_bool(0.3) { 0.0 } else { random.random_range(0.0..0.1) };
        let delay_ms_max = *[2, 10, 50, 200].get(random.random_range(0..4)).unwrap_or(&10);
        let mut world = Self {
            weather,
            founding: None,
            random,
            truncating: StdRng::seed_from_u64(!seed),
            now: Moment::ZERO,
            events: BinaryHeap::new(),
            pending: Vec::new(),
            vacant: Vec::new(),
            sequence: 0,
            members: BTreeMap::new(),
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
            tally: Tally::default(),
        };
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
        let mut disk = Disk::default();
        if id == FOUNDER {
            // Who initiates a set begins its log; the others have none until they fetched this.
            let optime = OpTime { term: 0, timestamp: Timestamp { seconds: 900, increment: 1 } };
            disk.append(&[Entry { optime, value: 0 }]);
            disk.durable = 1;
        }
        let member = SimMember {
            disk,
            consensus: None,
            summary: Summary::default(),
            boot: 0,
            paused_until: Moment::ZERO,
            skew_secs,
            takes_writes: false,
            syncing: false,
            fetch_generation: 0,
            fetches_from: None,
            tick_at: Moment::MAX,
            unanswered: BTreeMap::new(),
        };
        self.members.insert(id, member);
        self.boot_member(id);
    }

    // ---- what checkers see ----

    /// All members, up or down.
    pub fn ids(&self) -> impl Iterator<Item = MemberId> {
        self.members.keys().copied()
    }

    /// Members whose process lives, and what they are.
    pub fn views(&self) -> impl Iterator<Item = (MemberId, &Summary)> {
        self.members.iter().filter(|(_, member)| member.consensus.is_some()).map(|(id, member)| (*id, &member.summary))
    }

    /// A member's disk.
    pub fn disk(&self, id: MemberId) -> &Disk {
        &self.members[&id].disk
    }

    /// How often a member's process has begun.
    pub fn boot(&self, id: MemberId) -> u64 {
        self.members[&id].boot
    }

    /// The members that the last step changed, each once.
    pub fn touched(&self) -> &[MemberId] {
        &self.touched
    }

    /// Those of them whose process lives, and what they are.
    pub fn touched_views(&self) -> impl Iterator<Item = (MemberId, &Summary)> {
        let live = |id: &MemberId| self.members.get(id).filter(|member| member.consensus.is_some());
        self.touched.iter().filter_map(move |id| live(id).map(|member| (*id, &member.summary)))
    }

    /// Votes told in the last step.
    pub fn votes_told(&self) -> &[ToldVote] {
        &self.told
    }

    /// Entries rolled back in the last step.
    pub fn removed(&self) -> &[Removed] {
        &self.removed
    }

    /// Majority writes acknowledged in the last step.
    pub fn acknowledged(&self) -> &[Entry] {
        &self.newly_acknowledged
    }

    /// Simulated time.
    pub fn now(&self) -> Moment {
        self.now
    }

    /// One line a member, for reports.
    pub fn describe(&self) -> String {
        self.members
            .iter()
            .map(|(id, member)| {
                let s = &member.summary;
                format!(
                    "  {id}: {}{} term {} primary {:?} log {} ({}) durable {} commit {} source {:?} config {:?}\n",
                    if member.consensus.is_some() { s.state.name() } else { "(down)" },
                    if s.is_writable { ", writable" } else { "" },
                    s.term,
                    s.primary.map(|p| p.0),
                    member.disk.last(),
                    member.disk.log.len(),
                    member.disk.durable,
                    s.commit_point,
                    s.sync_source.map(|p| p.0),
                    member.disk.configuration.as_ref().map(|c| (c.version.term, c.version.version, c.members.len())),
                )
            })
            .collect()
    }

    // ---- running ----

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
        if !self.healed && self.now >= self.weather.unsafe_for {
            self.heal();
        }
        if self.healed && self.is_at_rest() {
            return Ok(false);
        }
        if self.now > self.weather.unsafe_for + self.weather.heal_within {
            return Err(format!("the healed world did not come to rest within {:?}", self.weather.heal_within));
        }
        let Some(Reverse((at, _, place))) = self.events.pop() else {
            return Err("nothing happens any more".to_owned());
        };
        self.now = self.now.max(at);
        self.vacant.push(place);
        if let Some(event) = self.pending[place].take() {
            self.happen(event);
        }
        Ok(true)
    }

    fn heal(&mut self) {
        self.healed = true;
        self.cut.clear();
        self.loss = 0.0;
        self.delay_ms_max = self.delay_ms_max.min(20);
        let ids: Vec<MemberId> = self.members.keys().copied().collect();
        for id in ids {
            if let Some(member) = self.members.get_mut(&id) {
                member.paused_until = self.now;
                // As if somebody turned up whose log reaches back: who was too stale must find it.
                member.disk.oldest = 0;
            }
            if self.members[&id].consensus.is_none() {
                self.boot_member(id);
            }
            self.deliver(id, Input::Freeze(Duration::ZERO));
        }
        self.found();
    }

    /// Whether the newest configuration has a writable primary, and all its members its log, entirely committed.
    fn is_at_rest(&self) -> bool {
        let Some((primary, summary)) = self.views().filter(|(_, s)| s.is_writable).max_by_key(|(_, s)| s.term) else {
            return false;
        };
        let Some(configuration) = &self.disk(primary).configuration else { return false };
        let last = self.disk(primary).last();
        summary.commit_point == last
            && configuration.members.iter().filter(|member| member.bears_data()).all(|member| {
                let other = &self.members[&member.id];
                other.disk.last() == last
                    && other.summary.commit_point == last
                    && other.summary.primary == Some(primary)
                    && other.disk.configuration.as_ref().map(|c| c.version) == Some(configuration.version)
            })
    }

    fn schedule(&mut self, after: Duration, event: Event) {
        self.sequence += 1;
        let place = match self.vacant.pop() {
            Some(place) => {
                self.pending[place] = Some(event);
                place
            }
            None => {
                self.pending.push(Some(event));
                self.pending.len() - 1
            }
        };
        self.events.push(Reverse((self.now + after, self.sequence, place)));
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
            Event::Fetch { by, generation, from, .. } => self.fetch(by, generation, from),
            Event::Fetched { by, generation, from, asked, answer, .. } => {
                self.fetched(by, generation, from, asked, answer)
            }
            Event::RolledBack { by, from, .. } => self.roll_back(by, from),
            Event::Client => self.client(),
            Event::Fault => self.fault(),
            Event::Truncate => self.truncate(),
            Event::Restart { member } => {
                if self.members[&member].consensus.is_none() {
                    self.boot_member(member);
                }
            }
            Event::Resume { member } => self.deliver(member, Input::Tick),
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
        member.fetches_from = None;
        member.fetch_generation += 1;
        member.tick_at = now;
        member.unanswered.clear();
        let start = Start {
            host: host(id),
            configuration: member.disk.configuration.clone(),
            vote: member.disk.vote,
            position: member.disk.position(),
            commit_point: member.disk.commit_point,
            data: if member.disk.log.is_empty() { DataState::InitialSync } else { DataState::Ready },
            seed,
        };
        let mut consensus = Consensus::new(now, start);
        consensus.mutate(mutant);
        member.summary = consensus.summary();
        member.consensus = Some(consensus);
        self.deliver(id, Input::Tick);
    }

    fn crash(&mut self, id: MemberId) {
        if self.weather.trace {
            eprintln!("{:?} member {id} crashes", self.now);
        }
        let restart_ms = self.random.random_range(50..8000);
        let Some(member) = self.members.get_mut(&id) else { return };
        if member.consensus.take().is_none() {
            return;
        }
        member.disk.crash(&mut self.random);
        member.takes_writes = false;
        self.waiting.remove(&id);
        self.touch(id);
        self.tally.crashes += 1;
        self.schedule_ms(restart_ms, Event::Restart { member: id });
    }

    // ---- a member's step ----

    fn deliver(&mut self, id: MemberId, input: Input) {
        let Some(member) = self.members.get_mut(&id) else { return };
        let Some(consensus) = &mut member.consensus else { return };
        let told = self.weather.trace.then(|| format!("{:?} member {id}: {input:?}", self.now));
        let effects = consensus.step(self.now, input);
        if let Some(told) = told {
            let summary = consensus.summary();
            eprintln!("{told}\n    {summary:?}");
            effects.iter().for_each(|effect| eprintln!("    -> {effect:?}"));
        }
        let deadline = consensus.next_deadline();
        member.summary = consensus.summary();
        member.tick_at = deadline;
        let boot = member.boot;
        self.touch(id);
        self.tally.steps += 1;
        self.schedule(deadline.saturating_sub(self.now), Event::Tick { to: id, boot });
        for effect in effects {
            self.carry_out(id, effect);
        }
    }

    fn carry_out(&mut self, id: MemberId, effect: Effect) {
        let boot = self.members[&id].boot;
        match effect {
            Effect::Send { to, request } => self.send(id, to, request),
            Effect::Respond { id: request, response } => self.respond(id, request, response),
            Effect::PersistVote(vote) => {
                let wait = self.disk_delay();
                if self.weather.mutant == Mutant::VoteNotPersisted {
                    self.deliver(id, Input::VotePersisted(vote));
                } else {
                    self.schedule(wait, Event::Persisted { to: id, boot, what: Persisted::Vote(vote) });
                }
            }
            Effect::PersistConfiguration(configuration) => {
                let wait = self.disk_delay();
                self.schedule(wait, Event::Persisted { to: id, boot, what: Persisted::Configuration(configuration) });
            }
            Effect::FetchConfiguration { host } => self.fetch_configuration(id, &host),
            Effect::Won { .. } => self.tally.elections += 1,
            Effect::BeginTerm(term) => {
                let wait = self.disk_delay();
                self.schedule(wait, Event::TermBegun { to: id, boot, term });
            }
            Effect::BlockWrites => {
                self.set_takes_writes(id, false);
                let wait = self.disk_delay();
                self.schedule(wait, Event::WritesBlocked { to: id, boot });
            }
            Effect::UnblockWrites => self.set_takes_writes(id, true),
            Effect::Resign { .. } => {
                self.set_takes_writes(id, false);
                self.waiting.remove(&id);
            }
            Effect::Committed(optime) => self.committed(id, optime),
            Effect::SyncSource(None) if self.weather.mutant == Mutant::FetchesOnAsPrimary => {}
            Effect::SyncSource(source) => {
                if let Some(member) = self.members.get_mut(&id) {
                    member.fetch_generation += 1;
                    member.fetches_from = source;
                    let generation = member.fetch_generation;
                    if let Some(from) = source {
                        self.schedule_ms(0, Event::Fetch { by: id, boot, generation, from });
                    }
                }
            }
            Effect::SteppedDown(Ok(())) => self.tally.step_downs += 1,
            Effect::TermAdopted(_)
            | Effect::SteppedDown(Err(_))
            | Effect::Reconfigured(_)
            | Effect::Stood(_)
            | Effect::TopologyChanged => {}
        }
    }

    fn set_takes_writes(&mut self, id: MemberId, takes_writes: bool) {
        if let Some(member) = self.members.get_mut(&id) {
            member.takes_writes = takes_writes;
        }
    }

    fn committed(&mut self, id: MemberId, optime: OpTime) {
        let term = self.members[&id].summary.term;
        let is_primary = self.members[&id].summary.state == MemberState::Primary;
        if let Some(member) = self.members.get_mut(&id)
            && self.random.random_bool(0.3)
        {
            member.disk.commit_point = optime;
        }
        if !is_primary {
            return;
        }
        let Some(waiting) = self.waiting.get_mut(&id) else { return };
        let (done, rest): (Vec<_>, Vec<_>) =
            std::mem::take(waiting).into_iter().partition(|(of, entry)| *of == term && entry.optime <= optime);
        *waiting = rest;
        self.tally.acknowledged += done.len() as u64;
        self.newly_acknowledged.extend(done.into_iter().map(|(_, entry)| entry));
    }

    // ---- the network ----

    fn network_delay(&mut self) -> Duration {
        let usual = self.random.random_range(0..=self.delay_ms_max * 1000);
        // Now and then a message is overtaken by many later ones.
        let stray = if self.random.random_bool(0.02) { self.random.random_range(0..2_000_000) } else { 0 };
        Duration::from_micros(usual + if self.healed { 0 } else { stray })
    }

    fn disk_delay(&mut self) -> Duration {
        let slow = !self.healed && self.random.random_bool(0.02);
        Duration::from_micros(self.random.random_range(50..if slow { 800_000 } else { 3_000 }))
    }

    fn is_lost(&mut self, from: MemberId, to: MemberId) -> bool {
        self.cut.contains(&(from, to)) || (self.loss > 0.0 && self.random.random_bool(self.loss))
    }

    fn send(&mut self, from: MemberId, to: MemberId, request: Request) {
        let kind = request.kind();
        let boot = self.members[&from].boot;
        let sent = self.now;
        if !self.members.contains_key(&to) {
            return;
        }
        let timeout_ms = self.random.random_range(300..1500);
        if self.members[&to].consensus.is_none() && !self.cut.contains(&(from, to)) {
            let wait = self.network_delay();
            self.schedule(wait, Event::Unreachable { to: from, boot, member: to, gone: true, kind });
            return;
        }
        // Asked again after a while; an answer that comes later still arrives.
        if self.is_lost(from, to) {
            self.schedule_ms(timeout_ms, Event::Unreachable { to: from, boot, member: to, gone: false, kind });
            return;
        }
        let repeated = !self.healed && self.random.random_bool(0.02);
        let wait = self.network_delay();
        let event = Event::Request { to, asker: from, asker_boot: boot, sent, request };
        if repeated {
            let later = self.network_delay();
            self.schedule(later, event.clone());
        }
        self.schedule(wait, event);
    }

    fn receive(&mut self, to: MemberId, asker: MemberId, asker_boot: u64, sent: Moment, request: Request) {
        let kind = request.kind();
        if self.members[&to].consensus.is_none() {
            self.schedule_ms(1, Event::Unreachable { to: asker, boot: asker_boot, member: to, gone: false, kind });
            return;
        }
        self.next_request += 1;
        let id = self.next_request;
        if let Some(member) = self.members.get_mut(&to) {
            member.unanswered.insert(id, (asker, asker_boot, sent, request.clone()));
        }
        self.deliver(to, Input::Request { id, request });
    }

    fn respond(&mut self, from: MemberId, id: RequestId, response: Result<Response, Error>) {
        let Some((to, boot, sent, request)) = self.members.get_mut(&from).and_then(|m| m.unanswered.remove(&id)) else {
            return;
        };
        if let (Ok(Response::RequestVotes(vote)), Request::RequestVotes(asked)) = (&response, &request)
            && vote.granted
            && !vote.dry_run
        {
            self.told.push(ToldVote { voter: from, term: vote.term, candidate: asked.candidate });
        }
        let kind = request.kind();
        let lost = self.is_lost(from, to);
        let wait = self.network_delay();
        match response {
            Ok(response) if !lost => self.schedule(wait, Event::Response { to, boot, from, sent, response }),
            _ => self.schedule_ms(700, Event::Unreachable { to, boot, member: from, gone: false, kind }),
        }
    }

    fn fetch_configuration(&mut self, id: MemberId, at: &str) {
        let Some(from) = self.members.keys().copied().find(|other| host(*other) == at) else { return };
        if self.is_lost(id, from) || self.is_lost(from, id) {
            return;
        }
        if let Some(configuration) = self.disk(from).configuration.clone() {
            self.deliver(id, Input::ConfigurationFetched(Box::new(configuration)));
        }
    }

    // ---- the disk ----

    fn persisted(&mut self, id: MemberId, what: Persisted) {
        let Some(member) = self.members.get_mut(&id) else { return };
        match what {
            Persisted::Vote(vote) => {
                if vote.term >= member.disk.vote.term {
                    member.disk.vote = vote;
                }
                self.deliver(id, Input::VotePersisted(vote));
            }
            Persisted::Configuration(configuration) => {
                let version = configuration.version;
                member.disk.configuration = Some(*configuration);
                self.tally.configurations += 1;
                self.deliver(id, Input::ConfigurationPersisted(version));
            }
        }
    }

    fn append(&mut self, id: MemberId, entries: &[Entry]) {
        let Some(member) = self.members.get_mut(&id) else { return };
        member.disk.append(entries);
        let position = member.disk.position();
        self.deliver(id, Input::Log(position));
        self.begin_sync(id);
    }

    fn begin_sync(&mut self, id: MemberId) {
        let wait = self.disk_delay();
        let Some(member) = self.members.get_mut(&id) else { return };
        if member.syncing || member.disk.durable == member.disk.log.len() {
            return;
        }
        member.syncing = true;
        let (boot, len) = (member.boot, member.disk.log.len());
        self.schedule(wait, Event::Synced { to: id, boot, len });
    }

    fn synced(&mut self, id: MemberId, len: usize) {
        let Some(member) = self.members.get_mut(&id) else { return };
        member.syncing = false;
        // A rollback may have removed what this sync began with.
        let len = len.min(member.disk.log.len());
        member.disk.durable = member.disk.durable.max(len);
        let position = member.disk.position();
        self.deliver(id, Input::Log(position));
        self.begin_sync(id);
    }

    // ---- writing ----

    fn next_entry(&mut self, id: MemberId) -> Entry {
        self.next_value += 1;
        let member = &self.members[&id];
        let last = member.disk.last().timestamp;
        let wall = u32::try_from((1000 + self.now.as_secs() as i64 + member.skew_secs).max(1)).unwrap_or(1);
        let timestamp = if wall > last.seconds {
            Timestamp { seconds: wall, increment: 1 }
        } else {
            Timestamp { seconds: last.seconds, increment: last.increment + 1 }
        };
        Entry { optime: OpTime { term: member.summary.term, timestamp }, value: self.next_value }
    }

    fn begin_term(&mut self, id: MemberId, term: Term) {
        let summary = &self.members[&id].summary;
        if summary.term != term || summary.state != MemberState::Primary {
            return;
        }
        self.set_takes_writes(id, true);
        let entry = self.next_entry(id);
        self.append(id, &[entry]);
        self.deliver(id, Input::TermBegun(term));
    }

    fn client(&mut self) {
        let writers: Vec<MemberId> = self
            .members
            .iter()
            .filter(|(_, m)| m.consensus.is_some() && m.takes_writes && m.paused_until <= self.now)
            .map(|(id, _)| *id)
            .collect();
        if !writers.is_empty() && self.next_value < 600 && !self.healed {
            let id = writers[self.random.random_range(0..writers.len())];
            let term = self.members[&id].summary.term;
            for _ in 0..self.random.random_range(1..4) {
                let entry = self.next_entry(id);
                self.tally.writes += 1;
                self.waiting.entry(id).or_default().push((term, entry));
                self.append(id, &[entry]);
                if !self.members[&id].takes_writes {
                    break;
                }
            }
        }
        let wait_ms = self.random.random_range(5..300);
        self.schedule_ms(wait_ms, Event::Client);
    }

    // ---- fetching ----

    fn fetch(&mut self, by: MemberId, generation: u64, from: MemberId) {
        let member = &self.members[&by];
        if member.fetch_generation != generation {
            return;
        }
        let (boot, asked) = (member.boot, member.disk.last());
        let source = &self.members[&from];
        let reachable =
            source.consensus.is_some() && source.summary.state.is_readable() && source.paused_until <= self.now;
        let lost = self.is_lost(by, from) || self.is_lost(from, by);
        let answer = (reachable && !lost).then(|| {
            let source = &self.members[&from];
            let most = 1 + (self.next_value % 7) as usize;
            // Who has nothing copies documents, and so is at the end of the source's log at once.
            let copies = self.weather.truncates && asked == OpTime::ZERO;
            let entries = match copies {
                true => source.disk.log.clone(),
                false => source.disk.from(asked).iter().take(most + 1).copied().collect(),
            };
            let oldest =
                source.disk.log.get(source.disk.oldest).map_or(Timestamp::ZERO, |entry| entry.optime.timestamp);
            FetchAnswer {
                state: SourceState { term: source.summary.term, last: source.disk.last(), oldest },
                term: source.summary.term,
                commit_point: source.summary.commit_point,
                entries,
            }
        });
        let wait = self.network_delay() + self.network_delay();
        self.schedule(wait, Event::Fetched { by, boot, generation, from, asked, answer });
    }

    fn fetched(&mut self, by: MemberId, generation: u64, from: MemberId, asked: OpTime, answer: Option<FetchAnswer>) {
        let member = &self.members[&by];
        let mutant = self.weather.mutant;
        let has_changed = member.disk.last() != asked && mutant != Mutant::FetchesOnAsPrimary;
        if member.fetch_generation != generation || has_changed {
            return;
        }
        let boot = member.boot;
        let Some(answer) = answer else {
            self.deliver(by, Input::SourceFailed { source: from, avoid: Duration::from_millis(200) });
            return;
        };
        let leads = member.summary.state == MemberState::Primary && mutant != Mutant::FetchesOnAsPrimary;
        let optimes: Vec<OpTime> = answer.entries.iter().map(|entry| entry.optime).collect();
        // An empty log has nothing to be found in the source's: it takes all, as an initial sync would.
        let is_empty = asked == OpTime::ZERO;
        let verdict = if is_empty && !leads {
            Verdict::Append { entries: optimes.len() }
        } else {
            judge(asked, member.summary.term, leads, answer.state, &optimes)
        };
        match verdict {
            Verdict::Append { entries } => {
                let skip = usize::from(!is_empty);
                let batch: Vec<Entry> = answer.entries.iter().skip(skip).take(entries).copied().collect();
                if !batch.is_empty() {
                    self.append(by, &batch);
                    if is_empty {
                        self.deliver(by, Input::Data(DataState::Ready));
                    }
                }
                let term = if mutant == Mutant::FetchesOnAsPrimary { 0 } else { answer.term };
                let FetchAnswer { commit_point, state: SourceState { last, .. }, .. } = answer;
                self.deliver(by, Input::BatchTaken { source: from, term, commit_point, last });
                let wait_ms = if batch.is_empty() { self.random.random_range(5..60) } else { 0 };
                self.schedule_ms(wait_ms, Event::Fetch { by, boot, generation, from });
            }
            Verdict::ChangeSource => {
                self.deliver(by, Input::SourceFailed { source: from, avoid: Duration::from_millis(300) });
            }
            Verdict::TooStale => {
                self.tally.too_stale += 1;
                self.deliver(by, Input::SourceTooStale { source: from, oldest: answer.state.oldest });
            }
            Verdict::RollBack => {
                self.deliver(by, Input::Data(DataState::Rollback));
                let wait = self.disk_delay();
                self.schedule(wait, Event::RolledBack { by, boot, from });
            }
        }
    }

    fn roll_back(&mut self, by: MemberId, from: MemberId) {
        let source = &self.members[&from].disk.log;
        let mine = &self.members[&by].disk.log;
        let common = common_prefix(mine, source);
        let is_primary = self.members[&by].summary.state == MemberState::Primary;
        let still_behind = self.members[&from].disk.last() > self.disk(by).last();
        let committed = mine.partition_point(|entry| entry.optime <= self.members[&by].summary.commit_point);
        if common < committed {
            // Refused, as a real member refuses it.
            self.deliver(by, Input::SourceFailed { source: from, avoid: Duration::from_millis(300) });
        } else if !is_primary && still_behind {
            let term = self.members[&by].summary.term;
            let removed: Vec<Removed> = mine[common..].iter().map(|entry| Removed { term, entry: *entry }).collect();
            if let Some(member) = self.members.get_mut(&by) {
                member.disk.truncate(common);
                self.tally.rollbacks += 1;
            }
            self.removed.extend(removed);
            let position = self.disk(by).position();
            self.deliver(by, Input::Log(position));
        }
        self.deliver(by, Input::Data(DataState::Ready));
        let member = &self.members[&by];
        if let Some(from) = member.fetches_from {
            let (boot, generation) = (member.boot, member.fetch_generation);
            self.schedule_ms(1, Event::Fetch { by, boot, generation, from });
        }
    }

    // ---- bad luck ----

    fn fault(&mut self) {
        if self.healed {
            return;
        }
        let ids: Vec<MemberId> = self.members.keys().copied().collect();
        let victim = ids[self.random.random_range(0..ids.len())];
        match self.random.random_range(0..100) {
            0..20 => self.crash(victim),
            20..30 => {
                let primaries: Vec<MemberId> =
                    self.views().filter(|(_, s)| s.state == MemberState::Primary).map(|(id, _)| id).collect();
                primaries.into_iter().for_each(|id| self.crash(id));
            }
            30..45 => {
                // A one-way cut.
                let other = ids[self.random.random_range(0..ids.len())];
                self.cut.insert((victim, other));
            }
            45..60 => self.partition(&ids),
            60..78 => self.cut.clear(),
            78..84 => {
                let pause = Duration::from_millis(self.random.random_range(100..6000));
                if let Some(member) = self.members.get_mut(&victim) {
                    member.paused_until = self.now + pause;
                }
                self.schedule(pause, Event::Resume { member: victim });
            }
            84..90 => self.step_down(),
            90..97 => self.reconfigure(),
            _ => {
                let dry_run = self.random.random_bool(0.5);
                self.deliver(victim, Input::StandForElection { dry_run });
            }
        }
        let wait_ms = self.random.random_range(20..2500);
        self.schedule_ms(wait_ms, Event::Fault);
    }

    /// Drops the old end of a log, up to what its member knows to be committed: now and then of all but the last of it.
    fn truncate(&mut self) {
        if self.healed {
            return;
        }
        let live: Vec<MemberId> = self.views().map(|(id, _)| id).collect();
        if !live.is_empty() {
            let id = live[self.truncating.random_range(0..live.len())];
            let commit_point = self.members[&id].summary.commit_point;
            let all = self.truncating.random_bool(0.5);
            let share = if all { 1.0 } else { self.truncating.random_range(0.0..1.0) };
            if let Some(member) = self.members.get_mut(&id) {
                let committed = member.disk.log.partition_point(|entry| entry.optime < commit_point);
                let oldest = (committed as f64 * share) as usize;
                member.disk.oldest = member.disk.oldest.max(oldest);
            }
        }
        let wait_ms = self.truncating.random_range(200..6000);
        self.schedule_ms(wait_ms, Event::Truncate);
    }

    fn partition(&mut self, ids: &[MemberId]) {
        self.cut.clear();
        let side: BTreeSet<MemberId> = ids.iter().copied().filter(|_| self.random.random_bool(0.5)).collect();
        for a in ids {
            for b in ids {
                if side.contains(a) != side.contains(b) {
                    self.cut.insert((*a, *b));
                }
            }
        }
    }

    fn step_down(&mut self) {
        let Some((primary, _)) = self.views().find(|(_, s)| s.is_writable) else { return };
        let request = StepDownRequest {
            force: self.random.random_bool(0.3),
            catch_up: Duration::from_millis(self.random.random_range(0..3000)),
            freeze: Duration::from_millis(self.random.random_range(0..5000)),
            to: None,
            hand_off: self.random.random_bool(0.7),
        };
        self.deliver(primary, Input::StepDown(request));
    }

    /// Adds or removes one voter, or changes priorities.
    fn reconfigure(&mut self) {
        let Some((primary, summary)) = self.views().find(|(_, s)| s.is_writable) else { return };
        let Some(mut next) = self.disk(primary).configuration.clone() else { return };
        next.version = ConfigurationVersion { term: summary.term, version: next.version.version + 1 };
        let outside: Vec<MemberId> = self.ids().filter(|id| next.member(*id).is_none()).collect();
        match self.random.random_range(0..3) {
            0 if !outside.is_empty() => {
                let id = outside[self.random.random_range(0..outside.len())];
                next.members.push(member(id, 1.0, false));
            }
            1 if next.voters().count() > 2 => {
                let others: Vec<MemberId> = next.members.iter().map(|m| m.id).filter(|id| *id != primary).collect();
                let id = others[self.random.random_range(0..others.len())];
                next.members.retain(|member| member.id != id);
            }
            _ => {
                for member in next.members.iter_mut().filter(|member| member.priority > 0.0) {
                    member.priority = f64::from(self.random.random_range(1..4));
                }
            }
        }
        let twice = self.weather.mutant == Mutant::AnyReconfiguration;
        if twice && next.voters().count() > 2 {
            next.members.retain(|member| member.id == primary || member.id.0 % 2 == 0);
        }
        self.deliver(primary, Input::Reconfigure { configuration: Box::new(next), force: false });
    }
}

impl Event {
    /// The member this is about, and the boot it belongs to.
    fn addressee(&self) -> Option<(MemberId, Option<u64>)> {
        match self {
            Self::Tick { to, boot }
            | Self::Response { to, boot, .. }
            | Self::Unreachable { to, boot, .. }
            | Self::Persisted { to, boot, .. }
            | Self::Synced { to, boot, .. }
            | Self::TermBegun { to, boot, .. }
            | Self::WritesBlocked { to, boot } => Some((*to, Some(*boot))),
            Self::Fetch { by, boot, .. } | Self::Fetched { by, boot, .. } | Self::RolledBack { by, boot, .. } => {
                Some((*by, Some(*boot)))
            }
            Self::Request { to, .. } => Some((*to, None)),
            Self::Client | Self::Fault | Self::Truncate | Self::Restart { .. } | Self::Resume { .. } => None,
        }
    }
}

fn host(id: MemberId) -> String {
    format!("m{}:27017", id.0)
}

fn member(id: MemberId, priority: f64, arbiter: bool) -> Member {
    Member {
        id,
        host: host(id),
        arbiter,
        builds_indexes: true,
        hidden: false,
        priority: if arbiter { 0.0 } else { priority },
        tags: BTreeMap::new(),
        delay: Duration::ZERO,
        votes: true,
        newly_added: false,
    }
}

fn first_configuration(random: &mut StdRng, count: usize) -> Configuration {
    let arbiter = (count > 2 && random.random_bool(0.2)).then_some(count as i32 - 1);
    let alike = random.random_bool(0.6);
    let mut members: Vec<Member> = (0..count as i32)
        .map(|id| {
            let priority = if alike { 1.0 } else { f64::from(random.random_range(0..4)) };
            member(MemberId(id), priority, arbiter == Some(id))
        })
        .collect();
    if !members.iter().any(Member::is_electable) {
        members[0].priority = 1.0;
    }
    let election_timeout = Duration::from_millis(*[500, 1000, 2000].get(random.random_range(0..3)).unwrap_or(&1000));
    Configuration {
        set_name: "rs0".to_owned(),
        version: ConfigurationVersion { term: 1, version: 1 },
        members,
        majority_is_durable: true,
        settings: Settings {
            chaining_allowed: random.random_bool(0.8),
            election_timeout,
            heartbeat_timeout: election_timeout,
            catch_up_timeout: random.random_bool(0.5).then_some(Duration::from_millis(800)),
            catch_up_takeover_delay: Some(Duration::from_millis(1500)),
            ..Settings::default()
        },
    }
}

impl Tally {
    /// Adds another world's.
    pub fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.elections += other.elections;
        self.writes += other.writes;
        self.acknowledged += other.acknowledged;
        self.rollbacks += other.rollbacks;
        self.crashes += other.crashes;
        self.configurations += other.configurations;
        self.step_downs += other.step_downs;
        self.too_stale += other.too_stale;
    }
}
