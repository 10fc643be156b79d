//! Another member's files on their way to become this member's own.
//!
//! They are gathered in a folder beside the database, and take its place when the next process starts, before anything is
//! opened.
//!
//! ```text
//!   rocksdb            rocksdb.incoming   rocksdb.arrived   rocksdb.outgoing
//!   own                files come                                                a start removes them
//!   own                whole, synced      there                                  a start goes on:
//!   own ──vote, configuration──▶          there                                  the facts are copied,
//!                      whole              there             own                  the old one makes way,
//!   the other's                           there             own                  the new one takes its place,
//!   the other's                                                                  and what was is removed
//! ```
//!
//! Invariants:
//! - A crash at any point leaves the one or the other, and what this member promised in either: its vote.
//! - The other's vote, configuration and count of rollbacks are not taken over, nor what is every member's own (`local`,
//!   profiles).
//!
//! What it deliberately does not do: fetch the files.

use crate::CollectionKind;
use crate::documents::format::{beside, family};
use crate::documents::transaction::Transaction;
use crate::following::incoming_file::IncomingFile;
use crate::log::commit::Durability;
use crate::log::facts::Fact;
use crate::options::StorageOptions;
use crate::storage::Storage;
use baton_types::{Error, ErrorCode, Result};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Where files are gathered.
pub struct Incoming {
    database: PathBuf,
}

fn incoming_of(database: &Path) -> PathBuf {
    database.with_extension(beside::INCOMING)
}

fn outgoing_of(database: &Path) -> PathBuf {
    database.with_extension(beside::OUTGOING)
}

fn arrived_of(database: &Path) -> PathBuf {
    database.with_extension(beside::ARRIVED)
}

fn failed(what: &Path, error: &io::Error) -> Error {
    Error::new(ErrorCode::OperationFailed, format!("{}: {error}", what.display()))
}

fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| failed(folder, &error))
}

fn sync_parent(path: &Path) -> Result<()> {
    path.parent().map_or(Ok(()), sync_folder)
}

fn remove(path: &Path) -> Result<()> {
    let removed = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(path, &error)),
        _ => Ok(()),
    }
}

impl Incoming {
    /// An empty folder for the files.
    pub fn begin(storage: &Storage) -> Result<Self> {
        let database = storage.db().path().to_owned();
        let folder = incoming_of(&database);
        remove(&folder)?;
        std::fs::create_dir_all(&folder).map_err(|error| failed(&folder, &error))?;
        Ok(Self { database })
    }

    /// Makes a file of this name.
    ///
    /// # Errors
    /// `BadValue` (2) for a name that could lead elsewhere.
    pub fn create(&self, name: &str) -> Result<IncomingFile> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if name.is_empty() || name.starts_with('.') || !name.chars().all(is_plain) {
            return Err(Error::bad_value(format!("'{name}' is no name of a database's file")));
        }
        let path = incoming_of(&self.database).join(name);
        IncomingFile::create(&path).map_err(|error| failed(&path, &error))
    }

    /// All files have come and are synced: the next start takes them over.
    pub fn arrived(&self) -> Result<()> {
        sync_folder(&incoming_of(&self.database))?;
        sync_parent(&self.database)?;
        crash_point!("incoming-whole");
        let arrived = arrived_of(&self.database);
        File::create(&arrived).and_then(|file| file.sync_all()).map_err(|error| failed(&arrived, &error))?;
        sync_parent(&self.database)?;
        crash_point!("incoming-arrived");
        Ok(())
    }

    /// Gives up what has come.
    pub fn discard(&self) {
        if let Err(error) = remove(&incoming_of(&self.database)) {
            tracing::warn!(component = "STORAGE", error = %error, "What has come of another member's files stays until the next start");
        }
    }
}

