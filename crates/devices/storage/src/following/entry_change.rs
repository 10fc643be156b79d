//! What an oplog entry does to one document: for entries of another member, and for those that a tool sends (`applyOps`).
//!
//! Invariant: carrying an entry out is idempotent. An insert of what is there replaces it, an update or a delete of what is
//! not there finds nothing to do; so a log may be applied again from any earlier place.
//! Not here: who logs it. A transaction of this member's own gets an entry of its own; one that replicates carries the
//! entry it came from ([`crate::following::apply`]), and of a unique key it asks nothing: who logged the entry did.

use crate::catalog::{Collection, CollectionKind, ID_INDEX};
use crate::documents::format::{RecordKey, document_key, family, record_key};
use crate::documents::index::entry_key;
use crate::documents::transaction::Transaction;
use crate::documents::version::Version;
use crate::documents::view::{Stored, newest, stored_document};
use crate::documents::write::{Inserted, id_of};
use crate::log::oplog::RetryImage;
use crate::machine::read_failure;
use crate::storage::Storage;
use baton_query::Context;
use baton_query::update::{Update, diff};
use baton_types::{Error, ErrorCode, Result};
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use rust_rocksdb::ReadOptions;
use std::sync::Arc;

/// What an entry does to one document.
#[derive(Clone, Copy, Debug)]
pub enum EntryChange<'a> {
    /// Inserts it, or replaces the one with its `_id`.
    Put(&'a RawDocument),
    /// Changes the one with this `_id` as the entry's `o` says: a delta, a replacement, or operators.
    Update {
        /// The `_id`.
        id: RawBsonRef<'a>,
        /// The change.
        o: &'a RawDocument,
    },
    /// Deletes the one with this `_id`.
    Delete {
        /// The `_id`.
        id: RawBsonRef<'a>,
    },
}

/// What came of adding an entry's change to a transaction.
#[derive(Debug)]
pub enum CarriedOut {
    /// It is in the transaction. The document before or after it, if that was asked for.
    Done(Option<RawDocumentBuf>),
    /// There is no such document, so there is nothing to do.
    Absent,
    /// It must wait for somebody, perhaps for this very transaction: commit first, then try again.
    CommitFirst,
}

impl Storage {
    /// Adds to `transaction` what an entry does to one document of `collection`. `image` asks for the document.
    pub fn carry_out(
        &self,
        transaction: &mut Transaction,
        collection: &Arc<Collection>,
        change: EntryChange<'_>,
        image: Option<RetryImage>,
    ) -> Result<CarriedOut> {
        let id = match change {
            EntryChange::Put(document) => id_of(document)?,
            EntryChange::Update { id, .. } | EntryChange::Delete { id } => id,
        };
        let Some(record) = self.record_of(collection, id)? else {
            if !transaction.is_empty() {
                // This very transaction may insert it.
                return Ok(CarriedOut::CommitFirst);
            }
            let EntryChange::Put(document) = change else { return Ok(CarriedOut::Absent) };
            return self.append_capped(transaction, collection, id, document, image);
        };
        let Some(found) = self.found(transaction, collection, &record)? else { return Ok(CarriedOut::CommitFirst) };
        let before = found.as_deref().map(stored_document).transpose()?;
        let (before, after) = match (before, change) {
            (Some(before), EntryChange::Put(document)) => {
                self.update(transaction, collection, &record, (before, document), document, None)?;
                (Some(before), Some(document.to_owned()))
            }
            (Some(before), EntryChange::Update { o, .. }) => {
                let after = updated(before, o)?;
                let change = if o.get("diff")?.is_some() { o } else { &*after };
                self.update(transaction, collection, &record, (before, &after), change, None)?;
                (Some(before), Some(after))
            }
            (Some(before), EntryChange::Delete { .. }) => {
                self.delete(transaction, collection, &record, before, None)?;
                if collection.kind == CollectionKind::Capped {
                    self.note_start(transaction, collection, &record)?;
                }
                (Some(before), None)
            }
            (None, EntryChange::Put(document)) if collection.kind == CollectionKind::Clustered => {
                match self.add_document(transaction, collection, &record, document, true, None)? {
                    Inserted::Added => (None, Some(document.to_owned())),
                    Inserted::CommitFirst => return Ok(CarriedOut::CommitFirst),
                }
            }
            // Dropped from the capped collection's old end since the look.
            (None, EntryChange::Put(_)) => return Ok(CarriedOut::CommitFirst),
            (None, EntryChange::Update { .. } | EntryChange::Delete { .. }) => return Ok(CarriedOut::Absent),
        };
        Ok(CarriedOut::Done(match image {
            None => None,
            Some(RetryImage::Before) => before.map(RawDocument::to_owned),
            Some(RetryImage::After) => after,
        }))
    }

