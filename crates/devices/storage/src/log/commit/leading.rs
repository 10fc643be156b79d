//! What a leader does: takes what waits as a group, has it written or synced, tells whom that serves, and sees to the next one.
//!
//! Invariants:
//! - On entry to [`CommitQueue::lead_write`] and [`CommitQueue::lead_sync`] the calling thread holds `writing` or `syncing`; on return it
//!   does not, and whatever waits then has been passed on, or waits for a thread on its way ([`super::roles`] decides).
//! - Nobody is told, and nothing lent is given back, under the queue's lock.
//! - The first of those that wait goes with every group: whoever passes, nobody stands in the queue for ever.

use super::roles::{AfterSyncing, AfterWriting, Heir, Helper, PassedOn, Roles, Row};
use super::waiter::{LEAD_SYNC, LEAD_WRITE, Waiter};
use super::{CommitQueue, Durability, State};
use crate::documents::transaction::Transaction;
use crate::machine;
use baton_machine::about_to_wait;
use baton_types::{Class, must_not_unwind};
use parking_lot::Condvar;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Transactions one leader takes at once, at most. Bounds how long the first of them waits for the rest.
const GROUP_TRANSACTIONS_MAX: usize = 512;
/// Bytes one leader takes at once, at most (reached, not exceeded by more than one transaction).
const GROUP_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The same of what goes with requests of high class, or is of low class itself: who comes meanwhile waits for it.
const GROUP_BYTES_BESIDE_MAX: usize = 256 * 1024;
/// How long one leader begins further groups. To pass the lead on costs a wake-up, and everybody waits until the one who is woken
/// gets a processor; to keep it makes the leader's own client wait, whatever the others write.
const LEAD_MAX: Duration = Duration::from_micros(500);

/// A part of the log that is worth a sync of its own, which [begins by itself](CommitQueue::syncs_by_itself).
const UNSYNCED_BYTES: usize = 256 * 1024;

/// Those whose transactions are written together.
type Group = SmallVec<[Arc<Waiter>; 4]>;

/// What of these transactions matters to who is to lead.
fn row<'a, S>(
    standing: S,
    waiters: impl IntoIterator<Item = &'a Arc<Waiter>>,
) -> Row<S, impl FnOnce() -> Option<usize>> {
    let waiters = waiters.into_iter();
    Row {
        standing,
        here: move || {
            let mut waiters = waiters;
            waiters.position(|waiter| waiter.is_here())
        },
    }
}

impl State {
    /// The calling thread is to write the next group.
    fn begin_writing(&mut self) {
        self.writer.begin(self.pending.iter().map(|waiter| waiter.class));
    }

    /// Nobody can be called to make the next sync: the helper is on his way back.
    fn await_sync_helper(&mut self) {
        let classes = self.awaiting_sync.iter().map(|waiter| waiter.class).chain(self.sync_wanted_by);
        if let Some(helper) = &self.sync_helper {
            self.syncer.pass_to(helper, classes);
        }
    }

    /// The calling thread is to make the next sync.
    fn begin_syncing(&mut self) {
        self.syncer.begin(self.awaiting_sync.iter().map(|waiter| waiter.class).chain(self.sync_wanted_by));
    }
}

impl CommitQueue {
    /// Syncs whenever a sync is wanted that no committing thread waits for, for that long. For one thread, that has nothing else to
    /// do: a client's thread that went on syncing for others would answer its own client late.
    pub fn serve_syncs(&self, time: Duration) {
        let until = Instant::now() + time;
        self.state.lock().sync_helper = Some(baton_machine::bearer());
        while self.is_called(until, &self.syncer_called, Roles::helps_syncing, |roles| &mut roles.syncer) {
            let _guard = must_not_unwind("the commit queue");
            if self.lead_sync(true) {
                self.lead_write(&self.nobodys, true);
            }
        }
    }

    /// Writes whenever nobody else is there to, for that long. For one thread, as [`Self::serve_syncs`].
    pub fn serve_writes(&self, time: Duration) {
        let until = Instant::now() + time;
        let own = Waiter::new(Transaction::empty(), Durability::Applied);
        self.state.lock().write_helper = Some(baton_machine::bearer());
        while self.is_called(until, &self.writer_called, Roles::helps_writing, |roles| &mut roles.writer) {
            let _guard = must_not_unwind("the commit queue");
            self.lead_write(&own, true);
        }
    }

