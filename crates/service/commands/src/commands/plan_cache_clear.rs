//! `planCacheClear`. Source: MongoDB manual, "planCacheClear". There is nothing to clear, so that nothing is done is the whole truth.

use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::Result;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "planCacheClear",
    flags: Flags::ON_COLLECTION,
    help: "Forgets a collection's cached plans; none are cached, each query is planned anew.",
    run,
    ..DEFAULT
};

/// What clears the plans of a collection, or of one shape of query, checks and does; `planCacheClearFilters` too.
pub fn run(call: &mut Call<'_>, _: &mut Reply<'_>) -> Result<()> {
    call.namespace()?;
    for name in ["query", "projection", "sort", "collation"] {
        call.fields.optional::<&bson::RawDocument>(name)?;
    }
    call.fields.finish()
}
