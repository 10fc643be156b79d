//! Changing what exists: collections, views, indexes.
//!
//! Invariants:
//! - One DDL operation changes the catalog at a time (`catalog_change`); it is in memory only once it is on disk.
//! - Writers hold a collection's `ddl` lock shared for one operation; DDL that writers must not overlap holds it alone,
//!   briefly. An index build holds it alone only at its two ends.
//! - Keys of what was dropped are deleted after the drop is durable; the ids wait in the meta family until they are
//!   gone, so that a crash in between leaves nothing behind for good.

use crate::catalog::{Catalog, Collection, CollectionKind, CollectionOptions, Index, IndexDefinition, IndexState};
use crate::commit::Durability;
use crate::facts::Fact;
use crate::format::{family, prefix, prefix_end};
use crate::index::{Entries, entries_of, entry_key};
use crate::machine::read_failure;
use crate::oplog::{OplogEntry, OplogKind};
use crate::storage::Storage;
use crate::tasks::{TaskGuard, TaskKind};
use crate::transaction::Transaction;
use crate::view::{Bounds, Order};
use baton_types::{Error, ErrorCode, Namespace, OpTime, Result};
use bson::raw::cstr;
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use rust_rocksdb::IteratorMode;
use std::sync::Arc;

/// Documents an index build puts into one transaction.
const BUILD_BATCH_DOCUMENTS: usize = 256;
/// Keys of a dropped range deleted in one transaction.
const DELETES_MAX: usize = 4096;
/// Name prefix, in the meta family, of ids whose keys are to be deleted.
const DROPPED: u8 = b'd';

/// What `create` did.
pub enum CreateOutcome {
    /// It made the collection.
    Created(Arc<Collection>),
    /// There was one of this name.
    Exists(Arc<Collection>),
}

/// Told about an index build's progress; returning an error aborts the build (a killed operation, a deadline).
pub type IndexBuildProgress<'a> = &'a mut dyn FnMut(u64, u64) -> Result<()>;

impl Storage {
    pub(crate) fn command_entry(
        &self,
        transaction: &mut Transaction,
        namespace: &Namespace,
        uuid: Option<[u8; 16]>,
        o: &RawDocument,
    ) {
        // Each member has a profile of its own.
        let is_own = namespace.is_local() || (uuid.is_some() && namespace.coll() == "system.profile");
        if is_own || crate::replay::carry(transaction, o) {
            return;
        }
        let Ok(command) = Namespace::new(namespace.db(), "$cmd") else { unreachable!("the database's name is valid") };
        let entry = OplogEntry { kind: OplogKind::Command, namespace: &command, uuid, o, o2: None, retryable: None };
        transaction.oplog.push(entry.encode());
    }

    pub(crate) fn change_catalog(&self, change: impl FnOnce(&mut Catalog)) {
        let mut catalog = Catalog::clone(&self.catalog.load());
        change(&mut catalog);
        self.catalog.store(Arc::new(catalog));
    }

