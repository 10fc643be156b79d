//! The member that is copied: what is asked of it, and what becomes of a question when the connection is lost.
//!
//! Invariant: what is asked again may have been answered before: only questions are asked, nothing is changed.

use super::status::CollectionProgress;
use baton_net::{Closer, Outgoing};
use baton_storage::optime_of;
use baton_types::{Error, ErrorCode, Namespace, OpTime, Result};
use bson::raw::cstr;
use bson::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use std::time::{Duration, Instant};

/// How long the source may take for one answer.
const TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a source that does not answer is tried again, before another attempt is made, perhaps with another.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two tries.
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// A collection of the source.
pub(super) struct Listed {
    pub namespace: Namespace,
    pub uuid: Option<RawBson>,
    pub options: RawDocumentBuf,
    pub is_view: bool,
}

impl Listed {
    /// What commands about it name: its UUID, which a rename does not change.
    pub fn named(&self) -> RawBson {
        self.uuid.clone().unwrap_or_else(|| RawBson::String(self.namespace.coll().to_owned()))
    }

    pub fn is_capped(&self) -> bool {
        matches!(self.options.get("capped"), Ok(Some(RawBsonRef::Boolean(true))))
    }
}

/// Whom a source tells of itself.
pub(super) struct Line<'a> {
    pub host: &'a str,
    /// Whether nobody wants an answer any more.
    pub interrupted: &'a (dyn Fn() -> bool + Sync),
    /// Hears of every connection, so that it can be closed under who waits for it.
    pub opened: &'a (dyn Fn(Closer) + Sync),
    /// Hears of every question that is asked again.
    pub retried: &'a (dyn Fn() + Sync),
    /// The source is told that what this asks of it is to yield to its clients.
    pub in_background: bool,
}

/// See the file's header.
pub(super) struct Source<'a> {
    connection: Outgoing,
    line: &'a Line<'a>,
    /// Whether the source is to show this connection as one that copies it.
    clones: bool,
}

pub(super) fn unreachable_source(error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorCode::HostUnreachable, format!("the sync source does not answer: {error}"))
}

/// Whether the same question may be answered if it is asked again.
pub(super) fn is_transient(error: &Error) -> bool {
    matches!(
        error.code,
        ErrorCode::HostUnreachable
            | ErrorCode::NetworkTimeout
            | ErrorCode::CursorNotFound
            | ErrorCode::QueryPlanKilled
            | ErrorCode::ShutdownInProgress
            | ErrorCode::InterruptedAtShutdown
            | ErrorCode::InterruptedDueToReplStateChange
            | ErrorCode::NotPrimaryOrSecondary
    )
}

pub(super) fn connect(line: &Line<'_>) -> Result<Outgoing> {
    let mut connection = Outgoing::connect(line.host, CONNECT_TIMEOUT).map_err(|error| unreachable_source(&error))?;
    (line.opened)(connection.closer());
    if line.in_background {
        // A member of an older version, which does not know this, answers as it does to others.
        let yields = rawdoc! { "batonYieldToClients": 1, "$db": "admin" };
        connection.call(&yields, TIMEOUT).map_err(|error| unreachable_source(&error))?;
    }
    Ok(connection)
}

impl<'a> Source<'a> {
    pub fn connect(line: &'a Line<'a>) -> Result<Self> {
        Ok(Self { connection: connect(line)?, line, clones: false })
    }

    /// Connects, and has the source show that it is copied.
    pub fn connect_to_clone(line: &'a Line<'a>) -> Result<Self> {
        let mut source = Self { clones: true, ..Self::connect(line)? };
        source.announce()?;
        Ok(source)
    }

    fn announce(&mut self) -> Result<()> {
        if self.clones && self.line.in_background {
            // As above: a member of an older version refuses, and is copied all the same.
            let command =
                rawdoc! { "batonYieldToClients": 1, "task": "initialSyncSource", "of": "all", "$db": "admin" };
            self.connection.call(&command, TIMEOUT).map_err(|error| unreachable_source(&error))?;
        }
        Ok(())
    }

