//! `whatsmyuri`: the client's address as this member sees it.

use crate::table::{CommandSpec, DEFAULT, Flags};
use bson::cstr;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "whatsmyuri",
    flags: Flags::NO_AUTHENTICATION,
    help: "Returns the client's address.",
    run: |call, reply| {
        reply.append(cstr!("you"), call.client.connection.peer.as_str());
        Ok(())
    },
    ..DEFAULT
};
