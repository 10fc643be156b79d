//! `applyOps`: carries entries of an oplog out, as tools do that restore a dump to a point in time. Source: MongoDB
//! manual, "applyOps"; the entries' format is that of `local.oplog.rs`.
//!
//! Invariant: entries are idempotent. An insert of what is there replaces it, a delete of what is not there is done, so
//! that a log may be applied again from any earlier place.
//! What it deliberately does not do: apply all entries or none. MongoDB 7.0 does not either.

use crate::call::{Call, Reply};
use crate::commands::{coll_mod, rename_collection};
use crate::crud;
use crate::ddl::{self, draw_uuid, indexes, options, replayed, specification};
use crate::server::operations::Begin;
use crate::server::{Operation, Server};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_admission::Source;
use baton_request::Fields;
use baton_request::fields::{is_truthy, wrong_type};
use baton_storage::{CarriedOut, Collection, Durability, EntryChange, LoggedCommand, Writer, updated};
use baton_types::{Class, Error, ErrorCode, Namespace, Result};
use bson::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr, rawdoc};
use std::sync::Arc;
use std::time::Duration;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "applyOps",
    flags: Flags::WRITE_CONCERN.and(Flags::WRITES),
    help: "{ applyOps: [ { op: 'i', ns: 'db.coll', o: { … } }, … ] } carries out entries of an oplog.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let RawBsonRef::Array(entries) = call.envelope.value else {
        return Err(wrong_type("applyOps", "applyOps", call.envelope.value, &["array"]));
    };
    call.fields.truth("allowAtomic")?;
    call.fields.truth("bypassDocumentValidation")?;
    let origin = Origin::Client { upsert: call.fields.optional::<bool>("alwaysUpsert")?.unwrap_or(true) };
    call.fields.take("oplogApplicationMode");
    if call.fields.take("preCondition").is_some() {
        return Err(Error::not_implemented("applyOps with preCondition"));
    }
    call.fields.finish()?;
    let mut results = RawArrayBuf::new();
    let mut applied = 0;
    for entry in entries {
        call.operation.check_interrupt()?;
        let outcome = match entry? {
            RawBsonRef::Document(entry) => apply(call.server, call.writer(), &call.operation, entry, origin),
            other => Err(wrong_type("applyOps", "applyOps", other, &["object"])),
        };
        results.push(outcome.is_ok());
        applied += 1;
        if let Err(error) = outcome {
            let mut info = rawdoc! { "applied": applied, "results": results };
            for element in error.info.iter().flat_map(|info| info.iter()) {
                let (name, value) = element?;
                info.append(name, value);
            }
            return Err(error.with_info(info));
        }
    }
    if crud::durability(call) == Durability::Synced {
        call.server.storage.sync();
    }
    reply.append(cstr!("applied"), applied);
    reply.extend(&rawdoc! { "results": results });
    Ok(())
}

/// Carries out a command that another member logged. Where it asks for what is done already, that is as good.
pub fn apply_command(server: &Server, writer: Writer<'_>, entry: &RawDocument) -> Result<()> {
    let slot = server.operations.register("OplogApplier");
    let operation = server.operations.begin(
        slot.slot(),
        &Begin {
            kind: "none",
            name: "applyOps",
            db: "local",
            collection: "oplog.rs",
            command: Some(entry),
            session: None,
            class: Class::Background,
            source: Source::Default,
            max_time: None,
            waited: Duration::ZERO,
        },
    );
    apply(server, writer, &operation, entry, Origin::Oplog)
}

/// Whose entries they are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// A tool's: collections may have other UUIDs here than where the log came from, so that names count too.
    Client {
        /// An update of what is not there makes it.
        upsert: bool,
    },
    /// The set's: a UUID stands for the same collection on every member.
    Oplog,
}

