//! `dropIndexes`: removes indexes by name, by key pattern, or all but that on `_id`. Source: MongoDB manual,
//! "dropIndexes".

use crate::call::{Call, Reply};
use crate::ddl::{existing_collection, indexes};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::{ErrorCode, Result};
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
    let storage = &call.server.storage;
    let collection = existing_collection(storage, &namespace)?;
    let before = indexes::count(&collection);
    for name in indexes::selected(&collection, index)? {
        match storage.drop_index(&collection, &name) {
            // Named twice, or dropped by somebody else meanwhile.
            Err(error) if error.code == ErrorCode::IndexNotFound => {}
            dropped => dropped?,
        }
    }
    reply.append(cstr!("nIndexesWas"), before);
    if index.as_str() == Some("*") {
        reply.append(cstr!("msg"), "non-_id indexes dropped for collection");
    }
    Ok(())
}
