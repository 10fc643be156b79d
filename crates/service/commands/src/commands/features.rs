//! `features`: a question of old shells. There is no JavaScript in the server.

use crate::table::{CommandSpec, DEFAULT, Flags};
use bson::cstr;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "features",
    flags: Flags::NO_AUTHENTICATION,
    help: "Says whether the server runs JavaScript; it does not.",
    run: |call, reply| {
        reply.append(cstr!("js"), false);
        // The part of an ObjectId that is this process's own.
        let id = call.server.topology.version().process_id.bytes();
        reply.append(cstr!("oidMachine"), i32::from_be_bytes([0, id[4], id[5], id[6]]));
        Ok(())
    },
    ..DEFAULT
};
