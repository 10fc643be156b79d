//! The one rule of all DDL: whoever decides about what exists holds what keeps it as it is until the decision is in the log.
//!
//! ```text
//!   lock_catalog ──▶ CatalogGuard     nothing is created, dropped, renamed or altered but by its holder
//!                        │ collection(name), by_id, by_uuid
//!                        ▼
//!                      Held           a collection as it is now; what is asked of it is decided by this
//!                        │ quietly
//!                        ▼
//!                      Quiet          and no writer of it is under way
//! ```
//!
//! Invariants, kept by types: a transaction takes an entry of the catalog only from who shows a [`CatalogGuard`] or a [`Quiet`],
//! and a command's oplog entry only from [`CatalogGuard::log`]; a [`Held`] comes from a guard alone and does not outlive it, so
//! that nobody alters a collection that he looked up before.
//!
//! The guard is held for a decision and its commit: not while an index is filled, nor while keys of what was dropped are deleted.
//! A panic of its holder ends the process ([`crate::critical`]): what it has half changed nobody may see.
//! Not here: what may be decided (the commands).

use crate::LoggedCommand;
use crate::catalog::{Catalog, Collection};
use crate::critical::Critical;
use crate::documents::format::CollectionId;
use crate::documents::transaction::Transaction;
use crate::log::author::Writer;
use crate::log::oplog::encode_command;
use baton_machine::LendingGuard;
use baton_types::{Class, Error, ErrorCode, Namespace, Result};
use bson::RawDocument;
use std::ops::Deref;
use std::sync::Arc;

/// The turn to change what exists; see the file's header.
pub struct CatalogGuard<'s> {
    pub(super) writer: Writer<'s>,
    _turn: Critical<LendingGuard<'s, ()>>,
}

/// A collection as it is now, and stays while this lives unless its holder changes it.
pub struct Held<'g> {
    pub(super) guard: &'g CatalogGuard<'g>,
    collection: Arc<Collection>,
}

/// A held collection that no writer is in.
pub(crate) struct Quiet<'q> {
    held: &'q Held<'q>,
}

impl Deref for Held<'_> {
    type Target = Arc<Collection>;

    fn deref(&self) -> &Arc<Collection> {
        &self.collection
    }
}

impl Quiet<'_> {
    pub(crate) fn collection(&self) -> &Arc<Collection> {
        &self.held.collection
    }
}

impl<'s> CatalogGuard<'s> {
    /// Waits for the turn.
    pub(crate) fn new(writer: Writer<'s>) -> Self {
        Self { writer, _turn: writer.storage().catalog_turn.lock() }
    }
}

impl CatalogGuard<'_> {
    /// What exists, and stays.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.writer.catalog()
    }

    /// The collection or view of this name.
    pub fn collection(&self, namespace: &Namespace) -> Option<Held<'_>> {
        Some(self.hold(self.writer.collection(namespace)?))
    }

    /// The collection that has this id, by the name and with the options it has now.
    pub(crate) fn by_id(&self, id: CollectionId) -> Option<Held<'_>> {
        let catalog = self.catalog();
        Some(self.hold(catalog.iter().find(|now| now.id == id)?.clone()))
    }

    /// The collection with this UUID.
    pub fn by_uuid(&self, uuid: [u8; 16]) -> Option<Held<'_>> {
        Some(self.hold(self.catalog().by_uuid(uuid)?.clone()))
    }

    fn hold(&self, collection: Arc<Collection>) -> Held<'_> {
        Held { guard: self, collection }
    }

    /// Adds the command to what a transaction logs, once it is known that a member that follows can read it: by the function
    /// by which that member will. `before` is what a rollback needs to undo it.
    pub(crate) fn log(
        &self,
        transaction: &mut Transaction,
        target: &Namespace,
        uuid: Option<[u8; 16]>,
        command: &LoggedCommand,
        before: Option<&RawDocument>,
    ) -> Result<()> {
        let o = command.document(target)?;
        // Each member has a profile of its own.
        let is_own = target.is_local() || (uuid.is_some() && target.coll() == "system.profile");
        if is_own {
            return Ok(());
        }
        if self.writer.carry_entry(transaction, &o) {
            return Ok(());
        }
        let (read_target, read) = LoggedCommand::parse(target.db(), &o)?;
        if read.document(&read_target)? != o {
            return Err(Error::new(ErrorCode::InternalError, format!("An oplog entry reads back as another: {o:?}")));
        }
        transaction.log_command(self, encode_command(target.db(), uuid, &o, before));
        Ok(())
    }

    /// Lets readers see other collections from now on.
    pub(crate) fn publish(&self, change: impl FnOnce(&mut Catalog)) {
        let mut catalog = Catalog::clone(&self.writer.catalog());
        change(&mut catalog);
        self.writer.catalog.store(Arc::new(catalog));
    }
}

impl Held<'_> {
    /// Runs `change` while no writer of the collection is under way.
    pub(crate) fn quietly<T>(&self, change: impl FnOnce(&Quiet<'_>) -> T) -> T {
        let now = self.guard.writer.collection(&self.collection.namespace);
        assert!(now.is_some_and(|now| Arc::ptr_eq(&now, &self.collection)), "what is held was changed by its holder");
        let shared = Arc::clone(&self.collection.shared);
        // Whoever comes to write waits for this thread, of whatever class he is.
        let _loan = baton_machine::bearer().lend_as(Class::High);
        let _no_writers = shared.ddl.write();
        // Writers go when their transactions have their places in the queue.
        self.guard.writer.queue().drain();
        change(&Quiet { held: self })
    }

    /// [`Self::quietly`], of another collection too.
    pub(crate) fn quietly_with<T>(
        &self,
        other: Option<&Held<'_>>,
        change: impl FnOnce(&Quiet<'_>, Option<&Quiet<'_>>) -> T,
    ) -> T {
        self.quietly(|this| match other {
            None => change(this, None),
            Some(other) => other.quietly(|other| change(this, Some(other))),
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::StorageOptions;
    use crate::catalog::CollectionOptions;
    use crate::storage::Storage;
    use baton_types::Namespace;

    #[test]
    fn whom_all_writers_wait_for_is_as_urgent_as_the_most_urgent_of_them() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::open(folder.path(), StorageOptions::default()).unwrap();
        let name = Namespace::new("test", "c").unwrap();
        let uuid = bson::Uuid::new().bytes();
        storage.by_member().create_collection(&name, CollectionOptions::default(), uuid).unwrap();
        baton_machine::as_class(baton_types::Class::Low);
        let before = baton_machine::niceness();
        let catalog = storage.by_member().lock_catalog();
        let held = catalog.collection(&name).unwrap();
        let meanwhile = held.quietly(|_| baton_machine::niceness());
        let expected = match baton_machine::right() {
            baton_machine::Right::All => -20,
            baton_machine::Right::Lower => 0,
            baton_machine::Right::None => before,
        };
        assert_eq!((meanwhile, baton_machine::niceness()), (expected, before));
    }
}
