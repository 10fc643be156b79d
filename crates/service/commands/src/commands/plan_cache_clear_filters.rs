//! `planCacheClearFilters`. Source: MongoDB manual, "planCacheClearFilters". There is nothing to clear, so that nothing is done is the whole truth.

use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::Result;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "planCacheClearFilters",
    flags: Flags::ON_COLLECTION,
    help: "Removes a collection's index filters, of which there are none.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, _: &mut Reply<'_>) -> Result<()> {
    call.namespace()?;
    for name in ["query", "projection", "sort", "collation"] {
        call.fields.optional::<&bson::RawDocument>(name)?;
    }
    call.fields.finish()
}
