//! `usersInfo`: the users. There are none yet.

use crate::table::{CommandSpec, DEFAULT, Flags};
use bson::cstr;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "usersInfo",
    flags: Flags::READ_CONCERN,
    help: "Lists users; there are none yet.",
    run: |_, reply| {
        reply.begin_array(cstr!("users"));
        reply.end();
        Ok(())
    },
    ..DEFAULT
};
