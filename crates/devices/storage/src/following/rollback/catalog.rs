//! What existed at the common entry: the log's commands, undone in reverse.
//!
//! ```text
//!  log     … c ─ rename a→b ─ drop b ─ create b ─ dropIndexes b.x        what is now:  b (new), without x
//!                    4           3         2            1                as it is walked back: x there, b gone, b is the old one, a
//! ```
//!
//! Nothing is changed on the way: [`Then`] is a picture, and what differs between it and what is now goes into one transaction.
//!
//! What undoing needs is in the entry itself (`o2`: options and specifications as they were) and, of what was dropped, in the record
//! that keeps its space from being given back ([`crate::ddl::Dropped`]): the same id, so documents, entries and counters are there.
//!
//! Invariants:
//! - The picture has what the catalog had when the common entry was the last: names, options, indexes in their order.
//! - What was made and dropped after the common entry is in it for a moment only, and its space is given back.

use super::unrecoverable;
use crate::catalog::{Catalog, Collection, CollectionOptions, Index, IndexDefinition, IndexState};
use crate::ddl::{CatalogGuard, Dropped, DroppedPart, FillPosition, LoggedCommand};
use crate::documents::counters::Counts;
use crate::documents::format::{
    CollectionId, IndexId, build_position_key, capped_start_key, counts_key, dropped_key, family,
};
use crate::documents::transaction::Transaction;
use crate::log::oplog::optime_of;
use arc_swap::ArcSwap;
use baton_types::{Namespace, OpTime, Result};
use bson::{RawDocument, RawDocumentBuf};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A collection as it was.
struct Was {
    id: CollectionId,
    namespace: Namespace,
    uuid: [u8; 16],
    options: RawDocumentBuf,
    /// In order of their ids, which is that of their creation.
    indexes: Vec<Arc<Index>>,
    /// Of one that was dropped: what it held then.
    counts: Option<Counts>,
    is_changed: bool,
}

/// What existed at an earlier time.
pub(super) struct Then<'s> {
    now: Arc<Catalog>,
    dropped: Vec<Dropped>,
    collections: Vec<Was>,
    /// Indexes that come back, whose entries are those of when they were dropped.
    stale: BTreeSet<IndexId>,
    /// Indexes that are built again, and have all they had when they were complete.
    reopened: BTreeSet<IndexId>,
    /// Gives out ids.
    fresh_id: &'s dyn Fn() -> u32,
}

/// What becomes of the catalog.
pub(super) struct Change {
    /// Collections that go.
    pub gone: Vec<Arc<Collection>>,
    /// Those that come back or become what they were, by themselves: nobody else sees them.
    pub restored: Vec<Arc<Collection>>,
    /// The same, with what they share with those of now; their indexes are still those of now.
    lasting: Vec<Arc<Collection>>,
    /// Of these, what the ones that come back held when they were dropped.
    counts: Vec<(CollectionId, Counts)>,
    /// Ids whose records say that they were dropped: they are there again.
    back: Vec<u32>,
    /// Ids that nothing has any more.
    free: Vec<u32>,
    /// Indexes whose entries are not those of today's documents.
    pub stale: BTreeSet<IndexId>,
    /// Indexes that are built and have all their entries.
    reopened: BTreeSet<IndexId>,
}

impl<'s> Then<'s> {
    /// What exists now, and what was dropped and is still there.
    pub fn now(now: Arc<Catalog>, dropped: Vec<Dropped>, fresh_id: &'s dyn Fn() -> u32) -> Self {
        let was = |collection: &Arc<Collection>| Was {
            id: collection.id,
            namespace: collection.namespace.clone(),
            uuid: collection.uuid,
            options: collection.options.document.clone(),
            indexes: Vec::clone(&collection.indexes()),
            counts: None,
            is_changed: false,
        };
        let collections = now.iter().map(was).collect();
        let (stale, reopened) = (BTreeSet::new(), BTreeSet::new());
        Self { now, dropped, collections, stale, reopened, fresh_id }
    }

