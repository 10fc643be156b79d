//! `convertToCapped`: makes a collection capped by copying it; it loses its indexes, as in MongoDB. Source: MongoDB
//! manual, "convertToCapped".

use crate::call::{Call, Reply};
use crate::commands::clone_collection_as_capped::copy_as_capped;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::Result;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "convertToCapped",
    flags: Flags::WRITE_CONCERN.and(Flags::WRITES).and(Flags::ON_COLLECTION),
    help: "{ convertToCapped: 'coll', size: bytes } makes a collection capped and keeps its newest documents.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, _: &mut Reply<'_>) -> Result<()> {
    let namespace = call.namespace()?;
    let size = call.fields.required::<i64>("size")?;
    call.fields.finish()?;
    copy_as_capped(call, &namespace, &namespace, size)
}
