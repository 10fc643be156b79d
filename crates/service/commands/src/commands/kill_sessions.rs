//! `killSessions`: ends sessions with all that runs in them; an empty list means all.

use super::sessions_common::sessions_of;
use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::Result;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "killSessions",
    flags: Flags::NONE,
    help: "{ killSessions: [ { id: UUID } ] } ends sessions, their operations and their cursors.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, _: &mut Reply<'_>) -> Result<()> {
    call.fields.finish()?;
    let killed = sessions_of("killSessions", call.envelope.value)?;
    call.server.end_sessions(call.operation.id, &|session| killed.is_empty() || killed.contains(&session));
    Ok(())
}
