//! `replSetResizeOplog`: how large the oplog may grow, and how long its entries stay at least. Source: MongoDB manual,
//! "replSetResizeOplog".

use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::{Error, ErrorCode, Result};

/// Sizes that MongoDB takes, in megabytes.
const SIZE_MB_MIN: f64 = 990.0;
const SIZE_MB_MAX: f64 = (1_u64 << 30) as f64;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "replSetResizeOplog",
    flags: Flags::ADMIN_ONLY,
    help: "{ replSetResizeOplog: 1, size: megabytes, minRetentionHours: hours } changes the oplog's limits on \
           this member.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, _: &mut Reply<'_>) -> Result<()> {
    if !call.server.topology.is_replicated() {
        return Err(Error::new(ErrorCode::NoReplicationEnabled, "replSetResizeOplog can only be run on replica sets"));
    }
    let size_mb = call.fields.optional::<f64>("size")?;
    let retention_hours = call.fields.optional::<f64>("minRetentionHours")?;
    call.fields.finish()?;
    let out_of_range = |name: &str, bound: String, value: f64| {
        Err(Error::location(51024, format!("BSON field '{name}' value must be {bound}, actual value '{value}'")))
    };
    match size_mb {
        Some(size) if size.is_nan() || size < SIZE_MB_MIN => {
            return out_of_range("size", format!(">= {SIZE_MB_MIN}"), size);
        }
        Some(size) if size > SIZE_MB_MAX => return out_of_range("size", format!("<= {SIZE_MB_MAX}"), size),
        _ => {}
    }
    if let Some(hours) = retention_hours.filter(|hours| hours.is_nan() || *hours < 0.0) {
        return out_of_range("minRetentionHours", ">= 0".into(), hours);
    }
    if size_mb.is_none() && retention_hours.is_none() {
        return Err(Error::new(
            ErrorCode::InvalidOptions,
            "replSetResizeOplog must specify at least one of size and minRetentionHours",
        ));
    }
    let bytes = size_mb.map(|size| (size * 1024.0 * 1024.0) as u64);
    let secs = retention_hours.map(|hours| (hours * 3600.0) as u64);
    call.server.storage.oplog().resize(bytes, secs);
    call.server.storage.chores().truncate_oplog();
    Ok(())
}
