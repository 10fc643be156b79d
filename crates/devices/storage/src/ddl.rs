//! Changing what exists: collections, views, indexes.
//!
//! Invariants:
//! - The rule of [`guard`]: what is decided about a collection is decided and committed under one [`CatalogGuard`]. What changes
//!   is in memory only once it is on disk.
//! - Writers hold a collection's `ddl` lock shared for one operation; DDL that writers must not overlap holds it alone,
//!   briefly ([`Held::quietly`]). An index build holds it alone for moments: at its two ends, when writers begin to write the index
//!   itself, and when they begin to ask it whether keys are unique.
//! - An index is its id: what was begun for it ends with it, whatever its definition, its collection's name and options are then.

pub(crate) mod copy;
mod drop;
mod dropped;
mod freeing;
#[cfg(test)]
mod freeing_tests;
mod guard;
mod index_build;
mod index_drain;
mod index_fill;
mod index_load;
mod index_scan;
mod logged;
pub(crate) mod maintenance;
mod recovery;
mod set_build;
mod sorted_runs;
mod sorter;

pub(crate) use drop::forget;
pub(crate) use dropped::{Dropped, DroppedPart};
pub(crate) use freeing::Freeing;
pub(crate) use guard::Quiet;
pub use guard::{CatalogGuard, Held};
pub use index_fill::{FillPosition, IndexBuildProgress, Pass};
pub use logged::{IndexModification, LoggedCommand, Modification};
pub use set_build::{BuildOfSet, Started};

use crate::catalog::{Collection, CollectionKind, CollectionOptions, Index, IndexDefinition, replaced};
use crate::documents::transaction::Transaction;
use crate::log::author::Writer;
use crate::log::commit::Durability;
use crate::log::oplog::{OplogEntry, OplogKind};
use crate::storage::Storage;
use baton_types::{Error, ErrorCode, Namespace, OpTime, Result};
use bson::raw::cstr;
use bson::{RawDocumentBuf, rawdoc};
use std::sync::Arc;

/// What `create` did.
pub enum CreateOutcome {
    /// It made the collection.
    Created(Arc<Collection>),
    /// There was one of this name.
    Exists(Arc<Collection>),
}

impl CatalogGuard<'_> {
    /// Creates a collection or view. `uuid` is the caller's, drawn at random.
    pub fn create_collection(
        &self,
        namespace: &Namespace,
        options: CollectionOptions,
        uuid: [u8; 16],
    ) -> Result<CreateOutcome> {
        if let Some(existing) = self.collection(namespace) {
            return Ok(CreateOutcome::Exists(Arc::clone(&existing)));
        }
        let writer = self.writer;
        let mut transaction = Transaction::default();
        let id = writer.allocate_id(&mut transaction);
        let command = LoggedCommand::Create(options.clone());
        let collection = Collection::new(id, namespace.clone(), uuid, options)?;
        if collection.kind == CollectionKind::Capped {
            let mut document = Collection::id_index_document();
            document.append(cstr!("unique"), true);
            let id = writer.allocate_id(&mut transaction);
            let index = Index::complete(id, IndexDefinition::parse(&document)?);
            collection.indexes.store(Arc::new(vec![Arc::new(index)]));
            collection.shared.next_sequence.store(1, std::sync::atomic::Ordering::Relaxed);
        }
        let collection = Arc::new(collection);
        transaction.create_entry(self, &collection);
        self.log(&mut transaction, namespace, Some(uuid), &command, None)?;
        crash_point!("create-before-commit");
        writer.commit(transaction, Durability::Synced)?;
        crash_point!("create-after-commit");
        self.publish(|catalog| catalog.insert(Arc::clone(&collection)));
        Ok(CreateOutcome::Created(collection))
    }

    /// Adds to a transaction that `source` takes the name `to`, which `target` had; gives the renamed collection.
    pub(crate) fn rename_entry(
        &self,
        transaction: &mut Transaction,
        source: &Quiet<'_>,
        target: Option<&Quiet<'_>>,
        to: &Namespace,
    ) -> Result<Arc<Collection>> {
        let from = source.collection();
        let renamed = Arc::new(from.altered(to.clone(), from.options.with_temporary(false)?)?);
        let drop_target = target.map(|target| target.collection().uuid);
        if let Some(target) = target {
            forget(transaction, target);
        }
        transaction.store_entry(source, renamed.entry(&renamed.indexes()));
        let command = LoggedCommand::Rename { to: to.clone(), drop_target };
        let mut before = RawDocumentBuf::new();
        if let Some(target) = target {
            before.append(cstr!("numRecords"), target.collection().counts().documents);
        }
        if from.options.temporary {
            before.append(cstr!("collectionOptions_old"), from.options.document.clone());
        }
        let before = (!before.is_empty()).then_some(&*before);
        self.log(transaction, &from.namespace, Some(from.uuid), &command, before)?;
        Ok(renamed)
    }
}