/// Carries one entry out.
fn apply(
    server: &Server,
    writer: Writer<'_>,
    operation: &Operation,
    entry: &RawDocument,
    origin: Origin,
) -> Result<()> {
    let mut fields = Fields::of("applyOps", entry)?;
    let kind = fields.required::<&str>("op")?;
    if kind == "n" {
        return Ok(());
    }
    let o = fields.required::<&RawDocument>("o")?;
    let named = Namespace::parse(fields.required("ns")?)?;
    let uuid = match fields.take("ui") {
        Some(RawBsonRef::Binary(binary)) => <[u8; 16]>::try_from(binary.bytes).ok(),
        _ => None,
    };
    // A collection may have been renamed since; its UUID stays.
    let known = uuid.and_then(|uuid| writer.catalog().by_uuid(uuid).map(|found| found.namespace.clone()));
    if origin == Origin::Oplog && kind != "c" && uuid.is_some() && known.is_none() {
        // Dropped later.
        return Ok(());
    }
    match kind {
        "i" => put(writer, &known.unwrap_or(named), o),
        "u" => {
            let o2 = fields.required::<&RawDocument>("o2")?;
            let upsert = fields.truth("b")? || origin != Origin::Client { upsert: false };
            update(writer, &known.unwrap_or(named), id_of_entry(o2, "update")?, o, upsert)
        }
        "d" => delete(writer, &known.unwrap_or(named), id_of_entry(o, "delete")?),
        "c" => command(server, writer, operation, (&named, uuid), o, origin),
        other => Err(Error::bad_value(format!("invalid op type {other}"))),
    }
}

fn id_of_entry<'a>(document: &'a RawDocument, what: &str) -> Result<RawBsonRef<'a>> {
    document.get("_id")?.ok_or_else(|| {
        Error::new(ErrorCode::NoSuchKey, format!("Failed to apply {what} due to missing _id: {document:?}"))
    })
}

/// Carries out what an entry does to a document of `collection`; `false` if there is none.
fn change(writer: Writer<'_>, collection: &Arc<Collection>, change: EntryChange<'_>) -> Result<bool> {
    /// What makes another attempt necessary is over at once.
    const ATTEMPTS_MAX: usize = 1000;
    for _ in 0..ATTEMPTS_MAX {
        let mut transaction = writer.transaction();
        match writer.carry_out(&mut transaction, collection, change, None) {
            Ok(CarriedOut::Done(_)) => return writer.commit(transaction, Durability::Applied).map(|_| true),
            Ok(CarriedOut::Absent) => {
                writer.abandon(transaction);
                return Ok(false);
            }
            Ok(CarriedOut::CommitFirst) => {
                writer.abandon(transaction);
                std::thread::yield_now();
            }
            Err(error) => {
                writer.abandon(transaction);
                return Err(error);
            }
        }
    }
    let message = format!("others change the same document of {} again and again", collection.namespace);
    Err(Error::new(ErrorCode::WriteConflict, message))
}

/// Inserts a document, or replaces the one with its `_id`.
fn put(writer: Writer<'_>, namespace: &Namespace, document: &RawDocument) -> Result<()> {
    id_of_entry(document, "insert")?;
    writer.collection_or_create(namespace, draw_uuid)?;
    writer.with_collection(namespace, |collection| match collection {
        Some(collection) => change(writer, collection, EntryChange::Put(document)).map(|_| ()),
        None => {
            let message = format!("collection {namespace} was dropped meanwhile");
            Err(Error::new(ErrorCode::NamespaceNotFound, message))
        }
    })
}

fn update(writer: Writer<'_>, namespace: &Namespace, id: RawBsonRef<'_>, o: &RawDocument, upsert: bool) -> Result<()> {
    let found = writer.with_collection(namespace, |collection| match collection {
        Some(collection) => change(writer, collection, EntryChange::Update { id, o }),
        None => Ok(false),
    })?;
    if found {
        Ok(())
    } else if upsert {
        // A delta makes of nothing what it can: when a log is applied from before the document was deleted, to a state
        // after that, the deletion follows.
        put(writer, namespace, &updated(&rawdoc! { "_id": id }, o)?)
    } else {
        Err(Error::new(
            ErrorCode::OperationFailed,
            format!("Failed to apply update: there is no document with _id {id:?} in {namespace}"),
        ))
    }
}

fn delete(writer: Writer<'_>, namespace: &Namespace, id: RawBsonRef<'_>) -> Result<()> {
    writer.with_collection(namespace, |collection| match collection {
        Some(collection) => change(writer, collection, EntryChange::Delete { id }).map(|_| ()),
        None => Ok(()),
    })
}

/// The entry without its first field, which names the command and its collection.
fn without_first(o: &RawDocument) -> Result<RawDocumentBuf> {
    let mut rest = RawDocumentBuf::new();
    for element in o.iter().skip(1) {
        let (name, value) = element?;
        rest.append(name, value);
    }
    Ok(rest)
}

