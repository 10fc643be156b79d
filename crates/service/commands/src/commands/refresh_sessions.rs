//! `refreshSessions`: the client still uses these sessions.

use super::sessions_common::sessions_of;
use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::Result;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "refreshSessions",
    flags: Flags::API_V1,
    help: "Keeps sessions from expiring.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, _: &mut Reply<'_>) -> Result<()> {
    call.fields.finish()?;
    for session in sessions_of("refreshSessions", call.envelope.value)? {
        call.server.sessions.touch(session)?;
    }
    Ok(())
}