    /// Connects anew, and tries that for a while.
    pub fn reconnect(&mut self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        (self.line.retried)();
        loop {
            if (self.line.interrupted)() {
                return Err(Error::new(ErrorCode::InitialSyncFailure, "there is another sync source now"));
            }
            std::thread::sleep(TRY_AGAIN);
            // A process that starts listens before it has its configuration.
            let answers = connect(self.line).and_then(|connection| {
                self.connection = connection;
                self.announce()?;
                self.ask(&rawdoc! { "replSetGetRBID": 1, "$db": "admin" })
            });
            match answers {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() >= deadline => return Err(error),
                Err(_) => {}
            }
        }
    }

    pub fn ask(&mut self, command: &RawDocument) -> Result<RawDocumentBuf> {
        let reply = self.connection.call(command, TIMEOUT).map_err(|error| unreachable_source(&error))?;
        if !matches!(reply.get_f64("ok"), Ok(ok) if ok == 1.0) {
            let message = reply.get_str("errmsg").unwrap_or("the source refused without saying why");
            return Err(Error::new(ErrorCode(reply.get_i32("code").unwrap_or(1)), message));
        }
        Ok(reply)
    }

    /// Asks, and asks again if the connection was lost.
    pub fn call(&mut self, command: &RawDocument) -> Result<RawDocumentBuf> {
        match self.ask(command) {
            Err(error) if is_transient(&error) => {
                self.reconnect()?;
                self.ask(command)
            }
            answer => answer,
        }
    }

    /// Hands every batch of a cursor on. Ends with the first error: only who reads knows where to go on.
    pub fn each_batch(
        &mut self,
        mut command: RawDocumentBuf,
        mut take: impl FnMut(&[&RawDocument]) -> Result<()>,
    ) -> Result<()> {
        command.append(cstr!("$readPreference"), rawdoc! { "mode": "secondaryPreferred" });
        let mut part = "firstBatch";
        loop {
            let reply = self.ask(&command)?;
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
            let namespace = Namespace::parse(cursor.get_str("ns")?)?;
            command = rawdoc! { "getMore": id, "collection": namespace.coll(), "$db": namespace.db() };
            part = "nextBatch";
        }
    }

    pub fn rollback_id(&mut self) -> Result<i32> {
        Ok(self.call(&rawdoc! { "replSetGetRBID": 1, "$db": "admin" })?.get_i32("rbid")?)
    }

    /// The size of all it has.
    pub fn bytes(&mut self) -> Result<u64> {
        let list = rawdoc! {
            "listDatabases": 1, "$db": "admin", "$readPreference": { "mode": "secondaryPreferred" },
        };
        let reply = self.call(&list)?;
        Ok(match reply.get("totalSize")? {
            Some(RawBsonRef::Int32(n)) => u64::try_from(n).unwrap_or(0),
            Some(RawBsonRef::Int64(n)) => u64::try_from(n).unwrap_or(0),
            Some(RawBsonRef::Double(n)) => n as u64,
            _ => 0,
        })
    }

    pub fn newest_entry(&mut self) -> Result<RawDocumentBuf> {
        let find = rawdoc! {
            "find": "oplog.rs", "$db": "local", "sort": { "$natural": -1 }, "limit": 1, "singleBatch": true,
            "$readPreference": { "mode": "secondaryPreferred" },
        };
        let reply = self.call(&find)?;
        let newest = reply.get_document("cursor")?.get_array("firstBatch")?.into_iter().next().transpose()?;
        let newest = newest.and_then(RawBsonRef::as_document).map(RawDocument::to_owned);
        newest.ok_or_else(|| Error::new(ErrorCode::InitialSyncFailure, "the source has no log"))
    }

    pub fn newest_optime(&mut self) -> Result<OpTime> {
        let newest = self.newest_entry()?;
        optime_of(&newest).ok_or_else(|| Error::failed_to_parse("the source's newest entry has no OpTime"))
    }

