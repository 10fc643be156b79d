//! `getDefaultRWConcern`: the concerns of a command that names none. They are MongoDB's own; nobody can set others yet.

use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::{Error, ErrorCode, Result};
use bson::{DateTime, cstr, rawdoc};

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "getDefaultRWConcern",
    flags: Flags::ADMIN_ONLY,
    help: "Returns the read and write concern of commands that name none.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.fields.truth("inMemory")?;
    call.fields.finish()?;
    if !call.server.topology.is_replicated() {
        return Err(Error::new(ErrorCode::NotAReplicaSet, "'getDefaultRWConcern' is only supported on replica sets"));
    }
    reply.append(cstr!("defaultReadConcern"), &*rawdoc! { "level": "local" });
    reply.append(cstr!("defaultWriteConcern"), &*rawdoc! { "w": "majority", "wtimeout": 0 });
    reply.append(cstr!("defaultReadConcernSource"), "implicit");
    reply.append(cstr!("defaultWriteConcernSource"), "implicit");
    reply.append(cstr!("localUpdateWallClockTime"), DateTime::from_system_time(call.server.started_wall));
    Ok(())
}
