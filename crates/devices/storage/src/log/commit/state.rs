//! What stands in the queue: everything that its threads meet at, under its one lock.

use super::Durability;
use super::gate::WriteGate;
use super::lead::Lead;
use super::roles::{Roles, Standing};
use super::waiter::Waiter;
use baton_machine::Bearer;
use baton_types::Class;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;

/// See the file's header.
pub(super) struct State {
    pub(super) gate: WriteGate,
    /// Those who have waited at the gate are not told yet that it is closed.
    pub(super) keeps_refused: bool,
    pub(super) pending: VecDeque<Arc<Waiter>>,
    /// Those of them that do not wait for a sync.
    pub(super) pending_at_once: usize,
    /// Applied, and waiting for a sync that has not begun.
    pub(super) awaiting_sync: SmallVec<[Arc<Waiter>; 4]>,
    pub(super) roles: Roles,
    pub(super) writer: Lead,
    pub(super) syncer: Lead,
    /// The most urgent of those who want a sync and do not wait here for it.
    pub(super) sync_wanted_by: Option<Class>,
    /// The threads that can be called to write and to sync.
    pub(super) write_helper: Option<Arc<Bearer>>,
    pub(super) sync_helper: Option<Arc<Bearer>>,
}

impl State {
    /// Nobody is there.
    pub(super) fn new(gate: WriteGate) -> Self {
        Self {
            gate,
            keeps_refused: false,
            pending: VecDeque::new(),
            pending_at_once: 0,
            awaiting_sync: SmallVec::new(),
            roles: Roles::default(),
            writer: Lead::default(),
            syncer: Lead::default(),
            sync_wanted_by: None,
            write_helper: None,
            sync_helper: None,
        }
    }

    /// What stands there to be written.
    pub(super) fn standing(&self) -> Standing {
        match (self.pending.is_empty(), self.pending_at_once) {
            (true, _) => Standing::Nothing,
            (false, 0) => Standing::ForTheSync,
            (false, _) => Standing::Something,
        }
    }

    /// Puts one at the end of those that are to be written.
    pub(super) fn queue_up(&mut self, waiter: Arc<Waiter>) {
        self.pending_at_once += usize::from(waiter.durability != Durability::Synced);
        self.pending.push_back(waiter);
    }
}
