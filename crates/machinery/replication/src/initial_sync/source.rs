//! The member that is copied: how it is reached, and what is asked of it.
//!
//! Invariant: what is asked may have been answered before: only questions are asked, nothing is changed.
//!
//! What it deliberately does not do: ask again when the connection is lost, which the machine decides (`baton_following`).

use super::status::CollectionProgress;
use baton_following::{Fault, FaultKind};
use baton_net::{Closer, Outgoing};
use baton_types::{Error, ErrorCode, Namespace, Result};
use bson::raw::cstr;
use bson::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use std::time::Duration;

/// How long the source may take for one answer.
const TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

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

/// How a source is reached.
#[derive(Clone, Copy)]
pub(super) struct Line<'a> {
    pub host: &'a str,
    /// Hears of every connection, so that it can be closed under who waits for it.
    pub opened: &'a dyn Fn(Closer),
    /// The source is told that what this asks of it is to yield to its clients.
    pub in_background: bool,
    /// Whether the source is to show this connection as one that copies it.
    pub clones: bool,
}

/// See the file's header.
pub(super) struct Source {
    connection: Outgoing,
    /// A cursor's next batch was asked for, and nobody has waited for it yet.
    is_ahead: bool,
}

pub(super) fn unreachable_source(error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorCode::HostUnreachable, format!("the sync source does not answer: {error}"))
}

/// What the machine is to hear of an error.
pub(super) fn fault(error: &Error) -> Fault {
    let kind = match error.code {
        ErrorCode::HostUnreachable
        | ErrorCode::NetworkTimeout
        | ErrorCode::QueryPlanKilled
        | ErrorCode::ShutdownInProgress
        | ErrorCode::InterruptedAtShutdown
        | ErrorCode::InterruptedDueToReplStateChange
        | ErrorCode::NotPrimaryOrSecondary => FaultKind::Lost,
        ErrorCode::CursorNotFound => FaultKind::Forgotten,
        ErrorCode::NamespaceNotFound => FaultKind::Gone,
        _ => FaultKind::Other,
    };
    Fault { kind, reason: error.message.to_string() }
}

pub(super) fn connect(line: &Line<'_>) -> Result<Outgoing> {
    let mut connection = Outgoing::connect(line.host, CONNECT_TIMEOUT).map_err(|error| unreachable_source(&error))?;
    (line.opened)(connection.closer());
    // A member of an older version, which does not know this, answers as it does to others.
    let yields = rawdoc! { "batonYieldToClients": 1, "$db": "admin" };
    let copies = rawdoc! { "batonYieldToClients": 1, "task": "initialSyncSource", "of": "all", "$db": "admin" };
    let commands = [(line.in_background, yields), (line.in_background && line.clones, copies)];
    for (_, command) in commands.iter().filter(|(is_wanted, _)| *is_wanted) {
        connection.call(command, TIMEOUT).map_err(|error| unreachable_source(&error))?;
    }
    Ok(connection)
}

fn checked(reply: RawDocumentBuf) -> Result<RawDocumentBuf> {
    if !matches!(reply.get_f64("ok"), Ok(ok) if ok == 1.0) {
        let message = reply.get_str("errmsg").unwrap_or("the source refused without saying why");
        return Err(Error::new(ErrorCode(reply.get_i32("code").unwrap_or(1)), message));
    }
    Ok(reply)
}

/// One batch of a cursor's documents.
pub(super) struct Batch(RawDocumentBuf);

impl Batch {
    fn cursor(&self) -> Result<&RawDocument> {
        Ok(self.0.get_document("cursor")?)
    }

    pub fn documents(&self) -> Result<Vec<&RawDocument>> {
        let cursor = self.cursor()?;
        let batch = cursor.get_array("firstBatch").or_else(|_| cursor.get_array("nextBatch"))?;
        let mut documents = Vec::new();
        for document in batch {
            if let RawBsonRef::Document(document) = document? {
                documents.push(document);
            }
        }
        Ok(documents)
    }

