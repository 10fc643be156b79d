//! `configureFailPoint`: faults on demand, for the tests of drivers.

use crate::call::{Call, Reply};
use crate::server::failpoints::STOP_FETCHING;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::{Error, Result};
use bson::{RawBsonRef, RawDocument, cstr};

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "configureFailPoint",
    flags: Flags::ADMIN_ONLY.and(Flags::TEST_ONLY).and(Flags::WRITE_CONCERN),
    help: "Sets or clears a fail point; exists only with enableTestCommands.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let RawBsonRef::String(name) = call.envelope.value else {
        return Err(Error::type_mismatch("configureFailPoint must be the name of a fail point"));
    };
    let mode = call.fields.required::<RawBsonRef<'_>>("mode")?;
    let data = call.fields.optional::<&RawDocument>("data")?;
    call.fields.finish()?;
    let count = call.server.fail_points.configure(name, mode, data)?;
    if name == STOP_FETCHING
        && let Some(replication) = call.server.replication()
    {
        replication.hold_back(call.server.fail_points.data(name).is_some());
    }
    reply.append(cstr!("count"), i32::try_from(count).unwrap_or(i32::MAX));
    Ok(())
}
