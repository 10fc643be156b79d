//! `baton restore URI DIR`: the files of a dump, into a member.
//!
//! In order: collections and views are created with their options, their documents inserted; with `--oplogReplay` the
//! oplog is applied; then indexes are built. A document whose `_id` is there stays as it is there, and is counted.
//!
//! What it deliberately does not do: keep UUIDs (the member gives its own), have documents validated or their empty
//! timestamps filled (what was in the collection belongs into it, as it was), remove what the dump does not know.

use super::format::{Documents, Metadata, collection_of, read_text};
use super::oplog::{Indexes, Replay, decide, time_of};
use super::progress::{Progress, megabytes};
use super::{is_of_the_member, is_of_the_server};
use crate::connection::{Connection, accepted};
use crate::topology::{self, Wanted};
use crate::uri::Uri;
use crate::uri_argument;
use bson::{Bson, Document, RawDocumentBuf, Timestamp, doc};
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

const EXAMPLES: &str = "\
Examples:
  baton restore mongodb://127.0.0.1:27017 dump --drop --oplogReplay
      Everything as it was at the moment of the backup; collections that are there are dropped first.
  baton restore mongodb://127.0.0.1:27017 dump --db shop --collection carts
      One collection of a dump.
  baton restore mongodb://127.0.0.1:27017 dump/shop --db shop2
      A database's directory, under another name.";

const APP_NAME: &str = "baton restore";
/// Documents in one insert, unless they are large.
const BATCH_DOCUMENTS: usize = 1000;
/// Bytes from which on an insert is sent.
const BATCH_BYTES: usize = 4 << 20;
const NAMESPACE_EXISTS: i32 = 48;
const NAMESPACE_NOT_FOUND: i32 = 26;
const DUPLICATE_KEY: i32 = 11000;

/// The description of `baton restore`.
pub fn command() -> Command {
    let text = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    let switch =
        |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    let command =
        Command::new("restore").about("Bring back what `baton backup` or mongodump saved").after_help(EXAMPLES);
    // The connection string first: both are told by their places.
    let command =
        uri_argument::add_to(command, "mongodb://host:port of a member, or of several; written to is the primary");
    command
        .arg(Arg::new("dir").value_name("DIR").help("The dump, or one database's directory of it [default: dump]"))
        .arg(text("dir-flag", "DIR", "The same as the second argument").long("dir"))
        .arg(
            text("db", "DATABASE", "Only this database; or, if DIR is a database's directory, the name to give it")
                .short('d'),
        )
        .arg(text("collection", "COLLECTION", "Only this collection of --db").short('c').requires("db"))
        .arg(switch("drop", "Drop each collection of the dump before restoring it"))
        .arg(switch("oplogReplay", "Replay oplog.bson, for the state of the one moment").conflicts_with("db"))
        .arg(
            text("oplogLimit", "SECONDS[:ORDINAL]", "Replay only what was written before this time")
                .requires("oplogReplay")
                .value_parser(parse_limit),
        )
        .arg(switch("gzip", "The files are compressed (it is seen by their names, too)"))
        .arg(switch("noIndexRestore", "Build no indexes"))
        .arg(
            text("numInsertionWorkersPerCollection", "COUNT", "Connections that insert at once [default: 4]")
                .value_parser(clap::value_parser!(u16).range(1..=64)),
        )
}

/// Carries it out: exit code 0, or 1 if anything could not be restored.
pub fn run(matches: &ArgMatches) -> ExitCode {
    match restore(matches) {
        Ok((summary, 0)) => {
            println!("{summary}");
            ExitCode::SUCCESS
        }
        Ok((summary, _)) => {
            println!("{summary}");
            ExitCode::FAILURE
        }
        Err(why) => {
            eprintln!("baton restore: {why}");
            ExitCode::FAILURE
        }
    }
}

fn parse_limit(text: &str) -> Result<Timestamp, String> {
    let (seconds, ordinal) = text.split_once(':').unwrap_or((text, "0"));
    let number = |part: &str| part.parse().map_err(|_| format!("'{text}' is not SECONDS or SECONDS:ORDINAL"));
    Ok(Timestamp { time: number(seconds)?, increment: number(ordinal)? })
}

