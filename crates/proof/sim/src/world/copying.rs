//! The driver of initial sync in a world: carries out what a member's machine asks for that copies another, lane by lane.
//!
//! In some worlds a copy takes its time: questions are lost, lanes lose their connections, the source writes, drops, restarts and rolls
//! back meanwhile, and a crash leaves half a copy. In the others all of it is done at once, when the source has answered. What is drawn
//! here is drawn by a generator of its own.
//!
//! A document of the store is a collection of one document, and an entry may drop it ([`Entry::is_drop`]). As in a real store, applying an
//! entry that a copied document has seen changes nothing.

use super::World;
use super::event::{Answer as Worked, Event};
use super::observing::Applied;
use crate::catalog::Index;
use crate::disk::{Disk, Entry};
use baton_consensus::{Input as Told, MemberId};
use baton_following::{
    Answer, Attempt, Copying, Fault, FaultKind, Input, Lane, Listed, Method, Progress, ReadFrom, Settings, Task,
};
use rand::Rng;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// So many entries are in the buffer at most.
const BUFFER_ENTRIES: usize = 3;
/// How long a log is silent that has nothing new.
const POLL_MS: u64 = 40;

/// A task that is being carried out.
#[derive(Debug)]
struct Work {
    number: u64,
    task: Task,
    is_closed: bool,
}

/// What a driver keeps of a copy.
#[derive(Debug)]
pub(super) struct Copy {
    source: MemberId,
    what: Copying,
    /// Nothing of it takes time.
    pub at_once: bool,
    works: BTreeMap<Lane, Work>,
    /// The boot of the source that each lane is connected to.
    connected: BTreeMap<Lane, u64>,
    /// The source's log, up to its newest entry when that was asked for first.
    begin: Option<Vec<Entry>>,
    /// The documents that are copied, by their places.
    listed: Vec<usize>,
    /// The place of the stream's next entry, and the source's cuts when it was opened.
    stream: (usize, u64),
    batch: Vec<Entry>,
    kept: usize,
    buffer: VecDeque<Entry>,
    hand: Vec<Entry>,
    checkpoint: Option<Box<Disk>>,
}

/// Whether a task needs the source.
fn is_of_source(task: &Task) -> bool {
    match task {
        Task::Connect { .. }
        | Task::Reconnect
        | Task::AskRollbackId
        | Task::AskNewest
        | Task::AskBytes
        | Task::CopyStatements { .. }
        | Task::List(_)
        | Task::Measure { .. }
        | Task::AskIndexes { .. }
        | Task::Read { .. }
        | Task::Open { .. }
        | Task::ReadLog { .. }
        | Task::BeginCheckpoint
        | Task::ReadPart { .. }
        | Task::EndCheckpoint => true,
        Task::Hold(_)
        | Task::BeginClone
        | Task::BeginLog
        | Task::DropOwn
        | Task::Create { .. }
        | Task::BuildIndexes { .. }
        | Task::Drop { .. }
        | Task::CreateViews
        | Task::Sync
        | Task::Keep { .. }
        | Task::Take { .. }
        | Task::Apply { .. }
        | Task::PassOver { .. }
        | Task::LookUp { .. }
        | Task::EndClone
        | Task::BeginIncoming
        | Task::CreateFile { .. }
        | Task::FinishFile { .. }
        | Task::Arrive
        | Task::Discard
        | Task::Restart => false,
    }
}

fn failed(kind: FaultKind, reason: &str) -> Answer {
    Answer::Failed(Fault { kind, reason: reason.to_owned() })
}

impl World {
    /// An attempt begins, or is over.
    pub(super) fn copy_progressed(&mut self, id: MemberId, progress: Progress) {
        let boot = self.members[&id].boot;
        match progress {
            Progress::Begun { source, what } => {
                let at_once = !self.copies_take_time;
                if let Some(follower) = self.follower(id) {
                    follower.copy = Some(Box::new(Copy {
                        source,
                        what,
                        at_once,
                        works: BTreeMap::new(),
                        connected: BTreeMap::new(),
                        begin: None,
                        listed: Vec::new(),
                        stream: (0, 0),
                        batch: Vec::new(),
                        kept: 0,
                        buffer: VecDeque::new(),
                        hand: Vec::new(),
                        checkpoint: None,
                    }));
                }
            }
            Progress::Ordered(order) => {
                if let Some(copy) = self.copy(id) {
                    copy.listed = order.iter().filter_map(|place| copy.listed.get(*place).copied()).collect();
                }
            }
            Progress::Failed { gives_up, .. } => {
                self.tally.failed_copies += 1;
                if gives_up && self.copies_take_time {
                    self.schedule(Duration::ZERO, Event::ProcessEnds { by: id, boot });
                }
            }
            Progress::Whole(_) => self.tally.copies += 1,
            Progress::CollectionGone(_) => self.tally.gone_collections += 1,
            Progress::RollbackId(_)
            | Progress::From(_)
            | Progress::Until(_)
            | Progress::Files { .. }
            | Progress::CollectionBegun(_)
            | Progress::CollectionEmptied(_)
            | Progress::CollectionInterrupted { .. }
            | Progress::CollectionEnded(_)
            | Progress::Applied(_)
            | Progress::Retried => {}
        }
    }

