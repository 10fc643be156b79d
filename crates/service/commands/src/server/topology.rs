//! What this member tells drivers about the replica set it is in, and the wait for that to change.
//!
//! Invariants: the counter of `topologyVersion` grows with every change, so a driver that names the version it has seen is
//! answered at once if it has missed one. What is told is one [`ReplicaSet`], exchanged whole.
//! What it deliberately does not do: decide any of it. `baton-consensus` does, by way of [`Topology::update`].

use arc_swap::ArcSwapOption;
use baton_consensus::{Configuration, Demand, Member, MemberId, MemberState, View};
use baton_machine::about_to_wait;
use baton_request::{Acknowledgement, WriteConcern};
use baton_types::{Result, Term};
use bson::oid::ObjectId;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The replica set as this member sees it at one moment.
#[derive(Clone, Debug)]
pub struct ReplicaSet {
    /// Its name.
    pub name: String,
    /// The address that members and clients are to reach this member at.
    pub me: String,
    /// What consensus says of it.
    pub view: Arc<View>,
}

impl ReplicaSet {
    /// The configuration; absent before the set is initiated.
    pub fn configuration(&self) -> Option<&Configuration> {
        self.view.configuration.as_ref()
    }

    /// Why this member has no part in the set that its configuration is of, if that has another name than the one it was started for.
    pub fn foreign_configuration(&self) -> Option<String> {
        let theirs =
            self.configuration().map(|configuration| &configuration.set_name).filter(|name| **name != self.name)?;
        Some(format!(
            "This member's data are of the replica set '{theirs}', and it was started for '{}': start it with --replSet {theirs}",
            self.name
        ))
    }

    /// This member's entry in it.
    pub fn my_member(&self) -> Option<&Member> {
        self.configuration()?.member(self.view.me?)
    }

    /// A member's address.
    pub fn host_of(&self, id: MemberId) -> Option<&str> {
        Some(self.configuration()?.member(id)?.host.as_str())
    }

    /// The term.
    pub fn term(&self) -> Term {
        self.view.term
    }

    /// Whether what is on this member's own disk is what a majority has.
    pub fn is_own_majority(&self) -> bool {
        self.configuration().is_none_or(|configuration| configuration.majority_of_votes() == 1)
    }
}

/// `topologyVersion`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopologyVersion {
    /// Drawn when the process started.
    pub process_id: ObjectId,
    /// Grows with every change.
    pub counter: i64,
}

struct State {
    counter: i64,
    /// Set when this member has begun to stop: until when it still serves what is asked.
    stops_at: Option<Instant>,
}

/// This member's place in the topology.
pub struct Topology {
    process_id: ObjectId,
    is_replicated: bool,
    set: ArcSwapOption<ReplicaSet>,
    is_writable: AtomicBool,
    is_readable: AtomicBool,
    is_own_majority: AtomicBool,
    is_stopping: AtomicBool,
    majority_is_default: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

impl Topology {
    /// Of a member of the set of that name at that address, or of a standalone.
    pub fn new(set: Option<(String, String)>) -> Self {
        let is_replicated = set.is_some();
        let set = set.map(|(name, me)| Arc::new(ReplicaSet { name, me, view: Arc::new(View::of_nobody()) }));
        Self {
            process_id: ObjectId::new(),
            is_replicated,
            set: ArcSwapOption::from(set),
            is_writable: AtomicBool::new(!is_replicated),
            is_readable: AtomicBool::new(!is_replicated),
            is_own_majority: AtomicBool::new(true),
            is_stopping: AtomicBool::new(false),
            majority_is_default: AtomicBool::new(true),
            state: Mutex::new(State { counter: 0, stops_at: None }),
            changed: Condvar::new(),
        }
    }

    /// Who must have a write, if it is neither this member alone nor a majority as the configuration counts having.
    ///
    /// # Errors
    /// What the `writeConcernError` is to say if no number of members will ever satisfy it.
    pub fn demand(&self, concern: &WriteConcern) -> Result<Option<Demand>> {
        let set = self.set();
        let Some(configuration) = set.as_ref().and_then(|set| set.configuration()) else { return Ok(None) };
        let demand = match &concern.w {
            Acknowledgement::Majority if concern.journal == Some(true) && !configuration.majority_is_durable => {
                Demand::Majority
            }
            Acknowledgement::Members(0 | 1) | Acknowledgement::Majority => return Ok(None),
            Acknowledgement::Members(count) => Demand::Members(*count as usize),
            Acknowledgement::Mode(mode) => configuration.write_mode(mode)?,
            Acknowledgement::Tags(tags) => Demand::Tags(tags.clone()),
        };
        configuration.check_demand(&demand)?;
        Ok(Some(demand))
    }

    /// The replica set, unless this is a standalone.
    pub fn set(&self) -> Option<Arc<ReplicaSet>> {
        self.set.load_full()
    }

    /// Whether this is a member of a set.
    pub fn is_replicated(&self) -> bool {
        self.is_replicated
    }

