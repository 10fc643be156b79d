//! Tasks that clients do on this member: a backup by a tool, say. `replSetBeginTask` begins one, `replSetEndTask` ends it.
//!
//! Invariants:
//! - A task ends with the connection that it was begun on, at the latest: that connection's [`Client`](super::Client) holds its
//!   [`Place`].
//! - No two of one kind have one name at a time, from the first asking on.
//! - There are at most [`OWNER_TASKS_MAX`] of one client and [`TASKS_MAX`] in all, those that still wait counted.
//!
//! What it deliberately does not do: decide when one may begin (the gate of `baton_storage::tasks` does), or do the work.

use baton_machine::Spent;
use baton_request::SessionId;
use baton_storage::tasks::{TaskGuard, TaskKind};
use baton_types::{Error, ErrorCode, Result};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The most tasks of one client.
pub const OWNER_TASKS_MAX: usize = 16;
/// The most tasks of all clients.
pub const TASKS_MAX: usize = 64;

/// Whose a task is: a connection's, and the logical session's in which it was begun. A driver may send what belongs to a session by
/// any of its connections.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    /// The connection's number.
    pub connection: u64,
    /// The session, if there was one.
    pub session: Option<SessionId>,
}

impl Owner {
    fn is(&self, other: &Self) -> bool {
        self.connection == other.connection || (self.session.is_some() && self.session == other.session)
    }
}

struct Entry {
    kind: TaskKind,
    name: String,
    owner: Owner,
    /// Absent while it waits.
    guard: Option<TaskGuard>,
}

#[derive(Default)]
struct Entries {
    by_ticket: BTreeMap<u64, Entry>,
    next_ticket: u64,
}

/// See the file's header.
#[derive(Default)]
pub struct ClientTasks(Mutex<Entries>);

/// Keeps a task's name, and the task itself once it has begun. Dropped, it ends.
pub struct Place {
    tasks: Arc<ClientTasks>,
    ticket: u64,
}

impl ClientTasks {
    /// A place for a task that is to begin.
    ///
    /// # Errors
    /// `ConflictingOperationInProgress` (117) if there is one of that kind and name; `TemporarilyUnavailable` (365) if there are too
    /// many.
    pub fn reserve(self: &Arc<Self>, kind: TaskKind, name: &str, owner: Owner) -> Result<Place> {
        let mut entries = self.0.lock();
        let all = || entries.by_ticket.values();
        if let Some(known) = all().find(|known| known.kind == kind && known.name == name) {
            let state = if known.guard.is_some() { "running" } else { "waiting to begin" };
            let message = format!("a task of kind '{}' with the name '{name}' is {state} already", kind.name());
            return Err(Error::new(ErrorCode::ConflictingOperationInProgress, message));
        }
        let own = all().filter(|known| known.owner.is(&owner)).count();
        let too_many = |what: &str, max: usize| {
            let message = format!("{what} has begun {max} tasks that have not ended, which is the most: end one first");
            Err(Error::new(ErrorCode::TemporarilyUnavailable, message))
        };
        if own >= OWNER_TASKS_MAX {
            return too_many("this client", OWNER_TASKS_MAX);
        }
        if entries.by_ticket.len() >= TASKS_MAX {
            return too_many("all clients of this member together", TASKS_MAX);
        }
        entries.next_ticket += 1;
        let ticket = entries.next_ticket;
        entries.by_ticket.insert(ticket, Entry { kind, name: name.to_owned(), owner, guard: None });
        Ok(Place { tasks: Arc::clone(self), ticket })
    }