    /// Creates a collection or view. `uuid` is the caller's, drawn at random.
    pub fn create_collection(
        &self,
        namespace: &Namespace,
        options: CollectionOptions,
        uuid: [u8; 16],
    ) -> Result<CreateOutcome> {
        let _change = self.catalog_change.lock();
        if let Some(existing) = self.collection(namespace) {
            return Ok(CreateOutcome::Exists(existing));
        }
        let mut transaction = Transaction::default();
        let id = self.allocate_id(&mut transaction);
        let collection = Collection::new(id, namespace.clone(), uuid, options)?;
        if collection.kind == CollectionKind::Capped {
            let mut document = Collection::id_index_document();
            document.append(cstr!("unique"), true);
            let index =
                Index::new(self.allocate_id(&mut transaction), IndexDefinition::parse(&document)?, IndexState::Ready);
            collection.indexes.store(Arc::new(vec![Arc::new(index)]));
            collection.shared.next_sequence.store(1, std::sync::atomic::Ordering::Relaxed);
        }
        let collection = Arc::new(collection);
        let mut o = rawdoc! { "create": namespace.coll() };
        for element in collection.options.document.iter() {
            let (name, value) = element?;
            o.append(name, value);
        }
        o.append(cstr!("idIndex"), Collection::id_index_document());
        transaction.store_catalog_entry(&collection);
        self.command_entry(&mut transaction, namespace, Some(uuid), &o);
        crash_point!("create-before-commit");
        self.commit.commit(transaction, Durability::Synced)?;
        crash_point!("create-after-commit");
        self.change_catalog(|catalog| catalog.insert(Arc::clone(&collection)));
        Ok(CreateOutcome::Created(collection))
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
            let _guard = shared.ddl.read();
            // Dropped or renamed between the look-up and the lock: look again.
            if self.catalog.load().get(namespace).is_some_and(|now| Arc::ptr_eq(now, &collection)) {
                return write(Some(&collection));
            }
        }
    }

    /// Drops a collection or view; tells what it was, or `None` if there was none.
    pub fn drop_collection(&self, namespace: &Namespace) -> Result<Option<Arc<Collection>>> {
        let _change = self.catalog_change.lock();
        let Some(collection) = self.collection(namespace) else { return Ok(None) };
        if collection.kind == CollectionKind::Oplog {
            return Err(Error::new(ErrorCode::IllegalOperation, "can't drop live oplog while replicating"));
        }
        let shared = Arc::clone(&collection.shared);
        let _guard = shared.ddl.write();
        let mut transaction = Transaction::default();
        self.command_entry(&mut transaction, namespace, Some(collection.uuid), &rawdoc! { "drop": namespace.coll() });
        self.forget(&mut transaction, &collection);
        let _unreadable = self.commit_catalog_change(transaction, || ())?;
        crash_point!("drop-after-commit");
        self.change_catalog(|catalog| catalog.remove(namespace));
        self.delete_dropped()?;
        Ok(Some(collection))
    }

    /// Removes a collection's entry and hands its keys to the clean-up.
    pub(crate) fn forget(&self, transaction: &mut Transaction, collection: &Collection) {
        transaction.delete(family::CATALOG, &prefix(collection.id));
        transaction.delete(family::META, &crate::format::counts_key(collection.id));
        let ids =
            std::iter::once(collection.id).chain(collection.indexes().iter().map(|index| index.id).collect::<Vec<_>>());
        for id in ids {
            transaction.put(family::META, &dropped_key(id), &[]);
        }
    }

    /// What a crash interrupted. Only while the data directory is opened: later, an index being built is nobody's remains.
    pub(crate) fn finish_interrupted_ddl(&self) -> Result<()> {
        self.delete_dropped()?;
        self.remove_unfinished_indexes()?;
        // A member of a set does so when it is primary: until then its log is another's.
        if self.fact(Fact::Configuration)?.is_none() {
            self.drop_temporary_collections()?;
        }
        Ok(())
    }

    /// Drops what interrupted operations left. Before clients may write: an operation under way has such a collection too.
    pub fn drop_temporary_collections(&self) -> Result<()> {
        for collection in self.catalog().iter().filter(|collection| collection.options.temporary) {
            tracing::info!(component = "STORAGE", namespace = %collection.namespace, "Dropping a temporary collection that an interrupted operation left");
            self.drop_collection(&collection.namespace)?;
        }
        Ok(())
    }

    /// Deletes the keys of everything dropped.
    pub(crate) fn delete_dropped(&self) -> Result<()> {
        let mut dropped = Vec::new();
        for item in self
            .db()
            .iterator_cf(self.family(family::META), IteratorMode::From(&[DROPPED], rust_rocksdb::Direction::Forward))
        {
            let (key, _) = item.map_err(read_failure)?;
            match key.strip_prefix(&[DROPPED]).and_then(|id| <[u8; 4]>::try_from(id).ok()) {
                Some(id) => dropped.push(u32::from_be_bytes(id)),
                None => break,
            }
        }
        for id in dropped {
            let _task = self.tasks().begin(TaskKind::DropCleanup, id.to_string());
            for family in [family::DOCUMENTS, family::INDEXES] {
                self.delete_extent(family, id)?;
                crash_point!("drop-cleanup");
            }
            let mut transaction = Transaction::default();
            transaction.delete(family::META, &dropped_key(id));
            self.commit.commit_unasked(transaction, Durability::Applied);
        }
        Ok(())
    }

    /// Deletes every key of an id in one family: whole files first, then what is left, key by key.
    fn delete_extent(&self, family: &'static str, id: u32) -> Result<()> {
        self.db().delete_file_in_range_cf(self.family(family), prefix(id), prefix_end(id)).map_err(read_failure)?;
        loop {
            let mut transaction = Transaction::default();
            let mut options = crate::view::newest(family);
            options.set_iterate_upper_bound(prefix_end(id).to_vec());
            let mut iterator = self.db().raw_iterator_cf_opt(self.family(family), options);
            iterator.seek(prefix(id));
            let mut keys = 0;
            while let Some(key) = iterator.key() {
                if keys == DELETES_MAX {
                    break;
                }
                transaction.delete(family, key);
                keys += 1;
                iterator.next();
            }
            iterator.status().map_err(read_failure)?;
            if keys == 0 {
                return Ok(());
            }
            self.commit.commit_unasked(transaction, Durability::Applied);
        }
    }

    /// Indexes whose build a crash interrupted: nobody was told they exist, so they go.
    fn remove_unfinished_indexes(&self) -> Result<()> {
        let catalog = self.catalog();
        for collection in catalog.iter() {
            for index in collection.indexes().iter().filter(|index| index.state() == IndexState::Building) {
                tracing::warn!(component = "INDEX", index = index.definition.name, namespace = %collection.namespace, "An index build was interrupted; removing what it left. Build the index again");
                self.remove_index(collection, index, None)?;
            }
        }
        Ok(())
    }

    /// Renames a collection within this member; `drop_target` drops what has the new name.
    pub fn rename_collection(&self, from: &Namespace, to: &Namespace, drop_target: bool) -> Result<()> {
        self.rename_if(from, to, |target| match target {
            Some(_) if !drop_target => Err(Error::new(ErrorCode::NamespaceExists, "target namespace exists")),
            _ => Ok(()),
        })
    }

    /// Gives `from` the name `to`, and drops what had it, if `may_replace` agrees to what that is then; nothing changes it
    /// between the two.
    pub fn replace_collection(
        &self,
        from: &Namespace,
        to: &Namespace,
        may_replace: impl FnOnce(Option<&Arc<Collection>>) -> Result<()>,
    ) -> Result<()> {
        self.rename_if(from, to, may_replace)
    }

    fn rename_if(
        &self,
        from: &Namespace,
        to: &Namespace,
        may_replace: impl FnOnce(Option<&Arc<Collection>>) -> Result<()>,
    ) -> Result<()> {
        let _change = self.catalog_change.lock();
        let Some(source) = self.collection(from) else {
            return Err(Error::new(ErrorCode::NamespaceNotFound, format!("Source collection {from} does not exist")));
        };
        let target = self.collection(to);
        let shared = Arc::clone(&source.shared);
        let _guard = shared.ddl.write();
        let target_shared = target.as_ref().map(|target| Arc::clone(&target.shared));
        let _target_guard = target_shared.as_ref().map(|shared| shared.ddl.write());
        may_replace(target.as_ref())?;
        let mut transaction = Transaction::default();
        let renamed = self.rename_entry(&mut transaction, &source, target.as_ref(), to)?;
        crash_point!("rename-before-commit");
        let _unreadable = self.commit_catalog_change(transaction, || ())?;
        crash_point!("rename-after-commit");
        self.change_catalog(|catalog| {
            catalog.remove(from);
            catalog.insert(renamed);
        });
        if target.is_some() { self.delete_dropped() } else { Ok(()) }
    }

    /// Adds to a transaction that `source` takes the name `to`, which `target` had; gives the renamed collection.
    pub(crate) fn rename_entry(
        &self,
        transaction: &mut Transaction,
        source: &Arc<Collection>,
        target: Option<&Arc<Collection>>,
        to: &Namespace,
    ) -> Result<Arc<Collection>> {
        let from = &source.namespace;
        let renamed = Arc::new(source.altered(to.clone(), source.options.with_temporary(false)?)?);
        let mut o = rawdoc! { "renameCollection": from.as_str(), "to": to.as_str(), "stayTemp": false };
        if let Some(target) = target {
            o.append(
                cstr!("dropTarget"),
                bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: target.uuid.to_vec() },
            );
            self.forget(transaction, target);
        }
        transaction.store_catalog_entry(&renamed);
        self.command_entry(transaction, from, Some(source.uuid), &o);
        Ok(renamed)
    }

    /// Replaces a collection's options (`collMod`).
    pub fn alter_collection(&self, namespace: &Namespace, options: CollectionOptions, o: &RawDocument) -> Result<()> {
        let _change = self.catalog_change.lock();
        let Some(collection) = self.collection(namespace) else {
            return Err(Error::new(ErrorCode::NamespaceNotFound, format!("ns does not exist: {namespace}")));
        };
        let shared = Arc::clone(&collection.shared);
        let _guard = shared.ddl.write();
        let altered = Arc::new(collection.altered(namespace.clone(), options)?);
        let mut transaction = Transaction::default();
        transaction.store_catalog_entry(&altered);
        self.command_entry(&mut transaction, namespace, Some(collection.uuid), o);
        self.commit.commit(transaction, Durability::Synced)?;
        self.change_catalog(|catalog| catalog.insert(altered));
        Ok(())
    }

    /// Replaces an index's specification where that needs no rebuild (`collMod`: hidden, expireAfterSeconds).
    pub fn alter_index(
        &self,
        collection: &Arc<Collection>,
        name: &str,
        document: &RawDocument,
        o: &RawDocument,
    ) -> Result<()> {
        let _change = self.catalog_change.lock();
        let _guard = collection.shared.ddl.write();
        let definition = IndexDefinition::parse(document)?;
        let changed: Vec<_> = collection
            .indexes()
            .iter()
            .map(|index| {
                if index.definition.name != name {
                    return Arc::clone(index);
                }
                let altered = Index::new(index.id, definition.clone(), index.state());
                altered.add_multikey(index.multikey());
                Arc::new(altered)
            })
            .collect();
        let mut transaction = Transaction::default();
        self.command_entry(&mut transaction, &collection.namespace, Some(collection.uuid), o);
        self.commit_indexes(collection, changed, transaction)
    }

    /// Gives a collection other indexes and commits that; if it is refused, the collection has those it had.
    fn commit_indexes(
        &self,
        collection: &Arc<Collection>,
        indexes: Vec<Arc<Index>>,
        mut transaction: Transaction,
    ) -> Result<()> {
        // In memory before it is stored: the commit queue encodes the entry.
        let before = collection.indexes.swap(Arc::new(indexes));
        transaction.store_catalog_entry(collection);
        let Err(refused) = self.commit.commit(transaction, Durability::Synced) else { return Ok(()) };
        collection.indexes.store(before);
        // An index build may have had the entry stored meanwhile.
        let mut restored = Transaction::default();
        restored.store_catalog_entry(collection);
        self.commit.commit_unasked(restored, Durability::Synced);
        Err(refused)
    }

    /// Builds an index. Writers go on meanwhile; on error nothing of the index stays. `IndexAlreadyExists` (68) if there
    /// is one of this name, complete or not; `IndexBuildAborted` (276) if the index or its collection is dropped meanwhile.
    pub fn create_index(
        &self,
        namespace: &Namespace,
        definition: IndexDefinition,
        progress: IndexBuildProgress<'_>,
    ) -> Result<()> {
        let document = definition.document.clone();
        let task = self.tasks().begin(TaskKind::IndexBuild, format!("{namespace} {}", definition.name));
        let (collection, index) = {
            let _change = self.catalog_change.lock();
            let Some(collection) = self.collection(namespace) else {
                return Err(Error::new(ErrorCode::NamespaceNotFound, format!("ns does not exist: {namespace}")));
            };
            if collection.index(&definition.name).is_some() {
                return Err(Error::new(
                    ErrorCode::IndexAlreadyExists,
                    format!("Identical index already exists: {}", definition.name),
                ));
            }
            let shared = Arc::clone(&collection.shared);
            let _guard = shared.ddl.write();
            let mut transaction = Transaction::default();
            let index = Arc::new(Index::new(self.allocate_id(&mut transaction), definition, IndexState::Building));
            let mut indexes = Vec::clone(&collection.indexes());
            indexes.push(Arc::clone(&index));
            collection.indexes.store(Arc::new(indexes));
            transaction.store_catalog_entry(&collection);
            self.commit.commit_unasked(transaction, Durability::Synced);
            (collection, index)
        };
        crash_point!("index-build-registered");
        let filled = self.fill_index(&collection, &index, &task, progress);
        let _change = self.catalog_change.lock();
        let filled = filled.and_then(|()| self.finish_index(&collection, &index, &document));
        if filled.is_err() {
            self.remove_index(&collection, &index, None)?;
        }
        filled
    }

    /// Makes a filled index one that queries may use.
    fn finish_index(&self, collection: &Arc<Collection>, index: &Arc<Index>, document: &RawDocument) -> Result<()> {
        let current = self.current(collection);
        let Some(collection) = current.filter(|now| now.indexes().iter().any(|other| other.id == index.id)) else {
            return Err(Error::new(
                ErrorCode::IndexBuildAborted,
                format!("Index build aborted: {} was dropped", index.definition.name),
            ));
        };
        let mut o = rawdoc! { "createIndexes": collection.namespace.coll() };
        for element in document.iter() {
            let (name, value) = element?;
            o.append(name, value);
        }
        let _guard = collection.shared.ddl.write();
        let mut transaction = Transaction::default();
        transaction.store_catalog_entry(&collection);
        self.command_entry(&mut transaction, &collection.namespace, Some(collection.uuid), &o);
        crash_point!("index-build-before-ready");
        drop(self.commit_catalog_change(transaction, || index.set_ready())?);
        crash_point!("index-build-ready");
        Ok(())
    }

    /// The collection as it is now, under the name and with the options it has now; `None` if it was dropped.
    fn current(&self, collection: &Collection) -> Option<Arc<Collection>> {
        self.catalog.load().iter().find(|now| now.id == collection.id).cloned()
    }

    /// Gives an index the entries of every document. Each document is read again under its lock, so that an entry never
    /// overtakes a writer that removes it.
    fn fill_index(
        &self,
        collection: &Arc<Collection>,
        index: &Arc<Index>,
        task: &TaskGuard,
        progress: IndexBuildProgress<'_>,
    ) -> Result<()> {
        let total = collection.counts().documents.max(0) as u64;
        let mut done = 0;
        let mut from = Some(Vec::new());
        while let Some(start) = from {
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
            let mut transaction = Transaction::default();
            for record in &records {
                if !self.locks.try_lock(&mut transaction.locks, collection.id, record) {
                    self.commit.commit_unasked(std::mem::take(&mut transaction), Durability::Applied);
                    self.locks.lock(&mut transaction.locks, collection.id, record);
                }
                let Some(document) = self.get_locked(collection, record)? else { continue };
                let document = crate::view::stored_document(&document)?;
                let added = entries_of(index, document).and_then(|entries| {
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
        // Of an entry that another member logged nothing is asked: a copy that is not whole yet may have two documents of a key.
        if index.definition.unique && !crate::replay::is_under_way() {
            let keys = || entries.entries.iter().map(|entry| (index.id, entry.fields.as_slice()));
            if !self.locks.try_lock_all_new(&mut transaction.locks, keys()) {
                // Somebody holds one of the keys, perhaps this very batch: let the batch become readable, then wait.
                self.commit.commit_unasked(std::mem::take(transaction), Durability::Applied);
                self.locks.lock(&mut transaction.locks, collection.id, record);
                self.locks.lock_sorted(&mut transaction.locks, keys());
                if self.get_locked(collection, record)?.is_none_or(|now| *now != *document.as_bytes()) {
                    // Changed meanwhile: the writer that did so has put the entries in.
                    return Ok(());
                }
            }
            for entry in &entries.entries {
                self.check_unique(collection, index, entry, record, document)?;
            }
        }
        self.note_multikey(transaction, collection, index, entries.multikey);
        for entry in &entries.entries {
            transaction.put(family::INDEXES, &entry_key(index, &entry.fields, record), &entry.value);
        }
        Ok(())
    }

    /// Drops an index by name.
    pub fn drop_index(&self, collection: &Arc<Collection>, name: &str) -> Result<()> {
        let _change = self.catalog_change.lock();
        let Some(index) = collection.index(name) else {
            return Err(Error::new(ErrorCode::IndexNotFound, format!("index not found with name [{name}]")));
        };
        let o = rawdoc! { "dropIndexes": collection.namespace.coll(), "index": name };
        self.remove_index(collection, &index, Some(&o))
    }

    fn remove_index(&self, collection: &Arc<Collection>, index: &Arc<Index>, o: Option<&RawDocument>) -> Result<()> {
        let mut transaction = Transaction::default();
        // Of a dropped collection only the keys are left, those that a build has added since.
        if let Some(collection) = &self.current(collection) {
            let _guard = collection.shared.ddl.write();
            let mut indexes = Vec::clone(&collection.indexes());
            indexes.retain(|other| other.id != index.id);
            if let Some(o) = o {
                self.command_entry(&mut transaction, &collection.namespace, Some(collection.uuid), o);
            }
            transaction.put(family::META, &dropped_key(index.id), &[]);
            self.commit_indexes(collection, indexes, transaction)?;
            crash_point!("drop-index-after-commit");
        }
        self.delete_extent(family::INDEXES, index.id)?;
        let mut transaction = Transaction::default();
        transaction.delete(family::META, &dropped_key(index.id));
        self.commit.commit_unasked(transaction, Durability::Applied);
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
        transaction.oplog.push(entry.encode());
        self.commit.commit(transaction, durability)
    }
}

fn dropped_key(id: u32) -> [u8; 5] {
    let [a, b, c, d] = prefix(id);
    [DROPPED, a, b, c, d]
}