    /// Has the helper make a sync, or whoever makes the one under way another after it.
    pub(super) fn ask_for_sync(&self, class: Class) {
        self.note_wanted_sync(Instant::now());
        let mut state = self.state.lock();
        state.sync_wanted_by = state.sync_wanted_by.max(Some(class));
        state.syncer.is_waited_for_by(class);
        if state.roles.want_sync() {
            self.pass_on(&mut state, PassedOn { sync: Some(Heir::Helper), write: None });
        } else if !state.roles.syncing {
            state.await_sync_helper();
        }
    }

    /// Nobody writes, of whatever class, before the sync under way is over, if one is.
    pub(crate) fn hurry_sync(&self) {
        self.state.lock().syncer.is_waited_for_by(Class::High);
    }

    /// Writes what has been left, if nobody does: for whoever has left several in a row. He makes the sync as well that one of them waits
    /// for, if nobody else does; while a sync is under way what waits for the next is left to stand.
    pub fn lead_what_was_left(&self) {
        let _guard = must_not_unwind("the commit queue");
        if self.takes_writing() {
            self.lead_write(&self.nobodys, true);
        }
    }

    /// Whether the calling thread is to write the next group.
    pub(super) fn takes_writing(&self) -> bool {
        let mut state = self.state.lock();
        let standing = state.standing();
        state.roles.take_writing(standing)
    }

    /// Waits to be called as a helper; `false` if that did not happen in time.
    fn is_called(
        &self,
        until: Instant,
        called: &Condvar,
        helps: fn(&mut Roles),
        helper: fn(&mut Roles) -> &mut Helper,
    ) -> bool {
        let mut state = self.state.lock();
        helps(&mut state.roles);
        while *helper(&mut state.roles) != Helper::Called && !state.wait_until(called, until).timed_out() {}
        std::mem::replace(helper(&mut state.roles), Helper::Away) == Helper::Called
    }

    /// Writes one group, and those that came together meanwhile. On entry this thread holds `writing`; on return it does not.
    /// `has_left`: nobody waits for this thread, so that it may go on for others.
    pub(super) fn lead_write(&self, own: &Arc<Waiter>, has_left: bool) {
        let began = Instant::now();
        let mut started = began;
        let mut done = VecDeque::new();
        while self.write_next_group(own, has_left, started, began + LEAD_MAX, &mut done) {
            started = Instant::now();
        }
    }

    /// Whether `writing` is still held, and another group to be written. `done` are those who have not been told yet: if they wait for
    /// that until the next group is written, that is urgent.
    fn write_next_group(
        &self,
        own: &Arc<Waiter>,
        has_left: bool,
        started: Instant,
        until: Instant,
        done: &mut VecDeque<Arc<Waiter>>,
    ) -> bool {
        let group = self.take_group();
        self.write_group(&group);
        let ended = Instant::now();
        self.metrics.write_nanos.fetch_add((ended - started).as_nanos() as u64, Ordering::Relaxed);
        let (syncing, written): (Group, Group) =
            group.into_iter().partition(|waiter| waiter.durability == Durability::Synced);
        let wants = |waiter: &&Arc<Waiter>| waiter.durability == Durability::Wanted;
        let wanted_by = written.iter().filter(wants).map(|waiter| waiter.class).max();
        let awaited_by = syncing.iter().map(|waiter| waiter.class).max();
        if wanted_by.max(awaited_by).is_some() {
            self.note_wanted_sync(ended);
        }
        let wanted_by = wanted_by.max(self.is_sync_due(ended).then_some(Class::Background));
        let (AfterWriting { syncs, goes_on, passed_on: _ }, loans) = {
            let mut state = self.state.lock();
            let loans = state.writer.end();
            state.roles.is_sync_wanted |= wanted_by.is_some();
            state.sync_wanted_by = state.sync_wanted_by.max(wanted_by);
            state.awaiting_sync.extend(syncing);
            // They wait for the sync under way, before theirs begins.
            if let Some(class) = wanted_by.max(awaited_by) {
                state.syncer.is_waited_for_by(class);
            }
            let may_go_on = ended < until && (has_left || own.durability != Durability::Synced);
            let standing = state.standing();
            let State { roles, pending, awaiting_sync, .. } = &mut *state;
            let (pending, awaiting_sync) = (row(standing, &*pending), row(!awaiting_sync.is_empty(), &*awaiting_sync));
            // Of nobody's own: whoever waits for one.
            let wants_sync = own.durability != Durability::Applied && wanted_by.max(awaited_by).is_some();
            let after = roles.wrote(wants_sync, may_go_on, pending, awaiting_sync);
            self.pass_on(&mut state, after.passed_on);
            if state.roles.is_sync_wanted && !state.roles.syncing {
                state.await_sync_helper();
            }
            // Who waits for what comes next waits for this thread, whatever it does first.
            if after.goes_on {
                state.begin_writing();
            }
            if after.syncs {
                state.begin_syncing();
            }
            (after, loans)
        };
        // The most urgent stand first in a group, and are told before all who have waited for that longer.
        let place = written.iter().take_while(|waiter| waiter.class == Class::High).count();
        let (urgent, others) = written.split_at(place);
        urgent.iter().for_each(|waiter| waiter.end(Arc::ptr_eq(waiter, own)));
        let mut others = others.iter();
        let may_tell = || !(goes_on && !syncs && self.urgent.load(Ordering::Relaxed) > 0);
        while may_tell()
            && let Some(waiter) = done.pop_front()
        {
            waiter.end(Arc::ptr_eq(&waiter, own));
        }
        while done.is_empty()
            && may_tell()
            && let Some(waiter) = others.next()
        {
            waiter.end(Arc::ptr_eq(waiter, own));
        }
        done.extend(others.cloned());
        // Not before: who was lent for is told by now.
        drop(loans);
        let goes_on_writing = syncs && self.lead_sync(Arc::ptr_eq(own, &self.nobodys));
        goes_on || goes_on_writing
    }