impl Held<'_> {
    /// Gives it the name `to`, which `target` has.
    fn rename(self, target: Option<&Held<'_>>, to: &Namespace) -> Result<()> {
        let guard = self.guard;
        self.quietly_with(target, |this, target| {
            let mut transaction = Transaction::default();
            let renamed = guard.rename_entry(&mut transaction, this, target, to)?;
            crash_point!("rename-before-commit");
            let _unreadable = guard.writer.commit_catalog_change(transaction)?;
            crash_point!("rename-after-commit");
            guard.publish(|catalog| {
                catalog.remove(&self.namespace);
                catalog.insert(renamed);
            });
            Ok(())
        })
    }

    /// Alters options and an index where that needs no rebuild (`collMod`). What the modification says was decided about this
    /// very collection, or was logged by who decided.
    pub fn modify(self, modification: &Modification) -> Result<()> {
        let guard = self.guard;
        let document = replaced(&self.options.document, &modification.options, &[])?;
        let altered = Arc::new(self.altered(self.namespace.clone(), CollectionOptions::parse(&document)?)?);
        if altered.kind != self.kind {
            let message = format!("collMod makes no collection of another kind: {} is {:?}", self.namespace, self.kind);
            return Err(Error::new(ErrorCode::IllegalOperation, message));
        }
        let indexes = match &modification.index {
            None => Vec::clone(&self.indexes()),
            Some(change) => self.with_index_altered(change)?,
        };
        let mut before = rawdoc! { "collectionOptions_old": self.options.document.clone() };
        if let Some(index) = modification.index.as_ref().and_then(|change| self.index(&change.name)) {
            before.append(cstr!("indexOptions_old"), index.definition.document.clone());
        }
        let command = LoggedCommand::Modify(modification.clone());
        self.quietly(|this| {
            let mut transaction = Transaction::default();
            transaction.store_entry(this, altered.entry(&indexes));
            guard.log(&mut transaction, &self.namespace, Some(self.uuid), &command, Some(&before))?;
            guard.writer.commit(transaction, Durability::Synced)?;
            altered.indexes.store(Arc::new(indexes));
            guard.publish(|catalog| catalog.insert(altered));
            Ok(())
        })
    }

    fn with_index_altered(&self, change: &IndexModification) -> Result<Vec<Arc<Index>>> {
        let missing = || Error::new(ErrorCode::IndexNotFound, format!("index not found with name [{}]", change.name));
        let mut indexes = Vec::clone(&self.indexes());
        let index = indexes.iter_mut().find(|index| index.definition.name == change.name).ok_or_else(missing)?;
        let (mut fields, mut removed) = (RawDocumentBuf::new(), Vec::new());
        match change.hidden {
            Some(true) => fields.append(cstr!("hidden"), true),
            Some(false) => removed.push("hidden"),
            None => {}
        }
        if let Some(secs) = change.expire_after_secs {
            fields.append(cstr!("expireAfterSeconds"), secs);
        }
        let document = replaced(&index.definition.document, &fields, &removed)?;
        *index = Arc::new(index.altered(IndexDefinition::parse(&document)?));
        Ok(indexes)
    }
}

