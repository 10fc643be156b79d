//! `baton backup URI --out DIR`: everything a set holds, as files.
//!
//! Invariants: DIR appears when the backup is whole and on disk; until then it is `DIR.incomplete`, and after a failure nothing. With the oplog, what
//! DIR holds is the state of one moment, which is printed: the collections were read while they changed, the oplog's
//! entries from before the first to after the last of them lead from there to the moment.
//!
//! What it deliberately does not do: read from a snapshot, which would have the member keep every version for as long as
//! the backup takes.

use super::format::{Metadata, Writer, file_name_of, prelude};
use super::progress::{Progress, megabytes};
use super::{is_of_the_member, is_of_the_server};
use crate::connection::{Connection, accepted};
use crate::status::whole;
use crate::task::{self, Asking, Request};
use crate::topology::{self, Wanted};
use crate::uri::Uri;
use bson::{Bson, Document, RawDocument, Timestamp, doc};
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Batches that are asked for at a time: as many as a link of a tenth of a second there and back needs to be used.
const BATCHES_AHEAD: usize = 8;
/// What a batch is to have, in bytes: the system keeps as much for a connection.
const BATCH_BYTES: u64 = 1 << 20;
/// The code of a cursor that is gone.
const CURSOR_NOT_FOUND: i32 = 43;
/// And in documents, at the most.
const BATCH_DOCUMENTS_MAX: i64 = 100_000;

const EXAMPLES: &str = "\
Examples:
  baton backup mongodb://127.0.0.1:27017 --out dump
      All databases, as of the moment at which the backup ends.
  baton backup mongodb://127.0.0.1:27017 --db shop --collection carts --gzip --out carts
      One collection, compressed; what is written to it meanwhile may be in it or not.
  baton backup 'mongodb://127.0.0.1:27017,127.0.0.1:27018/?replicaSet=rs0&readPreference=secondary' --out dump
      From a secondary, so that the primary has no work of it. Hosts that are down are passed over.

`baton restore` and mongorestore read it (with --oplogReplay for the one moment); mongodump writes the same.";

/// The description of `baton backup`.
pub fn command() -> Command {
    let text = |name: &'static str, short: char, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).short(short).value_name(value).help(help)
    };
    let switch =
        |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    let command = Command::new("backup")
        .about("Save a set's databases in mongodump's directory format, as of one moment")
        .after_help(EXAMPLES)
        .arg(text("out", 'o', "DIR", "Where to; must not be there yet, or be empty").default_value("dump"))
        .arg(text("db", 'd', "DATABASE", "Only this database; then without the oplog"))
        .arg(text("collection", 'c', "COLLECTION", "Only this collection of --db").requires("db"))
        .arg(switch("gzip", "Compress the files"))
        .arg(
            switch("oplog", "Fail if the oplog cannot be saved, too, as it is without being asked for where it can be")
                .conflicts_with_all(["db", "noOplog"]),
        )
        .arg(switch("noOplog", "Leave the oplog out; what is written meanwhile may be in the backup or not"));
    crate::uri_argument::add_to(
        command,
        "mongodb://host:port of a member, or of several; read is the primary, unless it says otherwise",
    )
}

