//! `logRotate`: begins a new log file.

use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::{Error, ErrorCode, Result};
use bson::RawBsonRef;

/// The row in the table.
pub const SPEC: CommandSpec =
    CommandSpec { name: "logRotate", flags: Flags::ADMIN_ONLY, help: "Begins a new log file.", run, ..DEFAULT };

fn run(call: &mut Call<'_>, _: &mut Reply<'_>) -> Result<()> {
    call.fields.finish()?;
    if let RawBsonRef::String(which) = call.envelope.value
        && which != "server"
    {
        return Err(Error::new(
            ErrorCode::NoSuchKey,
            format!("Unknown log type '{which}' for rotation; there is only 'server'"),
        ));
    }
    (call.server.hooks.rotate_log)()
        .map_err(|e| Error::new(ErrorCode::OperationFailed, format!("Log rotation failed: {e}")))
}
