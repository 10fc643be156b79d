//! The driver of `baton-following` in a world: carries out what a member's machine asks for, over its disk and the network.
//!
//! What is simulated is how long things take, what gets lost, and what a store can have against an entry ([`super::trouble`]). As a
//! real store does, this one skips entries that are not newer than its last; unlike a real one it has no gate that refuses to apply
//! while its member writes: that nothing comes then is the machine's to see to.

use super::World;
use super::building::BuildingMutant;
use super::copying::Copy;
use super::event::{Answer, Event};
use super::observing::{Applied, WentBack};
use super::trouble::Complaint;
use super::{Removed, SimMember};
use crate::disk::Entry;
use baton_consensus::{Input as Told, MemberId, MemberState, SourceState};
use baton_following::{
    Answer as Copied, Attempt, Batch, Effect, Fault, FaultKind, Following, Here, Input, Lane, TakenAway,
};
use baton_types::{OpTime, Term, Timestamp};
use rand::Rng;
use std::collections::VecDeque;
use std::time::Duration;

/// How often a source that has nothing says so, at least.
const EMPTY_INTERVAL: Duration = Duration::from_secs(1);
const CLOSED: &str = "the connection was closed";

/// What a driver of one machine keeps.
#[derive(Debug, Default)]
pub(super) struct Follower {
    pub machine: Following,
    effects: VecDeque<Effect>,
    is_carrying_out: bool,
    /// Names the work under way: what an older one brings is dropped.
    work: u64,
    /// The work under way waits for another member.
    waits_for_source: bool,
    /// It is the source that is to be copied at once.
    pub copies: bool,
    /// The copy that is being made.
    pub copy: Option<Box<Copy>>,
    stream: Option<Stream>,
    /// The batch that came last.
    batch: Vec<Entry>,
    /// What was known with the page that came last.
    page: Option<(Here, SourceState)>,
    /// The term to be begun once this member rests.
    pub begins: Option<Term>,
    tick_at: Option<Duration>,
    /// When a batch was last taken, another source set, or a rollback ended.
    pub moved_at: Duration,
}

/// A cursor on another's log.
#[derive(Clone, Copy, Debug)]
struct Stream {
    source: MemberId,
    boot: u64,
    cuts: u64,
    /// The place of the next entry.
    at: usize,
    /// What was said last, and when.
    told: Option<(SourceState, OpTime)>,
    told_at: Duration,
}

impl World {
    /// Steps a member's machine, and carries out what it asks for.
    pub(super) fn follow(&mut self, id: MemberId, input: Input) {
        let now = self.now;
        let Some(member) = self.members.get_mut(&id) else { return };
        if member.consensus.is_none() {
            return;
        }
        let boot = member.boot;
        if self.weather.trace {
            eprintln!("{now:?} member {id} follows: {input:?}");
        }
        let follower = &mut member.follower;
        if matches!(input, Input::Source(_) | Input::TakenAway { .. }) {
            follower.moved_at = now;
        }
        let recorder = self.rings.as_mut().and_then(|rings| rings.following.get_mut(&id));
        let effects = baton_replay::step(recorder, &mut follower.machine, now, input);
        follower.effects.extend(effects);
        self.tally.stepped(now, id);
        if follower.is_carrying_out {
            return;
        }
        follower.is_carrying_out = true;
        self.touch(id);
        while let Some(effect) = self.members.get_mut(&id).and_then(|member| member.follower.effects.pop_front()) {
            if self.weather.trace {
                eprintln!("    => {effect:?}");
            }
            self.carry_out_following(id, effect);
        }
        let Some(member) = self.members.get_mut(&id) else { return };
        member.follower.is_carrying_out = false;
        let deadline = member.follower.machine.next_deadline();
        if deadline != member.follower.tick_at {
            member.follower.tick_at = deadline;
            if let Some(deadline) = deadline {
                let wait = deadline.saturating_sub(now).min(Duration::from_secs(3600));
                self.schedule(wait, Event::FollowTick { by: id, boot });
            }
        }
    }

    pub(super) fn follow_tick(&mut self, id: MemberId) {
        let wall = self.clock_of(id);
        if let Some(member) = self.members.get_mut(&id) {
            member.follower.tick_at = None;
        }
        self.follow(id, Input::Tick { wall });
    }

    fn clock_of(&self, id: MemberId) -> Duration {
        let skew_secs = self.members[&id].skew_secs;
        let since = Duration::from_secs(1000) + self.now;
        if skew_secs < 0 {
            since - Duration::from_secs(skew_secs.unsigned_abs())
        } else {
            since + Duration::from_secs(skew_secs.unsigned_abs())
        }
    }