    fn copy(&mut self, id: MemberId) -> Option<&mut Copy> {
        self.members.get_mut(&id)?.follower.copy.as_deref_mut()
    }

    /// Begins a task; what takes no time is done.
    pub(super) fn carry_out_copying(&mut self, id: MemberId, lane: Lane, task: Task) {
        let Some(copy) = self.copy(id) else { return };
        let (source, what, at_once) = (copy.source, copy.what, copy.at_once);
        if at_once {
            match task {
                Task::Connect { .. } if lane == Lane::Main => {
                    let is_there = self.reaches(id, source);
                    let copied = Worked::Copied { from: source, what };
                    self.answer_from_afar(id, Duration::from_secs(2), is_there.then_some(copied));
                    if let Some(follower) = self.follower(id) {
                        follower.copies = true;
                    }
                }
                // It is answered when nobody waits for it any more.
                Task::ReadLog { .. } => {}
                task => {
                    let answer = self.copy_answer(id, lane, &task);
                    self.answer_copying(id, lane, answer);
                }
            }
            return;
        }
        let wait_us = match task {
            Task::Read { .. } | Task::ReadPart { .. } => self.copying.random_range(20_000..700_000),
            // A disk that has taken in a whole copy may sync for long.
            Task::Sync | Task::EndClone => self.copying.random_range(1_000..2_000_000),
            _ if is_of_source(&task) => self.copying.random_range(1_000..60_000),
            _ => self.copying.random_range(50..5_000),
        };
        self.begin_copy_work(id, lane, task, false, Duration::from_micros(wait_us));
    }

    fn begin_copy_work(&mut self, id: MemberId, lane: Lane, task: Task, is_closed: bool, wait: Duration) {
        self.next_copy_work += 1;
        let number = self.next_copy_work;
        let Some(copy) = self.copy(id) else { return };
        copy.works.insert(lane, Work { number, task, is_closed });
        let boot = self.members[&id].boot;
        self.schedule(wait, Event::CopyWorked { by: id, boot, lane, work: number });
    }

    /// A lane's connection is closed, or every lane's.
    pub(super) fn hang_up(&mut self, id: MemberId, lane: Option<Lane>) {
        let Some(copy) = self.copy(id) else { return };
        if copy.at_once {
            if lane == Some(Lane::Log) {
                self.answer_copying(id, Lane::Log, failed(FaultKind::Lost, "the connection was closed"));
            }
            return;
        }
        let wanted = |of: &Lane| lane.is_none_or(|lane| lane == *of);
        let lanes: Vec<(Lane, Task)> = copy
            .works
            .iter()
            .filter(|(of, work)| wanted(of) && is_of_source(&work.task))
            .map(|(lane, work)| (*lane, work.task.clone()))
            .collect();
        for (lane, task) in lanes {
            self.begin_copy_work(id, lane, task, true, Duration::ZERO);
        }
    }

    /// A task's time is over: what came of it.
    pub(super) fn copy_worked(&mut self, id: MemberId, lane: Lane, number: u64) {
        let Some(copy) = self.copy(id) else { return };
        let Some(work) = copy.works.remove(&lane) else { return };
        if work.number != number {
            copy.works.insert(lane, work);
            return;
        }
        let source = copy.source;
        let answer = if work.is_closed {
            failed(FaultKind::Lost, "the connection was closed")
        } else if is_of_source(&work.task) && !self.is_connected(id, lane, source, &work.task) {
            failed(FaultKind::Lost, "no answer")
        } else {
            self.copy_answer(id, lane, &work.task)
        };
        // A stream that is opened beyond the end of the source's log says so: its first batch is empty.
        if let (Task::ReadLog { .. }, Answer::LogRead { optimes, is_open: true }) = (&work.task, &answer)
            && optimes.is_empty()
        {
            self.begin_copy_work(id, lane, work.task, false, Duration::from_millis(POLL_MS));
            return;
        }
        let now = self.now;
        if !matches!(answer, Answer::Failed(_))
            && let Some(follower) = self.follower(id)
        {
            follower.moved_at = now;
        }
        // Nobody hears anything more from a process that starts itself anew.
        if work.task == Task::Restart {
            return;
        }
        self.look_at_log(id);
        self.answer_copying(id, lane, answer);
    }

