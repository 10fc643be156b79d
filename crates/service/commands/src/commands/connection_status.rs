//! `connectionStatus`: who this connection has authenticated as. There are no users yet, so nobody.

use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::Result;
use bson::cstr;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "connectionStatus",
    flags: Flags::NO_AUTHENTICATION.and(Flags::API_V1),
    help: "Says which users this connection has authenticated as.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let privileges = call.fields.truth("showPrivileges")?;
    call.fields.finish()?;
    reply.begin_document(cstr!("authInfo"));
    reply.begin_array(cstr!("authenticatedUsers"));
    reply.end();
    reply.begin_array(cstr!("authenticatedUserRoles"));
    reply.end();
    if privileges {
        reply.begin_array(cstr!("authenticatedUserPrivileges"));
        reply.end();
    }
    reply.end();
    Ok(())
}
