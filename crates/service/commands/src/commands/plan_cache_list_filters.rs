//! `planCacheListFilters`. Source: MongoDB manual, "planCacheListFilters". Nobody can set a filter, so there is none.

use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::Result;
use bson::cstr;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "planCacheListFilters",
    flags: Flags::ON_COLLECTION,
    help: "Lists a collection's index filters, of which there are none.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.namespace()?;
    call.fields.finish()?;
    reply.begin_array(cstr!("filters"));
    reply.end();
    Ok(())
}
