//! `listCommands`: the table, told to the client.

use crate::call::{Call, Reply};
use crate::table::{COMMANDS, CommandSpec, DEFAULT, Flags};
use baton_types::Result;
use bson::cstr;
use bson::raw::CString;
use std::sync::atomic::Ordering::Relaxed;

/// The row in the table.
pub const SPEC: CommandSpec =
    CommandSpec { name: "listCommands", flags: Flags::NO_AUTHENTICATION, help: "Lists the commands.", run, ..DEFAULT };

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let tests = call.server.parameters.enable_test_commands.load(Relaxed);
    reply.begin_document(cstr!("commands"));
    for spec in COMMANDS.iter().filter(|spec| tests || !spec.flags.has(Flags::TEST_ONLY)) {
        let name = CString::try_from(spec.name)?;
        reply.begin_document(&name);
        reply.append(cstr!("help"), spec.help);
        reply.append(cstr!("requiresAuth"), !spec.flags.has(Flags::NO_AUTHENTICATION));
        reply.append(cstr!("secondaryOk"), !spec.flags.has(Flags::WRITES));
        reply.append(cstr!("adminOnly"), spec.flags.has(Flags::ADMIN_ONLY));
        reply.begin_array(cstr!("apiVersions"));
        if spec.flags.has(Flags::API_V1) {
            reply.push("1");
        }
        reply.end();
        reply.begin_array(cstr!("deprecatedApiVersions"));
        reply.end();
        reply.end();
    }
    reply.end();
    Ok(())
}