/// What is gone already need not be removed.
fn unless_gone(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(error) if matches!(error.code, ErrorCode::NamespaceNotFound | ErrorCode::IndexNotFound) => Ok(()),
        outcome => outcome,
    }
}

/// Carries out an entry that changes the catalog.
fn command(
    server: &Server,
    writer: Writer<'_>,
    operation: &Operation,
    (ns, uuid): (&Namespace, Option<[u8; 16]>),
    o: &RawDocument,
    origin: Origin,
) -> Result<()> {
    let Some((name, value)) = o.iter().next().transpose()? else {
        return Err(Error::bad_value("An oplog entry of kind 'c' names no command"));
    };
    if origin == Origin::Oplog && name.as_str() != "applyOps" {
        let (target, command) = LoggedCommand::parse(ns.db(), o)?;
        return replayed::carry_out(server, writer, operation, (&target, uuid), command);
    }
    let target = || match value {
        RawBsonRef::String(collection) => Namespace::new(ns.db(), collection),
        other => Err(wrong_type("applyOps", name.as_str(), other, &["string"])),
    };
    let rest = without_first(o)?;
    match name.as_str() {
        "create" => {
            let namespace = target()?;
            let mut fields = Fields::of("create", &rest)?;
            let document = options::read(&mut fields, &namespace)?;
            let uuid = uuid.filter(|uuid| writer.catalog().by_uuid(*uuid).is_none()).unwrap_or_else(draw_uuid);
            ddl::create(writer, &namespace, document, uuid)
        }
        "drop" => ddl::drop_namespace(writer, &target()?).map(|_| ()),
        "dropDatabase" => writer.drop_database(ns.db()).map(|_| ()),
        "renameCollection" => {
            let from = ddl::parse_namespace("renameCollection", "renameCollection", value)?;
            let to = rest.get("to")?.unwrap_or(RawBsonRef::Null);
            let to = ddl::parse_namespace("renameCollection", "to", to)?;
            let drop_target = rest.get("dropTarget")?.is_some_and(is_truthy);
            rename_collection::rename(server, writer, operation, &from, &to, drop_target)
        }
        "collMod" => {
            let namespace = target()?;
            coll_mod::modify(writer, &namespace, &mut Fields::of("collMod", &rest)?).map(|_| ())
        }
        "createIndexes" => build(writer, operation, &target()?, &[&rest]),
        "commitIndexBuild" => {
            let mut specs = Vec::new();
            for spec in rest.get_array("indexes").map_err(|error| Error::failed_to_parse(error.to_string()))? {
                specs.extend(spec?.as_document());
            }
            build(writer, operation, &target()?, &specs)
        }
        // A build takes effect, if at all, with its commit.
        "startIndexBuild" | "abortIndexBuild" => Ok(()),
        "dropIndexes" | "dropIndex" | "deleteIndexes" | "deleteIndex" => {
            let namespace = target()?;
            let index = rest.get("index")?.unwrap_or(RawBsonRef::Null);
            unless_gone(drop_indexes(writer, &namespace, index))
        }
        "applyOps" => {
            let RawBsonRef::Array(entries) = value else {
                return Err(wrong_type("applyOps", "applyOps", value, &["array"]));
            };
            for entry in entries {
                match entry? {
                    RawBsonRef::Document(entry) => apply(server, writer, operation, entry, origin)?,
                    other => return Err(wrong_type("applyOps", "applyOps", other, &["object"])),
                }
            }
            Ok(())
        }
        other => Err(Error::not_implemented(format!("applyOps with the command '{other}'"))),
    }
}

fn drop_indexes(writer: Writer<'_>, namespace: &Namespace, index: RawBsonRef<'_>) -> Result<()> {
    writer.drop_indexes(|catalog| {
        let held = ddl::held_collection(catalog, namespace)?;
        let selected = indexes::selected(&held, index)?;
        Ok(Some((held, selected)))
    })
}

fn build(writer: Writer<'_>, operation: &Operation, namespace: &Namespace, specs: &[&RawDocument]) -> Result<()> {
    let specs = specs.iter().map(|spec| specification::normalise(spec, true)).collect::<Result<Vec<_>>>()?;
    indexes::build(writer, namespace, &specs, &operation.interruption(), &mut |name, done, total| {
        operation.set_progress(format!("Index Build: {name}"), done, total);
        operation.check_interrupt()
    })
    .map(|_| ())
}
