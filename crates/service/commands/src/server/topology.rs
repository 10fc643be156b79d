//! What this member tells drivers about the replica set it is in, and the wait for that to change.
//!
//! Invariant: the counter of `topologyVersion` grows with every change, so a driver that names the version it has seen is
//! answered at once if it has missed one.
//! What it deliberately does not do: elections. A set has one member so far, and that is its primary.

use baton_types::Term;
use bson::oid::ObjectId;
use parking_lot::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// The replica set, as it was configured.
#[derive(Clone, Debug)]
pub struct ReplicaSet {
    /// Its name.
    pub name: String,
    /// The address that clients are to reach this member at.
    pub me: String,
    /// The set's own identity, drawn when it was initiated.
    pub id: ObjectId,
    /// The configuration's version.
    pub config_version: i64,
    /// The term in which this member became primary.
    pub term: Term,
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
    shutting_down: bool,
}

/// This member's place in the topology.
pub struct Topology {
    process_id: ObjectId,
    set: Option<ReplicaSet>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Topology {
    /// Of a member of `set`, or of a standalone.
    pub fn new(set: Option<ReplicaSet>) -> Self {
        // A member of a set has gone through "started" and "elected" by the time it answers.
        let counter = if set.is_some() { 6 } else { 0 };
        let state = State { counter, shutting_down: false };
        Self { process_id: ObjectId::new(), set, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// The replica set, unless this is a standalone.
    pub fn set(&self) -> Option<&ReplicaSet> {
        self.set.as_ref()
    }

    /// The set's name.
    pub fn set_name(&self) -> Option<&str> {
        self.set.as_ref().map(|s| s.name.as_str())
    }

    /// How many members hold data.
    pub fn data_bearing_members(&self) -> usize {
        1
    }

    /// Whether writes are taken here.
    pub fn is_writable_primary(&self) -> bool {
        !self.state.lock().shutting_down
    }

    /// The version now.
    pub fn version(&self) -> TopologyVersion {
        TopologyVersion { process_id: self.process_id, counter: self.state.lock().counter }
    }

    /// `electionId`: ordered as the terms are, and above every one of the old protocol.
    pub fn election_id(&self) -> Option<ObjectId> {
        let set = self.set.as_ref()?;
        let mut bytes = [0u8; 12];
        bytes[..4].copy_from_slice(&0x7fff_ffff_u32.to_be_bytes());
        bytes[4..].copy_from_slice(&set.term.to_be_bytes());
        Some(ObjectId::from_bytes(bytes))
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
            let mut state = self.state.lock();
            if seen.process_id != self.process_id || seen.counter != state.counter || Instant::now() >= until {
                return Ok(());
            }
            self.changed.wait_until(&mut state, until.min(Instant::now() + SLICE));
        }
    }

    /// This member is about to stop: drivers are told at once, and no longer send writes.
    pub fn shut_down(&self) {
        let mut state = self.state.lock();
        state.shutting_down = true;
        state.counter += 1;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

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
}