/// Carries it out.
pub fn run(matches: &ArgMatches) -> ExitCode {
    match back_up(matches) {
        Ok(summary) => {
            println!("{summary}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("baton backup: {why}");
            ExitCode::FAILURE
        }
    }
}

/// One collection or view.
struct Listed {
    database: String,
    metadata: Metadata,
}

/// Who waits for longer than this is told so.
const WORTH_TELLING_MS: i64 = 1000;

struct Backup {
    connection: Connection,
    gzip: bool,
    progress: Progress,
}

fn back_up(matches: &ArgMatches) -> Result<String, String> {
    let uri = Uri::parse(&crate::uri_argument::given(matches)?)?;
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let database = one_database(text("db"), uri.database.clone())?;
    if matches.get_flag("oplog") && database.is_some() {
        return Err(
            "--oplog: the oplog is of all databases, and the connection string names one; leave either out".into()
        );
    }
    let out = PathBuf::from(text("out").unwrap_or_default());
    let place = Place::new(&out)?;
    let (mut connection, host, hello) = topology::connect(&uri, Wanted::Reads, "baton backup")?;
    let has_oplog = hello.contains_key("setName");
    if matches.get_flag("oplog") && !has_oplog {
        return Err("--oplog: the member has no oplog, for it belongs to no replica set; leave --oplog out".into());
    }
    let with_oplog = has_oplog && !matches.get_flag("noOplog") && database.is_none();
    let place = place.begin()?;
    announce(&mut connection, &uri, &host, &out)?;
    let mut backup = Backup { connection, gzip: matches.get_flag("gzip"), progress: Progress::new(0) };
    let saved = backup.save_all(&place.unfinished, database, text("collection"), with_oplog);
    let summary = match saved.and_then(|summary| place.finish().map(|()| summary)) {
        Ok(summary) => summary,
        Err(why) => return Err(format!("{host}: {why}")),
    };
    Ok(format!("{summary}\nfrom {host}, in {}", out.display()))
}

/// Tells the member that this connection is a backup, and waits until it may begin: a primary hands leadership over first, if that is
/// worth it. Clients go before it. A member that knows none of that, for it is no Baton or an older one, is saved all the same.
fn announce(connection: &mut Connection, uri: &Uri, host: &str, out: &Path) -> Result<(), String> {
    const COMMAND_NOT_FOUND: Option<i32> = Some(59);
    // Two backups to one place cannot be, but two machines may each have such a place.
    let place: String = out.file_name().unwrap_or_default().to_string_lossy().chars().take(20).collect();
    let name = format!("{place}, process {}", std::process::id());
    // What is little is read before anybody feels it, and waits for nothing. Nothing at all would say that nobody knows how much it is.
    let size = connection.ask("admin", doc! { "listDatabases": 1 })?.get("totalSize").map(|bytes| whole(bytes).max(1));
    let request = Request { kind: "backup".into(), name, expected_bytes: size, expected_secs: None };
    let asking = Asking { program: "baton backup", uri: uri.clone(), host: host.to_owned(), request };
    let reply = asking.ask(connection, None)?;
    if reply.get("code").and_then(Bson::as_i32) == COMMAND_NOT_FOUND {
        return Ok(());
    }
    let begun = accepted(reply).map_err(|why| format!("{host}: {why}"))?;
    if begun.get_i64("waitedMs").unwrap_or_default() >= WORTH_TELLING_MS || begun.get_document("handoff").is_ok() {
        eprintln!("baton backup: {}", task::summary_of(host, &begun));
    }
    if begun.get_str("role").is_ok_and(|role| role == "secondary") {
        // What was primary when it was chosen may have handed leadership over just for this.
        connection.read_in_mode(Some("primaryPreferred"));
    }
    connection.ask("admin", doc! { "batonYieldToClients": 1 }).map(|_| ())
}

/// The database that is meant: `--db`, or the one that the connection string names.
///
/// # Errors
/// If these are two.
pub fn one_database(flag: Option<String>, in_uri: Option<String>) -> Result<Option<String>, String> {
    match (flag, in_uri) {
        (Some(flag), Some(in_uri)) if flag != in_uri => {
            Err(format!("--db says {flag}, and the connection string {in_uri}; name one of them"))
        }
        (flag, in_uri) => Ok(flag.or(in_uri)),
    }
}

/// Where a backup goes, and where it grows until it is whole.
struct Place {
    out: PathBuf,
    unfinished: PathBuf,
}

/// A place that a backup grows in. Dropped before it is finished, it leaves nothing.
struct Growing {
    out: PathBuf,
    unfinished: PathBuf,
    /// Held as long as the backup runs, by which others see that it does.
    _lock: std::fs::File,
    is_finished: bool,
}

impl Place {
    /// Refuses to mix a backup with what is there.
    fn new(out: &Path) -> Result<Self, String> {
        let is_free = match std::fs::read_dir(out) {
            Ok(mut entries) => entries.next().is_none(),
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        };
        if !is_free {
            return Err(format!("{} is there already: choose another --out, or move it away", out.display()));
        }
        let mut name =
            out.file_name().ok_or_else(|| format!("--out {}: names no directory", out.display()))?.to_owned();
        name.push(".incomplete");
        Ok(Self { out: out.to_owned(), unfinished: out.with_file_name(name) })
    }

    /// Makes the directory. What an earlier backup left there that was killed is removed; one that runs is left in peace.
    fn begin(self) -> Result<Growing, String> {
        let path = self.unfinished.display().to_string();
        let failed = |e: std::io::Error| format!("{path}: {e}");
        if self.unfinished.exists() {
            let is_ours = std::fs::read_dir(&self.unfinished).map_err(failed)?.next().is_none()
                || ["prelude.json", "prelude.json.gz"].iter().any(|name| self.unfinished.join(name).exists());
            if !is_ours {
                return Err(format!("{path} is there, and is no backup; move it away, or choose another --out"));
            }
        }
        std::fs::create_dir_all(&self.unfinished).map_err(failed)?;
        let lock = std::fs::File::open(&self.unfinished).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => {
                return Err(format!("{path}: another backup is being written there; choose another --out"));
            }
            Err(std::fs::TryLockError::Error(error)) => return Err(failed(error)),
        }
        for entry in std::fs::read_dir(&self.unfinished).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let is_directory = entry.file_type().map_err(failed)?.is_dir();
            let path = entry.path();
            if is_directory { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }.map_err(failed)?;
        }
        Ok(Growing { out: self.out, unfinished: self.unfinished, _lock: lock, is_finished: false })
    }
}

