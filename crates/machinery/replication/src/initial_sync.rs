//! Initial sync by cloning: a member without data copies another's collections, then follows its log from where the copy began
//! until it has everything that was written meanwhile.
//!
//! ```text
//!  source's log   … b ─────────────────── s ──▶
//!                   │ collections, copied │
//!                   └──── applied to the copy, which is whole at s
//! ```
//!
//! Invariants:
//! - Until the member has applied everything up to `s`, a fact on its disk says that its data is not whole: it is neither read nor
//!   counted, and a start begins anew.
//! - The entries after `b` are idempotent: it is no matter which of them a document of the copy had seen.
//!
//! What it deliberately does not do: choose the source; follow the log ([`crate::fetcher`]).

use baton_net::Outgoing;
use baton_storage::{Storage, optime_of};
use baton_types::{Error, ErrorCode, Namespace, OpTime, Result};
use bson::raw::cstr;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// How long the source may take for one answer.
const TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Statements of retryable writes are taken over from this much of the source's log: longer ago than any driver tries again.
const STATEMENTS_SECS: u32 = 120;
/// As many documents as a reply holds.
const BATCH: i32 = 1_000_000;

/// How far an initial sync is.
#[derive(Clone, Debug)]
pub struct InitialSyncStatus {
    /// From whom.
    pub source: String,
    /// When this attempt began.
    pub began: Instant,
    /// Attempts that failed, with the reason of the last.
    pub failed_attempts: u32,
    /// Why the last one failed.
    pub last_failure: Option<String>,
    /// Collections to copy.
    pub collections: u64,
    /// Collections copied.
    pub collections_done: u64,
    /// The one that is being copied.
    pub collection: String,
    /// Documents to copy, as the source counted them when it was asked.
    pub documents: u64,
    /// Documents copied.
    pub documents_done: u64,
    /// Their bytes.
    pub bytes_done: u64,
    /// The log is applied from here on,
    pub from: OpTime,
    /// and the copy is whole here; zero while collections are copied.
    pub until: OpTime,
}

impl InitialSyncStatus {
    fn new(source: &str, before: Option<&Self>) -> Self {
        Self {
            source: source.to_owned(),
            began: Instant::now(),
            failed_attempts: before.map_or(0, |before| before.failed_attempts),
            last_failure: before.and_then(|before| before.last_failure.clone()),
            collections: 0,
            collections_done: 0,
            collection: String::new(),
            documents: 0,
            documents_done: 0,
            bytes_done: 0,
            from: OpTime::ZERO,
            until: OpTime::ZERO,
        }
    }

    /// How long copying will take on, if it goes on as it went.
    pub fn remaining(&self) -> Option<Duration> {
        let done = self.documents_done.min(self.documents);
        (done > 0).then(|| self.began.elapsed().mul_f64((self.documents - done) as f64 / done as f64))
    }
}

/// What a clone works with.
pub(crate) struct Cloning<'a> {
    pub storage: &'a Storage,
    pub apply_command: &'a (dyn Fn(&RawDocument) -> Result<()> + Send + Sync),
    pub status: &'a Mutex<Option<InitialSyncStatus>>,
    /// Asked between two batches.
    pub interrupted: &'a dyn Fn() -> bool,
}

/// A collection of the source.
struct Listed {
    namespace: Namespace,
    uuid: Option<bson::RawBson>,
    options: RawDocumentBuf,
    is_view: bool,
}