impl Writer<'_> {
    /// [`CatalogGuard::create_collection`], where nothing else is to be decided.
    pub fn create_collection(
        &self,
        namespace: &Namespace,
        options: CollectionOptions,
        uuid: [u8; 16],
    ) -> Result<CreateOutcome> {
        self.lock_catalog().create_collection(namespace, options, uuid)
    }

    /// The collection of this name, created plain if there is none.
    pub fn collection_or_create(
        &self,
        namespace: &Namespace,
        uuid: impl FnOnce() -> [u8; 16],
    ) -> Result<Arc<Collection>> {
        if let Some(collection) = self.collection(namespace) {
            return Ok(collection);
        }
        match self.create_collection(namespace, CollectionOptions::default(), uuid())? {
            CreateOutcome::Created(collection) | CreateOutcome::Exists(collection) => Ok(collection),
        }
    }

    /// Renames a collection within this member; `drop_target` drops what has the new name.
    pub fn rename_collection(&self, from: &Namespace, to: &Namespace, drop_target: bool) -> Result<()> {
        self.rename_collection_if(from, to, drop_target, |_, _| Ok(()))
    }

    /// [`Self::rename_collection`], if `check` finds that both collections are what they should be, and stay so.
    pub fn rename_collection_if(
        &self,
        from: &Namespace,
        to: &Namespace,
        drop_target: bool,
        check: impl FnOnce(&Held<'_>, Option<&Held<'_>>) -> Result<()>,
    ) -> Result<()> {
        let catalog = self.lock_catalog();
        let Some(source) = catalog.collection(from) else {
            return Err(Error::new(ErrorCode::NamespaceNotFound, format!("Source collection {from} does not exist")));
        };
        let target = catalog.collection(to);
        check(&source, target.as_ref())?;
        if target.is_some() && !drop_target {
            return Err(Error::new(ErrorCode::NamespaceExists, "target namespace exists"));
        }
        source.rename(target.as_ref(), to)
    }

    /// Gives `from` the name `to`, and drops what had it, if `may_replace` agrees to what that is then; nothing changes it
    /// between the two.
    pub fn replace_collection(
        &self,
        from: &Namespace,
        to: &Namespace,
        may_replace: impl FnOnce(Option<&Arc<Collection>>) -> Result<()>,
    ) -> Result<()> {
        self.rename_collection_if(from, to, true, |_, target| may_replace(target.map(|target| &**target)))
    }

    /// Writes a note into the oplog (`appendOplogNote`, and a heartbeat for tailing readers). Nobody waits for it to be on disk.
    pub fn note(&self, namespace: &Namespace, o: &RawDocumentBuf) -> Result<OpTime> {
        self.note_durably(namespace, o, Durability::Applied)
    }

    /// [`Self::note`], for somebody who waits for more.
    pub fn note_durably(&self, namespace: &Namespace, o: &RawDocumentBuf, durability: Durability) -> Result<OpTime> {
        let mut transaction = Transaction::default();
        let entry = OplogEntry {
            kind: OplogKind::Noop,
            namespace,
            uuid: None,
            o,
            o2: None,
            retryable: None,
            class: self.class(),
        };
        transaction.log(&entry);
        self.commit(transaction, durability)
    }
}

impl Storage {
    /// Runs `write` while no DDL on the collection of this name can overlap it. `write` gets the collection as it is
    /// then, or `None`.
    pub fn with_collection<T>(&self, namespace: &Namespace, write: impl FnOnce(Option<&Arc<Collection>>) -> T) -> T {
        loop {
            let Some(collection) = self.collection(namespace) else { return write(None) };
            let shared = Arc::clone(&collection.shared);
            shared.copies.pace();
            let _guard = shared.ddl.read();
            // Dropped or renamed between the look-up and the lock: look again.
            if self.catalog.load().get(namespace).is_some_and(|now| Arc::ptr_eq(now, &collection)) {
                return write(Some(&collection));
            }
        }
    }
}
