//! `replSetWriteSteps`: writes what the member's step machines did during the last minute to a file. Not a command of MongoDB's.

use crate::call::{Call, Reply};
use crate::commands::replication;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::Result;
use bson::cstr;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "replSetWriteSteps",
    flags: Flags::ADMIN_ONLY,
    help: "Writes what this member's step machines were told and asked for during the last minute to a file below the data directory, \
           for baton-sim --replay.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.fields.finish()?;
    let file = replication::of(call)?.write_steps()?;
    reply.append(cstr!("file"), file.path.to_string_lossy().as_ref());
    reply.append(cstr!("steps"), file.steps as i64);
    reply.begin_array(cstr!("machines"));
    file.machines.iter().for_each(|machine| reply.push(machine.as_str()));
    reply.end();
    Ok(())
}