impl Growing {
    /// Puts the backup in its place.
    fn finish(mut self) -> Result<(), String> {
        let moved = std::fs::rename(&self.unfinished, &self.out).and_then(|()| {
            let above = self.out.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            std::fs::File::open(above)?.sync_all()
        });
        // Whole as it is, it is not removed.
        self.is_finished = true;
        let (from, to) = (self.unfinished.display(), self.out.display());
        moved.map_err(|e| format!("the backup is whole, but could not be moved from {from} to {to}: {e}"))
    }
}

impl Drop for Growing {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = std::fs::remove_dir_all(&self.unfinished);
        }
    }
}

/// How many documents a batch is to have, by how large they have been.
#[derive(Default)]
struct BatchSize {
    documents: u64,
    bytes: u64,
}

impl BatchSize {
    fn seen(&mut self, documents: usize, bytes: usize) {
        self.documents += documents as u64;
        self.bytes += bytes as u64;
    }

    fn documents(&self) -> i64 {
        let of = |bytes: u64| BATCH_BYTES.saturating_mul(self.documents) / bytes.max(1);
        i64::try_from(of(self.bytes)).unwrap_or(i64::MAX).clamp(1, BATCH_DOCUMENTS_MAX)
    }
}

fn create_directory(path: &Path) -> Result<(), String> {
    std::fs::create_dir_all(path).map_err(|e| format!("{}: {e}", path.display()))
}

impl Backup {
    /// Saves what is wanted below a directory, and sums up.
    fn save_all(
        &mut self,
        directory: &Path,
        database: Option<String>,
        collection: Option<String>,
        with_oplog: bool,
    ) -> Result<String, String> {
        let version = self.connection.run(doc! { "buildInfo": 1 })?;
        let suffix = if self.gzip { ".gz" } else { "" };
        let text = prelude(version.get_str("version").unwrap_or("?"));
        self.write_text(&directory.join(format!("prelude.json{suffix}")), &text)?;
        let from = if with_oplog { Some(self.newest_entry()?) } else { None };
        let collections = self.list(database, collection)?;
        self.progress.bytes_total = self.size_of(&collections);
        for listed in &collections {
            self.save(listed, directory)?;
        }
        let mut summary = format!(
            "saved {} collections and views: {} documents, {} in {:.1} s",
            collections.len(),
            self.progress.documents,
            megabytes(self.progress.bytes),
            self.progress.seconds()
        );
        if let Some(from) = from {
            let (moment, count) = self.save_oplog(&directory.join("oplog.bson"), from)?;
            summary += &format!(
                "\nand {count} entries of the oplog: with --oplogReplay it is the state of {}:{}",
                moment.time, moment.increment
            );
        }
        Ok(summary)
    }