    /// Locks a document and reads it as the transaction leaves it; `None` if the transaction must be committed first.
    fn found(
        &self,
        transaction: &mut Transaction,
        collection: &Collection,
        record: &[u8],
    ) -> Result<Option<Option<Stored<'_>>>> {
        let is_locked = if transaction.is_empty() && transaction.locks.is_empty() {
            self.lock_document(transaction, collection, record)
        } else if !self.locks.is_held(&transaction.locks, collection.id, record) {
            self.locks.try_lock(&mut transaction.locks, collection.id, record)
        } else if !transaction.is_replicated {
            // Of its own changes what makes a key unique is not readable yet.
            false
        } else {
            let key = document_key(collection.id, record);
            if let Some(document) = transaction.version_of(&key) {
                let version = |document| Version::new(self.record_cache.hash(&key), &key, document);
                return Ok(Some(document.map(|document| Stored::Shared(version(document)))));
            }
            true
        };
        if is_locked { self.get_locked(collection, record).map(Some) } else { Ok(None) }
    }

    fn append_capped(
        &self,
        transaction: &mut Transaction,
        collection: &Arc<Collection>,
        id: RawBsonRef<'_>,
        document: &RawDocument,
        image: Option<RetryImage>,
    ) -> Result<CarriedOut> {
        match self.insert(transaction, collection, document, None) {
            Ok(Inserted::Added) => {
                let after = image == Some(RetryImage::After);
                Ok(CarriedOut::Done(after.then(|| document.to_owned())))
            }
            Ok(Inserted::CommitFirst) => Ok(CarriedOut::CommitFirst),
            // Inserted by somebody else since the look: then it is replaced after all.
            Err(error) if error.code == ErrorCode::DuplicateKey && self.record_of(collection, id)?.is_some() => {
                Ok(CarriedOut::CommitFirst)
            }
            Err(error) => Err(error),
        }
    }

    /// Where the document of that `_id` lies, or would; `None` if only a document itself can tell, and there is none.
    pub(crate) fn record_of(&self, collection: &Collection, id: RawBsonRef<'_>) -> Result<Option<RecordKey>> {
        match collection.kind {
            CollectionKind::Clustered => record_key(id).map(Some),
            CollectionKind::Capped => self.capped_record(newest(family::INDEXES), collection, &record_key(id)?),
            CollectionKind::View => {
                Err(Error::new(ErrorCode::CommandNotSupportedOnView, format!("{} is a view", collection.namespace)))
            }
            CollectionKind::Oplog => {
                Err(Error::new(ErrorCode::InvalidNamespace, format!("cannot write to {}", collection.namespace)))
            }
        }
    }

    /// Where the document of that encoded `_id` lies in a capped collection, or lay: `options` tell as of when.
    pub(crate) fn capped_record(
        &self,
        options: ReadOptions,
        collection: &Collection,
        id: &[u8],
    ) -> Result<Option<RecordKey>> {
        let Some(index) = collection.index(ID_INDEX) else { unreachable!("a capped collection has this index") };
        let low = entry_key(&index, id, &[]);
        let mut iterator = self.db().raw_iterator_cf_opt(self.family(family::INDEXES), options);
        iterator.seek(&low);
        iterator.status().map_err(read_failure)?;
        let key = iterator.key().and_then(|key| key.strip_prefix(low.as_slice()));
        Ok(key.map(RecordKey::from_slice))
    }
}

/// What an update entry's `o` makes of a document: a delta, a replacement, or, as older logs have it, operators.
pub fn updated(before: &RawDocument, o: &RawDocument) -> Result<RawDocumentBuf> {
    if let Some(delta) = o.get("diff")?.and_then(|delta| delta.as_document())
        && o.get("$v")?.is_some()
    {
        return diff::apply(before, delta);
    }
    if !o.iter().next().transpose()?.is_some_and(|(name, _)| name.as_str().starts_with('$')) {
        return Ok(o.to_owned());
    }
    let mut operators = RawDocumentBuf::new();
    for element in o {
        let (name, value) = element?;
        if name != "$v" {
            operators.append(name, value);
        }
    }
    let filters: [&RawDocument; 0] = [];
    let context = Context::new(bson::DateTime::from_millis(0), 0);
    let update = Update::parse(RawBsonRef::Document(&operators), &filters, &context)?;
    Ok(update.apply(before, None)?.document.unwrap_or_else(|| before.to_owned()))
}
