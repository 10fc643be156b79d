//! Figures of collections, for `collStats`, `dbStats` and whoever else shows them.
//!
//! Sizes are of uncompressed documents where MongoDB's are, and RocksDB's estimates where MongoDB's are of files.

use super::{append_number, indexes, views};
use baton_storage::{Collection, CollectionKind, ID_INDEX, IndexState, Storage};
use baton_types::{Namespace, Result};
use bson::raw::cstr;
use bson::{RawArrayBuf, RawDocumentBuf};

/// Figures of one collection, in bytes and documents.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Documents.
    pub documents: i64,
    /// Their bytes.
    pub document_bytes: i64,
    /// Bytes they take on disk.
    pub storage_bytes: i64,
    /// Bytes that indexes take on disk. That on `_id` takes none: documents lie in its order.
    pub index_bytes: i64,
    /// Indexes.
    pub index_count: i64,
}

/// The figures of a collection. A view has none.
pub fn of(storage: &Storage, collection: &Collection) -> Figures {
    if collection.kind == CollectionKind::View {
        return Figures::default();
    }
    let counts = match collection.kind {
        CollectionKind::Oplog => storage.oplog_counts(),
        _ => collection.counts(),
    };
    Figures {
        documents: counts.documents,
        document_bytes: counts.bytes,
        storage_bytes: storage.collection_bytes(collection) as i64,
        index_bytes: collection.indexes().iter().map(|index| storage.index_bytes(index) as i64).sum(),
        index_count: i64::from(indexes::count(collection)),
    }
}

/// The figures of what `system.views` shows, if it is there. Views lie in the catalog, as they are shown.
pub fn of_views(storage: &Storage, namespace: &Namespace) -> Option<Figures> {
    let stored = views::stored(storage, namespace)?;
    let bytes = stored.iter().map(|definition| definition.as_bytes().len() as i64).sum();
    let documents = stored.len() as i64;
    Some(Figures { documents, document_bytes: bytes, storage_bytes: bytes, index_bytes: 0, index_count: 1 })
}

/// The fields of `collStats` that follow `ns`: also `$collStats`'s `storageStats`.
pub fn storage_fields(
    storage: &Storage,
    namespace: &Namespace,
    figures: Figures,
    scale: i64,
) -> Result<RawDocumentBuf> {
    let collection = storage.collection(namespace);
    let capped = collection.as_ref().and_then(|collection| collection.options.capped);
    let mut out = RawDocumentBuf::new();
    append_number(&mut out, "size", figures.document_bytes / scale)?;
    append_number(&mut out, "count", figures.documents)?;
    if figures.documents > 0 {
        append_number(&mut out, "avgObjSize", figures.document_bytes / figures.documents)?;
    }
    append_number(&mut out, "numOrphanDocs", 0)?;
    append_number(&mut out, "storageSize", figures.storage_bytes / scale)?;
    append_number(&mut out, "freeStorageSize", 0)?;
    out.append(cstr!("capped"), capped.is_some());
    if let Some((bytes_max, documents_max)) = capped {
        let is_oplog = collection.as_ref().is_some_and(|collection| collection.kind == CollectionKind::Oplog);
        let bytes_max = if is_oplog { storage.oplog().bytes_max() as i64 } else { bytes_max };
        append_number(&mut out, "max", documents_max.unwrap_or(0))?;
        append_number(&mut out, "maxSize", bytes_max / scale)?;
    }
    append_number(&mut out, "nindexes", figures.index_count)?;
    let all = collection.as_ref().map(|collection| collection.indexes()).unwrap_or_default();
    let mut building = RawArrayBuf::new();
    let mut sizes = RawDocumentBuf::new();
    if all.iter().all(|index| index.definition.name != ID_INDEX) && figures.index_count > 0 {
        append_number(&mut sizes, ID_INDEX, 0)?;
    }
    for index in all.iter() {
        if index.state() == IndexState::Building {
            building.push(index.definition.name.as_str());
        }
        append_number(&mut sizes, &index.definition.name, storage.index_bytes(index) as i64 / scale)?;
    }
    out.append(cstr!("indexBuilds"), building);
    append_number(&mut out, "totalIndexSize", figures.index_bytes / scale)?;
    append_number(&mut out, "totalSize", (figures.storage_bytes + figures.index_bytes) / scale)?;
    out.append(cstr!("indexSizes"), sizes);
    append_number(&mut out, "scaleFactor", scale)?;
    Ok(out)
}