    fn write_text(&self, path: &Path, text: &str) -> Result<(), String> {
        let mut file = Writer::create(path, self.gzip)?;
        file.write(text.as_bytes())?;
        file.finish()
    }

    /// Hands every document of a cursor to `each`, batch by batch. If this fails, the connection is of no more use.
    ///
    /// Some batches are asked for ahead, of a size that fits into what the system keeps for the connection: so the member reads on while one is on
    /// its way and is written down. Who has asked for more than there was is told that there is no such cursor.
    fn for_each(
        &mut self,
        database: &str,
        command: Document,
        mut each: impl FnMut(&RawDocument, &mut Progress) -> Result<(), String>,
    ) -> Result<(), String> {
        let (mut buffer, mut batch) = (Vec::new(), BatchSize::default());
        let mut what = command.keys().next().cloned().unwrap_or_default();
        self.connection.send(database, command, None)?;
        let (mut asked, mut is_over) = (1, false);
        while asked > 0 {
            let reply = self.connection.receive(&mut buffer)?;
            asked -= 1;
            // What comes after the last batch; anything else, that the task is to end, say, is told as elsewhere.
            if is_over && matches!(reply.get_i32("code"), Ok(CURSOR_NOT_FOUND)) {
                continue;
            }
            let refused = |e: bson::error::Error| format!("{what} on {database}: an answer that makes no sense: {e}");
            if !matches!(reply.get("ok"), Ok(Some(ok)) if ok.as_f64() == Some(1.0)) {
                let why = reply.get_str("errmsg").unwrap_or("refused without a reason");
                return Err(format!("{what} on {database}: {why}"));
            }
            let cursor = reply.get_document("cursor").map_err(refused)?;
            let documents =
                cursor.get_array("firstBatch").or_else(|_| cursor.get_array("nextBatch")).map_err(refused)?;
            batch.seen(documents.into_iter().count(), documents.as_bytes().len());
            let id = cursor.get_i64("id").map_err(refused)?;
            is_over = id == 0;
            while !is_over && asked < BATCHES_AHEAD {
                let namespace = cursor.get_str("ns").unwrap_or_default();
                let collection = namespace.split_once('.').map_or(namespace, |(_, collection)| collection);
                let more = doc! { "getMore": id, "collection": collection, "batchSize": batch.documents() };
                self.connection.send(database, more, None)?;
                asked += 1;
            }
            for document in documents {
                let document = document.map_err(refused)?;
                each(document.as_document().ok_or("a batch of something else than documents")?, &mut self.progress)?;
            }
            what = "getMore".to_owned();
        }
        Ok(())
    }

    fn documents(&mut self, database: &str, command: Document) -> Result<Vec<Document>, String> {
        let mut all = Vec::new();
        self.for_each(database, command, |document, _| {
            all.push(Document::try_from(document).map_err(|e| e.to_string())?);
            Ok(())
        })?;
        Ok(all)
    }