    /// Whether what is written is to be synced though nobody wants it; asked of the log once for each part.
    fn is_sync_due(&self, now: Instant) -> bool {
        let parts = self.unsynced_bytes.load(Ordering::Relaxed) / UNSYNCED_BYTES;
        parts > 0 && self.unsynced_parts_seen.swap(parts, Ordering::Relaxed) != parts && self.syncs_by_itself(now)
    }

    fn take_group(&self) -> Group {
        let mut state = self.state.lock();
        let mut group = Group::with_capacity(state.pending.len().min(GROUP_TRANSACTIONS_MAX));
        let mut bytes = 0;
        if state.pending.iter().any(|waiter| waiter.class == Class::High) {
            // They do not stand behind what others have brought, and not much of that goes with them.
            for waiter in std::mem::take(&mut state.pending) {
                if waiter.passes() && group.len() + 1 < GROUP_TRANSACTIONS_MAX && bytes < GROUP_BYTES_MAX {
                    bytes += waiter.bytes();
                    group.push(waiter);
                } else {
                    state.pending.push_back(waiter);
                }
            }
        }
        let (passed, mut bytes_beside) = (group.len(), 0);
        while group.len() < GROUP_TRANSACTIONS_MAX {
            let Some(next) = state.pending.front() else { break };
            let is_beside = passed > 0 || next.class == Class::Low;
            let bytes_max = if is_beside { GROUP_BYTES_BESIDE_MAX } else { GROUP_BYTES_MAX };
            // The first of them goes with every group: whoever passes, nobody stands here for ever.
            if bytes_beside >= bytes_max && group.len() > passed {
                break;
            }
            bytes_beside += next.bytes();
            group.extend(state.pending.pop_front());
        }
        let at_once = group.iter().filter(|waiter| waiter.durability != Durability::Synced).count();
        state.pending_at_once -= at_once;
        let urgent = group.iter().filter(|waiter| waiter.class == Class::High).count();
        if urgent > 0 {
            self.urgent.fetch_sub(urgent, Ordering::Relaxed);
        }
        state.writer.begin(group.iter().map(|waiter| waiter.class));
        group
    }

    /// Tells those to whom a work goes.
    fn pass_on(&self, state: &mut State, passed_on: PassedOn) {
        if let Some(heir) = passed_on.sync {
            let bearer = match heir {
                Heir::Waiter(place) => Some(&state.awaiting_sync[place].bearer),
                Heir::Helper => state.sync_helper.as_ref(),
            };
            let classes = state.awaiting_sync.iter().map(|waiter| waiter.class).chain(state.sync_wanted_by);
            bearer.into_iter().for_each(|bearer| state.syncer.pass_to(bearer, classes.clone()));
            match heir {
                Heir::Waiter(place) => state.awaiting_sync[place].signal(LEAD_SYNC),
                Heir::Helper => drop(self.syncer_called.notify_one()),
            }
        }
        if let Some(heir) = passed_on.write {
            let bearer = match heir {
                Heir::Waiter(place) => Some(&state.pending[place].bearer),
                Heir::Helper => state.write_helper.as_ref(),
            };
            let classes = state.pending.iter().map(|waiter| waiter.class);
            bearer.into_iter().for_each(|bearer| state.writer.pass_to(bearer, classes.clone()));
            match heir {
                Heir::Waiter(place) => state.pending[place].signal(LEAD_WRITE),
                Heir::Helper => drop(self.writer_called.notify_one()),
            }
        }
    }

