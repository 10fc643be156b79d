//! `listCollections`: what a database holds. Source: MongoDB manual, "listCollections".

use crate::call::{Call, Reply};
use crate::ddl::views::{self, SYSTEM_VIEWS};
use crate::ddl::{list_batch_size, open_list, stored_context};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_query::matcher::Matcher;
use baton_storage::{Collection, CollectionKind, Storage};
use baton_types::{Namespace, Result};
use bson::raw::cstr;
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use std::collections::VecDeque;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "listCollections",
    flags: Flags::API_V1,
    help: "Lists the collections and views of a database; filter and nameOnly narrow the answer.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let filter = call.fields.optional::<&RawDocument>("filter")?;
    let name_only = call.fields.truth("nameOnly")?;
    call.fields.optional::<bool>("authorizedCollections")?;
    call.fields.optional::<bool>("includePendingDrops")?;
    let batch_size = list_batch_size(call)?;
    call.fields.finish()?;
    let filter = filter.map(|filter| Matcher::parse(filter, &stored_context())).transpose()?;
    let db = call.envelope.db;
    let namespace = Namespace::new(db, "$cmd.listCollections")?;
    let catalog = call.server.storage.catalog();
    let mut entries: Vec<RawDocumentBuf> =
        catalog.database(db).map(|found| as_it_is(&call.server.storage, found)).collect();
    if catalog.database(db).any(|found| found.kind == CollectionKind::View) {
        entries.push(system_views(db)?);
        entries.sort_by(|a, b| a.get_str("name").unwrap_or_default().cmp(b.get_str("name").unwrap_or_default()));
    }
    let mut listed = VecDeque::with_capacity(entries.len());
    for entry in entries {
        let wanted = match &filter {
            Some(filter) => filter.matches(&entry)?,
            None => true,
        };
        if wanted {
            listed.push_back(if name_only { named(&entry)? } else { entry });
        }
    }
    open_list(call, reply, namespace, listed, batch_size)
}

/// The entry of a collection or view; the oplog with the size that it has now, which its options do not follow.
fn as_it_is(storage: &Storage, collection: &Collection) -> RawDocumentBuf {
    let mut shown = entry(collection);
    if collection.kind == CollectionKind::Oplog {
        let mut options = RawDocumentBuf::new();
        for (name, value) in collection.options.document.iter().flatten() {
            match name.as_str() {
                "size" => options.append(name, storage.oplog().bytes_max() as i64),
                _ => options.append(name, value),
            }
        }
        shown = replaced(&shown, "options", &options);
    }
    shown
}

/// The document with another document at a field.
fn replaced(document: &RawDocument, field: &str, with: &RawDocument) -> RawDocumentBuf {
    let mut out = RawDocumentBuf::new();
    for (name, value) in document.iter().flatten() {
        match name.as_str() == field {
            true => out.append(name, with.to_owned()),
            false => out.append(name, value),
        }
    }
    out
}

/// The entry of a collection or view.
pub fn entry(collection: &Collection) -> RawDocumentBuf {
    let is_view = collection.kind == CollectionKind::View;
    let mut entry = rawdoc! {
        "name": collection.namespace.coll(),
        "type": if is_view { "view" } else { "collection" },
        "options": collection.options.document.clone(),
    };
    if is_view {
        entry.append(cstr!("info"), rawdoc! { "readOnly": true });
    } else {
        entry.append(cstr!("info"), info(collection.uuid));
        let is_clustered_by_option = matches!(collection.options.document.get("clusteredIndex"), Ok(Some(_)));
        if collection.kind != CollectionKind::Oplog && !is_clustered_by_option {
            entry.append(cstr!("idIndex"), Collection::id_index_document());
        }
    }
    entry
}

fn info(uuid: [u8; 16]) -> RawDocumentBuf {
    let uuid = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: uuid.to_vec() };
    rawdoc! { "readOnly": false, "uuid": uuid }
}

/// Where mongod keeps views.
fn system_views(db: &str) -> Result<RawDocumentBuf> {
    Ok(rawdoc! {
        "name": SYSTEM_VIEWS,
        "type": "collection",
        "options": {},
        "info": info(views::uuid(db)?),
        "idIndex": Collection::id_index_document(),
    })
}

fn named(entry: &RawDocument) -> Result<RawDocumentBuf> {
    let mut out = RawDocumentBuf::new();
    for name in [cstr!("name"), cstr!("type")] {
        if let Some(value) = entry.get(name.as_str())? {
            out.append(name, value);
        }
    }
    Ok(out)
}
