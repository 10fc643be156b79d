//! Changing what exists: collections, views, indexes.
//!
//! Invariants:
//! - The rule of [`guard`]: what is decided about a collection is decided and committed under one [`CatalogGuard`]. What changes
//!   is in memory only once it is on disk.
//! - Writers hold a collection's `ddl` lock shared for one operation; DDL that writers must not overlap holds it alone,
//!   briefly ([`Held::quietly`]). An index build holds it alone only at its two ends.
//! - An index is its id: what was begun for it ends with it, whatever its definition, its collection's name and options are then.

mod drop;
mod dropped;
mod freeing;
#[cfg(test)]
mod freeing_tests;
mod guard;
mod logged;
mod recovery;

pub(crate) use drop::forget;
pub(crate) use dropped::{Dropped, DroppedPart};
pub(crate) use freeing::Freeing;
pub(crate) use guard::Quiet;
pub use guard::{CatalogGuard, Held};
pub use logged::{IndexModification, LoggedCommand, Modification};

use crate::catalog::{Collection, CollectionKind, CollectionOptions, Index, IndexDefinition, IndexState, replaced};
use crate::commit::Durability;
use crate::format::{CollectionId, IndexId, family};
use crate::index::{Entries, Making, entries_of, entries_of_fact, entry_key};
use crate::index_demands;
use crate::oplog::{OplogEntry, OplogKind};
use crate::storage::Storage;
use crate::tasks::{TaskGuard, TaskKind};
use crate::transaction::Transaction;
use crate::view::{Bounds, Order};
use crate::write::STEPS_OF_A_SEEK;
use baton_types::{Error, ErrorCode, Interruption, Namespace, OpTime, Result};
use bson::raw::cstr;
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use std::sync::Arc;

/// Documents an index build puts into one transaction.
const BUILD_BATCH_DOCUMENTS: usize = 256;

/// What `create` did.
pub enum CreateOutcome {
    /// It made the collection.
    Created(Arc<Collection>),
    /// There was one of this name.
    Exists(Arc<Collection>),
}

/// Told about an index build's progress; returning an error aborts the build (a killed operation, a deadline).
pub type IndexBuildProgress<'a> = &'a mut dyn FnMut(u64, u64) -> Result<()>;

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
        let storage = self.storage;
        let mut transaction = Transaction::default();
        let id = storage.allocate_id(&mut transaction);
        let command = LoggedCommand::Create(options.clone());
        let collection = Collection::new(id, namespace.clone(), uuid, options)?;
        if collection.kind == CollectionKind::Capped {
            let mut document = Collection::id_index_document();
            document.append(cstr!("unique"), true);
            let id = storage.allocate_id(&mut transaction);
            let index = Index::new(id, IndexDefinition::parse(&document)?, IndexState::Ready);
            collection.indexes.store(Arc::new(vec![Arc::new(index)]));
            collection.shared.next_sequence.store(1, std::sync::atomic::Ordering::Relaxed);
        }
        let collection = Arc::new(collection);
        transaction.create_entry(self, &collection);
        self.log(&mut transaction, namespace, Some(uuid), &command, None)?;
        crash_point!("create-before-commit");
        storage.commit.commit(transaction, Durability::Synced)?;
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
            let _unreadable = guard.storage.commit_catalog_change(transaction, || ())?;
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
            guard.storage.commit.commit(transaction, Durability::Synced)?;
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

    /// Registers an index: from now on writers keep it up to date.
    fn begin_index(&self, definition: IndexDefinition) -> Result<Arc<Index>> {
        if self.index(&definition.name).is_some() {
            return Err(Error::new(
                ErrorCode::IndexAlreadyExists,
                format!("Identical index already exists: {}", definition.name),
            ));
        }
        let storage = self.guard.storage;
        let mut transaction = Transaction::default();
        let index = Arc::new(Index::new(storage.allocate_id(&mut transaction), definition, IndexState::Building));
        let mut indexes = Vec::clone(&self.indexes());
        indexes.push(Arc::clone(&index));
        self.quietly(|this| {
            transaction.store_entry(this, self.entry(&indexes));
            storage.commit.commit_unasked(transaction, Durability::Synced);
            self.indexes.store(Arc::new(indexes));
        });
        Ok(index)
    }

    /// Makes a filled index one that queries may use.
    fn finish_index(&self, id: IndexId) -> Result<()> {
        let indexes = self.indexes();
        let Some(index) = indexes.iter().find(|index| index.id == id) else { return Err(aborted()) };
        let guard = self.guard;
        let command = LoggedCommand::CreateIndexes(vec![index.definition.clone()]);
        self.quietly(|this| {
            let mut transaction = Transaction::default();
            transaction.store_entry(this, self.entry(&indexes).completed(id));
            guard.log(&mut transaction, &self.namespace, Some(self.uuid), &command, None)?;
            crash_point!("index-build-before-ready");
            let _unreadable = guard.storage.commit_catalog_change(transaction, || ())?;
            index.set_ready();
            crash_point!("index-build-ready");
            Ok(())
        })
    }
}