    /// A member's driver looks where its log ends before it judges whatever comes in.
    fn look_at_log(&mut self, id: MemberId) {
        let position = self.disk(id).position();
        if self.members[&id].consensus.as_ref().is_some_and(|consensus| consensus.position() != position) {
            self.deliver(id, Told::Log(position));
        }
    }

    fn answer_copying(&mut self, id: MemberId, lane: Lane, answer: Answer) {
        let here = self.here(id);
        self.follow(id, Input::Copied { here, lane, answer });
    }

    /// Whether the source hears this lane; a lane that connects hears from whoever is there.
    fn is_connected(&mut self, id: MemberId, lane: Lane, source: MemberId, task: &Task) -> bool {
        let Some(other) = self.members.get(&source) else { return false };
        let boot = other.boot;
        let is_there = other.consensus.is_some()
            && other.summary.state.is_readable()
            && other.paused_until <= self.now
            && !self.cut.contains(&(id, source))
            && !self.cut.contains(&(source, id));
        let is_lucky = self.healed || !self.copying.random_bool(0.03);
        let connects = matches!(task, Task::Connect { .. } | Task::Reconnect | Task::Open { .. });
        let Some(copy) = self.copy(id) else { return false };
        if connects {
            copy.connected.insert(lane, boot);
        }
        is_there && is_lucky && copy.connected.get(&lane) == Some(&boot)
    }

