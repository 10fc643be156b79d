//! `fsync`: makes everything acknowledged durable, and writes memtables out; with `lock` it keeps writes waiting until
//! `fsyncUnlock`. Source: MongoDB manual, "fsync".
//!
//! What it deliberately does not do: lock a secondary, which goes on applying the primary's entries. A backup is taken as a
//! task, which needs no lock.

use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::{Error, ErrorCode, Result};
use bson::cstr;
use std::time::{Duration, Instant};

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "fsync",
    flags: Flags::ADMIN_ONLY,
    help: "Writes everything to disk; with lock: true, writes wait until fsyncUnlock.",
    run,
    ..DEFAULT
};

/// How long writes that are under way may take to end, in milliseconds, unless the client says.
const PATIENCE_MS: i64 = 90_000;

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.fields.take("async");
    let patience_ms = call.fields.optional::<i64>("fsyncLockAcquisitionTimeoutMillis")?.unwrap_or(PATIENCE_MS);
    let lock = call.fields.truth("lock")?;
    call.fields.finish()?;
    let patience_ms = u64::try_from(patience_ms)
        .map_err(|_| Error::bad_value("'fsyncLockAcquisitionTimeoutMillis' must be greater than or equal to 0"))?;
    let server = call.server;
    if !lock {
        server.storage.flush()?;
        reply.append(cstr!("numFiles"), 1);
        return Ok(());
    }
    if !server.topology.is_writable_primary() {
        return Err(Error::not_implemented("fsync with lock: true on a member that is not primary"));
    }
    let until = Instant::now() + Duration::from_millis(patience_ms);
    let count = server.write_lock.hold(until, &|| call.operation.check_interrupt())?;
    if let Err(error) = server.storage.flush() {
        server.write_lock.release();
        return Err(error);
    }
    tracing::info!(target: "COMMAND", id = 20462, lockCount = count, "mongod is locked and no writes are allowed");
    reply.append(cstr!("info"), "now locked against writes, use db.fsyncUnlock() to unlock");
    reply.append(cstr!("lockCount"), i64::from(count));
    reply.append(cstr!("seeAlso"), "http://dochub.mongodb.org/core/fsynccommand");
    Ok(())
}

/// `fsyncUnlock`: gives the lock back once.
pub const UNLOCK: CommandSpec = CommandSpec {
    name: "fsyncUnlock",
    flags: Flags::ADMIN_ONLY.and(Flags::WHILE_STOPPING),
    help: "Gives back the lock of fsync with lock: true.",
    run: unlock,
    ..DEFAULT
};

fn unlock(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.fields.finish()?;
    let Some(count) = call.server.write_lock.release() else {
        return Err(Error::new(ErrorCode::IllegalOperation, "fsyncUnlock called when not locked"));
    };
    if count == 0 {
        tracing::info!(target: "COMMAND", id = 20463, "mongod is now unlocked and free to accept writes");
    }
    reply.append(cstr!("info"), "fsyncUnlock completed");
    reply.append(cstr!("lockCount"), i64::from(count));
    Ok(())
}
