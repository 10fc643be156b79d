//! What a command waits for: before it, until this member has what the client has seen elsewhere; after it, until as many members have
//! what was written as its write concern asks for.

use super::errors::{Beside, Failure, failure, is_misunderstood};
use crate::call::Call;
use crate::crud;
use crate::crud::errors::ends_command;
use crate::mutant::{self, Mutant};
use crate::table::Flags;
use baton_request::{Acknowledgement, ReadLevel};
use baton_types::{Error, ErrorCode, Namespace, Result, Timestamp};
use bson::rawdoc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Waits until this member has applied what the client has seen elsewhere, and settles the time that a snapshot is of. A primary
/// whose log is not as far as the cluster's time writes an entry that changes nothing; a secondary asks it to, if it must.
pub(super) fn await_cluster_time(call: &mut Call<'_>) -> Result<()> {
    /// How long a secondary waits before it asks the primary to write something.
    const PATIENCE: Duration = Duration::from_millis(100);
    /// A killed operation notices within this time.
    const SLICE: Duration = Duration::from_millis(100);
    let server = call.server;
    let queue = server.storage.queue();
    let concern = call.envelope.read_concern;
    if let Some(time) = concern.after_cluster_time.or(concern.at_cluster_time) {
        let before = Timestamp::from_u64(time.as_u64().saturating_sub(1));
        let began = Instant::now();
        let mut has_asked = false;
        while queue.applied().timestamp < time {
            if server.topology.is_writable_primary() {
                call.operation.check_interrupt()?;
                // The queue knows the cluster's time, and gives out later ones.
                call.writer().note(&Namespace::new("admin", "$cmd")?, &rawdoc! { "msg": "noop write for reads" })?;
                continue;
            }
            if !has_asked
                && began.elapsed() >= PATIENCE
                && let Some(replication) = server.replication()
            {
                replication.ask_primary_for_entry(time);
                has_asked = true;
            }
            call.operation.paused(|| queue.wait_applied_beyond(before, SLICE));
            call.operation.check_interrupt()?;
        }
        if !server.topology.is_writable_primary() {
            server.storage.settle_catalog();
        }
    }
    if concern.level == ReadLevel::Snapshot {
        call.read_at = Some(concern.at_cluster_time.unwrap_or_else(|| queue.applied().timestamp));
    }
    Ok(())
}

/// How a command's failure is told: what it is about is only certain once it is replicated as the client wants its writes to be.
pub(super) fn failed(call: &Call<'_>, error: Error) -> Failure {
    let waits = !is_misunderstood(error.code) && !ends_command(error.code);
    let write_concern_error =
        waits.then(|| unsatisfied_write_concern(call).or_else(|| await_replication(call))).flatten();
    failure(error, Beside { write_concern_error, ..Beside::default() })
}

/// Waits until as many members have what was written as the write concern asks for; says why they have not.
pub(super) fn await_replication(call: &Call<'_>) -> Option<Error> {
    let server = call.server;
    if !call.spec.flags.has(Flags::WRITE_CONCERN) {
        return None;
    }
    let has_left_all = call.author.committed().count == 0;
    if has_left_all && !call.spec.flags.has(Flags::WRITES) {
        // It might have written (`$out`, `$merge`), and has only read.
        return None;
    }
    let replication = server.replication()?;
    let concern = call.write_concern();
    if mutant::is(Mutant::MajorityAtOnce) && concern.w == Acknowledgement::Majority {
        return None;
    }
    // What can never be had was reported already.
    let demand = server.topology.demand(&concern).ok()?;
    // What was written when there were others may not be on disk here, though there are none now.
    let is_own_majority = call.standing.is_own_majority && server.topology.is_own_majority();
    if demand.is_none() && (concern.w != Acknowledgement::Majority || is_own_majority) {
        return None;
    }
    let until = (concern.timeout_ms > 0).then(|| Instant::now() + Duration::from_millis(concern.timeout_ms));
    // A command that changed nothing has read what it left alone. That this was the set's newest is known only once an entry
    // that was written after the reading is committed: a deposed primary's last one may have been long ago.
    if has_left_all
        && concern.w == Acknowledgement::Majority
        && !mutant::is(Mutant::UnchangedUnproved)
        && let Err(error) = crud::note(call, "write that changed nothing")
    {
        return Some(error);
    }
    let written = call.newest.unwrap_or_else(|| server.storage.queue().applied());
    let interrupted = || call.operation.check_interrupt();
    let (began, is_majority) = (Instant::now(), concern.w == Acknowledgement::Majority);
    let committed = if is_majority {
        call.operation.waits_for("waiting for a majority to have what was written");
        call.operation.paused(|| replication.waiters().await_majority(call.standing.era, written, until, interrupted))
    } else {
        Ok(())
    };
    let waited = committed.and_then(|()| match demand {
        // Asked after `written` was: from here on the end of the era ends the wait.
        Some(_) if replication.waiters().era() != call.standing.era => {
            let message = "Primary stepped down while waiting for replication";
            Err(Error::new(ErrorCode::PrimarySteppedDown, message))
        }
        Some(demand) => {
            call.operation.waits_for("waiting for the members that its write concern asks for");
            let wants_sync = concern.wants_sync();
            call.operation.paused(|| replication.await_members(demand, written, wants_sync, until, interrupted))
        }
        None => Ok(()),
    });
    if is_majority && waited.is_ok() {
        let [count, micros] = &server.counters.majority_waits;
        count.fetch_add(1, Relaxed);
        micros.fetch_add(began.elapsed().as_micros() as u64, Relaxed);
    }
    waited.err().map(|error| {
        let info = concern.error_info(error.code == ErrorCode::WriteConcernFailed);
        error.with_info(info)
    })
}

/// What the write concern asks for, if that can never be had.
pub(super) fn unsatisfied_write_concern(call: &Call<'_>) -> Option<Error> {
    if !call.spec.flags.has(Flags::WRITE_CONCERN) {
        return None;
    }
    let concern = call.write_concern();
    call.server.topology.demand(&concern).err().map(|error| error.with_info(concern.error_info(false)))
}