/// An index that is being built: whatever ends the build early, nothing of it stays. Else everybody who wants the same index
/// would wait for it for ever.
struct UnfinishedIndex<'s> {
    storage: &'s Storage,
    collection: CollectionId,
    index: IndexId,
}

impl Drop for UnfinishedIndex<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.storage.abort_index(self.collection, self.index) {
            tracing::error!(component = "INDEX", error = %error, "An index whose build has failed could not be removed; the next start does so");
        }
    }
}

fn aborted() -> Error {
    Error::new(ErrorCode::IndexBuildAborted, "Index build aborted: the index or its collection was dropped")
}

impl Storage {
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

    /// Builds an index. Writers go on meanwhile; on error nothing of the index stays. `IndexAlreadyExists` (68) if there
    /// is one of this name, complete or not; `IndexBuildAborted` (276) if the index or its collection is dropped meanwhile.
    pub fn create_index(
        &self,
        namespace: &Namespace,
        definition: IndexDefinition,
        progress: IndexBuildProgress<'_>,
    ) -> Result<()> {
        let missing = || Error::new(ErrorCode::NamespaceNotFound, format!("ns does not exist: {namespace}"));
        self.create_index_if(
            |catalog| Ok(Some((catalog.collection(namespace).ok_or_else(missing)?, definition))),
            &Arc::default(),
            progress,
        )
        .map(|_| ())
    }

