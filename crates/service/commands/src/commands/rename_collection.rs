//! `renameCollection`: gives a collection another name, also in another database. Source: MongoDB manual,
//! "renameCollection".
//!
//! Within a database it is a change of the catalog; into another one it is a copy under a temporary name that ends in
//! such a change.

use crate::call::{Call, Reply};
use crate::ddl::{crosses_replication, draw_uuid, parse_namespace, temporary_name};
use crate::fields::{is_truthy, wrong_type};
use crate::server::{Operation, Server};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_storage::{CollectionKind, CopyRequest, Storage};
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
    rename(call.server, &call.operation, &from, &to, drop_target)
}

/// Renames a collection.
pub fn rename(
    server: &Server,
    operation: &Operation,
    from: &Namespace,
    to: &Namespace,
    drop_target: bool,
) -> Result<()> {
    let storage = &server.storage;
    check(storage, from, to)?;
    if from.db() == to.db() {
        storage.rename_collection(from, to, drop_target)?;
    } else {
        copy(storage, operation, from, to, drop_target)?;
    }
    server.counters.forget(from.as_str());
    server.counters.forget(to.as_str());
    Ok(())
}

fn check(storage: &Storage, from: &Namespace, to: &Namespace) -> Result<()> {
    let illegal = |why: String| Err(Error::new(ErrorCode::IllegalOperation, why));
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
    match storage.collection(from).map(|collection| collection.kind) {
        None => Err(Error::new(ErrorCode::NamespaceNotFound, format!("Source collection {from} does not exist"))),
        Some(CollectionKind::View) => {
            Err(Error::new(ErrorCode::CommandNotSupportedOnView, format!("cannot rename view: {from}")))
        }
        Some(CollectionKind::Oplog) => illegal("can't rename live oplog while replicating".into()),
        Some(_) if from.is_system() => {
            illegal(format!("error with source namespace: cannot rename system collection {from}"))
        }
        Some(CollectionKind::Clustered | CollectionKind::Capped) => match storage.collection(to).map(|c| c.kind) {
            Some(CollectionKind::View) => {
                Err(Error::new(ErrorCode::NamespaceExists, format!("a view already exists with that name: {to}")))
            }
            _ => Ok(()),
        },
    }
}

fn copy(storage: &Storage, operation: &Operation, from: &Namespace, to: &Namespace, drop_target: bool) -> Result<()> {
    let Some(source) = storage.collection(from) else {
        return Err(Error::new(ErrorCode::NamespaceNotFound, format!("Source collection {from} does not exist")));
    };
    let request = CopyRequest {
        from,
        to,
        temporary: &temporary_name(to.db(), "renameCollection")?,
        options: source.options.clone(),
        uuid: draw_uuid(),
        with_indexes: true,
        drop_target,
        drop_source: true,
    };
    storage.copy_collection(&request, &mut |done, total| {
        operation.set_progress("renameCollection: copying", done, total);
        operation.check_interrupt()
    })
}