    /// Takes over what consensus says.
    pub fn update(&self, view: Arc<View>) {
        let Some(before) = self.set() else { return };
        let own = view.me.and_then(|id| view.configuration.as_ref()?.member(id));
        let me = own.map_or_else(|| before.me.clone(), |member| member.host.clone());
        let set = ReplicaSet { name: before.name.clone(), me, view };
        let mut state = self.state.lock();
        self.is_readable.store(set.view.state.is_readable(), Ordering::Release);
        self.is_own_majority.store(set.is_own_majority(), Ordering::Release);
        let majority_is_default = set.configuration().is_none_or(Configuration::majority_is_default);
        self.majority_is_default.store(majority_is_default, Ordering::Release);
        self.is_writable.store(set.view.is_writable_primary && state.stops_at.is_none(), Ordering::Release);
        self.set.store(Some(Arc::new(set)));
        state.counter += 1;
        self.changed.notify_all();
    }

    /// Whether a write of a client that names no write concern waits for a majority.
    pub fn majority_is_default(&self) -> bool {
        self.majority_is_default.load(Ordering::Acquire)
    }

    /// Whether this is the only member of its set.
    pub fn is_alone(&self) -> bool {
        self.set().as_ref().and_then(|set| set.configuration()).is_none_or(|c| c.members.len() == 1)
    }

    /// Whether writes are taken here.
    pub fn is_writable_primary(&self) -> bool {
        self.is_writable.load(Ordering::Acquire)
    }

    /// Whether there is consistent data to be read here.
    pub fn is_readable(&self) -> bool {
        self.is_readable.load(Ordering::Acquire)
    }

    /// Whether what is on this member's own disk is what a majority has.
    pub fn is_own_majority(&self) -> bool {
        self.is_own_majority.load(Ordering::Acquire)
    }

    /// The version now.
    pub fn version(&self) -> TopologyVersion {
        TopologyVersion { process_id: self.process_id, counter: self.state.lock().counter }
    }

    /// `electionId`: ordered as the terms are, and above every one of the old protocol.
    pub fn election_id(&self) -> Option<ObjectId> {
        let set = self.set()?;
        let mut bytes = [0u8; 12];
        bytes[..4].copy_from_slice(&0x7fff_ffff_u32.to_be_bytes());
        bytes[4..].copy_from_slice(&set.term().to_be_bytes());
        Some(ObjectId::from_bytes(bytes))
    }

    /// What this member is doing.
    pub fn member_state(&self) -> MemberState {
        self.set().map_or(MemberState::Primary, |set| set.view.state)
    }

    /// Waits until the version is another than `seen`, or `until`, or until `interrupted` says to stop.
    pub fn wait_for_change<E>(
        &self,
        seen: TopologyVersion,
        until: Instant,
        mut interrupted: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        // A killed waiter notices within this time.
        const SLICE: Duration = Duration::from_millis(500);
        loop {
            interrupted()?;
            let _waiting = about_to_wait();
            let mut state = self.state.lock();
            if seen.process_id != self.process_id || seen.counter != state.counter || Instant::now() >= until {
                return Ok(());
            }
            self.changed.wait_until(&mut state, until.min(Instant::now() + SLICE));
        }
    }

    /// This member is about to stop, at that moment: drivers are told at once, and no longer send anything new. What is asked is
    /// served until then, but for writes.
    pub fn quiesce(&self, until: Instant) {
        let mut state = self.state.lock();
        state.stops_at = Some(state.stops_at.map_or(until, |before| before.min(until)));
        self.is_stopping.store(true, Ordering::Release);
        self.is_writable.store(false, Ordering::Release);
        state.counter += 1;
        self.changed.notify_all();
    }

    /// This member stops now.
    pub fn shut_down(&self) {
        self.quiesce(Instant::now());
    }

    /// Whether this member has begun to stop.
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// How long it still serves what is asked, if it has begun to stop.
    pub fn quiesce_left(&self) -> Option<Duration> {
        if !self.is_stopping() {
            return None;
        }
        self.state.lock().stops_at.map(|until| until.saturating_duration_since(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiter_is_woken_by_a_change_and_not_kept_if_it_missed_one() {
        let topology = Arc::new(Topology::new(None));
        let seen = topology.version();
        let waiter = {
            let topology = topology.clone();
            std::thread::spawn(move || {
                let until = Instant::now() + Duration::from_secs(60);
                topology.wait_for_change(seen, until, || Ok::<(), ()>(())).unwrap();
                topology.version()
            })
        };
        topology.shut_down();
        assert_eq!(waiter.join().unwrap().counter, seen.counter + 1);
        let far = Instant::now() + Duration::from_secs(60);
        topology.wait_for_change(seen, far, || Ok::<(), ()>(())).unwrap();
    }

    #[test]
    fn an_interrupted_waiter_stops() {
        let topology = Topology::new(None);
        let until = Instant::now() + Duration::from_secs(60);
        assert_eq!(topology.wait_for_change(topology.version(), until, || Err(7)), Err(7));
    }

    #[test]
    fn a_member_that_was_never_in_a_set_takes_writes_and_one_of_a_set_waits_for_it() {
        assert!(Topology::new(None).is_writable_primary());
        let member = Topology::new(Some(("rs0".into(), "a:1".into())));
        assert!(!member.is_writable_primary());
        assert!(!member.is_readable());
    }
}
