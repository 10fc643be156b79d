//! `getLog`: the newest lines of the log, from memory.

use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::{Error, ErrorCode, Result};
use bson::cstr;

const NAMES: [&str; 2] = ["global", "startupWarnings"];

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "getLog",
    flags: Flags::ADMIN_ONLY,
    help: "{ getLog: '*' } lists the logs, { getLog: 'global' } returns the newest lines.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.fields.finish()?;
    let Some(name) = call.envelope.value.as_str() else {
        return Err(Error::type_mismatch("Argument to getLog must be of type String"));
    };
    if name == "*" {
        reply.begin_array(cstr!("names"));
        for name in NAMES {
            reply.push(name);
        }
        reply.end();
        return Ok(());
    }
    if !NAMES.contains(&name) {
        return Err(Error::new(ErrorCode::OperationFailed, format!("no log named: {name}")));
    }
    let log = (call.server.hooks.log)(name).unwrap_or_default();
    reply.append(cstr!("totalLinesWritten"), i32::try_from(log.total).unwrap_or(i32::MAX));
    reply.begin_array(cstr!("log"));
    for line in &log.lines {
        reply.push(line.as_str());
    }
    reply.end();
    Ok(())
}
