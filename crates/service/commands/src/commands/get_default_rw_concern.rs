//! `getDefaultRWConcern`: the concerns of a command that names none.

use crate::call::{Call, Reply};
use crate::server::defaults::{Defaults, implicit_write_concern};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::{Error, Result};
use baton_wire::DocumentWriter;
use bson::{cstr, rawdoc};

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "getDefaultRWConcern",
    flags: Flags::ADMIN_ONLY,
    help: "Returns the read and write concern of commands that name none.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let in_memory = call.fields.truth("inMemory")?;
    call.fields.finish()?;
    check_replicated(call)?;
    if !in_memory {
        call.server.defaults.reload(&call.server.storage);
    }
    append(call, reply, &call.server.defaults.get());
    Ok(())
}

/// 51300 from a standalone.
pub fn check_replicated(call: &Call<'_>) -> Result<()> {
    if call.server.topology.is_replicated() {
        return Ok(());
    }
    Err(Error::location(51300, format!("'{}' is not supported on standalone nodes.", call.spec.name)))
}

/// What is in force.
pub fn append(call: &Call<'_>, writer: &mut DocumentWriter<'_>, defaults: &Defaults) {
    let read = defaults.read.unwrap_or_default();
    writer.append(cstr!("defaultReadConcern"), &*rawdoc! { "level": read.name() });
    let write = defaults.write.clone().unwrap_or_else(|| implicit_write_concern(&call.server.topology));
    writer.append(cstr!("defaultWriteConcern"), &*write.to_document());
    if let Some(time) = defaults.updated {
        writer.append(cstr!("updateOpTime"), bson::Timestamp::from(time));
    }
    if let Some(date) = defaults.updated_wall {
        writer.append(cstr!("updateWallClockTime"), date);
    }
    let source = |is_set: bool| if is_set { "global" } else { "implicit" };
    writer.append(cstr!("defaultWriteConcernSource"), source(defaults.write.is_some()));
    writer.append(cstr!("defaultReadConcernSource"), source(defaults.read.is_some()));
    if let Some(date) = defaults.read_here {
        writer.append(cstr!("localUpdateWallClockTime"), date);
    }
}