/// One collection or view of the dump.
#[derive(Debug)]
struct Source {
    database: String,
    /// Of a file without metadata, only the name is known.
    metadata: Metadata,
    has_metadata: bool,
    documents: Option<PathBuf>,
    bytes: u64,
}

/// What became of the documents.
#[derive(Default)]
struct Count {
    inserted: AtomicU64,
    there_already: AtomicU64,
    failed: AtomicU64,
}

struct Restore {
    uri: Uri,
    /// The member that is written to.
    host: String,
    connection: Connection,
    gzip: bool,
    drop: bool,
    workers: usize,
    count: Count,
    /// Bytes read of the files, as they lie on disk.
    read: Arc<AtomicU64>,
    progress: Progress,
    indexes: Indexes,
}

/// What the command line names: the set, and what of which dump.
struct Order {
    uri: Uri,
    directory: PathBuf,
    database: Option<String>,
    collection: Option<String>,
    gzip: bool,
}

fn order(matches: &ArgMatches) -> Result<Order, String> {
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    // With --uri the first place is the dump's.
    let (uri, directory) = match text(uri_argument::FLAG) {
        Some(uri) if text("dir").is_none() => (uri, text(uri_argument::FIRST)),
        Some(_) => return Err("--uri beside a connection string: one is enough".into()),
        None => (uri_argument::given(matches)?, text("dir")),
    };
    if directory.is_some() && text("dir-flag").is_some() {
        return Err("--dir beside a directory: one is enough".into());
    }
    let directory = directory.or_else(|| text("dir-flag"));
    let uri = Uri::parse(&uri)?;
    let directory = PathBuf::from(directory.unwrap_or_else(|| "dump".into()));
    let database = super::backup::one_database(text("db"), uri.database.clone())?;
    if matches.get_flag("oplogReplay") && database.is_some() {
        return Err("--oplogReplay: the oplog is of all databases, and one is named; leave either out".into());
    }
    let gzip = matches.get_flag("gzip") || directory.join("prelude.json.gz").exists();
    Ok(Order { uri, directory, database, collection: text("collection"), gzip })
}

fn restore(matches: &ArgMatches) -> Result<(String, u64), String> {
    let Order { uri, directory, database, collection, gzip } = order(matches)?;
    let sources = sources_in(&directory, gzip, database.as_deref(), collection.as_deref())?;
    let (connection, host, _) = topology::connect(&uri, Wanted::Writes, APP_NAME)?;
    let mut restore = Restore {
        uri,
        host,
        connection,
        gzip,
        drop: matches.get_flag("drop"),
        workers: matches.get_one::<u16>("numInsertionWorkersPerCollection").map_or(4, |count| usize::from(*count)),
        count: Count::default(),
        read: Arc::default(),
        progress: Progress::new(sources.iter().map(|source| source.bytes).sum()),
        indexes: Indexes::default(),
    };
    for source in &sources {
        restore.create(source)?;
        if let Some(path) = &source.documents {
            restore.insert_all(source, path)?;
        }
        let target = &source.metadata.collection;
        restore.indexes.add(&source.database, target, source.metadata.indexes.iter().cloned());
    }
    let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let mut summary = format!(
        "restored {} collections and views: {} documents, {} in {:.1} s",
        sources.len(),
        number(&restore.count.inserted),
        megabytes(number(&restore.read)),
        restore.progress.seconds()
    );
    if number(&restore.count.there_already) > 0 {
        summary += &format!(
            "\n{} documents were there already, by their _id, and stay as they are (--drop removes them first)",
            number(&restore.count.there_already)
        );
    }
    let failed = number(&restore.count.failed);
    if failed > 0 {
        summary += &format!("\n{failed} documents could not be restored; the first reasons are above");
    }
    let log = directory.join("oplog.bson");
    if matches.get_flag("oplogReplay") {
        let (count, last) = restore.replay(&log, matches.get_one::<Timestamp>("oplogLimit"))?;
        summary += &format!("\nreplayed {count} entries of the oplog");
        if let Some(last) = last {
            summary += &format!(": it is the state of {}:{}", last.time, last.increment);
        }
    } else if log.exists() && database.is_none() {
        summary += "\noplog.bson was left out: with --oplogReplay the collections are as of one moment";
    }
    if !matches.get_flag("noIndexRestore") {
        summary += &format!("\nbuilt {} indexes", restore.build_indexes()?);
    }
    Ok((summary, failed))
}