    /// Ends a task; for how long it ran.
    ///
    /// # Errors
    /// `KeyNotFound` (211) if there is none of that number, `Unauthorized` (13) if it is another client's.
    pub fn end(&self, id: u64, owner: &Owner) -> Result<Duration> {
        let mut entries = self.0.lock();
        let has_id = |entry: &Entry| entry.guard.as_ref().is_some_and(|guard| guard.task().id == id);
        let Some((ticket, entry)) = entries.by_ticket.iter().find(|(_, entry)| has_id(entry)) else {
            let message = format!("taskId {id} names no task that a client has begun here and that has not ended");
            return Err(Error::new(ErrorCode::KeyNotFound, message));
        };
        if !entry.owner.is(owner) {
            let message = format!(
                "taskId {id} is a task of another client, begun on connection {}: only that client can end it",
                entry.owner.connection
            );
            return Err(Error::new(ErrorCode::Unauthorized, message));
        }
        let ticket = *ticket;
        let entry = entries.by_ticket.remove(&ticket);
        drop(entries);
        Ok(entry.and_then(|entry| entry.guard).map_or(Duration::ZERO, |guard| guard.task().started.elapsed()))
    }
}

impl ClientTasks {
    /// What that connection has begun, it does itself from now on: its thread, which calls this, is measured.
    pub fn work_here(&self, connection: u64) {
        let entries = self.0.lock();
        let own = entries.by_ticket.values().filter(|entry| entry.owner.connection == connection);
        own.filter_map(|entry| entry.guard.as_ref()).for_each(TaskGuard::measure_here);
    }
}

impl Place {
    /// The task has begun. A program does it, by whichever connections, or none: what it costs is not known, but how long it takes.
    pub fn fill(&self, guard: TaskGuard) {
        let guard = guard.charged(Spent::UNKNOWN);
        if let Some(entry) = self.tasks.0.lock().by_ticket.get_mut(&self.ticket) {
            entry.guard = Some(guard);
        }
    }

    /// Fails if its task is to end before it is done.
    pub(super) fn check(&self) -> Result<()> {
        let entries = self.tasks.0.lock();
        let guard = entries.by_ticket.get(&self.ticket).and_then(|entry| entry.guard.as_ref());
        guard.map_or(Ok(()), |guard| guard.task().check())
    }