impl Cloning<'_> {
    /// Copies everything; returns up to which entry the log must be applied for the copy to be whole.
    pub fn run(&self, host: &str) -> Result<OpTime> {
        {
            let mut status = self.status.lock();
            *status = Some(InitialSyncStatus::new(host, status.as_ref()));
        }
        let outcome = self.clone_from(host);
        if let (Err(error), Some(status)) = (&outcome, self.status.lock().as_mut()) {
            status.failed_attempts += 1;
            status.last_failure = Some(error.message.clone());
        }
        outcome
    }

    fn note(&self, change: impl FnOnce(&mut InitialSyncStatus)) {
        if let Some(status) = self.status.lock().as_mut() {
            change(status);
        }
    }

    fn clone_from(&self, host: &str) -> Result<OpTime> {
        let connection = Outgoing::connect(host, CONNECT_TIMEOUT).map_err(|error| unreachable_source(&error))?;
        let mut source = Source(connection);
        tracing::info!(target: "INITSYNC", id = 21164, source = host, "Starting initial sync attempt");
        self.storage.begin_clone()?;
        let begin = source.newest_entry()?;
        let from =
            optime_of(&begin).ok_or_else(|| Error::failed_to_parse("the source's newest entry has no OpTime"))?;
        self.note(|status| status.from = from);
        self.copy_statements(&mut source, from)?;
        self.storage.begin_log_with(&begin)?;
        let listed = source.collections()?;
        let mut documents = 0;
        for collection in listed.iter().filter(|collection| !collection.is_view) {
            documents += source.count(&collection.namespace)?;
        }
        self.note(|status| (status.collections, status.documents) = (listed.len() as u64, documents));
        for collection in &listed {
            self.note(|status| status.collection = collection.namespace.to_string());
            self.copy(&mut source, collection)?;
            self.note(|status| status.collections_done += 1);
        }
        let until = optime_of(&source.newest_entry()?).unwrap_or(from);
        self.note(|status| (status.collection, status.until) = (String::new(), until));
        self.storage.sync();
        Ok(until)
    }

    fn copy_statements(&self, source: &mut Source, until: OpTime) -> Result<()> {
        let mut from = until.timestamp;
        from.seconds = from.seconds.saturating_sub(STATEMENTS_SECS);
        let find = rawdoc! {
            "find": "oplog.rs", "$db": "local", "batchSize": BATCH,
            "filter": {
                "ts": { "$gte": bson::Timestamp::from(from), "$lte": bson::Timestamp::from(until.timestamp) },
                "lsid": { "$exists": true },
            },
        };
        source.each_batch(find, "local", "oplog.rs", |entries| self.storage.put_statements(entries))
    }

    fn copy(&self, source: &mut Source, listed: &Listed) -> Result<()> {
        let namespace = &listed.namespace;
        let command = |o: RawDocumentBuf| {
            let mut entry = rawdoc! { "op": "c", "ns": format!("{}.$cmd", namespace.db()) };
            if let Some(uuid) = &listed.uuid {
                entry.append(cstr!("ui"), uuid.clone());
            }
            entry.append(cstr!("o"), o);
            self.storage.unlogged(|| (self.apply_command)(&entry))
        };
        command(with_first("create", namespace, &listed.options)?)?;
        if listed.is_view {
            return Ok(());
        }
        for index in source.indexes(namespace)? {
            if !matches!(index.get_str("name"), Ok("_id_")) {
                command(with_first("createIndexes", namespace, &index)?)?;
            }
        }
        let find = rawdoc! { "find": namespace.coll(), "$db": namespace.db(), "batchSize": BATCH };
        source.each_batch(find, namespace.db(), namespace.coll(), |documents| {
            if (self.interrupted)() {
                return Err(Error::new(ErrorCode::InitialSyncFailure, "there is another sync source now"));
            }
            let Some(collection) = self.storage.collection(namespace) else {
                return Err(Error::new(ErrorCode::InitialSyncFailure, format!("{namespace} is gone")));
            };
            self.storage.put_cloned(&collection, documents)?;
            let bytes: usize = documents.iter().map(|document| document.as_bytes().len()).sum();
            self.note(|status| {
                status.documents_done += documents.len() as u64;
                status.bytes_done += bytes as u64;
            });
            Ok(())
        })
    }
}

fn unreachable_source(error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorCode::HostUnreachable, format!("the sync source does not answer: {error}"))
}

fn with_first(command: &str, namespace: &Namespace, rest: &RawDocument) -> Result<RawDocumentBuf> {
    let mut o = RawDocumentBuf::new();
    o.append(bson::raw::CString::try_from(command)?, namespace.coll());
    for element in rest {
        let (name, value) = element?;
        if name != "ns" {
            o.append(name, value);
        }
    }
    Ok(o)
}

/// The member that is copied.
struct Source(Outgoing);

