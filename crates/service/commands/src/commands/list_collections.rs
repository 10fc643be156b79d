//! `listCollections`: what a database holds. Source: MongoDB manual, "listCollections".

use crate::call::{Call, Reply};
use crate::ddl::views::SYSTEM_VIEWS;
use crate::ddl::{list_batch_size, open_list, stored_context};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_document::hash::hash;
use baton_query::matcher::Matcher;
use baton_storage::{Collection, CollectionKind};
use baton_types::{Namespace, Result};
use bson::raw::cstr;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
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
    let mut entries: Vec<RawDocumentBuf> = catalog.database(db).map(|found| entry(found)).collect();
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

/// Where mongod keeps views. Here the catalog does, so its UUID is made of the database's name.
fn system_views(db: &str) -> Result<RawDocumentBuf> {
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&hash(RawBsonRef::String(db), 0)?.to_be_bytes());
    uuid[8..].copy_from_slice(&hash(RawBsonRef::String(db), 1)?.to_be_bytes());
    uuid[6] = (uuid[6] & 0x0f) | 0x40;
    uuid[8] = (uuid[8] & 0x3f) | 0x80;
    Ok(rawdoc! {
        "name": SYSTEM_VIEWS,
        "type": "collection",
        "options": {},
        "info": info(uuid),
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
