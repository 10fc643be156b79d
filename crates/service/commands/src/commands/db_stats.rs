//! `dbStats`: figures of a database, and of the disk it lies on. Source: MongoDB manual, "dbStats".

use crate::call::{Call, Reply};
use crate::commands::coll_stats::scale;
use crate::ddl::statistics::{self, Figures};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_storage::CollectionKind;
use baton_types::{Result, check_database};
use bson::cstr;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "dbStats",
    aliases: &["dbstats"],
    flags: Flags::READ_CONCERN,
    help: "Counts and sizes of a database; scale divides the sizes.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let scale = scale(call)? as f64;
    let with_free = call.fields.truth("freeStorage")?;
    call.fields.finish()?;
    let db = call.envelope.db;
    check_database(db)?;
    let storage = &call.server.storage;
    let catalog = storage.catalog();
    let (mut collections, mut views) = (0_i64, 0_i64);
    let mut sum = Figures::default();
    for collection in catalog.database(db) {
        if collection.kind == CollectionKind::View {
            views += 1;
            continue;
        }
        collections += 1;
        let figures = statistics::of(storage, collection);
        sum.documents += figures.documents;
        sum.document_bytes += figures.document_bytes;
        sum.storage_bytes += figures.storage_bytes;
        sum.index_bytes += figures.index_bytes;
        sum.index_count += figures.index_count;
    }
    let average = if sum.documents > 0 { sum.document_bytes as f64 / sum.documents as f64 } else { 0.0 };
    let scaled = |bytes: i64| bytes as f64 / scale;
    reply.append(cstr!("db"), db);
    reply.append(cstr!("collections"), collections);
    reply.append(cstr!("views"), views);
    reply.append(cstr!("objects"), sum.documents);
    reply.append(cstr!("avgObjSize"), average);
    reply.append(cstr!("dataSize"), scaled(sum.document_bytes));
    reply.append(cstr!("storageSize"), scaled(sum.storage_bytes));
    if with_free {
        reply.append(cstr!("freeStorageSize"), 0.0);
    }
    reply.append(cstr!("indexes"), sum.index_count);
    reply.append(cstr!("indexSize"), scaled(sum.index_bytes));
    if with_free {
        reply.append(cstr!("indexFreeStorageSize"), 0.0);
    }
    reply.append(cstr!("totalSize"), scaled(sum.storage_bytes + sum.index_bytes));
    if with_free {
        reply.append(cstr!("totalFreeStorageSize"), 0.0);
    }
    reply.append(cstr!("scaleFactor"), scale as i64);
    if let Ok(disk) = rustix::fs::statvfs(call.server.identity.data_directory.as_str()) {
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize) as f64 / scale;
        reply.append(cstr!("fsUsedSize"), bytes(disk.f_blocks.saturating_sub(disk.f_bfree)));
        reply.append(cstr!("fsTotalSize"), bytes(disk.f_blocks));
    }
    Ok(())
}