/// What the directory holds of what is wanted.
fn sources_in(
    directory: &Path,
    gzip: bool,
    database: Option<&str>,
    collection: Option<&str>,
) -> Result<Vec<Source>, String> {
    let list = |path: &Path| -> Result<Vec<PathBuf>, String> {
        let entries = std::fs::read_dir(path)
            .map_err(|e| format!("{}: {e}; it must be a directory that a backup made", path.display()))?;
        let mut paths = entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| format!("{}: {e}", path.display()))?;
        paths.sort();
        Ok(paths)
    };
    let name_of = |path: &Path| path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let entries = list(directory)?;
    let databases: Vec<(String, PathBuf)> = match database {
        Some(database) if directory.join(database).is_dir() => vec![(database.to_owned(), directory.join(database))],
        Some(database) => vec![(database.to_owned(), directory.to_owned())],
        None => entries.into_iter().filter(|path| path.is_dir()).map(|path| (name_of(&path), path)).collect(),
    };
    let mut sources = Vec::new();
    for (database, path) in databases {
        if is_of_the_member(&database) {
            continue;
        }
        for file in list(&path)? {
            let Some(source) = source_of(&file, &name_of(&file), &database, gzip)? else { continue };
            let wanted = collection.is_none_or(|only| only == source.metadata.collection);
            if wanted && !is_of_the_server(&source.metadata.collection) {
                sources.push(source);
            }
        }
    }
    if sources.is_empty() {
        let what = database.map_or("no database's directory", |_| "no such collection");
        return Err(format!("{}: holds {what} to restore; DIR is what `baton backup --out` made", directory.display()));
    }
    Ok(sources)
}

/// The collection that a file is about; `None` for a file that belongs to another, or to none.
fn source_of(path: &Path, name: &str, database: &str, gzip: bool) -> Result<Option<Source>, String> {
    let suffix = if gzip { ".gz" } else { "" };
    let (of_metadata, of_documents) = (format!(".metadata.json{suffix}"), format!(".bson{suffix}"));
    let has_metadata = name.ends_with(&of_metadata);
    let Some(stem) = name.strip_suffix(&of_metadata).or_else(|| name.strip_suffix(&of_documents)) else {
        return Ok(None);
    };
    let sibling = |ending: &str| path.with_file_name(format!("{stem}{ending}"));
    // A collection is met by its metadata, if it has them; `$admin.system.users` and the like are the server's.
    if (!has_metadata && sibling(&of_metadata).exists()) || stem.starts_with("%24admin.") || stem.starts_with("$admin.")
    {
        return Ok(None);
    }
    let mut metadata = Metadata::default();
    if has_metadata {
        let text = read_text(path, gzip)?;
        metadata = Metadata::from_json(&text).map_err(|why| format!("{}: {why}", path.display()))?;
    }
    match collection_of(stem)? {
        Some(collection) => metadata.collection = collection,
        None if metadata.collection.is_empty() => {
            return Err(format!("{}: the name was cut, and no metadata tell it", path.display()));
        }
        None => {}
    }
    let documents = Some(sibling(&of_documents)).filter(|path| path.exists() && !metadata.is_view());
    let bytes = documents.as_ref().and_then(|path| path.metadata().ok()).map_or(0, |m| m.len());
    Ok(Some(Source { database: database.to_owned(), metadata, has_metadata, documents, bytes }))
}

fn code_of(reply: &Document) -> i32 {
    reply.get_i32("code").unwrap_or(0)
}

