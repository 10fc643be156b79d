//! Who leads the queue's two works, writing and syncing. Pure: decided under the queue's lock, from what stands in it and whose threads
//! are there.
//!
//! Invariants, which every order of three committing threads keeps (the test below goes through them all), and of those with both helpers
//! beside them all but where one leaves to others while another waits or leaves by itself, of which there are too many:
//! - At most one thread writes, and at most one syncs.
//! - What stands in the queue has a leader, or a thread that is about to ask for the lead: nobody waits for what nobody does.
//! - What is held until a sync is over has a leader then, who made that sync or whom he finds.
//! - A sync that is wanted, and that nobody waits for here, is under way or begins as soon as the helper is back.

/// A thread that leads where no committing thread waits that could.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Helper {
    /// It leads, or there is none.
    #[default]
    Away,
    /// It can be called.
    Waiting,
    /// It has the lead.
    Called,
}

/// To whom a work goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heir {
    /// To the thread of the waiter in this place.
    Waiter(usize),
    /// To the helper.
    Helper,
}

/// To whom each work goes that nobody does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PassedOn {
    pub write: Option<Heir>,
    pub sync: Option<Heir>,
}

/// What stands in the row of what is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Nothing,
    /// All of it waits for a sync.
    ForTheSync,
    Something,
}

/// One of the queue's rows.
pub(super) struct Row<S, F: FnOnce() -> Option<usize>> {
    /// What stands there; of those that wait for a sync, whether anybody does.
    pub standing: S,
    /// Finds the first whose thread is there. It has to look at one after the other, and is asked only where somebody is wanted.
    pub here: F,
}

/// What a leader that has written a group is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AfterWriting {
    pub syncs: bool,
    pub goes_on: bool,
    pub passed_on: PassedOn,
}

/// What a leader that has made a sync is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AfterSyncing {
    pub goes_on: bool,
    pub writes: bool,
    pub passed_on: PassedOn,
}

/// See the file's header.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Roles {
    pub writing: bool,
    pub syncing: bool,
    /// Something was applied for which a sync is to begin that nobody here waits for.
    pub is_sync_wanted: bool,
    pub writer: Helper,
    pub syncer: Helper,
}

impl Roles {
    /// Whether the thread that asks leads the writing from now on.
    pub fn take_writing(&mut self, pending: Standing) -> bool {
        let takes = self.is_to_be_written(pending);
        self.writing |= takes;
        takes
    }

    /// What waits for a sync, all of it, stands there until the one under way is over: nothing of it is told before the next, so it is
    /// written then, as one group.
    fn is_to_be_written(&self, pending: Standing) -> bool {
        match pending {
            Standing::Nothing => false,
            Standing::ForTheSync => !self.writing && !self.syncing,
            Standing::Something => !self.writing,
        }
    }

    /// A group is written. `wants_sync`: the leader's own transaction does. `may_go_on`: nobody waits for this thread who would rather
    /// not, and there is time left.
    pub fn wrote(
        &mut self,
        wants_sync: bool,
        may_go_on: bool,
        pending: Row<Standing, impl FnOnce() -> Option<usize>>,
        awaiting_sync: Row<bool, impl FnOnce() -> Option<usize>>,
    ) -> AfterWriting {
        let (standing, is_sync_awaited) = (pending.standing, awaiting_sync.standing);
        let mut syncs = wants_sync && !self.syncing;
        self.syncing |= syncs;
        self.writing = false;
        let mut goes_on = may_go_on && !syncs && self.take_writing(standing);
        let passed_on = self.pass_on(pending, awaiting_sync);
        // Where nobody is there to take it.
        if !self.syncing && is_sync_awaited {
            (self.syncing, syncs) = (true, true);
        }
        goes_on |= self.take_writing(standing);
        AfterWriting { syncs, goes_on, passed_on }
    }

    /// The helper can be called to write from now on.
    pub fn helps_writing(&mut self) {
        self.writer = Helper::Waiting;
    }

    /// The helper can be called to sync from now on; it is at once if a sync was wanted while it was away.
    pub fn helps_syncing(&mut self) {
        self.syncer = Helper::Waiting;
        if self.is_sync_wanted && !self.syncing {
            (self.syncing, self.syncer) = (true, Helper::Called);
        }
    }

    /// A sync is to begin that nobody waits for here. Whether the helper is called to make it.
    pub fn want_sync(&mut self) -> bool {
        self.is_sync_wanted = true;
        let is_called = !self.syncing && self.syncer == Helper::Waiting;
        if is_called {
            (self.syncing, self.syncer) = (true, Helper::Called);
        }
        is_called
    }

