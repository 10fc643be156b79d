//! `collStats`: figures of a collection. Source: MongoDB manual, "collStats".

use crate::call::{Call, Reply};
use crate::ddl::{refuse_view, statistics};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::{Error, Result};
use bson::{cstr, rawdoc};

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "collStats",
    aliases: &["collstats"],
    flags: Flags::READ_CONCERN.and(Flags::ON_COLLECTION),
    help: "Counts and sizes of a collection and its indexes; scale divides the sizes.",
    run,
    ..DEFAULT
};

/// Reads `scale`: what sizes are divided by.
pub fn scale(call: &mut Call<'_>) -> Result<i64> {
    match call.fields.optional::<i64>("scale")? {
        None => Ok(1),
        Some(scale) if scale < 1 => {
            Err(Error::location(51024, format!("BSON field 'scale' value must be >= 1, actual value '{scale}'")))
        }
        Some(scale) => Ok(scale),
    }
}

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = call.namespace()?;
    let scale = scale(call)?;
    call.fields.take("verbose");
    call.fields.finish()?;
    let storage = &call.server.storage;
    reply.append(cstr!("ns"), namespace.as_str());
    let figures = match storage.collection(&namespace) {
        Some(collection) => {
            refuse_view(&collection)?;
            Some(statistics::of(storage, &collection))
        }
        None => statistics::of_views(storage, &namespace),
    };
    let Some(figures) = figures else {
        reply.extend(&rawdoc! {
            "size": 0, "count": 0, "numOrphanDocs": 0, "storageSize": 0, "totalSize": 0, "nindexes": 0,
            "totalIndexSize": 0, "indexDetails": {}, "indexSizes": {},
        });
        reply.append(cstr!("scaleFactor"), i32::try_from(scale).unwrap_or(i32::MAX));
        return Ok(());
    };
    reply.extend(&statistics::storage_fields(storage, &namespace, figures, scale)?);
    Ok(())
}