impl Restore {
    /// Makes the collection or view, after dropping what has its name if that is wanted.
    fn create(&mut self, source: &Source) -> Result<(), String> {
        let Source { database, metadata, .. } = source;
        let name = format!("{database}.{}", metadata.collection);
        if self.drop {
            let reply = self.connection.ask(database, doc! { "drop": &metadata.collection })?;
            if code_of(&reply) != NAMESPACE_NOT_FOUND {
                accepted(reply).map_err(|why| format!("dropping {name}: {why}"))?;
            }
        }
        if !source.has_metadata {
            return Ok(());
        }
        let mut create = doc! { "create": &metadata.collection };
        create.extend(metadata.options.clone());
        let reply = self.connection.ask(database, create)?;
        if code_of(&reply) == NAMESPACE_EXISTS {
            self.progress.say(&format!("{name} is there already, and keeps its options"));
            return Ok(());
        }
        accepted(reply).map(|_| ()).map_err(|why| format!("creating {name}: {why}"))
    }

    /// Inserts the documents of a file, over several connections; those of a capped collection in order, over one.
    fn insert_all(&mut self, source: &Source, path: &Path) -> Result<(), String> {
        let in_order = source.metadata.options.get_bool("capped").unwrap_or(false);
        let workers = if in_order { 1 } else { self.workers };
        let mut documents = Documents::open(path, self.gzip, Arc::clone(&self.read))?;
        let (sender, receiver) = mpsc::sync_channel::<Vec<RawDocumentBuf>>(workers);
        let receiver = Mutex::new(receiver);
        let what = format!("{}.{}", source.database, source.metadata.collection);
        let target = Target { uri: &self.uri, host: &self.host, source, in_order };
        let (count, stopped) = (&self.count, &AtomicBool::new(false));
        let (progress, read) = (&mut self.progress, &self.read);
        std::thread::scope(|scope| {
            let (receiver, what, target) = (&receiver, &what, &target);
            let inserters: Vec<_> = (0..workers)
                .map(|_| {
                    scope.spawn(move || {
                        let outcome = insert_batches(target, receiver, count, what);
                        stopped.fetch_or(outcome.is_err(), Ordering::Relaxed);
                        outcome
                    })
                })
                .collect();
            let fed = feed(&mut documents, &sender, stopped, |documents| {
                progress.bytes = read.load(Ordering::Relaxed);
                progress.documents += documents;
                progress.show(what);
            });
            drop(sender);
            let mut outcome = Ok(());
            for inserter in inserters {
                // An inserter's own failure is the cause; that the feeding then stopped is its consequence.
                outcome = outcome.and(inserter.join().unwrap_or_else(|_| Err("an inserting thread died".into())));
            }
            outcome.and(fed)
        })
    }

    /// Applies the entries of the oplog; gives how many, and the time of the last.
    fn replay(&mut self, path: &Path, limit: Option<&Timestamp>) -> Result<(u64, Option<Timestamp>), String> {
        if !path.exists() {
            return Err(format!(
                "--oplogReplay: {} is not there: the dump was taken without the oplog; leave --oplogReplay out",
                path.display()
            ));
        }
        let mut entries = Documents::open(path, self.gzip, Arc::clone(&self.read))?;
        let (mut count, mut last, mut batch, mut bytes) = (0, None, Vec::new(), 0);
        while let Some(entry) = entries.next()? {
            let size = entry.as_bytes().len();
            let entry = Document::try_from(entry).map_err(|e| format!("{}: {e}", path.display()))?;
            let time = time_of(&entry)?;
            if limit.is_some_and(|limit| (time.time, time.increment) >= (limit.time, limit.increment)) {
                break;
            }
            for replay in decide(&entry, &mut self.indexes)? {
                match replay {
                    Replay::Skip => {}
                    Replay::Write(entry) => {
                        batch.push(entry);
                        bytes += size;
                        if batch.len() >= BATCH_DOCUMENTS || bytes >= BATCH_BYTES {
                            self.apply(&mut batch)?;
                            bytes = 0;
                        }
                    }
                    Replay::Alone(entry) => {
                        self.apply(&mut batch)?;
                        bytes = 0;
                        self.apply(&mut vec![entry])?;
                    }
                }
            }
            count += 1;
            last = Some(time);
            self.progress.show("oplog");
        }
        self.apply(&mut batch)?;
        Ok((count, last))
    }

