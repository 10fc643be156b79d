//! The command itself: what it has to wait for before, its run, and what becomes of what it wrote.
//!
//! Invariant: whoever is told that his request was interrupted, or may not be carried out now, has changed nothing.

use super::errors::{Failure, bare};
use super::leaving::may_leave;
use super::waits::{await_cluster_time, await_replication, failed};
use super::{Outcome, ending, faults};
use crate::call::{Call, Reply};
use crate::server::failpoints::CommandFault;
use crate::table::Flags;
use baton_request::Kind;
use baton_types::Result;
use baton_wire::ReplyBuilder;

/// Runs the command, and the fault that somebody asked for instead.
pub(super) fn run(
    call: &mut Call<'_>,
    mut fault: CommandFault,
    builder: &mut ReplyBuilder<'_>,
) -> Result<Outcome, Failure> {
    if let Some(outcome) = faults::meet(call, &mut fault)? {
        return Ok(outcome);
    }
    if !call.spec.flags.has(Flags::WHILE_STOPPING) {
        call.operation.check_interrupt().map_err(bare)?;
    }
    call.check_sequences(call.spec.sequences).map_err(bare)?;
    await_cluster_time(call).map_err(bare)?;
    let mut reply = Reply::new(builder.body());
    if call.spec.kind == Kind::Query {
        baton_storage::crash_point!("request-query");
    }
    let result = carry_out_unless_locked(call, &mut reply);
    if let Some(left) = call.left.take() {
        if result.is_ok() && may_leave(call, &reply, &fault) {
            return Ok(Outcome::Written(left));
        }
        left.wait(call);
    }
    if call.hang_up.get() {
        return Ok(Outcome::HangUp);
    }
    result.map_err(|error| failed(call, error))?;
    if call.envelope.is_mirrored {
        // What it read is in memory now, which is all that it was for.
        drop(reply);
        reply = Reply::new(builder.body());
        call.server.mirroring.note_processed();
    }
    let unreplicated = if reply.is_settled { None } else { await_replication(call) };
    Ok(Outcome::Replied(ending::end(call, reply, &fault, unreplicated)))
}

/// Runs the command; one that writes waits while `fsync` holds the lock. It is not a writer any more while it waits for
/// others to have what it wrote.
fn carry_out_unless_locked(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let server = call.server;
    let _writing = match call.spec.flags.has(Flags::WRITES) {
        true => Some(server.write_lock.enter(&|| call.operation.check_interrupt())?),
        false => None,
    };
    (call.spec.run)(call, reply)
}