    pub(super) fn here(&self, id: MemberId) -> Here {
        let member = &self.members[&id];
        Here {
            last: member.disk.last(),
            term: member.summary.term,
            leads: member.summary.state == MemberState::Primary,
            committed: member.summary.commit_point.timestamp,
            wall: self.clock_of(id),
        }
    }

    fn carry_out_following(&mut self, id: MemberId, effect: Effect) {
        match effect {
            Effect::Connect { source, within } => {
                if let Some(follower) = self.follower(id) {
                    follower.stream =
                        Some(Stream { source, boot: 0, cuts: 0, at: 0, told: None, told_at: Duration::ZERO });
                }
                let is_there = self.reaches(id, source);
                self.answer_from_afar(id, within, is_there.then_some(Answer::Connected));
            }
            Effect::Copy { lane, task } => self.carry_out_copying(id, lane, task),
            Effect::HangUp { lane } => self.hang_up(id, Some(lane)),
            Effect::Progress(progress) => self.copy_progressed(id, *progress),
            Effect::Open { after, within } => {
                let answer = self.open_stream(id, after);
                self.answer_from_afar(id, within, answer);
            }
            Effect::Read { .. } => {
                let work = self.begin_work(id, true);
                self.poll(id, work);
            }
            Effect::Apply { from, until } => {
                let work = self.begin_work(id, false);
                let wait = self.disk_delay();
                self.worked(wait, id, work, Answer::Applied { from, until });
            }
            Effect::Sync => self.begin_sync(id),
            Effect::AskToSpare => {
                let spared =
                    self.members[&id].consensus.as_ref().is_some_and(|consensus| consensus.view().can_spare_my_copy);
                self.follow(id, Input::Spared(spared));
            }
            Effect::LookBack { secs } => {
                let (own, is_oldest) = self.entry_before(id, secs);
                self.follow(id, Input::LookedBack { own, is_oldest });
            }
            Effect::Page { from, entries_max, within } => {
                let answer = self.page(id, from, entries_max);
                self.answer_from_afar(id, within, answer);
            }
            Effect::TakeAway { common } => {
                let work = self.begin_work(id, false);
                let wait = self.disk_delay();
                self.worked(wait, id, work, Answer::TakenAway { common });
            }
            Effect::Close => {
                self.close(id);
                self.hang_up(id, None);
            }
            Effect::Rested => self.rested(id),
            Effect::NoteNotWhole => {
                if let Some(member) = self.members.get_mut(&id) {
                    member.disk.note_not_whole();
                }
            }
            Effect::Tell(told) => {
                self.tally.too_stale += u64::from(matches!(*told, Told::SourceTooStale { .. }));
                let now = self.now;
                if matches!(*told, Told::BatchTaken { .. })
                    && let Some(follower) = self.follower(id)
                {
                    follower.moved_at = now;
                }
                self.deliver(id, *told);
            }
            Effect::Refused(_) => self.tally.refused += 1,
            Effect::Stopped { .. } | Effect::Passed | Effect::NotRolledBack { .. } => {}
        }
    }

    pub(super) fn follower(&mut self, id: MemberId) -> Option<&mut Follower> {
        self.members.get_mut(&id).map(|member| &mut member.follower)
    }

    fn begin_work(&mut self, id: MemberId, waits_for_source: bool) -> u64 {
        let Some(follower) = self.follower(id) else { return 0 };
        follower.work += 1;
        follower.waits_for_source = waits_for_source;
        follower.copies = false;
        follower.work
    }

    fn worked(&mut self, after: Duration, by: MemberId, work: u64, answer: Answer) {
        let boot = self.members[&by].boot;
        self.schedule(after, Event::Worked { by, boot, work, answer: Box::new(answer) });
    }

    /// An answer takes its time; none takes all the time there is, if the other side does not say that it is gone.
    pub(super) fn answer_from_afar(&mut self, id: MemberId, within: Duration, answer: Option<Answer>) {
        let work = self.begin_work(id, true);
        let there_and_back = self.network_delay() + self.network_delay();
        match answer {
            Some(answer) => self.worked(there_and_back, id, work, answer),
            None => {
                let is_silent = !self.healed && self.random.random_bool(0.2);
                let wait = if is_silent { within } else { there_and_back };
                self.worked(wait, id, work, Answer::Failed("no answer"));
            }
        }
    }

    pub(super) fn reaches(&mut self, by: MemberId, source: MemberId) -> bool {
        let Some(other) = self.members.get(&source) else { return false };
        let is_there = other.consensus.is_some() && other.summary.state.is_readable() && other.paused_until <= self.now;
        is_there && !self.is_lost(by, source) && !self.is_lost(source, by)
    }

    fn source_state(other: &SimMember) -> SourceState {
        SourceState {
            term: other.summary.term,
            last: other.disk.last(),
            oldest: other.disk.log.get(other.disk.oldest).map_or(Timestamp::ZERO, |entry| entry.optime.timestamp),
        }
    }