    fn apply(&mut self, batch: &mut Vec<Document>) -> Result<(), String> {
        if batch.is_empty() {
            return Ok(());
        }
        let reply = self.connection.ask("admin", doc! { "applyOps": batch.as_slice() })?;
        let applied = reply.get_i32("applied").ok().and_then(|n| usize::try_from(n).ok()).unwrap_or(1);
        let culprit = batch.get(applied.saturating_sub(1)).and_then(|entry| entry.get_timestamp("ts").ok());
        accepted(reply).map_err(|why| {
            let ts = culprit.map_or_else(String::new, |ts| format!("{}:{}", ts.time, ts.increment));
            format!(
                "replaying the oplog's entry of {ts}: {why}. What came before it was applied; restore again with --drop, \
                 up to it with --oplogLimit {ts}"
            )
        })?;
        batch.clear();
        Ok(())
    }

    fn build_indexes(&mut self) -> Result<usize, String> {
        let all: Vec<(String, String, Vec<Document>)> =
            self.indexes.iter().map(|(db, coll, indexes)| (db.to_owned(), coll.to_owned(), indexes)).collect();
        let mut count = 0;
        for (database, collection, indexes) in all.into_iter().filter(|(_, _, indexes)| !indexes.is_empty()) {
            self.progress.say(&format!("building {} indexes of {database}.{collection}", indexes.len()));
            count += indexes.len();
            let build = doc! { "createIndexes": &collection, "indexes": indexes, "ignoreUnknownIndexOptions": true };
            self.connection.run_on(&database, build).map_err(|why| {
                format!(
                    "building indexes of {database}.{collection}: {why}. The documents are restored; build the indexes \
                     yourself, or restore again with --noIndexRestore"
                )
            })?;
        }
        Ok(count)
    }
}

/// Reads a file into batches until its end, or until an inserter has stopped.
fn feed(
    documents: &mut Documents,
    sender: &mpsc::SyncSender<Vec<RawDocumentBuf>>,
    stopped: &AtomicBool,
    mut fed: impl FnMut(u64),
) -> Result<(), String> {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    loop {
        let next = documents.next()?;
        let at_end = next.is_none();
        if let Some(document) = next {
            bytes += document.as_bytes().len();
            batch.push(document);
        }
        if (at_end && !batch.is_empty()) || batch.len() >= BATCH_DOCUMENTS || bytes >= BATCH_BYTES {
            let count = batch.len() as u64;
            if stopped.load(Ordering::Relaxed) || sender.send(std::mem::take(&mut batch)).is_err() {
                return Err("inserting stopped".into());
            }
            bytes = 0;
            fed(count);
        }
        if at_end {
            return Ok(());
        }
    }
}

/// Where documents go, and how.
struct Target<'a> {
    uri: &'a Uri,
    host: &'a str,
    source: &'a Source,
    in_order: bool,
}

impl Target<'_> {
    fn connect(&self) -> Result<Connection, String> {
        let (mut connection, _) = topology::open(self.host, self.uri, APP_NAME)?;
        connection.wait_for_answers(self.uri.answer_time())?;
        Ok(connection)
    }

    /// The connection string's, or a majority: what is restored is to stay.
    fn write_concern(&self) -> Document {
        let mut concern = doc! { "w": "majority" };
        concern.extend(self.uri.write_concern.clone());
        concern
    }
}

/// Inserts batches over a connection of its own until there are no more.
///
/// Goes on taking batches after a failure, so that whoever feeds is not kept waiting.
fn insert_batches(
    target: &Target<'_>,
    batches: &Mutex<mpsc::Receiver<Vec<RawDocumentBuf>>>,
    count: &Count,
    what: &str,
) -> Result<(), String> {
    let mut connection = target.connect();
    let mut outcome = Ok(());
    loop {
        // The lock guards no state of ours that a panic could have left half done.
        let batch = batches.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(batch) = batch else { return outcome };
        if outcome.is_ok() {
            outcome = match &mut connection {
                Ok(connection) => insert(connection, target, &batch, count, what),
                Err(why) => Err(why.clone()),
            };
        }
    }
}

