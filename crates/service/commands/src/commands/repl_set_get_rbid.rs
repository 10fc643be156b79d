//! `replSetGetRBID`: how often this member has rolled back. Whoever reads its data for long asks before and after.

use crate::call::{Call, Reply};
use crate::commands::repl_set_get_config::set_of;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::Result;
use bson::cstr;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "replSetGetRBID",
    flags: Flags::ADMIN_ONLY,
    help: "Counts this member's rollbacks. For members.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    set_of(call)?;
    call.fields.finish()?;
    reply.append(cstr!("rbid"), call.server.storage.follower().rollback_id()?);
    Ok(())
}