    fn open_stream(&mut self, id: MemberId, after: OpTime) -> Option<Answer> {
        let source = self.members[&id].follower.stream?.source;
        if !self.reaches(id, source) {
            return None;
        }
        let other = &self.members[&source];
        let at = other.disk.place(after.timestamp);
        let stream = Stream { source, boot: other.boot, cuts: other.disk.cuts, at, told: None, told_at: self.now };
        self.follower(id)?.stream = Some(stream);
        Some(self.take_from_stream(id, stream))
    }

    /// What the source has for the stream now, which goes on from there.
    fn take_from_stream(&mut self, id: MemberId, stream: Stream) -> Answer {
        let entries_max = 2 + (self.next_value % 7) as usize;
        let now = self.now;
        let other = &self.members[&stream.source];
        let left = other.disk.log.get(stream.at..).unwrap_or_default();
        let entries: Vec<Entry> = left.iter().take(entries_max).copied().collect();
        let (source, commit_point) = (Self::source_state(other), other.summary.commit_point);
        if let Some(follower) = self.follower(id) {
            let at = stream.at + entries.len();
            follower.stream = Some(Stream { at, told: Some((source, commit_point)), told_at: now, ..stream });
        }
        Answer::Fetched { entries, source, commit_point }
    }

    /// Takes what is new on the stream; if nothing is, looks again after a while.
    pub(super) fn poll(&mut self, id: MemberId, work: u64) {
        let member = &self.members[&id];
        if member.follower.work != work {
            return;
        }
        let Some(stream) = member.follower.stream else {
            self.worked(Duration::ZERO, id, work, Answer::Failed(CLOSED));
            return;
        };
        let boot = member.boot;
        if member.condition.lags_until > self.now && !self.healed {
            let wait = member.condition.lags_until - self.now;
            self.schedule(wait, Event::Poll { by: id, boot, work });
            return;
        }
        let other = &self.members[&stream.source];
        let is_the_same = other.boot == stream.boot && other.disk.cuts == stream.cuts && stream.at >= other.disk.oldest;
        let said = (Self::source_state(other), other.summary.commit_point);
        let is_news = stream.at < other.disk.log.len() || stream.told != Some(said);
        if !is_the_same || !self.reaches(id, stream.source) {
            let is_silent = !self.healed && self.random.random_bool(0.2);
            let wait = if is_silent {
                Duration::from_millis(self.random.random_range(500..10_000))
            } else {
                self.network_delay()
            };
            self.worked(wait, id, work, Answer::Failed("the stream is broken"));
        } else if is_news || self.now.saturating_sub(stream.told_at) >= EMPTY_INTERVAL {
            let answer = self.take_from_stream(id, stream);
            let wait = self.network_delay();
            self.worked(wait, id, work, answer);
        } else {
            let wait_ms = self.random.random_range(5..60) * self.slowness();
            self.schedule_ms(wait_ms, Event::Poll { by: id, boot, work });
        }
    }

    fn page(&mut self, id: MemberId, from: Timestamp, entries_max: usize) -> Option<Answer> {
        let source = self.members[&id].follower.stream?.source;
        if !self.reaches(id, source) {
            return None;
        }
        let other = &self.members[&source];
        let at = other.disk.place(from);
        let theirs = other.disk.log[at..].iter().take(entries_max).map(|entry| entry.optime).collect();
        Some(Answer::Paged { theirs, source: Self::source_state(other) })
    }

    /// The newest entry that is so many seconds older than the last; or the oldest, if there is none.
    fn entry_before(&self, id: MemberId, secs: u32) -> (OpTime, bool) {
        let disk = self.disk(id);
        let seconds = disk.last().timestamp.seconds.saturating_sub(secs);
        let place = disk.log.partition_point(|entry| entry.optime.timestamp < Timestamp { seconds, increment: 0 });
        match place.checked_sub(1).filter(|place| *place >= disk.oldest) {
            Some(place) => (disk.log[place].optime, false),
            None => (disk.log.get(disk.oldest).map_or(OpTime::ZERO, |entry| entry.optime), true),
        }
    }

    fn close(&mut self, id: MemberId) {
        let Some(follower) = self.follower(id) else { return };
        follower.stream = None;
        if follower.waits_for_source {
            follower.waits_for_source = false;
            let copies = follower.copies;
            follower.work += 1;
            follower.copies = copies;
            let work = follower.work;
            self.worked(Duration::ZERO, id, work, Answer::Failed(CLOSED));
        }
    }

    fn rested(&mut self, id: MemberId) {
        let wait = self.disk_delay();
        let Some(member) = self.members.get_mut(&id) else { return };
        let boot = member.boot;
        if let Some(term) = member.follower.begins.take() {
            self.schedule(wait, Event::TermBegun { to: id, boot, term });
        }
    }