fn insert(
    connection: &mut Connection,
    target: &Target<'_>,
    batch: &[RawDocumentBuf],
    count: &Count,
    what: &str,
) -> Result<(), String> {
    let in_order = target.in_order;
    let command = doc! {
        "insert": &target.source.metadata.collection, "ordered": in_order, "bypassDocumentValidation": true,
        "bypassEmptyTsReplacement": true, "writeConcern": target.write_concern(),
    };
    let reply = connection.ask_raw(&target.source.database, command, Some(("documents", batch)))?;
    let reply =
        accepted(Document::try_from(reply).map_err(|e| e.to_string())?).map_err(|why| format!("{what}: {why}"))?;
    if let Ok(error) = reply.get_document("writeConcernError") {
        return Err(format!("{what}: {}", error.get_str("errmsg").unwrap_or("the writes were not made durable")));
    }
    let inserted = reply.get_i32("n").ok().and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
    count.inserted.fetch_add(inserted, Ordering::Relaxed);
    let errors = reply.get_array("writeErrors").map(Vec::as_slice).unwrap_or_default();
    for error in errors.iter().filter_map(Bson::as_document) {
        if code_of(error) == DUPLICATE_KEY {
            count.there_already.fetch_add(1, Ordering::Relaxed);
        } else if count.failed.fetch_add(1, Ordering::Relaxed) < 5 {
            eprintln!("{what}: {}", error.get_str("errmsg").unwrap_or("a document was refused"));
        }
    }
    // In order, the first error ends the batch; what is behind it is sent again without the culprit.
    if let Some(culprit) = errors.first().and_then(Bson::as_document).filter(|_| in_order) {
        let rest = culprit.get_i32("index").ok().and_then(|i| usize::try_from(i).ok()).map_or(batch.len(), |i| i + 1);
        if rest < batch.len() {
            return insert(connection, target, &batch[rest..], count, what);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
        assert_eq!(parse_limit("5").unwrap(), Timestamp { time: 5, increment: 0 });
        assert_eq!(parse_limit("5:7").unwrap(), Timestamp { time: 5, increment: 7 });
        assert!(parse_limit("5:").is_err());
    }

    #[test]
    fn a_dump_is_found_with_and_without_metadata_and_what_is_the_servers_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("shop/carts.metadata.json", r#"{"options":{"capped":true},"indexes":[],"collectionName":"carts"}"#);
        put("shop/carts.bson", "");
        put("shop/a+b.bson", "");
        put("shop/seen.metadata.json", r#"{"options":{"viewOn":"carts"},"indexes":[],"type":"view"}"#);
        put("shop/system.views.bson", "");
        put("shop/%24admin.system.users.bson", "");
        put("local/startup_log.bson", "");
        put("oplog.bson", "");
        put("prelude.json", "{}");
        let names = |sources: Vec<Source>| {
            let name = |s: Source| format!("{}.{} {}", s.database, s.metadata.collection, s.documents.is_some());
            sources.into_iter().map(name).collect::<Vec<_>>()
        };
        let find = |dir: &Path, db, coll| sources_in(dir, false, db, coll);
        let all = find(directory.path(), None, None).unwrap();
        assert_eq!(names(all), ["shop.a b true", "shop.carts true", "shop.seen false"]);
        assert_eq!(names(find(directory.path(), Some("shop"), Some("carts")).unwrap()), ["shop.carts true"]);
        let renamed = find(&directory.path().join("shop"), Some("other"), Some("a b")).unwrap();
        assert_eq!(names(renamed), ["other.a b true"]);
        assert!(find(directory.path(), Some("shop"), Some("none")).unwrap_err().contains("no such collection"));
        assert!(find(&directory.path().join("none"), None, None).unwrap_err().contains("directory that a backup made"));
    }
}
