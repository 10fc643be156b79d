//! `batonWarm`: a primary that is about to hand over to this member names documents that its clients look up, and this member reads those
//! that it does not have in memory: `{ batonWarm: 1, collections: [UUID], records: BinData, timeMS: 250, bytes: 1000000 }`.
//!
//! What it deliberately does not do: take a document's bytes from another member; what is read is this member's own.

use crate::call::{Call, Reply};
use crate::commands::repl_set_get_config::set_of;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_replication::warming;
use baton_storage::WarmingLimits;
use baton_types::{Error, ErrorCode, Result};
use bson::{RawArray, RawBinaryRef, cstr};
use std::time::{Duration, Instant};

/// The longest that it reads, whatever is asked.
const TIME_MAX: Duration = Duration::from_secs(10);

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "batonWarm",
    flags: Flags::ADMIN_ONLY,
    help: "Reads documents that a primary names, before it hands over to this member. For members.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    set_of(call)?;
    let collections: &RawArray = call.fields.required("collections")?;
    let records: RawBinaryRef<'_> = call.fields.required("records")?;
    let time_ms = call.fields.non_negative("timeMS")?.unwrap_or(0);
    let bytes = call.fields.non_negative("bytes")?.unwrap_or(0);
    call.fields.finish()?;
    if !call.server.topology.is_readable() {
        let message = "node is not in primary or recovering state";
        return Err(Error::new(ErrorCode::NotPrimaryOrSecondary, message));
    }
    let hot = warming::decode(collections, records.bytes)?;
    let begun = Instant::now();
    let time = Duration::from_millis(time_ms.unsigned_abs()).min(TIME_MAX);
    let limits = WarmingLimits { until: begun + time, bytes: bytes.unsigned_abs() };
    let warmed = call.server.storage.warm(&hot, limits, &|| call.operation.check_interrupt())?;
    reply.append(cstr!("read"), warmed.read as i64);
    reply.append(cstr!("readBytes"), warmed.read_bytes as i64);
    reply.append(cstr!("had"), warmed.had as i64);
    reply.append(cstr!("missing"), warmed.missing as i64);
    reply.append(cstr!("micros"), begun.elapsed().as_micros() as i64);
    Ok(())
}