    /// The collection an entry means. A view may have another UUID here than where the entry was logged.
    fn find(&mut self, uuid: Option<[u8; 16]>, named: &Namespace) -> Option<usize> {
        let by_uuid = self.collections.iter().position(|was| Some(was.uuid) == uuid);
        by_uuid.or_else(|| {
            let is_view = |was: &Was| was.options.get("viewOn").is_ok_and(|on| on.is_some());
            self.collections.iter().position(|was| was.namespace == *named && is_view(was))
        })
    }

    /// Goes back to before the entry of a command.
    ///
    /// # Errors
    /// `UnrecoverableRollbackError` (127) for an entry that does not say enough, or of which too much is gone.
    pub fn undo(&mut self, entry: &RawDocument) -> Result<()> {
        let o = entry.get_document("o")?;
        let before = entry.get_document("o2").ok();
        let uuid = entry.get_binary("ui").ok().and_then(|binary| binary.bytes.try_into().ok());
        let db = Namespace::parse(entry.get_str("ns")?)?;
        let at = optime_of(entry).ok_or_else(|| unrecoverable("an entry without an OpTime"))?;
        let (target, command) = LoggedCommand::parse(db.db(), o).map_err(|error| unrecoverable(&error.message))?;
        let place = self.find(uuid, &target);
        match command {
            // Another quorum than it had is harmless: what is complete is the primary's to say.
            LoggedCommand::DropDatabase
            | LoggedCommand::IndexBuildNote
            | LoggedCommand::StartBuild { is_change: true, .. } => Ok(()),
            LoggedCommand::StartBuild { build, is_change: false, .. } => {
                let was = self.at(place, "an index build")?;
                was.indexes.retain(|index| !index.is_of_build(build.uuid));
                was.is_changed = true;
                Ok(())
            }
            // The build goes on, with indexes that have all their entries.
            LoggedCommand::CommitBuild { build, definitions } => {
                let mut reopened = BTreeSet::new();
                let was = self.at(place, "an index build")?;
                for definition in &definitions {
                    let index = was.indexes.iter_mut().find(|index| index.definition.name == definition.name);
                    let index = index.ok_or_else(|| unrecoverable("the completion of an index that is not there"))?;
                    reopened.insert(index.id);
                    *index = Arc::new(index.reopened(&build));
                }
                was.is_changed = true;
                self.reopened.append(&mut reopened);
                Ok(())
            }
            LoggedCommand::AbortBuild { definitions, .. } => {
                definitions.iter().try_for_each(|definition| self.bring_index_back(place, &definition.name, at))
            }
            LoggedCommand::Create(_) => {
                // A view that was created anew may have been altered into what it is.
                let place = place.ok_or_else(|| unrecoverable("the creation of what is not there"))?;
                self.collections.remove(place);
                Ok(())
            }
            LoggedCommand::Drop => self.bring_back(uuid, &target, at),
            LoggedCommand::CreateIndexes(definitions) => {
                let was = self.at(place, "an index")?;
                let names: Vec<&str> = definitions.iter().map(|definition| definition.name.as_str()).collect();
                was.indexes.retain(|index| !names.contains(&index.definition.name.as_str()));
                was.is_changed = true;
                Ok(())
            }
            LoggedCommand::DropIndex(name) => self.bring_index_back(place, &name, at),
            LoggedCommand::Rename { to: _, drop_target } => {
                let was = self.at(place, "a rename")?;
                was.namespace = target;
                if let Some(options) = before.and_then(|before| before.get_document("collectionOptions_old").ok()) {
                    was.options = options.to_owned();
                }
                was.is_changed = true;
                match drop_target {
                    Some(dropped) => self.bring_back(Some(dropped), &Namespace::parse(o.get_str("to")?)?, at),
                    None => Ok(()),
                }
            }
            LoggedCommand::Modify(modification) => {
                let before = before.ok_or_else(|| unrecoverable("a collMod that does not say what was before"))?;
                let was = self.at(place, "a collMod")?;
                was.is_changed = true;
                was.options = before.get_document("collectionOptions_old")?.to_owned();
                if let Some(altered) = modification.index {
                    let old = IndexDefinition::parse(before.get_document("indexOptions_old")?)?;
                    let index = was.indexes.iter_mut().find(|index| index.definition.name == altered.name);
                    let index = index.ok_or_else(|| unrecoverable("a collMod of an index that is not there"))?;
                    *index = Arc::new(index.altered(old));
                }
                Ok(())
            }
        }
    }