    /// Builds the index that `decide` wants of the collection that it holds, as it is when the index is registered; gives its id,
    /// or `None` if none was wanted. `progress` hears of every batch of documents; `asked` is asked within each document. Errors as
    /// those of [`Self::create_index`].
    pub fn create_index_if(
        &self,
        decide: impl for<'g> FnOnce(&'g CatalogGuard<'g>) -> Result<Option<(Held<'g>, IndexDefinition)>>,
        asked: &Arc<Interruption>,
        progress: IndexBuildProgress<'_>,
    ) -> Result<Option<IndexId>> {
        let (collection, index) = {
            let catalog = self.lock_catalog();
            let Some((held, definition)) = decide(&catalog)? else { return Ok(None) };
            if !crate::replay::is_under_way() {
                self.check_room()?;
            }
            let index = held.begin_index(definition)?;
            (Arc::clone(&held), index)
        };
        let name = format!("{} {}", collection.namespace, index.definition.name);
        let task = self.tasks().admit_now(TaskKind::IndexBuild, name, collection.counts().documents.max(0) as u64);
        crash_point!("index-build-registered");
        let unfinished = UnfinishedIndex { storage: self, collection: collection.id, index: index.id };
        self.fill_index(&collection, &index, &task, asked, progress)?;
        self.lock_catalog().by_id(collection.id).ok_or_else(aborted)?.finish_index(index.id)?;
        std::mem::forget(unfinished);
        Ok(Some(index.id))
    }

    /// Takes away what there is of an index that was not completed, in a collection that may be gone.
    fn abort_index(&self, collection: CollectionId, index: IndexId) -> Result<()> {
        let catalog = self.lock_catalog();
        match catalog.by_id(collection) {
            Some(held) => held.remove_indexes(&[index], false),
            // Only the keys are left, those that the build has added since.
            None => self.free_again(index),
        }
    }

    /// Gives an index the entries of every document. Each document is read again under its lock, so that an entry never
    /// overtakes a writer that removes it.
    fn fill_index(
        &self,
        collection: &Arc<Collection>,
        index: &Arc<Index>,
        task: &TaskGuard,
        asked: &Arc<Interruption>,
        progress: IndexBuildProgress<'_>,
    ) -> Result<()> {
        let total = collection.counts().documents.max(0) as u64;
        let mut done = 0;
        let mut from = Some(Vec::new());
        while let Some(start) = from {
            // On a disk that is filling up a build fails alone. Another member's is carried out as long as that goes.
            if !crate::replay::is_under_way() {
                self.check_room()?;
            }
            let mut records = Vec::with_capacity(BUILD_BATCH_DOCUMENTS);
            {
                let view = self.view();
                let mut cursor = view.documents(collection, &Bounds { from: start, to: None }, Order::Forward);
                while records.len() < BUILD_BATCH_DOCUMENTS {
                    let Some((record, _)) = cursor.next_document()? else { break };
                    records.push(record.to_vec());
                }
            }
            from = (records.len() == BUILD_BATCH_DOCUMENTS).then(|| {
                let mut next = records[records.len() - 1].clone();
                next.push(0);
                next
            });
            let mut transaction = Transaction::asking(asked);
            for record in &records {
                if !self.locks.try_lock(&mut transaction.locks, collection.id, record) {
                    let before = std::mem::replace(&mut transaction, Transaction::asking(asked));
                    self.commit.commit_unasked(before, Durability::Applied);
                    while !self.locks.lock(&mut transaction.locks, collection.id, record) {
                        progress(done, total.max(done))?;
                    }
                }
                let Some(document) = self.get_locked(collection, record)? else { continue };
                let document = crate::view::stored_document(&document)?;
                let entries = if crate::replay::is_under_way() {
                    Ok(entries_of_fact(index, document))
                } else {
                    let mut making = Making::new(asked);
                    index_demands::check(index, document, asked).and_then(|()| entries_of(index, document, &mut making))
                };
                let added = entries.and_then(|entries| {
                    self.add_entries(&mut transaction, collection, index, &entries, record, document)
                });
                if let Err(error) = added {
                    self.abandon(transaction);
                    return Err(error);
                }
            }
            self.commit.commit_unasked(transaction, Durability::Applied);
            crash_point!("index-build-batch");
            done += records.len() as u64;
            task.progress(done, total.max(done));
            progress(done, total.max(done))?;
            task.rest();
        }
        Ok(())
    }

    fn add_entries(
        &self,
        transaction: &mut Transaction,
        collection: &Arc<Collection>,
        index: &Arc<Index>,
        entries: &Entries,
        record: &[u8],
        document: &RawDocument,
    ) -> Result<()> {
        let interruption = transaction.interruption.clone();
        let asked = interruption.as_deref().unwrap_or(Interruption::nobody());
        // Of an entry that another member logged nothing is asked: a copy that is not whole yet may have two documents of a key.
        if index.definition.unique && !crate::replay::is_under_way() {
            let keys = || entries.entries.iter().map(|entry| (index.id, entry.fields.as_slice()));
            if !self.locks.try_lock_all_new(&mut transaction.locks, keys()) {
                // Somebody holds one of the keys, perhaps this very batch: let the batch become readable, then wait.
                let next = transaction.next_of_request();
                self.commit.commit_unasked(std::mem::replace(transaction, next), Durability::Applied);
                while !self.locks.lock(&mut transaction.locks, collection.id, record) {
                    asked.look()?;
                }
                while !self.locks.lock_sorted(&mut transaction.locks, keys()) {
                    asked.look()?;
                }
                if self.get_locked(collection, record)?.is_none_or(|now| *now != *document.as_bytes()) {
                    // Changed meanwhile: the writer that did so has put the entries in.
                    return Ok(());
                }
            }
            for entry in &entries.entries {
                asked.steps(STEPS_OF_A_SEEK)?;
                self.check_unique(collection, index, entry, record, document)?;
            }
        }
        self.note_multikey(transaction, collection, index, entries.multikey);
        for entry in &entries.entries {
            transaction.put(family::INDEXES, &entry_key(index, &entry.fields, record), &entry.value);
        }
        Ok(())
    }

    /// Writes a note into the oplog (`appendOplogNote`, and a heartbeat for tailing readers). Nobody waits for it to be on disk.
    pub fn note(&self, namespace: &Namespace, o: &RawDocumentBuf) -> Result<OpTime> {
        self.note_durably(namespace, o, Durability::Applied)
    }

    /// [`Self::note`], for somebody who waits for more.
    pub fn note_durably(&self, namespace: &Namespace, o: &RawDocumentBuf, durability: Durability) -> Result<OpTime> {
        let mut transaction = Transaction::default();
        let entry = OplogEntry { kind: OplogKind::Noop, namespace, uuid: None, o, o2: None, retryable: None };
        transaction.log(&entry);
        self.commit.commit(transaction, durability)
    }
}