    /// All collections and views that are wanted, with what the dump says about them.
    fn list(&mut self, database: Option<String>, collection: Option<String>) -> Result<Vec<Listed>, String> {
        let databases = match &database {
            Some(database) => vec![database.clone()],
            None => {
                let reply = self.connection.run(doc! { "listDatabases": 1, "nameOnly": true })?;
                let all = reply.get_array("databases").map(Vec::as_slice).unwrap_or_default().iter();
                let names = all.filter_map(|entry| entry.as_document()?.get_str("name").ok());
                names.filter(|name| !is_of_the_member(name)).map(str::to_owned).collect()
            }
        };
        let mut all = Vec::new();
        for name in databases {
            let filter = collection.as_ref().map_or_else(Document::new, |only| doc! { "name": only });
            for entry in self.documents(&name, doc! { "listCollections": 1, "filter": filter })? {
                let collection = entry.get_str("name").unwrap_or_default().to_owned();
                if !is_of_the_server(&collection) {
                    all.push(self.describe(&name, collection, &entry)?);
                }
            }
        }
        if all.is_empty() && (database.is_some() || collection.is_some()) {
            let what = [database, collection].into_iter().flatten().collect::<Vec<_>>().join(".");
            return Err(format!(
                "there is nothing in {what}; `show dbs` and `show collections` in mongosh list what is"
            ));
        }
        all.sort_by(|a, b| (&a.database, &a.metadata.collection).cmp(&(&b.database, &b.metadata.collection)));
        Ok(all)
    }

    fn describe(&mut self, database: &str, collection: String, entry: &Document) -> Result<Listed, String> {
        let mut metadata = Metadata {
            options: entry.get_document("options").cloned().unwrap_or_default(),
            kind: entry.get_str("type").unwrap_or("collection").to_owned(),
            collection,
            ..Metadata::default()
        };
        if let Some(Bson::Binary(uuid)) = entry.get_document("info").ok().and_then(|info| info.get("uuid")) {
            metadata.uuid = Some(uuid.bytes.iter().map(|byte| format!("{byte:02x}")).collect());
        }
        if !metadata.is_view() {
            metadata.indexes = self.documents(database, doc! { "listIndexes": &metadata.collection })?;
        }
        Ok(Listed { database: database.to_owned(), metadata })
    }

    /// How many bytes there are, about: for the progress line alone.
    fn size_of(&mut self, collections: &[Listed]) -> u64 {
        let mut sum = 0.0;
        for Listed { database, metadata } in collections.iter().filter(|listed| !listed.metadata.is_view()) {
            if let Ok(stats) = self.connection.run_on(database, doc! { "collStats": &metadata.collection }) {
                sum += match stats.get("size") {
                    Some(Bson::Int32(n)) => f64::from(*n),
                    Some(Bson::Int64(n)) => *n as f64,
                    Some(Bson::Double(n)) => *n,
                    _ => 0.0,
                };
            }
        }
        sum as u64
    }

    /// Writes a collection's metadata and documents; of a view, which has none, the metadata.
    fn save(&mut self, listed: &Listed, directory: &Path) -> Result<(), String> {
        let Listed { database, metadata } = listed;
        let directory = directory.join(database);
        create_directory(&directory)?;
        let suffix = if self.gzip { ".gz" } else { "" };
        let name = file_name_of(&metadata.collection);
        self.write_text(&directory.join(format!("{name}.metadata.json{suffix}")), &metadata.to_json())?;
        if metadata.is_view() {
            return Ok(());
        }
        let mut file = Writer::create(&directory.join(format!("{name}.bson{suffix}")), self.gzip)?;
        let what = format!("{database}.{}", metadata.collection);
        let find = doc! { "find": &metadata.collection, "noCursorTimeout": true };
        self.for_each(database, find, |document, progress| {
            file.write(document.as_bytes())?;
            progress.documents += 1;
            progress.bytes += document.as_bytes().len() as u64;
            progress.show(&what);
            Ok(())
        })?;
        file.finish()
    }

    fn entry_at(&mut self, end: i32) -> Result<Timestamp, String> {
        let find = doc! { "find": "oplog.rs", "sort": { "$natural": end }, "limit": 1, "singleBatch": true };
        let found = self.documents("local", find)?;
        found.first().and_then(|entry| entry.get_timestamp("ts").ok()).ok_or_else(|| "the oplog is empty".to_owned())
    }