    /// What comes of a task now.
    fn copy_answer(&mut self, id: MemberId, lane: Lane, task: &Task) -> Answer {
        let Some(copy) = self.members[&id].follower.copy.as_ref() else { return Answer::Done };
        let (source, place_of) = (copy.source, |place: usize| copy.listed.get(place).copied().unwrap_or_default());
        let there = self.disk(source);
        match task {
            Task::Connect { .. } if lane == Lane::Main => Answer::Connected(self.copy_settings()),
            Task::AskRollbackId => Answer::RollbackId(i32::try_from(there.cuts).unwrap_or(i32::MAX)),
            Task::AskNewest if there.log.is_empty() => failed(FaultKind::Other, "the source has no log"),
            Task::AskNewest => {
                let (last, log) = (there.last(), there.log.clone());
                if let Some(copy) = self.copy(id) {
                    copy.begin.get_or_insert(log);
                }
                Answer::Newest(last)
            }
            Task::AskBytes => Answer::Bytes(0),
            Task::BeginClone if copy.at_once => {
                let all = there.clone();
                if let Some(member) = self.members.get_mut(&id) {
                    member.trouble.copied(Copying::Everything);
                }
                self.change_disk(id, |disk| disk.copy(&all))
            }
            Task::BeginLog if copy.at_once => Answer::Done,
            Task::Read { .. } if copy.at_once => Answer::Batch { is_last: true },
            Task::BeginClone => {
                if let Some(member) = self.members.get_mut(&id) {
                    member.trouble.copied(Copying::Everything);
                }
                self.change_disk(id, Disk::begin_clone)
            }
            Task::BeginLog => {
                let begin = self.copy(id).and_then(|copy| copy.begin.clone()).unwrap_or_default();
                self.change_disk(id, |disk| disk.begin_log(&begin))
            }
            Task::DropOwn => self.drop_own(id),
            Task::List(what) => {
                let all = (0..crate::disk::DOCUMENTS).filter(|document| there.documents.exists(*document));
                let listed: Vec<usize> = match what {
                    Copying::Everything => all.collect(),
                    Copying::CollectionOf(optime) => {
                        let of = there.entry(*optime).map(|entry| entry.document());
                        all.filter(|document| Some(*document) == of).collect()
                    }
                };
                // Some are capped.
                let answer = listed.iter().map(|document| Listed { is_capped: *document == 3 }).collect();
                if let Some(copy) = self.copy(id) {
                    copy.listed = listed;
                }
                Answer::Listed(answer)
            }
            Task::Measure { place } | Task::AskIndexes { place } if !there.documents.exists(place_of(*place)) => {
                failed(FaultKind::Gone, "it was dropped")
            }
            Task::Measure { place } => Answer::Bytes(there.documents.writes(place_of(*place)).into()),
            Task::Read { place, from } => {
                let document = place_of(*place);
                self.read_document(id, source, document, *from)
            }
            Task::Drop { place } => {
                let document = place_of(*place);
                self.change_disk(id, |disk| disk.remove(document))
            }
            Task::Open { after, .. } => {
                let (at, cuts) = (there.place(after.timestamp), there.cuts);
                if let Some(copy) = self.copy(id) {
                    copy.stream = (at, cuts);
                }
                self.read_copied_log(id, source, usize::from(self.members[&id].follower.is_copied_at_once()))
            }
            Task::ReadLog { .. } => self.read_copied_log(id, source, 0),
            Task::Keep { from } => {
                let Some(copy) = self.copy(id) else { return Answer::Done };
                copy.kept = *from;
                while copy.kept < copy.batch.len() && copy.buffer.len() < BUFFER_ENTRIES {
                    copy.buffer.push_back(copy.batch[copy.kept]);
                    copy.kept += 1;
                }
                Answer::Kept { until: copy.kept }
            }
            Task::Take { .. } => {
                let Some(copy) = self.copy(id) else { return Answer::Done };
                let entries = copy.buffer.len().min(5);
                copy.hand = copy.buffer.drain(..entries).collect();
                Answer::Taken { optimes: copy.hand.iter().map(|entry| entry.optime).collect() }
            }
            Task::Apply { from, until } => Answer::Applied(self.apply_to_copy(id, *from, *until)),
            Task::PassOver { at } => {
                let entry = copy.hand.get(*at).copied();
                self.change_disk(id, |disk| entry.into_iter().for_each(|entry| disk.pass_over(entry)))
            }
            Task::LookUp { optime } => Answer::Found(self.disk(id).has(*optime)),
            Task::EndClone => {
                let answer = self.change_disk(id, Disk::end_clone);
                let position = self.disk(id).position();
                self.deliver(id, Told::Log(position));
                answer
            }
            Task::BeginCheckpoint => {
                let (newest, checkpoint) = (there.last(), Box::new(there.clone()));
                if let Some(copy) = self.copy(id) {
                    copy.checkpoint = Some(checkpoint);
                }
                Answer::Checkpoint { newest, file_bytes: vec![100, 1_200_000, 0] }
            }
            Task::ReadPart { offset, bytes_max, .. } => {
                let is_damaged = !self.healed && self.copying.random_bool(0.05);
                match is_damaged {
                    true => Answer::Damaged { file: "000007.sst".to_owned() },
                    false => Answer::Part { bytes: (1_200_000 - offset).min(*bytes_max) },
                }
            }
            Task::Restart => {
                let checkpoint = self.copy(id).and_then(|copy| copy.checkpoint.take());
                if let Some(checkpoint) = checkpoint {
                    self.change_disk(id, |disk| disk.copy(&checkpoint));
                    self.tally.copies_by_file += 1;
                }
                let boot = self.members[&id].boot;
                self.schedule(Duration::ZERO, Event::ProcessEnds { by: id, boot });
                Answer::Done
            }
            Task::Connect { .. }
            | Task::Reconnect
            | Task::Hold(_)
            | Task::CopyStatements { .. }
            | Task::Create { .. }
            | Task::AskIndexes { .. }
            | Task::BuildIndexes { .. }
            | Task::CreateViews
            | Task::Sync
            | Task::BeginIncoming
            | Task::CreateFile { .. }
            | Task::FinishFile { .. }
            | Task::EndCheckpoint
            | Task::Arrive
            | Task::Discard => Answer::Done,
        }
    }

    fn copy_settings(&mut self) -> Settings {
        if !self.copies_take_time {
            return Settings { method: Method::Cloning, can_restart: false, copiers: 1 };
        }
        let method = if self.copying.random_bool(0.2) { Method::File } else { Method::Cloning };
        Settings { method, can_restart: true, copiers: self.copying.random_range(1..4) }
    }

    fn change_disk(&mut self, id: MemberId, change: impl FnOnce(&mut Disk)) -> Answer {
        if let Some(member) = self.members.get_mut(&id) {
            change(&mut member.disk);
        }
        Answer::Done
    }