/// Before a database is opened: lets what has arrived take its place, and removes what has not. Tells whether it did the former.
pub fn take_over(database: &Path, options: &StorageOptions) -> Result<bool> {
    let (incoming, outgoing, arrived) = (incoming_of(database), outgoing_of(database), arrived_of(database));
    if !arrived.exists() {
        remove(&incoming)?;
        remove(&outgoing)?;
        return Ok(false);
    }
    if incoming.exists() {
        if database.exists() {
            carry_facts_over(database, &incoming, options)?;
            crash_point!("incoming-has-facts");
            std::fs::rename(database, &outgoing).map_err(|error| failed(database, &error))?;
            sync_parent(database)?;
            crash_point!("incoming-has-room");
        }
        std::fs::rename(&incoming, database).map_err(|error| failed(&incoming, &error))?;
        sync_parent(database)?;
        crash_point!("incoming-in-place");
    }
    remove(&arrived)?;
    sync_parent(database)?;
    remove(&outgoing)?;
    tracing::info!(component = "STORAGE", database = %database.display(), "Another member's files are this member's now");
    Ok(true)
}

/// What this member has promised, and what it is, stays. Not what it knew to be committed: the log that has come need not have it yet,
/// and may be one that its source takes back.
fn carry_facts_over(from: &Path, to: &Path, options: &StorageOptions) -> Result<()> {
    let open = |path: &Path| Storage::open(path, options.clone());
    let (own, rollbacks) = {
        let own = open(from)?;
        let facts = [Fact::LastVote, Fact::Configuration, Fact::Incarnation, Fact::OplogLimits]
            .map(|fact| own.facts().get(fact).map(|value| (fact, value)));
        (facts, own.follower().rollback_id()?)
    };
    let copy = open(to)?;
    let mut transaction = Transaction::empty();
    for fact in own {
        match fact? {
            (fact, Some(value)) => transaction.put(family::META, fact.key(), &value),
            (fact, None) => transaction.delete(family::META, fact.key()),
        }
    }
    transaction.put(family::META, Fact::RollbackId.key(), &(rollbacks + 1).to_le_bytes());
    transaction.delete(family::META, Fact::Cloning.key());
    copy.commit.commit_unasked(transaction, Durability::Synced);
    let catalog = copy.catalog();
    let is_own = |namespace: &baton_types::Namespace| namespace.is_local() || namespace.coll() == "system.profile";
    for collection in catalog.iter().filter(|c| c.kind != CollectionKind::Oplog && is_own(&c.namespace)) {
        copy.silently(|writer| writer.drop_collection(&collection.namespace))?;
    }
    copy.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_types::{Namespace, OpTime};
    use bson::rawdoc;
    use std::sync::Arc;

    fn options() -> StorageOptions {
        StorageOptions { cache_bytes: 64 << 20, ..StorageOptions::default() }
    }

    fn open(path: &Path) -> Arc<Storage> {
        Storage::open(path, options()).unwrap()
    }

    /// What a member has, told by its vote and its notes.
    fn vote_of(storage: &Storage) -> Vec<u8> {
        storage.facts().get(Fact::LastVote).unwrap().unwrap_or_default()
    }

    /// A source with a checkpoint whose files have come to another member's folder, not yet said to be whole; and an entry that it has.
    fn gather(directory: &Path) -> (PathBuf, OpTime) {
        let (source, member) = (directory.join("source"), directory.join("member"));
        let from = open(&source);
        from.facts().put(Fact::LastVote, b"theirs");
        from.facts().put(Fact::Incarnation, b"theirs");
        from.facts().put(Fact::WholeFrom, &[7; 8]);
        from.facts().put(Fact::CommitPoint, b"theirs");
        from.by_member().note(&Namespace::new("admin", "$cmd").unwrap(), &rawdoc! { "msg": "theirs" }).unwrap();
        let storage = open(&member);
        storage.facts().put(Fact::LastVote, b"ours");
        storage.facts().put(Fact::Incarnation, b"ours");
        storage.facts().put(Fact::Cloning, b"");
        storage.facts().put(Fact::CommitPoint, b"ours");
        let before = from.oplog().last_entry();
        let checkpoint = from.begin_checkpoint("a test").unwrap();
        // After it: not in the copy.
        from.by_member().note(&Namespace::new("admin", "$cmd").unwrap(), &rawdoc! { "msg": "later" }).unwrap();
        assert_eq!(checkpoint.newest, before);
        let incoming = Incoming::begin(&storage).unwrap();
        for (name, size) in &checkpoint.files {
            let mut at = 0;
            let mut file = incoming.create(name).unwrap();
            while at < *size {
                let bytes = from.read_checkpoint(checkpoint.id, name, at, 1000).unwrap();
                file.append(&bytes).unwrap();
                at += bytes.len() as u64;
            }
            file.finish().unwrap();
        }
        from.end_checkpoint(checkpoint.id);
        assert_eq!(from.read_checkpoint(checkpoint.id, "CURRENT", 0, 1).unwrap_err().code, ErrorCode::CursorNotFound);
        (member, checkpoint.newest)
    }

    #[test]
    fn what_has_arrived_takes_the_place_of_what_was_but_the_vote_stays() {
        let directory = tempfile::tempdir().unwrap();
        let (member, newest) = gather(directory.path());
        Incoming { database: member.clone() }.arrived().unwrap();
        assert!(take_over(&member, &options()).unwrap());
        let storage = open(&member);
        assert_eq!(vote_of(&storage), b"ours");
        assert_eq!(storage.facts().get(Fact::Incarnation).unwrap().unwrap(), b"ours");
        assert_eq!(storage.facts().get(Fact::WholeFrom).unwrap().unwrap(), [7; 8]);
        assert_eq!(
            storage.facts().get(Fact::CommitPoint).unwrap().unwrap(),
            b"theirs",
            "what they knew to be committed is in this log"
        );
        assert!(!storage.follower().is_cloning().unwrap());
        assert_eq!(storage.oplog().entries_from(baton_types::Timestamp::ZERO, usize::MAX).unwrap().len(), 1);
        assert_eq!(storage.oplog().last_entry(), newest, "the log that was told of");
        drop(storage);
        let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left.len(), 3, "source, its folder of checkpoints, member: {left:?}");
        assert!(!take_over(&member, &options()).unwrap());
    }

    #[test]
    fn what_has_not_arrived_whole_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let (member, _) = gather(directory.path());
        assert!(!take_over(&member, &options()).unwrap());
        assert!(!incoming_of(&member).exists());
        let storage = open(&member);
        assert_eq!(vote_of(&storage), b"ours");
        assert!(storage.follower().is_cloning().unwrap());
        assert_eq!(storage.oplog().last_entry(), OpTime::ZERO);
    }

    #[test]
    fn a_crash_between_any_two_steps_is_gone_on_from() {
        for step in 0..4 {
            let directory = tempfile::tempdir().unwrap();
            let (member, _) = gather(directory.path());
            Incoming { database: member.clone() }.arrived().unwrap();
            if step >= 1 {
                carry_facts_over(&member, &incoming_of(&member), &options()).unwrap();
            }
            if step >= 2 {
                std::fs::rename(&member, outgoing_of(&member)).unwrap();
            }
            if step >= 3 {
                std::fs::rename(incoming_of(&member), &member).unwrap();
            }
            assert!(take_over(&member, &options()).unwrap());
            let storage = open(&member);
            assert_eq!(vote_of(&storage), b"ours", "step {step}");
            assert_ne!(storage.oplog().last_entry(), OpTime::ZERO, "step {step}");
            assert!(!outgoing_of(&member).exists() && !arrived_of(&member).exists());
        }
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let storage = open(&directory.path().join("member"));
        let incoming = Incoming::begin(&storage).unwrap();
        for name in ["", "..", "../x", "a/b", "/etc/passwd", ".hidden", "a\0b"] {
            assert!(incoming.create(name).is_err_and(|error| error.code == ErrorCode::BadValue), "{name}");
        }
        incoming.create("000012.sst").unwrap();
        incoming.discard();
        assert!(!incoming_of(&directory.path().join("member")).exists());
    }
}