    /// Every collection and view that belongs to the set.
    pub fn collections(&mut self) -> Result<Vec<Listed>> {
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
            self.each_batch(rawdoc! { "listCollections": 1, "$db": db }, |collections| {
                for collection in collections {
                    let name = collection.get_str("name")?;
                    if name == "system.profile" || name == "system.views" {
                        continue;
                    }
                    let info = collection.get_document("info").ok();
                    listed.push(Listed {
                        namespace: Namespace::new(db, name)?,
                        uuid: info.and_then(|info| info.get("uuid").ok()?).map(Into::into),
                        options: collection.get_document("options").map(RawDocument::to_owned).unwrap_or_default(),
                        is_view: matches!(collection.get_str("type"), Ok("view")),
                    });
                }
                Ok(())
            })?;
        }
        Ok(listed)
    }

    /// The indexes of a collection, but for that on `_id`, as the rest of the commands by which their copy begins: those that are
    /// complete, and those that a build of the set makes, which is to be begun here too. One that is built otherwise has its entry
    /// to come.
    pub fn indexes(&mut self, listed: &Listed) -> Result<Vec<(&'static str, RawDocumentBuf)>> {
        let mut indexes = Vec::new();
        let mut builds: Vec<(RawDocumentBuf, RawArrayBuf)> = Vec::new();
        let list = rawdoc! {
            "listIndexes": listed.named(), "includeIndexBuildInfo": true, "$db": listed.namespace.db(),
            "cursor": {}, "$readPreference": { "mode": "secondaryPreferred" },
        };
        let reply = self.call(&list)?;
        for index in reply.get_document("cursor")?.get_array("firstBatch")? {
            let RawBsonRef::Document(index) = index? else { continue };
            let spec = index.get_document("spec")?;
            match index.get("indexBuildInfo")?.and_then(RawBsonRef::as_document) {
                None if matches!(spec.get_str("name"), Ok("_id_")) => {}
                None => indexes.push(("createIndexes", spec.to_owned())),
                Some(info) => {
                    let Some(uuid) = info.get("buildUUID")? else { continue };
                    let mut build = RawDocumentBuf::new();
                    build.append(cstr!("indexBuildUUID"), uuid);
                    if let Some(quorum) = info.get("commitQuorum")? {
                        build.append(cstr!("commitQuorum"), quorum);
                    }
                    match builds.iter_mut().find(|(known, _)| *known == build) {
                        Some((_, specs)) => specs.push(spec.to_owned()),
                        None => {
                            let mut specs = RawArrayBuf::new();
                            specs.push(spec.to_owned());
                            builds.push((build, specs));
                        }
                    }
                }
            }
        }
        for (mut build, specs) in builds {
            build.append(cstr!("indexes"), specs);
            indexes.push(("startIndexBuild", build));
        }
        Ok(indexes)
    }

    /// Adds how much there is of a collection.
    pub fn measure(&mut self, listed: &Listed, progress: &mut CollectionProgress) -> Result<()> {
        let ask = rawdoc! {
            "collStats": listed.named(), "$db": listed.namespace.db(),
            "$readPreference": { "mode": "secondaryPreferred" },
        };
        let reply = match self.call(&ask) {
            Err(error) if error.code == ErrorCode::NamespaceNotFound => return Ok(()),
            reply => reply?,
        };
        let number = |name: &str| match reply.get(name) {
            Ok(Some(RawBsonRef::Int32(n))) => u64::try_from(n).unwrap_or(0),
            Ok(Some(RawBsonRef::Int64(n))) => u64::try_from(n).unwrap_or(0),
            Ok(Some(RawBsonRef::Double(n))) => n as u64,
            _ => 0,
        };
        progress.documents = number("count");
        progress.bytes = number("size");
        progress.indexes = number("nindexes") as u32;
        Ok(())
    }
}
