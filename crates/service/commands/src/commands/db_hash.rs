//! `dbHash`: digests of a database's collections, by which members of a set are compared. Source: MongoDB manual, "dbHash".
//!
//! Invariants: members that hold the same documents give the same digests: documents are read in the order of their `_id`s, those
//! of a capped collection in their own; all of one moment. What is each member's own (`local`, profiles) is left out. Views are
//! there as MongoDB's `system.views` has them.

use crate::call::{Call, Reply};
use crate::ddl::views::{SYSTEM_VIEWS, definition};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_request::fields::wrong_type;
use baton_storage::{Bounds, Collection, CollectionKind, Order, View};
use baton_types::Result;
use bson::raw::CString;
use bson::{RawArray, RawArrayBuf, RawBsonRef, RawDocumentBuf, cstr};
use md5::{Digest, Md5};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "dbHash",
    aliases: &["dbhash"],
    flags: Flags::ANY_ROLE,
    help: "{ dbHash: 1, collections: [ 'a', 'b' ] } gives digests of collections, all without names.",
    run,
    ..DEFAULT
};

/// Documents read between two looks at whether to go on.
const LOOK_UP_EACH: u64 = 1024;

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let began = Instant::now();
    let mut wanted = BTreeSet::new();
    for name in call.fields.optional::<&RawArray>("collections")?.into_iter().flatten() {
        match name? {
            RawBsonRef::String(name) => wanted.insert(name.to_owned()),
            other => return Err(wrong_type("dbHash", "collections", other, &["string"])),
        };
    }
    let skips_temporary = call.fields.truth("skipTempCollections")?;
    call.fields.finish()?;
    let db = call.envelope.db.to_owned();
    let storage = &call.server.storage;
    // No collection is made or dropped between the look at the catalog and the moment as of which it is read.
    let (collections, view) = {
        let catalog = storage.freeze_catalog();
        let is_wanted = |collection: &&Arc<Collection>| {
            let name = collection.namespace.coll();
            let is_named = wanted.is_empty() || wanted.contains(name) || collection.kind == CollectionKind::View;
            let is_own = collection.namespace.is_local() || name == "system.profile";
            is_named && !is_own && !(skips_temporary && collection.options.temporary)
        };
        let collections: Vec<_> = catalog.catalog().database(&db).filter(is_wanted).cloned().collect();
        (collections, storage.view())
    };
    let operation = &call.operation;
    let mut hashes = BTreeMap::new();
    for collection in collections.iter().filter(|collection| collection.kind != CollectionKind::View) {
        let hash = hash(&view, collection, &mut || operation.check_interrupt())?;
        hashes.insert(collection.namespace.coll().to_owned(), hash);
    }
    if let Some(hash) = hash_of_views(&collections).filter(|_| wanted.is_empty() || wanted.contains(SYSTEM_VIEWS)) {
        hashes.insert(SYSTEM_VIEWS.to_owned(), hash);
    }
    let mut of_all = Md5::new();
    let (mut shown, mut uuids, mut capped) = (RawDocumentBuf::new(), RawDocumentBuf::new(), RawArrayBuf::new());
    for (name, hash) in &hashes {
        of_all.update(hash);
        shown.append(CString::try_from(name.as_str())?, hash.as_str());
    }
    for collection in collections.iter().filter(|collection| collection.kind != CollectionKind::View) {
        let name = collection.namespace.coll();
        let uuid = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: collection.uuid.to_vec() };
        uuids.append(CString::try_from(name)?, uuid);
        if collection.kind == CollectionKind::Capped {
            capped.push(name);
        }
    }
    reply.append(cstr!("host"), call.server.identity.host.as_str());
    reply.append(cstr!("collections"), &*shown);
    reply.append(cstr!("capped"), &*capped);
    reply.append(cstr!("uuids"), &*uuids);
    reply.append(cstr!("md5"), digits(of_all).as_str());
    reply.append(cstr!("timeMillis"), began.elapsed().as_millis() as i64);
    Ok(())
}

fn digits(digest: Md5) -> String {
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hash(view: &View<'_>, collection: &Collection, interrupt: &mut dyn FnMut() -> Result<()>) -> Result<String> {
    let mut digest = Md5::new();
    let mut documents = view.documents(collection, &Bounds::default(), Order::Forward);
    let mut count = 0_u64;
    while let Some((_, document)) = documents.next_document()? {
        digest.update(document.as_bytes());
        count += 1;
        if count.is_multiple_of(LOOK_UP_EACH) {
            interrupt()?;
        }
    }
    Ok(digits(digest))
}

/// The digest of the views' definitions, if there are any.
fn hash_of_views(collections: &[Arc<Collection>]) -> Option<String> {
    let mut digest = Md5::new();
    let mut found = false;
    for view in collections.iter().filter(|collection| collection.kind == CollectionKind::View) {
        let Some(definition) = definition(view) else { continue };
        digest.update(definition.as_bytes());
        found = true;
    }
    found.then(|| digits(digest))
}
