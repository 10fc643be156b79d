//! `endSessions`: the client is done with these sessions; what they own goes with them.

use super::sessions_common::sessions_of;
use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::Result;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "endSessions",
    flags: Flags::NO_AUTHENTICATION.and(Flags::API_V1),
    help: "Ends sessions, with their cursors.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, _: &mut Reply<'_>) -> Result<()> {
    call.fields.finish()?;
    let ended = sessions_of("endSessions", call.envelope.value)?;
    for session in &ended {
        call.server.sessions.end(*session);
    }
    // Cursors only: a driver ends a session when it has no operation in it any more.
    call.server.cursors.kill_where(|c| c.session.is_some_and(|s| ended.contains(&s)));
    Ok(())
}
