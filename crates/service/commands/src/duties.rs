//! What a member does by itself while it runs: syncing what was only applied, moving the history window, truncating the
//! oplog, giving back the space of what was dropped, letting compactions and flushes begin, lending the cache's memory to large
//! sorts, weight to requests of low class that last, and high class to threads that do not come to run, deleting expired documents, building indexes of the set.
//!
//! Invariant: what a client was told is applied is on disk [`SYNC_INTERVAL`] later, as MongoDB's journal promises, if each duty has a
//! thread.
//! What it deliberately does not do: start threads; and tend sessions and cursors. The node does both.

use crate::priority::Helping;
use crate::server::sessions::TIMEOUT_MINUTES;
use crate::server::{STAGE_MEMORY_BYTES, Server};
use crate::ttl;
use baton_machine::yield_to_clients;
use baton_types::{Class, Namespace, OpTime, must_not_unwind};
use bson::rawdoc;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Relaxed, SeqCst},
};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// How long an acknowledged write may be in memory only: MongoDB's `commitIntervalMs`.
const SYNC_INTERVAL: Duration = Duration::from_millis(100);
/// How often the history window moves.
const STORAGE_INTERVAL: Duration = Duration::from_secs(5);
/// Who helps others out looks so often whether to stop.
const HELP_INTERVAL: Duration = Duration::from_millis(500);
/// How often the oplog's size is looked at. Nobody's commit does: dropping files is this thread's work alone.
const TRUNCATION_INTERVAL: Duration = Duration::from_secs(1);
/// How often it is looked whether files are due to be merged, who needs memory, and which requests of low class last.
const RESOURCES_INTERVAL: Duration = Duration::from_millis(100);
/// Of the longest that one may wait at the door a thread may be ready without running for one part in so many before it is helped.
const PATIENCES_A_WORST_WAIT: u32 = 10;
/// How often it is looked whether space of what was dropped can be given back.
const DROPS_INTERVAL: Duration = Duration::from_millis(200);
/// How often it is looked whether files are there to be removed.
const REMOVALS_INTERVAL: Duration = Duration::from_secs(1);
/// How often it is looked whether somebody set other default concerns, and whether the log moves.
const SET_INTERVAL: Duration = Duration::from_secs(1);
/// How often retryable writes of given-up sessions are forgotten.
const SESSION_INTERVAL: Duration = Duration::from_secs(300);
/// How often a change of `ttlMonitorSleepSecs` is noticed.
const TTL_LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Tells those who carry duties out to stop.
///
/// Invariant: who waits here shares nothing with others that do. Some are as nice as the background, and may lose their processor wherever they
/// are, for seconds; others sync for all, or help those who do not come to run.
#[derive(Default)]
pub struct Stop {
    is_asked: AtomicBool,
    /// Those who carry a duty out.
    threads: Mutex<Vec<Thread>>,
}

impl Stop {
    /// Waits that long; `false` as soon as it is time to stop. Only for a thread that [carries a duty out](Duty::carry_out). Whoever unparks
    /// that for something else has it look once more.
    fn wait(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        while !self.is_asked() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            std::thread::park_timeout(left);
        }
        false
    }

    fn is_asked(&self) -> bool {
        self.is_asked.load(SeqCst)
    }

    /// From now on all duties of that member are about to end.
    pub fn ask(&self, server: &Server) {
        self.is_asked.store(true, SeqCst);
        self.threads.lock().iter().for_each(Thread::unpark);
        server.storage.chores().stop_freeing();
        server.priority.door.stop();
    }
}

/// One thing that is done all the time.
pub struct Duty {
    /// Of its thread.
    pub name: &'static str,
    work: fn(&Arc<Server>, &Stop),
}

impl Duty {
    /// Carries it out until it is to stop.
    pub fn carry_out(&self, server: &Arc<Server>, stop: &Stop) {
        // What it looks after would be looked after by nobody.
        let _guard = must_not_unwind(self.name);
        stop.threads.lock().push(std::thread::current());
        (self.work)(server, stop);
    }
}

/// All of them; each waits for its own time, and takes a thread.
pub const DUTIES: [Duty; 12] = [
    Duty { name: "sync", work: sync },
    Duty { name: "write", work: write },
    Duty { name: "acknowledge", work: acknowledge },
    Duty { name: "storage", work: tend_storage },
    Duty { name: "set", work: tend_set },
    Duty { name: "resources", work: tend_resources },
    Duty { name: "drops", work: free_dropped },
    Duty { name: "removals", work: remove_files },
    Duty { name: "ttl", work: expire },
    Duty { name: "index-builds", work: build_indexes },
    Duty { name: "door", work: tend_door },
    Duty { name: "starving", work: tend_starving },
];

fn sync(server: &Arc<Server>, stop: &Stop) {
    while stop.wait(Duration::ZERO) {
        let queue = server.storage.queue();
        queue.serve_syncs(SYNC_INTERVAL);
        if queue.applied() > queue.durable() {
            server.storage.sync();
        }
    }
}

/// Writes what waits in the commit queue where no client's thread does.
fn write(server: &Arc<Server>, stop: &Stop) {
    while stop.wait(Duration::ZERO) {
        server.storage.queue().serve_writes(HELP_INTERVAL);
    }
}

/// Ends waits for replication whose time is over, or whose operation is.
fn acknowledge(server: &Arc<Server>, stop: &Stop) {
    loop {
        let Some(replication) = server.replication() else {
            if !stop.wait(STORAGE_INTERVAL) {
                return;
            }
            continue;
        };
        if !stop.wait(Duration::ZERO) {
            return;
        }
        replication.waiters().tend(HELP_INTERVAL);
    }
}

