//! `_isSelf`: which process this is. A member that starts asks it of the hosts in its configuration, to find its own among them.

use crate::table::{CommandSpec, DEFAULT, Flags};
use bson::cstr;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "_isSelf",
    flags: Flags::ADMIN_ONLY.and(Flags::NO_AUTHENTICATION).and(Flags::WHILE_STARTING),
    help: "Returns the identity of this process. For members.",
    run: |call, reply| {
        call.fields.finish()?;
        reply.append(cstr!("id"), call.server.topology.version().process_id);
        Ok(())
    },
    ..DEFAULT
};
