//! `fsync`: makes everything acknowledged durable, and writes memtables out.
//!
//! What it deliberately does not do: lock. A backup is taken as a task, which needs no lock.

use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::{Error, Result};
use bson::cstr;

/// The row in the table.
pub const SPEC: CommandSpec =
    CommandSpec { name: "fsync", flags: Flags::ADMIN_ONLY, help: "Writes everything to disk.", run, ..DEFAULT };

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.fields.take("async");
    call.fields.take("fsyncLockAcquisitionTimeoutMillis");
    if call.fields.truth("lock")? {
        return Err(Error::not_implemented("fsync with lock: true"));
    }
    call.fields.finish()?;
    call.server.storage.flush()?;
    reply.append(cstr!("numFiles"), 1);
    Ok(())
}