fn tend_storage(server: &Arc<Server>, stop: &Stop) {
    let (mut history_seen, mut sessions_seen) = (Instant::now(), Instant::now());
    while stop.wait(TRUNCATION_INTERVAL) {
        server.storage.chores().truncate_oplog();
        if history_seen.elapsed() < STORAGE_INTERVAL {
            continue;
        }
        history_seen = Instant::now();
        server.storage.chores().forget_history();
        server.storage.chores().expire_checkpoints();
        if sessions_seen.elapsed() >= SESSION_INTERVAL {
            sessions_seen = Instant::now();
            let age_secs = 60 * TIMEOUT_MINUTES as u32;
            if let Err(error) = server.storage.chores().expire_sessions(age_secs) {
                tracing::warn!(target: "STORAGE", %error, "Could not look for sessions that have expired");
            }
        }
    }
}

/// Looks whether another default concern was set by another member, and keeps the log of a primary that nobody writes to moving, so
/// that who waits for the cluster's time does not wait for ever.
fn tend_set(server: &Arc<Server>, stop: &Stop) {
    let mut seen = (OpTime::ZERO, Instant::now());
    let note_interval = Duration::from_secs(server.parameters.periodic_note_secs.load(Relaxed).unsigned_abs());
    while stop.wait(SET_INTERVAL) {
        if !server.topology.is_replicated() {
            continue;
        }
        server.defaults.reload(&server.storage);
        let applied = server.storage.queue().applied();
        if seen.0 != applied {
            seen = (applied, Instant::now());
        } else if seen.1.elapsed() >= note_interval
            && server.topology.is_writable_primary()
            && !server.topology.is_alone()
            && let Some(_writing) = server.write_lock.try_enter()
        {
            let noted = Namespace::new("admin", "$cmd")
                .and_then(|namespace| server.storage.by_member().note(&namespace, &rawdoc! { "msg": "periodic noop" }));
            if let Err(error) = noted {
                tracing::debug!(target: "REPL", error = %error, "No periodic entry");
            }
        }
    }
}

fn tend_resources(server: &Arc<Server>, stop: &Stop) {
    let mut lent = 0;
    while stop.wait(RESOURCES_INTERVAL) {
        let wanted = server.stage_memory.bytes().saturating_sub(STAGE_MEMORY_BYTES);
        if wanted != lent {
            lent = wanted;
            server.storage.chores().lend_cache(lent);
        }
        server.operations.help_those_who_last(server.priority.policy().settings.worst_wait);
        if let Err(error) =
            server.storage.chores().tend_compaction().and_then(|()| server.storage.chores().tend_flushes())
        {
            tracing::warn!(target: "STORAGE", %error, "Could not look after compaction and flushes");
        }
    }
}

fn build_indexes(server: &Arc<Server>, stop: &Stop) {
    server.index_builds.supervise(server, || !stop.is_asked());
}

fn free_dropped(server: &Arc<Server>, stop: &Stop) {
    give_back(stop, DROPS_INTERVAL, "Space of what was dropped", || {
        server.storage.chores().free_dropped(&|| !stop.is_asked())
    });
}

fn remove_files(server: &Arc<Server>, stop: &Stop) {
    give_back(stop, REMOVALS_INTERVAL, "Space of removed files", || {
        server.storage.chores().remove_files(&|pause| stop.wait(pause))
    });
}

/// Gives space back again and again, beside clients. Says once that it cannot, and tries again.
fn give_back<E: std::fmt::Display>(
    stop: &Stop,
    interval: Duration,
    what: &str,
    mut give: impl FnMut() -> Result<(), E>,
) {
    yield_to_clients();
    let mut is_faulty = false;
    while stop.wait(interval) {
        let outcome = give();
        if let Err(error) = &outcome
            && !is_faulty
        {
            tracing::warn!(target: "STORAGE", %error, what, "Space is not given back; trying again");
        }
        is_faulty = outcome.is_err();
    }
}

/// Lets in whose wait is at its end.
fn tend_door(server: &Arc<Server>, _: &Stop) {
    server.priority.door.tend();
}

/// Helps threads that are ready and do not come to run, so that a request is not kept from the processors for longer than it may be from the door.
fn tend_starving(server: &Arc<Server>, stop: &Stop) {
    baton_machine::as_class(Class::High);
    let mut helping = Helping::new();
    while stop.wait(helping.rest()) {
        helping.check();
        if !helping.is_due() {
            continue;
        }
        let patience = server.priority.policy().settings.worst_wait / PATIENCES_A_WORST_WAIT;
        if server.priority.is_told_apart() {
            helping.look(patience);
        } else {
            helping.forget(patience);
        }
    }
}

fn expire(server: &Arc<Server>, stop: &Stop) {
    yield_to_clients();
    let mut last = Instant::now();
    while stop.wait(TTL_LOOK_INTERVAL) {
        // Only a primary deletes; the others get its deletions by the log.
        if !server.topology.is_writable_primary() || server.storage.queue().leaves_log_alone() {
            last = Instant::now();
            continue;
        }
        let secs = server.parameters.ttl_monitor_sleep_secs.load(Relaxed).max(1) as u64;
        if last.elapsed() >= Duration::from_secs(secs) {
            if server.parameters.ttl_monitor_enabled.load(Relaxed)
                && let Some(_writing) = server.write_lock.try_enter()
            {
                ttl::run_once(server);
            }
            last = Instant::now();
        }
    }
}
