//! `killAllSessions`: ends the sessions of users; an empty list means everybody's. There are no users yet, so a list
//! that names some ends none.

use super::sessions_common::{array_of, documents_of};
use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_request::Fields;
use baton_types::Result;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "killAllSessions",
    flags: Flags::NONE,
    help: "{ killAllSessions: [] } ends all sessions, { killAllSessions: [ { user, db } ] } those of users.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, _: &mut Reply<'_>) -> Result<()> {
    call.fields.finish()?;
    let users = documents_of("killAllSessions", array_of("killAllSessions", call.envelope.value)?)?;
    for user in &users {
        let mut fields = Fields::of("killAllSessions", user)?;
        fields.required::<&str>("user")?;
        fields.required::<&str>("db")?;
        fields.finish()?;
    }
    if users.is_empty() {
        call.server.end_sessions(call.operation.id, &|_| true);
    }
    Ok(())
}
