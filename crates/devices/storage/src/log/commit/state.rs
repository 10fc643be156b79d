//! What stands in the queue: everything that its threads meet at, under its one lock.

use super::gate::WriteGate;
use super::lead::Lead;
use super::roles::Roles;
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
            awaiting_sync: SmallVec::new(),
            roles: Roles::default(),
            writer: Lead::default(),
            syncer: Lead::default(),
            sync_wanted_by: None,
            write_helper: None,
            sync_helper: None,
        }
    }
}