    /// At once, all of the source is here then, up to its newest entry.
    fn drop_own(&mut self, id: MemberId) -> Answer {
        let Some(copy) = self.members[&id].follower.copy.as_ref() else { return Answer::Done };
        let (at_once, source) = (copy.at_once, copy.source);
        let Copying::CollectionOf(optime) = copy.what else { return Answer::Done };
        let there = self.disk(source);
        let document = there.entry(optime).map(|entry| entry.document());
        let all = at_once.then(|| there.clone());
        let what = copy.what;
        let Some(member) = self.members.get_mut(&id) else { return Answer::Done };
        member.trouble.copied(what);
        match (all, document) {
            (Some(all), _) => member.disk.copy(&all),
            (None, Some(document)) => member.disk.remove(document),
            (None, None) => {}
        }
        Answer::Done
    }

    fn read_document(&mut self, id: MemberId, source: MemberId, document: usize, from: ReadFrom) -> Answer {
        let there = self.disk(source);
        if !there.documents.exists(document) {
            return failed(FaultKind::Gone, "it was dropped");
        }
        let (documents, last) = (there.documents, there.last());
        let indexes: Vec<Index> = there.catalog.of(document).cloned().collect();
        // The first batches may be empty.
        let is_last = from == ReadFrom::Cursor && self.copying.random_bool(0.5);
        if is_last {
            self.change_disk(id, |disk| disk.copy_document(document, &documents, &indexes, last));
        }
        Answer::Batch { is_last }
    }

    fn read_copied_log(&mut self, id: MemberId, source: MemberId, entries_max: usize) -> Answer {
        let there = self.disk(source);
        let (at, cuts) = self.members[&id].follower.copy.as_ref().map_or((0, 0), |copy| copy.stream);
        if there.cuts != cuts || at < there.oldest {
            return failed(FaultKind::Lost, "the stream is broken");
        }
        let entries_max = if entries_max == 0 { 6 } else { entries_max };
        let batch: Vec<Entry> = there.log.get(at..).unwrap_or_default().iter().take(entries_max).copied().collect();
        let optimes = batch.iter().map(|entry| entry.optime).collect();
        if let Some(copy) = self.copy(id) {
            copy.stream.0 = at + batch.len();
            copy.batch = batch;
            copy.kept = 0;
        }
        Answer::LogRead { optimes, is_open: true }
    }

    /// Applies what was taken out of the buffer. Of one collection what it has seen may not be applied again.
    fn apply_to_copy(&mut self, id: MemberId, from: usize, until: usize) -> Attempt {
        let is_unlucky = !self.healed && self.copying.random_bool(0.05);
        let Some(member) = self.members.get_mut(&id) else { return Attempt::Done };
        let Some(copy) = &member.follower.copy else { return Attempt::Done };
        if is_unlucky {
            return Attempt::NotYet;
        }
        let (what, hand) = (copy.what, copy.hand.get(from..until).unwrap_or_default().to_vec());
        for entry in &hand {
            let disk = self.disk(id);
            if entry.optime.timestamp <= disk.last().timestamp {
                continue;
            }
            let is_seen = disk.has_seen(entry);
            if what != Copying::Everything && is_seen {
                return Attempt::Failed { reason: "it is not so".to_owned(), is_of_collection: true };
            }
            if !is_seen && self.is_unbuilt(id, std::slice::from_ref(entry), 0) {
                return Attempt::NotYet;
            }
            let Some(member) = self.members.get_mut(&id) else { return Attempt::Done };
            let after = member.disk.last();
            member.disk.apply(*entry);
            self.applied.push(Applied { member: id, entry: *entry, after, is_own: false });
            self.note_quorum(id, entry);
        }
        Attempt::Done
    }

    /// The source has answered, in a world where copies take no time: whether it can be copied.
    pub(super) fn copy_at_once(&mut self, id: MemberId, from: MemberId, what: Copying) -> Answer {
        let is_there = self.reaches(id, from);
        let (own, source) = (self.disk(id), self.disk(from));
        if !is_there {
            return failed(FaultKind::Other, "the source is gone");
        }
        let is_possible = match what {
            Copying::Everything => true,
            Copying::CollectionOf(entry) => source.has(entry) && source.has(own.last()),
        };
        if !is_possible {
            return failed(FaultKind::Other, "the source does not have the entry that cannot be applied");
        }
        Answer::Connected(self.copy_settings())
    }
}

impl super::following::Follower {
    fn is_copied_at_once(&self) -> bool {
        self.copy.as_ref().is_some_and(|copy| copy.at_once)
    }
}
