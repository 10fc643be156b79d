//! `rolesInfo`: the roles that somebody made. There are none yet; built-in ones are not listed.

use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::{Error, Result};
use bson::cstr;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "rolesInfo",
    flags: Flags::READ_CONCERN,
    help: "Lists roles that were made; there are none yet.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    if call.fields.truth("showBuiltinRoles")? {
        return Err(Error::not_implemented("rolesInfo with showBuiltinRoles"));
    }
    call.fields.take("showPrivileges");
    call.fields.take("showAuthenticationRestrictions");
    call.fields.finish()?;
    reply.begin_array(cstr!("roles"));
    reply.end();
    Ok(())
}
