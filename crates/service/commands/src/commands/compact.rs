//! `compact`: rewrites a collection's files without what is deleted. Source: MongoDB manual, "compact".

use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_storage::CollectionKind;
use baton_types::{Error, ErrorCode, Result};
use bson::cstr;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "compact",
    flags: Flags::ON_COLLECTION.and(Flags::ANY_ROLE),
    help: "Rewrites a collection and its indexes on disk without what is deleted. Others go on meanwhile.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = call.namespace()?;
    call.fields.truth("force")?;
    call.fields.finish()?;
    let Some(collection) = call.server.storage.collection(&namespace) else {
        return Err(Error::new(ErrorCode::NamespaceNotFound, format!("collection does not exist: {namespace}")));
    };
    match collection.kind {
        CollectionKind::Clustered | CollectionKind::Capped => {}
        CollectionKind::View => {
            return Err(Error::new(ErrorCode::CommandNotSupportedOnView, "can't compact a view"));
        }
        CollectionKind::Oplog => {
            return Err(Error::new(ErrorCode::IllegalOperation, "the oplog is truncated, which needs no compaction"));
        }
    }
    let operation = &call.operation;
    let freed = call.server.storage.compact(&collection, &mut || operation.check_interrupt())?;
    reply.append(cstr!("bytesFreed"), freed as i64);
    Ok(())
}