    /// Whether its task waits or runs.
    pub fn is_taken(&self) -> bool {
        self.tasks.0.lock().by_ticket.contains_key(&self.ticket)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let entry = self.tasks.0.lock().by_ticket.remove(&self.ticket);
        if let Some(guard) = entry.and_then(|entry| entry.guard) {
            let task = guard.task();
            tracing::info!(target: "REPL", taskId = task.id, kind = task.kind.name(), name = task.name, "A client's task ends before its client said so");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_storage::tasks::{Admission, Asked, Gate, Pace, Proposal, TaskCost, TaskRegistry};

    fn owner(connection: u64, session: Option<u8>) -> Owner {
        Owner { connection, session: session.map(|byte| SessionId([byte; 16])) }
    }

    fn begin(tasks: &Arc<ClientTasks>, registry: &Arc<TaskRegistry>, name: &str, owner: Owner) -> (Place, u64) {
        let place = tasks.reserve(TaskKind::Backup, name, owner).unwrap();
        let Asked::Admitted(guard) = registry.admit(TaskKind::Backup, name, 0) else {
            unreachable!("the gate is open")
        };
        let id = guard.task().id;
        place.fill(guard);
        (place, id)
    }

    #[test]
    fn a_task_is_ended_by_its_client_once_and_by_nobody_else() {
        let (tasks, registry) = (Arc::<ClientTasks>::default(), Arc::<TaskRegistry>::default());
        let (place, id) = begin(&tasks, &registry, "nightly", owner(1, Some(7)));
        assert_eq!(tasks.end(id, &owner(2, None)).unwrap_err().code, ErrorCode::Unauthorized);
        assert_eq!(tasks.end(id, &owner(2, Some(8))).unwrap_err().code, ErrorCode::Unauthorized);
        assert_eq!(registry.running().len(), 1);
        tasks.end(id, &owner(2, Some(7))).unwrap();
        assert!(registry.running().is_empty() && !place.is_taken());
        assert_eq!(tasks.end(id, &owner(1, Some(7))).unwrap_err().code, ErrorCode::KeyNotFound);
        // Who began its next task under the same name keeps it.
        let (_next, _) = begin(&tasks, &registry, "nightly", owner(1, None));
        drop(place);
        assert_eq!(registry.running().len(), 1);
    }

    #[test]
    fn what_a_task_costs_is_known_only_if_the_connection_that_began_it_does_it() {
        #[derive(Default)]
        struct Noting(Mutex<Vec<TaskCost>>);
        impl Gate for Noting {
            fn may_begin(&self, _: &Proposal<'_>) -> Admission {
                Admission::Begin(Pace::Full)
            }

            fn ended(&self, _: &Proposal<'_>, cost: Option<TaskCost>) {
                self.0.lock().extend(cost);
            }
        }
        let (tasks, registry) = (Arc::<ClientTasks>::default(), Arc::<TaskRegistry>::default());
        let gate = Arc::<Noting>::default();
        registry.bind(Arc::clone(&gate) as Arc<dyn Gate>);
        let (wrapped, _) = begin(&tasks, &registry, "of a program", owner(1, None));
        let (own, _) = begin(&tasks, &registry, "own", owner(2, None));
        tasks.work_here(2);
        drop(own);
        drop(wrapped);
        let costs = gate.0.lock();
        assert!(costs[0].cpu.is_some() && costs[0].duration > Duration::ZERO, "{costs:?}");
        assert_eq!((costs[1].cpu, costs[1].read_bytes, costs[1].written_bytes), (None, None, None));
    }

    #[test]
    fn a_task_that_is_to_end_before_it_is_done_tells_its_client() {
        let (tasks, registry) = (Arc::<ClientTasks>::default(), Arc::<TaskRegistry>::default());
        let (place, id) = begin(&tasks, &registry, "nightly", owner(1, None));
        let (other, _) = begin(&tasks, &registry, "weekly", owner(1, None));
        registry.end(id, "this member is to lead");
        let error = place.check().unwrap_err();
        assert_eq!(error.code, ErrorCode::InterruptedDueToReplStateChange);
        assert!(error.message.contains("backup of nightly") && error.message.contains("is to lead"), "{error:?}");
        assert!(other.check().is_ok());
        drop(place);
        assert_eq!(registry.running().len(), 1);
    }

    #[test]
    fn a_name_is_taken_while_its_task_waits_or_runs_and_free_after_it() {
        let tasks = Arc::<ClientTasks>::default();
        let place = tasks.reserve(TaskKind::Backup, "nightly", owner(1, None)).unwrap();
        let refused = tasks.reserve(TaskKind::Backup, "nightly", owner(1, None)).err().unwrap();
        assert_eq!(refused.code, ErrorCode::ConflictingOperationInProgress);
        assert!(refused.message.contains("'nightly' is waiting to begin already"), "{}", refused.message);
        let other_kind = tasks.reserve(TaskKind::Validate, "nightly", owner(1, None));
        assert!(other_kind.is_ok());
        drop(place);
        assert!(tasks.reserve(TaskKind::Backup, "nightly", owner(2, None)).is_ok());
    }

    #[test]
    fn ten_thousand_tasks_of_one_client_are_sixteen_and_of_many_are_sixty_four() {
        let tasks = Arc::<ClientTasks>::default();
        let reserve = |n: u64, connection| tasks.reserve(TaskKind::Backup, &n.to_string(), owner(connection, None));
        let kept: Vec<Place> = (0..10_000).filter_map(|n| reserve(n, 1).ok()).collect();
        assert_eq!(kept.len(), OWNER_TASKS_MAX);
        let error = reserve(10_000, 1).err().unwrap();
        assert!(
            error.code == ErrorCode::TemporarilyUnavailable && error.message.contains("begun 16 tasks"),
            "{error:?}"
        );
        let others: Vec<Place> = (0..10_000).filter_map(|n| reserve(20_000 + n, 2 + n).ok()).collect();
        assert_eq!(kept.len() + others.len(), TASKS_MAX);
        let error = reserve(40_000, 20_000).err().unwrap();
        assert!(error.message.contains("begun 64 tasks"), "{error:?}");
        drop(kept);
        assert!(reserve(40_000, 20_000).is_ok());
    }
}