    /// Work is done: what came of it, as the machine is to hear it.
    pub(super) fn take_answer(&mut self, id: MemberId, work: u64, answer: Answer) {
        let Some(follower) = self.follower(id) else { return };
        if follower.work != work {
            return;
        }
        follower.waits_for_source = false;
        let copies = std::mem::take(&mut follower.copies);
        let here = self.here(id);
        let input = match answer {
            Answer::Connected => {
                let disk = self.disk(id);
                let is_whole = disk.is_whole && !disk.log.is_empty();
                Input::Connected { here, is_whole, given_up: disk.given_up }
            }
            Answer::Failed(reason) if copies => {
                let fault = Fault { kind: FaultKind::Other, reason: reason.to_owned() };
                Input::Copied { here, lane: Lane::Main, answer: Copied::Failed(fault) }
            }
            Answer::Failed(reason) => Input::Failed { reason: reason.to_owned() },
            Answer::Copied { from, what } => {
                let answer = self.copy_at_once(id, from, what);
                Input::Copied { here: self.here(id), lane: Lane::Main, answer }
            }
            Answer::Fetched { entries, source, commit_point } => {
                let optimes = entries.iter().map(|entry| entry.optime).collect();
                if let Some(follower) = self.follower(id) {
                    follower.batch = entries;
                }
                Input::Fetched { here, batch: Batch { optimes, source, commit_point, is_open: true } }
            }
            Answer::Applied { from, until } => Input::Applied { attempt: self.apply(id, from, until), wall: here.wall },
            Answer::Paged { theirs, source } => {
                let disk = self.disk(id);
                let known = theirs.iter().take_while(|optime| disk.has(**optime)).count();
                if let Some(follower) = self.follower(id) {
                    follower.page = Some((here, source));
                }
                Input::Paged { here, source, theirs, known }
            }
            Answer::TakenAway { common } => {
                let outcome = self.take_away(id, common);
                Input::TakenAway { position: self.disk(id).position(), outcome }
            }
        };
        self.follow(id, input);
    }

    fn apply(&mut self, id: MemberId, from: usize, until: usize) -> Attempt {
        let now = self.now;
        let fails_whole = self.random.random_bool(0.5);
        let Some(member) = self.members.get_mut(&id) else { return Attempt::Done };
        let due: Vec<Entry> = member.follower.batch.get(from..until).unwrap_or_default().to_vec();
        let lacked: Vec<Entry> = due.into_iter().filter(|entry| member.disk.lacks(entry)).collect();
        let complains = |(at, entry)| member.trouble.complaint(now, entry).map(|why| (at, why));
        let troubled = lacked.iter().enumerate().find_map(complains);
        let before = troubled.map_or(lacked.len(), |(at, _)| at);
        let (good, complaint) = match (0..before).find(|at| self.is_unbuilt(id, &lacked, *at)) {
            Some(at) => (at, Some(Complaint::NotYet)),
            None => (if troubled.is_some() && fails_whole { 0 } else { before }, troubled.map(|(_, why)| why)),
        };
        let Some(member) = self.members.get_mut(&id) else { return Attempt::Done };
        for entry in &lacked[..good] {
            let after = member.disk.last();
            member.disk.apply(*entry);
            self.applied.push(Applied { member: id, entry: *entry, after, is_own: false });
        }
        if good > 0 {
            let position = member.disk.position();
            self.deliver(id, Told::Log(position));
            lacked[..good].iter().for_each(|entry| self.note_quorum(id, entry));
        }
        match complaint {
            None => Attempt::Done,
            Some(Complaint::NotYet) => Attempt::NotYet,
            Some(Complaint::Refused { is_of_collection }) => {
                Attempt::Failed { reason: "the store is in trouble".to_owned(), is_of_collection }
            }
        }
    }

    fn take_away(&mut self, id: MemberId, common: OpTime) -> TakenAway {
        let Some(member) = self.members.get_mut(&id) else {
            return TakenAway::Failed { reason: String::new() };
        };
        if !member.disk.has(common) {
            return TakenAway::Unrecoverable { reason: "the log has no such entry".to_owned() };
        }
        let len = member.disk.place(common.timestamp) + 1;
        let Some((here, source)) = member.follower.page.take() else {
            return TakenAway::Failed { reason: "no page has come".to_owned() };
        };
        let removed = member.disk.log[len..].iter().map(|entry| Removed { term: here.term, entry: *entry });
        self.removed.extend(removed);
        self.went_back.push(WentBack { member: id, here, source, common });
        let before = member.disk.catalog.clone();
        member.disk.roll_back(common);
        if self.weather.building_mutant == BuildingMutant::KeepsRolledBackStarts {
            member.disk.catalog.keep_builds(&before);
        }
        self.tally.rollbacks += 1;
        TakenAway::Done
    }
}
