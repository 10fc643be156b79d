//! Members that follow, as far as tests need them: what one logged is carried out by another.

use super::{create_as, documents, index_as, log, name, open};
use baton_storage::{Storage, Writer};
use baton_types::Result;
use bson::{Binary, RawDocument, RawDocumentBuf, rawdoc};
use std::path::Path;
use std::sync::Arc;

/// A member that follows.
pub fn open_to_follow(path: &Path) -> Arc<Storage> {
    let storage = open(path);
    storage.queue().close_to_writes();
    storage
}

pub fn kind(entry: &RawDocument) -> &str {
    entry.get_str("op").expect("an entry has a kind")
}

/// Carries out the command of an entry, as far as these tests have commands.
pub fn carry_out(writer: Writer<'_>, entry: &RawDocument) -> Result<()> {
    let o = entry.get_document("o").expect("o");
    let (command, value) = o.iter().next().expect("a command").expect("well-formed");
    let target = value.as_str().expect("a collection");
    let rest = || {
        let mut rest = RawDocumentBuf::new();
        for element in o.iter().skip(1) {
            let (name, value) = element.expect("well-formed");
            if name != "idIndex" {
                rest.append(name, value);
            }
        }
        rest
    };
    match command.as_str() {
        "create" => {
            let uuid = entry.get_binary("ui").expect("a uuid").bytes.try_into().expect("16 bytes");
            create_as(writer, target, uuid, &rest()).map(|_| ())
        }
        "createIndexes" => index_as(writer, target, &rest()),
        "drop" => writer.drop_collection(&name(target)).map(|_| ()),
        "dropIndexes" => {
            let collection = writer.collection(&name(target)).expect("there");
            writer.drop_index(&collection, o.get_str("index").expect("an index"))
        }
        other => unreachable!("no test logs {other}"),
    }
}

/// Brings a follower up to what `entries` say.
pub fn follow(follower: &Storage, entries: &[RawDocumentBuf]) {
    for part in entries.chunk_by(|a, b| (kind(a) == "c") == (kind(b) == "c")) {
        if kind(&part[0]) == "c" {
            for entry in part {
                follower.replay(entry, |writer| carry_out(writer, entry)).expect("replayed");
            }
        } else {
            let part: Vec<&RawDocument> = part.iter().map(AsRef::as_ref).collect();
            follower.follower().apply_entries(&part).expect("applied");
        }
    }
}

pub fn assert_same(primary: &Storage, follower: &Storage) {
    assert_eq!(log(primary), log(follower), "the logs are the same, byte for byte");
    assert_eq!(primary.oplog().last_entry(), follower.oplog().last_entry());
    let names = |storage: &Storage| -> Vec<_> {
        let catalog = storage.catalog();
        catalog
            .database("test")
            .map(|c| (c.namespace.clone(), c.uuid, c.counts(), c.options.document.clone()))
            .collect()
    };
    assert_eq!(names(primary), names(follower));
    for collection in follower.catalog().database("test") {
        assert_eq!(documents(primary, collection.namespace.coll()), documents(follower, collection.namespace.coll()));
        let indexes = |storage: &Storage| -> Vec<_> {
            let collection = storage.collection(&collection.namespace).expect("there");
            collection.indexes().iter().map(|i| (i.definition.name.clone(), i.state(), i.multikey())).collect()
        };
        assert_eq!(indexes(primary), indexes(follower));
        let report = follower.validate(collection, &mut |_, _| Ok(())).expect("validated");
        assert!(report.is_valid() && !report.counters_mended, "{:?}", report.errors);
    }
}

pub fn lsid(session: &[u8; 16]) -> RawDocumentBuf {
    rawdoc! { "id": Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: session.to_vec() } }
}
