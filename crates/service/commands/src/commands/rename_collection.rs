//! `renameCollection`: gives a collection another name, also in another database. Source: MongoDB manual,
//! "renameCollection".
//!
//! Within a database it is a change of the catalog; into another one it is a copy under a temporary name that ends in
//! such a change.

use crate::call::{Call, Reply};
use crate::ddl::{crosses_replication, draw_uuid, parse_namespace, temporary_name};
use crate::server::{Operation, Server};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_request::fields::{is_truthy, wrong_type};
use baton_storage::{Collection, CollectionKind, CopyRequest, Writer};
use baton_types::{Error, ErrorCode, Namespace, Result};
use bson::RawBsonRef;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "renameCollection",
    flags: Flags::ADMIN_ONLY.and(Flags::WRITE_CONCERN).and(Flags::WRITES),
    help: "{ renameCollection: 'a.b', to: 'a.c' } renames a collection; dropTarget: true removes what had the name.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, _: &mut Reply<'_>) -> Result<()> {
    let from = parse_namespace("renameCollection", "renameCollection", call.envelope.value)?;
    let to = parse_namespace("renameCollection", "to", call.fields.required("to")?)?;
    let drop_target = match call.fields.take("dropTarget") {
        None | Some(RawBsonRef::Null) => false,
        Some(value @ RawBsonRef::Boolean(_)) => is_truthy(value),
        // The UUID of the collection to drop, as an oplog entry has it.
        Some(RawBsonRef::Binary(_)) => true,
        Some(other) => return Err(wrong_type("renameCollection", "dropTarget", other, &["bool", "binData"])),
    };
    call.fields.take("stayTemp");
    call.fields.finish()?;
    rename(call.server, call.writer(), &call.operation, &from, &to, drop_target)
}

/// Renames a collection.
pub fn rename(
    server: &Server,
    writer: Writer<'_>,
    operation: &Operation,
    from: &Namespace,
    to: &Namespace,
    drop_target: bool,
) -> Result<()> {
    check_names(from, to)?;
    if from.db() == to.db() {
        writer.rename_collection_if(from, to, drop_target, |source, target| {
            check(source, to, target.map(|target| target.kind))
        })?;
    } else {
        copy(writer, operation, from, to, drop_target)?;
    }
    server.counters.forget(from.as_str());
    server.counters.forget(to.as_str());
    Ok(())
}

fn illegal(why: String) -> Result<()> {
    Err(Error::new(ErrorCode::IllegalOperation, why))
}

fn check_names(from: &Namespace, to: &Namespace) -> Result<()> {
    if from == to {
        return illegal("Can't rename a collection to itself".into());
    }
    if crosses_replication(from, to) {
        return illegal(format!(
            "Cannot rename collections between a replicated and an unreplicated database: {from} to {to}"
        ));
    }
    if to.is_system() || to.coll().starts_with("$cmd") {
        return illegal(format!("error with target namespace: cannot rename to {to}"));
    }
    Ok(())
}

/// Whether this collection may take the name of one of that kind.
fn check(source: &Collection, to: &Namespace, target: Option<CollectionKind>) -> Result<()> {
    let from = &source.namespace;
    match source.kind {
        CollectionKind::View => {
            Err(Error::new(ErrorCode::CommandNotSupportedOnView, format!("cannot rename view: {from}")))
        }
        CollectionKind::Oplog => illegal("can't rename live oplog while replicating".into()),
        _ if from.is_system() => {
            illegal(format!("error with source namespace: cannot rename system collection {from}"))
        }
        CollectionKind::Clustered | CollectionKind::Capped if target == Some(CollectionKind::View) => {
            Err(Error::new(ErrorCode::NamespaceExists, format!("a view already exists with that name: {to}")))
        }
        CollectionKind::Clustered | CollectionKind::Capped => Ok(()),
    }
}

fn copy(writer: Writer<'_>, operation: &Operation, from: &Namespace, to: &Namespace, drop_target: bool) -> Result<()> {
    let Some(source) = writer.collection(from) else {
        return Err(Error::new(ErrorCode::NamespaceNotFound, format!("Source collection {from} does not exist")));
    };
    check(&source, to, writer.collection(to).map(|target| target.kind))?;
    let request = CopyRequest {
        from,
        to,
        temporary: &temporary_name(to.db(), "renameCollection")?,
        options: &|source| check(source, to, None).map(|()| source.options.clone()),
        uuid: &draw_uuid,
        with_indexes: true,
        drop_target,
        drop_source: true,
    };
    writer.copy_collection(&request, &mut |done, total| {
        operation.set_progress("renameCollection: copying", done, total);
        operation.check_interrupt()
    })?;
    Ok(())
}