    /// A sync has begun: what is wanted from now on is wanted of the next.
    pub fn begin_sync(&mut self) {
        self.is_sync_wanted = false;
    }

    /// A sync is made. `may_write`: its leader leads for others alone, and writes what was held for that sync's end without anybody
    /// being woken.
    pub fn synced(
        &mut self,
        may_write: bool,
        pending: Row<Standing, impl FnOnce() -> Option<usize>>,
        awaiting_sync: Row<bool, impl FnOnce() -> Option<usize>>,
    ) -> AfterSyncing {
        self.syncing = false;
        let (standing, is_sync_awaited) = (pending.standing, awaiting_sync.standing);
        let mut writes = may_write && self.take_writing(standing);
        let passed_on = self.pass_on(pending, awaiting_sync);
        // Where nobody is there to take it.
        writes |= self.take_writing(standing);
        // One that writes goes on to sync that with what waits for it already.
        let goes_on = !self.syncing && !writes && (self.is_sync_wanted || is_sync_awaited);
        self.syncing |= goes_on;
        AfterSyncing { goes_on, writes, passed_on }
    }

    /// Finds leaders for the work nobody does: a thread that waits for its transaction, or the one that is there for that.
    fn pass_on(
        &mut self,
        pending: Row<Standing, impl FnOnce() -> Option<usize>>,
        awaiting_sync: Row<bool, impl FnOnce() -> Option<usize>>,
    ) -> PassedOn {
        let mut passed_on = PassedOn::default();
        if !self.syncing && (self.is_sync_wanted || awaiting_sync.standing) {
            passed_on.sync = heir(awaiting_sync, &mut self.syncer);
            self.syncing = passed_on.sync.is_some();
        }
        if self.is_to_be_written(pending.standing) {
            passed_on.write = heir(pending, &mut self.writer);
            self.writing = passed_on.write.is_some();
        }
        passed_on
    }
}