    /// The command for the next one, if there is one.
    pub fn next(&self) -> Result<Option<RawDocumentBuf>> {
        let cursor = self.cursor()?;
        let id = cursor.get_i64("id")?;
        if id == 0 {
            return Ok(None);
        }
        let namespace = Namespace::parse(cursor.get_str("ns")?)?;
        Ok(Some(rawdoc! { "getMore": id, "collection": namespace.coll(), "$db": namespace.db() }))
    }
}

impl Source {
    pub fn connect(line: &Line<'_>) -> Result<Self> {
        Ok(Self { connection: connect(line)?, is_ahead: false })
    }

    /// Connects anew.
    pub fn reconnect(line: &Line<'_>) -> Result<Self> {
        let mut source = Self::connect(line)?;
        // A process that starts listens before it has its configuration.
        source.rollback_id()?;
        Ok(source)
    }

    pub fn ask(&mut self, command: &RawDocument) -> Result<RawDocumentBuf> {
        if std::mem::take(&mut self.is_ahead) {
            // Nobody takes that any more, whatever it is.
            self.connection.answer(TIMEOUT).map_err(|error| unreachable_source(&error))?;
        }
        let reply = self.connection.call(command, TIMEOUT).map_err(|error| unreachable_source(&error))?;
        checked(reply)
    }

    /// The first batch of what a command gives.
    pub fn first_batch(&mut self, mut command: RawDocumentBuf) -> Result<Batch> {
        command.append(cstr!("$readPreference"), rawdoc! { "mode": "secondaryPreferred" });
        Ok(Batch(self.ask(&command)?))
    }

    /// Asks for a cursor's next batch: the source reads it while this member writes the one before.
    pub fn ask_ahead(&mut self, next: &RawDocument) -> Result<()> {
        self.connection.ask(next, TIMEOUT).map_err(|error| unreachable_source(&error))?;
        self.is_ahead = true;
        Ok(())
    }

    /// The batch that was asked for ahead, if one was.
    pub fn next_batch(&mut self) -> Result<Option<Batch>> {
        if !std::mem::take(&mut self.is_ahead) {
            return Ok(None);
        }
        let reply = self.connection.answer(TIMEOUT).map_err(|error| unreachable_source(&error))?;
        Ok(Some(Batch(checked(reply)?)))
    }

    /// Hands every batch of a cursor on. Ends with the first error: only who reads knows where to go on.
    pub fn each_batch(
        &mut self,
        command: RawDocumentBuf,
        mut take: impl FnMut(&[&RawDocument]) -> Result<()>,
    ) -> Result<()> {
        let mut batch = Some(self.first_batch(command)?);
        while let Some(present) = batch {
            if let Some(next) = present.next()? {
                self.ask_ahead(&next)?;
            }
            take(&present.documents()?)?;
            batch = self.next_batch()?;
        }
        Ok(())
    }

    pub fn rollback_id(&mut self) -> Result<i32> {
        Ok(self.ask(&rawdoc! { "replSetGetRBID": 1, "$db": "admin" })?.get_i32("rbid")?)
    }

    /// The size of all it has.
    pub fn bytes(&mut self) -> Result<u64> {
        let list = rawdoc! {
            "listDatabases": 1, "$db": "admin", "$readPreference": { "mode": "secondaryPreferred" },
        };
        let reply = self.ask(&list)?;
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
        let reply = self.ask(&find)?;
        let newest = reply.get_document("cursor")?.get_array("firstBatch")?.into_iter().next().transpose()?;
        let newest = newest.and_then(RawBsonRef::as_document).map(RawDocument::to_owned);
        newest.ok_or_else(|| Error::new(ErrorCode::InitialSyncFailure, "the source has no log"))
    }

    /// Every collection and view that belongs to the set.
    pub fn collections(&mut self) -> Result<Vec<Listed>> {
        let list = rawdoc! {
            "listDatabases": 1, "nameOnly": true, "$db": "admin", "$readPreference": { "mode": "secondaryPreferred" },
        };
        let reply = self.ask(&list)?;
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
        let reply = self.ask(&list)?;
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
        let reply = self.ask(&ask)?;
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