    fn at(&mut self, place: Option<usize>, what: &str) -> Result<&mut Was> {
        let place = place.ok_or_else(|| unrecoverable(&format!("{what} of a collection that is not there")))?;
        Ok(&mut self.collections[place])
    }

    /// A collection that was dropped is there again, with all it had.
    fn bring_back(&mut self, uuid: Option<[u8; 16]>, named: &Namespace, at: OpTime) -> Result<()> {
        let (mut meant, mut view) = (None, None);
        for dropped in &self.dropped {
            let DroppedPart::Collection { entry, counts } = &dropped.part else { continue };
            let collection = Collection::decode(dropped.id, entry.as_bytes(), *counts)?;
            if Some(collection.uuid) == uuid {
                meant = Some((collection, *counts));
            } else if collection.options.view.is_some() && collection.namespace == *named && dropped.at >= Some(at) {
                // Views of this name were dropped later, too.
                if view.as_ref().is_none_or(|(earlier, _)| dropped.at < *earlier) {
                    view = Some((dropped.at, (collection, *counts)));
                }
            }
        }
        let Some((collection, counts)) = meant.or(view.map(|(_, view)| view)) else {
            return Err(unrecoverable(&format!("the drop of {named}, whose documents are gone")));
        };
        let lasts = |index: &&Arc<Index>| index.state() == IndexState::Ready || index.build().is_some();
        let again = |index: &Arc<Index>| self.again(index);
        self.collections.push(Was {
            id: collection.id,
            namespace: collection.namespace.clone(),
            uuid: collection.uuid,
            options: collection.options.document.clone(),
            // A build of the set begins anew; another that the drop ended has left nothing of use.
            indexes: collection.indexes().iter().filter(lasts).map(again).collect(),
            counts: Some(counts),
            is_changed: true,
        });
        Ok(())
    }

    /// An index that comes back. One that was being built is built from the beginning: what was sorted for it is gone.
    fn again(&self, index: &Arc<Index>) -> Arc<Index> {
        match index.state() {
            IndexState::Ready => Arc::clone(index),
            IndexState::Building => Arc::new(index.begun_anew(((self.fresh_id)(), (self.fresh_id)()))),
        }
    }

    /// An index that was dropped by itself is there again, with the entries of when it was dropped.
    fn bring_index_back(&mut self, place: Option<usize>, name: &str, at: OpTime) -> Result<()> {
        let collection = self.at(place, "an index")?.id;
        let mut found = None;
        for dropped in &self.dropped {
            let (DroppedPart::Index { collection: of, entry }, Some(dropped_at)) = (&dropped.part, dropped.at) else {
                continue;
            };
            // A batch of several drops has the OpTime of the last.
            let is_it = *of == collection && dropped_at >= at && !self.stale.contains(&dropped.id);
            if is_it && entry.get_document("spec")?.get_str("name")? == name {
                let index = Index::decode(entry)?;
                if found.as_ref().is_none_or(|(earlier, _)| dropped_at < *earlier) {
                    found = Some((dropped_at, index));
                }
            }
        }
        let Some((_, index)) = found else {
            return Err(unrecoverable(&format!("the drop of the index {name}, whose entries are gone")));
        };
        let id = index.id;
        self.stale.insert(id);
        let index = self.again(&Arc::new(index));
        let was = self.at(place, "an index")?;
        let after = was.indexes.partition_point(|other| other.id < id);
        was.indexes.insert(after, index);
        was.is_changed = true;
        Ok(())
    }

