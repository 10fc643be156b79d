//! `dropIndexes`: removes indexes by name, by key pattern, or all but that on `_id`. Source: MongoDB manual,
//! "dropIndexes".

use crate::call::{Call, Reply};
use crate::ddl::{held_collection, indexes};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::Result;
use bson::{RawBsonRef, cstr};

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "dropIndexes",
    aliases: &["deleteIndexes"],
    flags: Flags::WRITE_CONCERN.and(Flags::API_V1).and(Flags::WRITES).and(Flags::ON_COLLECTION),
    help: "Removes indexes: index is a name, names, a key pattern, or '*' for all but that on _id.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = call.namespace()?;
    let index: RawBsonRef<'_> = call.fields.required("index")?;
    call.fields.finish()?;
    let mut before = 0;
    call.writer().drop_indexes(|catalog| {
        let held = held_collection(catalog, &namespace)?;
        before = indexes::count(&held);
        let selected = indexes::selected(&held, index)?;
        Ok(Some((held, selected)))
    })?;
    reply.append(cstr!("nIndexesWas"), before);
    if index.as_str() == Some("*") {
        reply.append(cstr!("msg"), "non-_id indexes dropped for collection");
    }
    Ok(())
}