    /// Syncs the log for everybody who awaits it, and on while it is wanted and nobody else is there to do it. On entry `syncing`
    /// is held; on return it is not. Whether `writing` is held now, and a group to be written: only if nobody else is there to do it, unless
    /// this thread `may_write`.
    #[must_use = "nobody else writes what was held"]
    pub(super) fn lead_sync(&self, may_write: bool) -> bool {
        loop {
            let (syncs_on, writes) = self.sync_once(may_write);
            if !syncs_on {
                return writes;
            }
            assert!(!writes, "who writes first syncs after that");
        }
    }

    /// Whether `syncing` is still held, and another sync to be made; whether `writing` is held now.
    fn sync_once(&self, may_write: bool) -> (bool, bool) {
        let served = {
            let mut state = self.state.lock();
            state.roles.begin_sync();
            let served = std::mem::take(&mut state.awaiting_sync);
            let wanted_by = state.sync_wanted_by.take();
            state.syncer.begin(served.iter().map(|waiter| waiter.class).chain(wanted_by));
            served
        };
        let target = self.applied.load(Ordering::Acquire);
        let written = self.batches_written.load(Ordering::Acquire);
        self.unsynced_bytes.store(0, Ordering::Relaxed);
        self.unsynced_parts_seen.store(0, Ordering::Relaxed);
        crash_point!("commit-before-sync");
        let waiting = about_to_wait();
        let started = Instant::now();
        self.metrics.sync_began.store((started - self.made).as_nanos() as u64 | 1, Ordering::Relaxed);
        if let Err(error) = self.log.sync() {
            machine::stop_by_disk("syncing the log", &error);
        }
        drop(waiting);
        self.batches_synced.fetch_max(written, Ordering::AcqRel);
        crash_point!("commit-after-sync");
        self.metrics.sync_nanos.fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        self.metrics.syncs.fetch_add(1, Ordering::Relaxed);
        self.metrics.sync_began.store(0, Ordering::Relaxed);
        let (goes_on, writes, loans) = {
            let mut state = self.state.lock();
            // Under the lock, as a truncation of the log is: what that took is not durable any more.
            self.durable.fetch_max(target.min(self.applied.load(Ordering::Acquire)), Ordering::AcqRel);
            let standing = state.standing();
            let State { roles, pending, awaiting_sync, .. } = &mut *state;
            let (pending, awaiting_sync) = (row(standing, &*pending), row(!awaiting_sync.is_empty(), &*awaiting_sync));
            let AfterSyncing { goes_on, writes, passed_on } = roles.synced(may_write, pending, awaiting_sync);
            let loans = state.syncer.end();
            self.pass_on(&mut state, passed_on);
            if goes_on {
                state.begin_syncing();
            }
            if writes {
                state.begin_writing();
            }
            (goes_on, writes, loans)
        };
        self.announce();
        for waiter in served {
            waiter.end(false);
        }
        self.tell_progress();
        drop(loans);
        (goes_on, writes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Storage, StorageOptions};
    use baton_machine::{Right, as_class, bearer, niceness, right};

    #[test]
    fn whose_sync_a_change_of_the_log_waits_for_is_urgent_until_it_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::open(folder.path(), StorageOptions::default()).unwrap();
        let queue = storage.queue();
        as_class(Class::Low);
        let own = niceness();
        queue.hurry_sync();
        assert_eq!(niceness(), own, "nobody syncs");
        queue.state.lock().begin_syncing();
        std::thread::scope(|scope| scope.spawn(|| queue.hurry_sync()).join().unwrap());
        assert_eq!(niceness() < own, right() != Right::None);
        let loans = queue.state.lock().syncer.end();
        drop(loans);
        assert_eq!((niceness(), bearer().class()), (own, Some(Class::Low)));
    }
}