    /// What is to be done to what is now.
    pub fn change(self, common: OpTime) -> Result<Change> {
        let mut change = Change {
            gone: Vec::new(),
            restored: Vec::new(),
            lasting: Vec::new(),
            counts: Vec::new(),
            back: Vec::new(),
            free: Vec::new(),
            stale: BTreeSet::new(),
            reopened: BTreeSet::new(),
        };
        let mut in_use = BTreeSet::new();
        for was in self.collections {
            in_use.insert(was.id);
            in_use.extend(was.indexes.iter().map(|index| index.id));
            if !was.is_changed {
                continue;
            }
            let options = CollectionOptions::parse(&was.options)?;
            let now = self.now.iter().find(|now| now.id == was.id);
            let make = |options: CollectionOptions| match now {
                Some(now) => now.altered(was.namespace.clone(), options),
                None => {
                    let collection = Collection::new(was.id, was.namespace.clone(), was.uuid, options)?;
                    collection.counters.set(was.counts.unwrap_or_default());
                    Ok(collection)
                }
            };
            let lasting = Arc::new(make(options.clone())?);
            let indexes = Arc::new(ArcSwap::from_pointee(was.indexes));
            change.restored.push(Arc::new(Collection { indexes, ..lasting.altered(was.namespace.clone(), options)? }));
            change.lasting.push(lasting);
            if now.is_none() {
                change.counts.push((was.id, was.counts.unwrap_or_default()));
            }
        }
        for now in self.now.iter() {
            let is_there = in_use.contains(&now.id);
            for index in now.indexes().iter().filter(|index| !in_use.contains(&index.id)) {
                change.free.push(index.id);
                change.free.extend(index.side());
            }
            if !is_there {
                change.gone.push(Arc::clone(now));
            }
        }
        change.stale = self.stale.intersection(&in_use).copied().collect();
        change.reopened = self.reopened.intersection(&in_use).copied().collect();
        for dropped in &self.dropped {
            if in_use.contains(&dropped.id) {
                change.back.push(dropped.id);
            } else if dropped.at.is_some_and(|at| at > common) {
                change.free.push(dropped.id);
            }
        }
        Ok(change)
    }
}

impl Change {
    /// The collection that had this UUID then, as it was.
    pub fn collection_then<'a>(&'a self, now: &'a Catalog, uuid: [u8; 16]) -> Option<&'a Arc<Collection>> {
        let restored = self.restored.iter().find(|collection| collection.uuid == uuid);
        restored.or_else(|| now.by_uuid(uuid).filter(|now| self.gone.iter().all(|gone| gone.id != now.id)))
    }

    /// Adds what becomes of the catalog's entries and of the records of what was dropped.
    pub fn put(&self, transaction: &mut Transaction, catalog: &CatalogGuard<'_>) {
        for collection in &self.gone {
            transaction.remove_undone(catalog, collection);
            transaction.delete(family::META, &counts_key(collection.id));
            transaction.delete(family::META, &capped_start_key(collection.id));
        }
        for collection in &self.restored {
            transaction.create_entry(catalog, collection);
        }
        for (id, counts) in &self.counts {
            transaction.put(family::META, &counts_key(*id), &counts.encode());
        }
        for id in &self.back {
            transaction.delete(family::META, &dropped_key(*id));
        }
        for id in &self.free {
            transaction.free_at_once(*id);
            transaction.delete(family::META, &build_position_key(*id));
        }
        for id in &self.reopened {
            transaction.put(family::META, &build_position_key(*id), &FillPosition::loaded().encode());
        }
    }

    /// What readers see from then on.
    pub fn publish(&self, catalog: &mut Catalog) {
        let is_other = |id: CollectionId| self.restored.iter().chain(&self.gone).any(|changed| changed.id == id);
        let names: Vec<Namespace> =
            catalog.iter().filter(|now| is_other(now.id)).map(|now| now.namespace.clone()).collect();
        names.iter().for_each(|name| catalog.remove(name));
        for (collection, restored) in self.lasting.iter().zip(&self.restored) {
            collection.indexes.store(restored.indexes());
            catalog.insert(Arc::clone(collection));
        }
    }
}