    fn newest_entry(&mut self) -> Result<Timestamp, String> {
        self.entry_at(-1)
    }

    /// Writes the oplog from `from` to now; gives the moment that is now, and how many entries there were.
    fn save_oplog(&mut self, path: &Path, from: Timestamp) -> Result<(Timestamp, u64), String> {
        let moment = self.newest_entry()?;
        let mut file = Writer::create(path, self.gzip)?;
        let mut count = 0;
        let find = doc! { "find": "oplog.rs", "filter": { "ts": { "$gte": from, "$lte": moment } } };
        self.for_each("local", find, |entry, progress| {
            if entry.get_document("o").is_ok_and(|o| matches!(o.get("renameCollection"), Ok(Some(_)))) {
                return Err("a collection was renamed meanwhile, so the files and the oplog do not go together; \
                            run the backup again"
                    .into());
            }
            count += 1;
            progress.show("oplog");
            file.write(entry.as_bytes())
        })?;
        file.finish()?;
        // Asked last: what was there at the end was there all the time.
        let oldest = self.entry_at(1)?;
        if (oldest.time, oldest.increment) > (from.time, from.increment) {
            return Err(
                "the oplog was truncated while the backup ran, so that its beginning is missing: give the member \
                        a larger --oplogSize, or run the backup when less is written"
                    .into(),
            );
        }
        Ok((moment, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_as_many_documents_as_make_its_size() {
        let of = |documents: usize, bytes_each: usize| {
            let mut batch = BatchSize::default();
            batch.seen(documents, documents * bytes_each);
            batch.documents()
        };
        assert_eq!(of(101, 1 << 10), 1024);
        assert_eq!(of(1, 16 << 20), 1, "one at least");
        assert_eq!(of(101, 5), BATCH_DOCUMENTS_MAX);
    }

    #[test]
    fn a_backup_does_not_mix_with_what_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path().join("dump");
        assert_eq!(Place::new(&out).unwrap().unfinished, directory.path().join("dump.incomplete"));
        std::fs::create_dir(&out).unwrap();
        assert!(Place::new(&out).is_ok(), "an empty directory may be filled");
        std::fs::write(out.join("x"), "").unwrap();
        assert!(Place::new(&out).err().unwrap().contains("choose another --out"));
    }

    #[test]
    fn a_backup_that_failed_leaves_nothing_and_one_that_was_killed_is_begun_anew() {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path().join("dump");
        let unfinished = directory.path().join("dump.incomplete");
        let begin = || Place::new(&out).unwrap().begin();
        // It failed.
        drop(begin().unwrap());
        assert!(!unfinished.exists());
        // It was killed, in the middle of a file.
        std::fs::create_dir_all(unfinished.join("shop")).unwrap();
        std::fs::write(unfinished.join("prelude.json"), "{}").unwrap();
        std::fs::write(unfinished.join("shop/carts.bson"), "half").unwrap();
        let growing = begin().unwrap();
        assert_eq!(std::fs::read_dir(&unfinished).unwrap().count(), 0);
        // It runs.
        assert!(begin().err().unwrap().contains("another backup is being written there"));
        growing.finish().unwrap();
        assert!(out.exists() && !unfinished.exists());
        // What is no backup is nobody's to remove.
        std::fs::remove_dir(&out).unwrap();
        std::fs::create_dir(&unfinished).unwrap();
        std::fs::write(unfinished.join("diary"), "").unwrap();
        assert!(begin().err().unwrap().contains("is no backup"));
        assert!(unfinished.join("diary").exists());
    }

    #[test]
    fn the_database_is_named_by_the_flag_or_by_the_connection_string() {
        let name = |text: &str| Some(text.to_owned());
        assert_eq!(one_database(None, None).unwrap(), None);
        assert_eq!(one_database(name("a"), name("a")).unwrap(), name("a"));
        assert_eq!(one_database(None, name("a")).unwrap(), name("a"));
        assert!(one_database(name("a"), name("b")).is_err());
    }

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }
}