impl Source {
    fn call(&mut self, command: &RawDocument) -> Result<RawDocumentBuf> {
        let reply = self.0.call(command, TIMEOUT).map_err(|error| unreachable_source(&error))?;
        if !matches!(reply.get_f64("ok"), Ok(ok) if ok == 1.0) {
            let message = reply.get_str("errmsg").unwrap_or("the source refused without saying why");
            return Err(Error::new(ErrorCode(reply.get_i32("code").unwrap_or(1)), message));
        }
        Ok(reply.to_owned())
    }

    fn each_batch(
        &mut self,
        mut command: RawDocumentBuf,
        db: &str,
        coll: &str,
        mut take: impl FnMut(&[&RawDocument]) -> Result<()>,
    ) -> Result<()> {
        command.append(cstr!("$readPreference"), rawdoc! { "mode": "secondaryPreferred" });
        let mut part = "firstBatch";
        loop {
            let reply = self.call(&command)?;
            let cursor = reply.get_document("cursor")?;
            let mut batch = Vec::new();
            for document in cursor.get_array(part)? {
                if let RawBsonRef::Document(document) = document? {
                    batch.push(document);
                }
            }
            take(&batch)?;
            let id = cursor.get_i64("id")?;
            if id == 0 {
                return Ok(());
            }
            command = rawdoc! { "getMore": id, "collection": coll, "$db": db };
            part = "nextBatch";
        }
    }

    fn newest_entry(&mut self) -> Result<RawDocumentBuf> {
        let mut newest = None;
        let find =
            rawdoc! { "find": "oplog.rs", "$db": "local", "sort": { "$natural": -1 }, "limit": 1, "singleBatch": true };
        self.each_batch(find, "local", "oplog.rs", |entries| {
            newest = entries.first().map(|entry| RawDocument::to_owned(entry));
            Ok(())
        })?;
        newest.ok_or_else(|| Error::new(ErrorCode::InitialSyncFailure, "the source has no log"))
    }

    fn collections(&mut self) -> Result<Vec<Listed>> {
        let list = rawdoc! {
            "listDatabases": 1, "nameOnly": true, "$db": "admin", "$readPreference": { "mode": "secondaryPreferred" },
        };
        let reply = self.call(&list)?;
        let mut listed = Vec::new();
        for database in reply.get_array("databases")? {
            let RawBsonRef::Document(database) = database? else { continue };
            let db = database.get_str("name")?;
            if db == "local" {
                continue;
            }
            let list = rawdoc! { "listCollections": 1, "$db": db };
            self.each_batch(list, db, "$cmd.listCollections", |collections| {
                for collection in collections {
                    let name = collection.get_str("name")?;
                    let is_view = matches!(collection.get_str("type"), Ok("view"));
                    if name == "system.profile" || name == "system.views" {
                        continue;
                    }
                    let info = collection.get_document("info").ok();
                    listed.push(Listed {
                        namespace: Namespace::new(db, name)?,
                        uuid: info.and_then(|info| info.get("uuid").ok()?).map(Into::into),
                        options: collection.get_document("options").map(RawDocument::to_owned).unwrap_or_default(),
                        is_view,
                    });
                }
                Ok(())
            })?;
        }
        // A view may be of a collection that comes later in the list.
        listed.sort_by_key(|collection| collection.is_view);
        Ok(listed)
    }

    fn indexes(&mut self, namespace: &Namespace) -> Result<Vec<RawDocumentBuf>> {
        let mut indexes = Vec::new();
        let list = rawdoc! { "listIndexes": namespace.coll(), "$db": namespace.db() };
        self.each_batch(list, namespace.db(), namespace.coll(), |specs| {
            indexes.extend(specs.iter().map(|spec| RawDocument::to_owned(spec)));
            Ok(())
        })?;
        Ok(indexes)
    }

    fn count(&mut self, namespace: &Namespace) -> Result<u64> {
        let count = rawdoc! {
            "count": namespace.coll(), "$db": namespace.db(), "$readPreference": { "mode": "secondaryPreferred" },
        };
        let reply = self.call(&count)?;
        let n = reply.get_i32("n").map(i64::from).or_else(|_| reply.get_i64("n"))?;
        Ok(u64::try_from(n).unwrap_or(0))
    }
}