fn heir<S>(row: Row<S, impl FnOnce() -> Option<usize>>, helper: &mut Helper) -> Option<Heir> {
    match (row.here)() {
        Some(place) => Some(Heir::Waiter(place)),
        None if *helper == Helper::Waiting => {
            *helper = Helper::Called;
            Some(Heir::Helper)
        }
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// How a committing thread goes about it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    enum Way {
        /// It takes its place and waits, in one step.
        Commit,
        /// It takes its place, and waits later.
        Wait,
        /// It takes its place, leaves later, and asks for the lead after that.
        Leave,
        /// The same, and leads on behalf of all who have left.
        LeaveToOthers,
        /// It commits nothing, and asks for a sync.
        Want,
    }

    impl Way {
        fn leaves(self) -> bool {
            matches!(self, Self::Leave | Self::LeaveToOthers)
        }
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    enum Role {
        None,
        Write,
        Sync,
        Done,
    }

    /// One transaction in the queue.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct Waiter {
        wants_sync: bool,
        is_here: bool,
        is_done: bool,
        role: Role,
        called: u8,
    }

    /// Where a thread is. Between two of these it holds the lock, or does what nobody else sees.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    enum At {
        Start,
        Placed,
        /// It has left, and is about to ask for the lead.
        Left,
        /// It waits for a role; of helpers, to be called.
        Parked,
        TakeGroup,
        Write(Vec<usize>),
        /// Tells these that they are done, then syncs, then goes on writing, as said.
        Tell {
            done: Vec<usize>,
            syncs: bool,
            goes_on: bool,
        },
        BeginSync {
            then_writes: bool,
        },
        Sync {
            served: Vec<usize>,
            then_writes: bool,
        },
        TellSynced {
            served: Vec<usize>,
            goes_on: bool,
            then_writes: bool,
        },
        /// Of helpers: about to say that it can be called.
        Away,
        End,
    }

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct World {
        roles: Roles,
        pending: Vec<usize>,
        awaiting: Vec<usize>,
        waiters: Vec<Waiter>,
        threads: Vec<At>,
        /// Rounds that the helpers may still have without being called, together.
        timeouts: u8,
    }

    impl World {
        fn standing(&self) -> Standing {
            match self.pending.is_empty() {
                true => Standing::Nothing,
                false if self.pending.iter().all(|of| self.waiters[*of].wants_sync) => Standing::ForTheSync,
                false => Standing::Something,
            }
        }
    }

    /// The committing threads come first; then the writer and the syncer, if there are helpers.
    struct Model {
        ways: Vec<(Way, bool)>,
        has_helpers: bool,
        /// A fault that is built in.
        forgets_who_left: bool,
    }

    impl Model {
        fn world(&self) -> World {
            let waiter = |(_, wants_sync): &(Way, bool)| Waiter {
                wants_sync: *wants_sync,
                is_here: true,
                is_done: false,
                role: Role::None,
                called: 0,
            };
            let mut threads = vec![At::Start; self.ways.len()];
            threads.extend(vec![At::Away; if self.has_helpers { 2 } else { 0 }]);
            World {
                roles: Roles::default(),
                pending: Vec::new(),
                awaiting: Vec::new(),
                waiters: self.ways.iter().map(waiter).collect(),
                threads,
                timeouts: 1,
            }
        }

        fn row<S>(&self, world: &World, row: &[usize], standing: S) -> Row<S, impl FnOnce() -> Option<usize> + use<S>> {
            let is_here = |of: &usize| self.forgets_who_left || world.waiters[*of].is_here;
            let here = row.iter().position(is_here);
            Row { standing, here: move || here }
        }

        fn pending(&self, world: &World) -> Row<Standing, impl FnOnce() -> Option<usize> + use<>> {
            self.row(world, &world.pending, world.standing())
        }

        fn awaiting(&self, world: &World) -> Row<bool, impl FnOnce() -> Option<usize> + use<>> {
            self.row(world, &world.awaiting, !world.awaiting.is_empty())
        }

        fn carry_out(world: &mut World, passed_on: PassedOn) {
            if let Some(Heir::Waiter(place)) = passed_on.sync {
                let of = world.awaiting[place];
                world.waiters[of].role = Role::Sync;
            }
            if let Some(Heir::Waiter(place)) = passed_on.write {
                let of = world.pending[place];
                world.waiters[of].role = Role::Write;
            }
        }

        fn tell(world: &mut World, done: &[usize]) {
            for of in done {
                let waiter = &mut world.waiters[*of];
                waiter.is_done = true;
                if waiter.is_here {
                    waiter.role = Role::Done;
                } else {
                    waiter.called += 1;
                }
            }
        }

        fn leads_for_all(&self, thread: usize) -> bool {
            self.ways.get(thread).is_some_and(|(way, _)| *way == Way::LeaveToOthers)
        }

        /// What a thread does when it has nothing to lead any more.
        fn idle(&self, world: &World, thread: usize) -> At {
            if thread >= self.ways.len() {
                At::Away
            } else if world.waiters[thread].is_here {
                At::Parked
            } else {
                At::End
            }
        }

        /// Every world that can come next of this one.
        fn next(&self, world: &World) -> Vec<World> {
            let mut all = Vec::new();
            for thread in 0..world.threads.len() {
                let mut to = world.clone();
                let is_helper = thread >= self.ways.len();
                match world.threads[thread].clone() {
                    At::Start if self.ways[thread].0 == Way::Want => {
                        to.roles.want_sync();
                        to.threads[thread] = At::End;
                    }
                    At::Start => {
                        to.pending.push(thread);
                        let standing = to.standing();
                        to.threads[thread] = match self.ways[thread].0 {
                            Way::Commit if to.roles.take_writing(standing) => At::TakeGroup,
                            Way::Commit => At::Parked,
                            Way::Wait | Way::Leave | Way::LeaveToOthers | Way::Want => At::Placed,
                        };
                    }
                    At::Placed if world.waiters[thread].is_done => {
                        let waiter = &mut to.waiters[thread];
                        if self.ways[thread].0.leaves() {
                            (waiter.is_here, waiter.called) = (false, waiter.called + 1);
                        }
                        to.threads[thread] = At::End;
                    }
                    At::Placed if self.ways[thread].0.leaves() => {
                        to.waiters[thread].is_here = false;
                        to.threads[thread] = match std::mem::replace(&mut to.waiters[thread].role, Role::None) {
                            Role::Write => At::TakeGroup,
                            Role::Sync => At::BeginSync { then_writes: false },
                            Role::None | Role::Done => At::Left,
                        };
                    }
                    At::Placed | At::Left => {
                        let standing = to.standing();
                        to.threads[thread] = match to.roles.take_writing(standing) {
                            true => At::TakeGroup,
                            false => self.idle(&to, thread),
                        };
                    }
                    At::Parked if is_helper => {
                        let is_writer = thread == self.ways.len();
                        let helper = if is_writer { &mut to.roles.writer } else { &mut to.roles.syncer };
                        match *helper {
                            Helper::Called if is_writer => to.threads[thread] = At::TakeGroup,
                            Helper::Called => to.threads[thread] = At::BeginSync { then_writes: false },
                            // It looks whether to stop, and comes back.
                            Helper::Waiting if to.timeouts > 0 => {
                                to.timeouts -= 1;
                                to.threads[thread] = At::Away;
                            }
                            Helper::Waiting | Helper::Away => continue,
                        }
                        let helper = if is_writer { &mut to.roles.writer } else { &mut to.roles.syncer };
                        *helper = Helper::Away;
                    }
                    At::Parked => {
                        to.threads[thread] = match std::mem::replace(&mut to.waiters[thread].role, Role::None) {
                            Role::None => continue,
                            Role::Write => At::TakeGroup,
                            Role::Sync => At::BeginSync { then_writes: false },
                            Role::Done => At::End,
                        };
                    }
                    At::TakeGroup => to.threads[thread] = At::Write(std::mem::take(&mut to.pending)),
                    At::Write(group) => {
                        let (syncing, done): (Vec<usize>, Vec<usize>) =
                            group.iter().partition(|of| to.waiters[**of].wants_sync);
                        to.awaiting.extend(syncing);
                        let own = to.waiters.get(thread).filter(|_| !is_helper);
                        let leads_for_all = self.leads_for_all(thread);
                        let is_awaited = group.iter().any(|of| to.waiters[*of].wants_sync);
                        let has_left = own.is_none_or(|own| !own.is_here);
                        // Where somebody wants a sync and does not wait for it here.
                        let may_be_wanted = self.has_helpers && !done.is_empty();
                        for (is_in_time, is_wanted) in [(true, false), (false, false), (true, true), (false, true)] {
                            if is_wanted && !may_be_wanted {
                                continue;
                            }
                            let mut to = to.clone();
                            to.roles.is_sync_wanted |= is_wanted;
                            let wants_sync =
                                own.is_some_and(|own| own.wants_sync || leads_for_all) && (is_awaited || is_wanted);
                            let may_go_on = is_in_time && (has_left || own.is_none_or(|own| !own.wants_sync));
                            let (pending, awaiting) = (self.pending(&to), self.awaiting(&to));
                            let after = to.roles.wrote(wants_sync, may_go_on, pending, awaiting);
                            Self::carry_out(&mut to, after.passed_on);
                            let (syncs, goes_on) = (after.syncs, after.goes_on);
                            to.threads[thread] = At::Tell { done: done.clone(), syncs, goes_on };
                            all.push(to);
                        }
                        continue;
                    }
                    At::Tell { done, syncs, goes_on } => {
                        Self::tell(&mut to, &done);
                        to.threads[thread] = match (syncs, goes_on) {
                            (true, then_writes) => At::BeginSync { then_writes },
                            (false, true) => At::TakeGroup,
                            (false, false) => self.idle(&to, thread),
                        };
                    }
                    At::BeginSync { then_writes } => {
                        to.roles.begin_sync();
                        let served = std::mem::take(&mut to.awaiting);
                        to.threads[thread] = At::Sync { served, then_writes };
                    }
                    At::Sync { served, then_writes } => {
                        let (pending, awaiting) = (self.pending(&to), self.awaiting(&to));
                        let may_write = is_helper || self.leads_for_all(thread);
                        let AfterSyncing { goes_on, writes, passed_on } = to.roles.synced(may_write, pending, awaiting);
                        Self::carry_out(&mut to, passed_on);
                        let then_writes = then_writes || writes;
                        to.threads[thread] = At::TellSynced { served, goes_on, then_writes };
                    }
                    At::TellSynced { served, goes_on, then_writes } => {
                        Self::tell(&mut to, &served);
                        to.threads[thread] = match (goes_on, then_writes) {
                            (true, _) => At::BeginSync { then_writes },
                            (false, true) => At::TakeGroup,
                            (false, false) => self.idle(&to, thread),
                        };
                    }
                    At::Away => {
                        if thread == self.ways.len() {
                            to.roles.helps_writing();
                        } else {
                            to.roles.helps_syncing();
                        }
                        to.threads[thread] = At::Parked;
                    }
                    At::End => continue,
                }
                all.push(to);
            }
            all
        }

        /// What is wrong with a world; `is_last`: nothing can happen any more.
        fn fault(&self, world: &World, is_last: bool) -> Option<&'static str> {
            let writes = |at: &&At| match at {
                At::TakeGroup | At::Write(_) => true,
                At::Tell { goes_on, .. } => *goes_on,
                At::BeginSync { then_writes } | At::Sync { then_writes, .. } | At::TellSynced { then_writes, .. } => {
                    *then_writes
                }
                _ => false,
            };
            let syncs = |at: &&At| match at {
                At::BeginSync { .. } | At::Sync { .. } => true,
                At::Tell { syncs, .. } => *syncs,
                At::TellSynced { goes_on, .. } => *goes_on,
                _ => false,
            };
            if world.threads.iter().filter(writes).count() > 1 {
                return Some("two threads write");
            }
            if world.threads.iter().filter(syncs).count() > 1 {
                return Some("two threads sync");
            }
            if is_last && world.roles.is_sync_wanted {
                return Some("a sync is wanted that nobody makes");
            }
            if world.waiters.iter().any(|waiter| waiter.called > 1) {
                return Some("what was left is called twice");
            }
            if !is_last {
                return None;
            }
            if world.threads[..self.ways.len()].iter().any(|at| *at != At::End) {
                return Some("a thread waits for ever");
            }
            let is_unanswered = |(waiter, (way, _)): (&Waiter, &(Way, bool))| way.leaves() && waiter.called != 1;
            if world.waiters.iter().zip(&self.ways).any(is_unanswered) {
                return Some("what was left is never called");
            }
            (world.roles.writing || world.roles.syncing).then_some("nobody leads, and the lead is taken")
        }

        /// Goes through every order of everything; the first fault that there is.
        fn explore(&self) -> Result<usize, String> {
            let (mut seen, mut left) = (HashSet::new(), vec![self.world()]);
            while let Some(world) = left.pop() {
                if seen.contains(&world) {
                    continue;
                }
                let next = self.next(&world);
                if let Some(fault) = self.fault(&world, next.is_empty()) {
                    return Err(format!("{fault}: {world:?}"));
                }
                left.extend(next);
                seen.insert(world);
            }
            Ok(seen.len())
        }
    }

    fn all_ways() -> Vec<(Way, bool)> {
        let ways = [Way::Commit, Way::Wait, Way::Leave, Way::LeaveToOthers];
        ways.iter().flat_map(|way| [false, true].map(|wants_sync| (*way, wants_sync))).collect()
    }

    #[test]
    fn in_every_order_of_three_committing_threads_everybody_is_served_once() {
        let mut worlds = 0;
        for has_helpers in [false, true] {
            // Which of them is the first is all the same.
            for (first, way) in all_ways().into_iter().enumerate() {
                for (second, other) in all_ways().into_iter().enumerate().skip(first) {
                    for third in all_ways().into_iter().skip(second) {
                        let ways = vec![way, other, third];
                        // Beside helpers there are very many orders; those who leave to others meet each other there, and who commits.
                        let leaves_to_others = ways.iter().any(|(way, _)| *way == Way::LeaveToOthers);
                        let is_known = |(way, _): &(Way, bool)| matches!(way, Way::Wait | Way::Leave);
                        if has_helpers && leaves_to_others && ways.iter().any(is_known) {
                            continue;
                        }
                        let model = Model { ways, has_helpers, forgets_who_left: false };
                        worlds += model.explore().unwrap_or_else(|fault| panic!("{:?}: {fault}", model.ways));
                    }
                }
            }
        }
        assert!(worlds > 100_000, "{worlds} worlds");
    }

    #[test]
    fn a_sync_that_is_asked_for_is_made_in_every_order_beside_two_committing_threads() {
        for (first, way) in all_ways().into_iter().enumerate() {
            for other in all_ways().into_iter().skip(first) {
                let ways = vec![way, other, (Way::Want, false)];
                let model = Model { ways, has_helpers: true, forgets_who_left: false };
                model.explore().unwrap_or_else(|fault| panic!("{:?}: {fault}", model.ways));
            }
        }
    }

    #[test]
    fn a_leader_that_has_left_is_found_by_the_exploration() {
        let ways = vec![(Way::Leave, true), (Way::Leave, true), (Way::Commit, false)];
        let fault = Model { ways, has_helpers: true, forgets_who_left: true }.explore();
        assert!(fault.is_err(), "it explored {fault:?}");
    }
}
