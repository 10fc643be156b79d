//! `killOp`: interrupts an operation by its number, as `currentOp` shows it.

use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_request::fields::number_as_i64;
use baton_types::{Error, ErrorCode, Result};
use bson::cstr;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "killOp",
    flags: Flags::ADMIN_ONLY,
    help: "{ killOp: 1, op: 123 } interrupts an operation.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let Some(op) = call.fields.take("op") else {
        return Err(Error::new(ErrorCode::NoSuchKey, "Missing expected field \"op\""));
    };
    call.fields.finish()?;
    let Some(id) = number_as_i64(op) else {
        return Err(Error::type_mismatch("Expected field \"op\" to have a value of integer type"));
    };
    // A negative number is one that a client read as signed; there are none such here.
    let Ok(id) = u32::try_from(id) else {
        return Err(Error::location(26823, format!("invalid op : {id}. Op ID cannot be represented with 32 bits")));
    };
    let killed = call.server.operations.kill(id);
    tracing::info!(target: "COMMAND", id = 20482, opId = id, killed, "Going to kill op");
    // The answer is the same whether it still ran: it may have ended just now.
    reply.append(cstr!("info"), "attempting to kill op");
    Ok(())
}
