//! What disturbs: each event by name, what must be there before it, what it asks for, and what shows that it is over. Two of them are
//! none of Baton's: yardsticks, that show what the machine itself makes others wait while something works beside them.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bson::{Bson, Document, RawDocument, doc};

use super::table::{COPY, DATABASE, TABLE, Table};
use crate::Failure;
use crate::client::Wire;
use crate::local_set::LocalSet;

/// How long an event may take.
const PATIENCE: Duration = Duration::from_secs(3600);
/// How long a yardstick works.
const YARDSTICK: Duration = Duration::from_secs(5);
/// Between two looks whether it is over.
const LOOK: Duration = Duration::from_millis(100);
/// So many looks in a row must find nothing left to do: between two tasks, and between two steps of one, there may be nothing to see
/// for a moment.
const LOOKS: usize = 10;

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Event {
    /// Yardstick: a loop on every processor, with niceness 19
    Spin,
    /// Yardstick: a file appended to, 256 KB a sync, with niceness 19
    Append,
    /// `$out` of the table
    Out,
    /// drop of a table of that size (what `$out` wrote, or one loaded for it)
    Drop,
    /// createIndexes, one field
    IndexSingle,
    /// createIndexes, two fields
    IndexCompound,
    /// createIndexes, unique
    IndexUnique,
    /// createIndexes on arrays of three
    IndexMultikey,
    /// delete_many of a third
    DeleteMany,
    /// update_many of a third
    UpdateMany,
    /// compact, on the primary
    Compact,
    /// validate, on the primary
    Validate,
    /// A sort by a field without an index, allowDiskUse
    Sort,
    /// baton backup of everything
    Backup,
    /// All documents in the order of `_id`, from a secondary
    DumpSecondary,
    /// The same from the primary
    DumpPrimary,
    /// Initial sync of an emptied member, by cloning
    SyncLogical,
    /// Initial sync of an emptied member, by file
    SyncFile,
    /// TTL deletion of a third
    Ttl,
    /// fsync on all members at once: all memtables are flushed
    Flush,
}

impl Event {
    /// All, in the order in which they come.
    pub const ALL: [Self; 20] = [
        Self::Spin,
        Self::Append,
        Self::Out,
        Self::Drop,
        Self::IndexSingle,
        Self::IndexCompound,
        Self::IndexUnique,
        Self::IndexMultikey,
        Self::DeleteMany,
        Self::UpdateMany,
        Self::Compact,
        Self::Validate,
        Self::Sort,
        Self::Backup,
        Self::DumpSecondary,
        Self::DumpPrimary,
        Self::SyncLogical,
        Self::SyncFile,
        Self::Ttl,
        Self::Flush,
    ];

    /// Its name on the command line and in reports.
    pub fn name(self) -> String {
        clap::ValueEnum::to_possible_value(&self).map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Whether it is none of Baton's work: nothing is promised of it.
    pub fn is_yardstick(self) -> bool {
        matches!(self, Self::Spin | Self::Append)
    }

    /// Of the throughput of busy clients, what must be left meanwhile.
    pub fn throughput_min(self) -> f64 {
        match self {
            Self::Drop | Self::Compact | Self::Backup | Self::Validate => 0.9,
            _ => 0.8,
        }
    }

    /// The kind of task that it asks for, where that may have to wait for its turn.
    fn gated(self) -> Option<&'static str> {
        match self {
            Self::Compact => Some("compaction"),
            Self::Validate => Some("validate"),
            Self::Backup => Some("backup"),
            _ => None,
        }
    }

    /// The kinds of tasks that are part of it, on whatever member they run.
    fn tasks(self) -> &'static [&'static str] {
        match self {
            Self::Compact => &["indexBuild", "dropCleanup", "validate", "ttlDeletion", "compaction"],
            Self::Flush => &["indexBuild", "dropCleanup", "validate", "ttlDeletion", "flush"],
            _ => &["indexBuild", "dropCleanup", "validate", "ttlDeletion"],
        }
    }
}

/// Whether the event waits for its turn on this member.
fn waits(address: &str, event: Event) -> Result<bool, Failure> {
    let Some(kind) = event.gated() else { return Ok(false) };
    let status = Wire::connect(address)?.command(&doc! { "serverStatus": 1, "metrics": 0, "$db": "admin" })?;
    let waiting = status.get_document("tasks")?.get_array("waiting")?;
    Ok(waiting.iter().filter_map(|task| task.as_document()?.get_str("kind").ok()).any(|waits| waits == kind))
}

/// What came of an event.
pub enum Outcome {
    /// It was carried out.
    Done,
    /// The error that was answered in its place.
    Refused(String),
}

/// Where events are brought about.
pub struct Stage<'a> {
    /// The members.
    pub set: &'a mut LocalSet,
    /// The primary.
    pub primary: usize,
    /// What is disturbed.
    pub table: &'a Table,
    /// For what events write.
    pub scratch: &'a Path,
}

impl Stage<'_> {
    /// Makes what the event needs. Not measured.
    ///
    /// # Errors
    /// If that fails.
    pub fn prepare(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Drop => {
                let count = self.ask(&doc! { "count": COPY, "$db": DATABASE })?;
                if count.get_i32("n").unwrap_or(0) == 0 {
                    self.table.load(self.set, COPY)?;
                }
            }
            Event::SyncLogical | Event::SyncFile => self.set.empty(self.secondary())?,
            Event::Ttl => {
                let index = doc! { "key": { "expires": 1 }, "name": "expires", "expireAfterSeconds": 0 };
                self.set_everywhere("ttlMonitorEnabled", false)?;
                self.set_everywhere("ttlMonitorSleepSecs", 1)?;
                self.must(&doc! { "createIndexes": TABLE, "indexes": [index], "$db": DATABASE })?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Looks who is primary by now: members move leadership before heavy work of their own. Not where a member has been emptied, which
    /// was chosen by who was primary then.
    ///
    /// # Errors
    /// If there is none for long.
    pub fn find_primary(&mut self, event: Event) -> Result<(), Failure> {
        if !matches!(event, Event::SyncLogical | Event::SyncFile) {
            self.primary = self.set.primary()?;
        }
        Ok(())
    }

    /// Takes away what would weigh on the next event. Not measured.
    ///
    /// # Errors
    /// If that fails.
    pub fn clean_up(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::IndexSingle | Event::IndexCompound | Event::IndexUnique | Event::IndexMultikey | Event::Ttl => {
                self.ask(&doc! { "dropIndexes": TABLE, "index": "*", "$db": DATABASE })?;
            }
            Event::Backup => std::fs::remove_dir_all(self.scratch.join("backup")).unwrap_or(()),
            Event::Append => std::fs::remove_file(self.scratch.join("appended"))?,
            _ => {}
        }
        Ok(())
    }

    /// Brings the event about; returns when it was answered.
    ///
    /// # Errors
    /// If it cannot even be asked for.
    pub fn bring_about(&mut self, event: Event) -> Result<Outcome, Failure> {
        match event {
            Event::Spin => {
                let cpus = std::thread::available_parallelism()?.get();
                work_beside(cpus, || vec!["sh".into(), "-c".into(), "while :; do :; done".into()])
            }
            Event::Append => work_beside(1, || {
                let file = format!("of={}", self.scratch.join("appended").display());
                ["dd", "if=/dev/zero", &file, "bs=256k", "oflag=dsync", "status=none"].map(Into::into).to_vec()
            }),
            Event::Out => self.drain(self.primary, &aggregate(vec![doc! { "$match": {} }, doc! { "$out": COPY }])),
            Event::Drop => self.try_command(&doc! { "drop": COPY, "$db": DATABASE }),
            Event::IndexSingle => self.index(&doc! { "key": { "serial": 1 }, "name": "disturbing" }),
            Event::IndexCompound => self.index(&doc! { "key": { "group": 1, "serial": -1 }, "name": "disturbing" }),
            Event::IndexUnique => self.index(&doc! { "key": { "serial": 1 }, "name": "disturbing", "unique": true }),
            Event::IndexMultikey => self.index(&doc! { "key": { "tags": 1 }, "name": "disturbing" }),
            Event::DeleteMany => {
                let delete = doc! { "q": { "third": 0 }, "limit": 0 };
                self.try_command(&doc! { "delete": TABLE, "deletes": [delete], "$db": DATABASE })
            }
            Event::UpdateMany => {
                let update = doc! { "q": { "third": 1 }, "u": { "$inc": { "group": 1 } }, "multi": true };
                self.try_command(&doc! { "update": TABLE, "updates": [update], "$db": DATABASE })
            }
            Event::Compact => self.try_command(&doc! { "compact": TABLE, "force": true, "$db": DATABASE }),
            Event::Validate => self.try_command(&doc! { "validate": TABLE, "$db": DATABASE }),
            Event::Sort => {
                // What is skipped has been sorted all the same.
                let skip = doc! { "$skip": self.table.records.saturating_sub(1).max(1) as i64 };
                self.drain(self.primary, &aggregate(vec![doc! { "$sort": { "shuffled": 1 } }, skip]))
            }
            Event::Backup => self.back_up(),
            Event::DumpSecondary => self.drain(self.secondary(), &dump()),
            Event::DumpPrimary => self.drain(self.primary, &dump()),
            Event::SyncLogical => self.synchronise("logical"),
            Event::SyncFile => self.synchronise("fileCopyBased"),
            Event::Ttl => self.expire(),
            Event::Flush => self.flush(),
        }
    }

    /// Brings the event about, as [`Self::bring_about`] does; tells when its work began and when it was answered, too. A task may have to
    /// wait for its turn, in which nothing works.
    ///
    /// # Errors
    /// See there.
    pub fn bring_about_watched(&mut self, event: Event) -> Result<(Outcome, Instant, Instant), Failure> {
        let begun = Instant::now();
        let (addresses, over) = (self.set.addresses(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let mut worked_at = begun;
                while !over.load(Ordering::SeqCst) {
                    if addresses.iter().any(|address| waits(address, event).unwrap_or(false)) {
                        worked_at = Instant::now();
                    }
                    std::thread::sleep(LOOK);
                }
                worked_at
            });
            let outcome = self.bring_about(event);
            let answered_at = Instant::now();
            over.store(true, Ordering::SeqCst);
            let worked_at = watcher.join().map_err(|_| "whoever watched the members' tasks panicked")?;
            Ok((outcome?, worked_at, answered_at))
        })
    }

    /// Waits until nothing of the event is left to be done on any member; gives when that was first so.
    ///
    /// # Errors
    /// If a member does not answer, or it takes too long.
    pub fn await_end(&self, event: Event) -> Result<Instant, Failure> {
        let (asked, mut over) = (Instant::now(), None);
        let written = last_write(&self.set.ask(self.primary, &hello())?);
        let mut looks = 0;
        while looks < LOOKS {
            let looked = Instant::now();
            if self.is_over(event, written)? {
                over.get_or_insert(looked);
                looks += 1;
            } else {
                (over, looks) = (None, 0);
            }
            if asked.elapsed() > PATIENCE {
                return Err(format!("{} does not end", event.name()).into());
            }
            if looks < LOOKS {
                std::thread::sleep(LOOK);
            }
        }
        Ok(over.unwrap_or(asked))
    }

    fn is_over(&self, event: Event, written: Option<bson::Timestamp>) -> Result<bool, Failure> {
        for index in 0..self.set.len() {
            if last_write(&self.set.ask(index, &hello())?) < written {
                return Ok(false);
            }
            let status = self.set.ask(index, &doc! { "serverStatus": 1, "metrics": 0, "$db": "admin" })?;
            let tasks = status.get_document("tasks")?;
            // An older binary does not tell what waits.
            let tasks =
                ["running", "waiting"].into_iter().flat_map(|state| tasks.get_array(state).into_iter().flatten());
            let mut kinds = tasks.filter_map(|task| task.as_document()?.get_str("kind").ok());
            // What gives space back later, and not at once, counts what is left of it.
            let left = status.get_document("rocksdb").and_then(|rocksdb| rocksdb.get_document("files"));
            let left = left.and_then(|files| files.get_i64("droppedBytes")).unwrap_or(0);
            if left > 0 || kinds.any(|kind| event.tasks().contains(&kind)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn secondary(&self) -> usize {
        (self.primary + 1) % self.set.len()
    }

    fn wire(&self, index: usize) -> Result<Wire, Failure> {
        let wire = Wire::connect(&self.set.addresses()[index])?;
        wire.be_patient(PATIENCE)?;
        Ok(wire)
    }

    fn ask(&self, command: &Document) -> Result<Document, Failure> {
        self.wire(self.primary)?.command(command)
    }

    fn must(&self, command: &Document) -> Result<(), Failure> {
        match self.try_command(command)? {
            Outcome::Done => Ok(()),
            Outcome::Refused(why) => Err(format!("{command}: {why}").into()),
        }
    }

    fn try_command(&self, command: &Document) -> Result<Outcome, Failure> {
        let reply = self.ask(command)?;
        Ok(refusal(&reply).map_or(Outcome::Done, Outcome::Refused))
    }

    /// A parameter of every member: whichever of them is primary by then.
    fn set_everywhere(&self, parameter: &str, value: impl Into<Bson> + Clone) -> Result<(), Failure> {
        for index in 0..self.set.len() {
            let set = doc! { "setParameter": 1, parameter: value.clone(), "$db": "admin" };
            if let Some(why) = refusal(&self.set.ask(index, &set)?) {
                return Err(format!("{set}: {why}").into());
            }
        }
        Ok(())
    }

    fn index(&self, index: &Document) -> Result<Outcome, Failure> {
        self.try_command(&doc! { "createIndexes": TABLE, "indexes": [index.clone()], "$db": DATABASE })
    }

    /// Reads a cursor to its end, as fast as it comes.
    fn drain(&self, index: usize, command: &Document) -> Result<Outcome, Failure> {
        let mut wire = self.wire(index)?;
        let mut next = command.clone();
        loop {
            wire.send_command(&next)?;
            let message = wire.receive()?;
            // The documents themselves are looked at by nobody.
            let reply = RawDocument::from_bytes(message.get(21..).ok_or("a short reply")?)?;
            let Ok(cursor) = reply.get_document("cursor") else {
                let reply = Document::try_from(reply)?;
                return Ok(Outcome::Refused(refusal(&reply).ok_or("a reply without a cursor")?));
            };
            match cursor.get_i64("id")? {
                0 => return Ok(Outcome::Done),
                id => next = doc! { "getMore": id, "collection": collection_of(cursor)?, "$db": DATABASE },
            }
        }
    }

    fn back_up(&self) -> Result<Outcome, Failure> {
        let done = Command::new(self.set.binary())
            .args(["backup", &self.set.uri(), "--out"])
            .arg(self.scratch.join("backup"))
            .stdin(Stdio::null())
            .output()?;
        if done.status.success() {
            return Ok(Outcome::Done);
        }
        Ok(Outcome::Refused(String::from_utf8_lossy(&done.stderr).trim().to_owned()))
    }

    fn synchronise(&mut self, method: &str) -> Result<Outcome, Failure> {
        let index = self.secondary();
        self.set.restart_with(index, &[("initialSyncMethod", method)])?;
        let begun = Instant::now();
        // A member that starts anew may answer nobody for a moment.
        while !self.set.ask(index, &hello()).is_ok_and(|hello| hello.get_bool("secondary").unwrap_or(false)) {
            if begun.elapsed() > PATIENCE {
                return Err("the emptied member does not become a secondary".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Outcome::Done)
    }

    fn expire(&self) -> Result<Outcome, Failure> {
        // Leadership may move in the middle of it: whoever is primary deletes.
        let deleted = || -> Result<i64, Failure> {
            let of_member = |index| -> Result<i64, Failure> {
                let status = self.set.ask(index, &doc! { "serverStatus": 1, "$db": "admin" })?;
                Ok(status.get_document("metrics")?.get_document("ttl")?.get_i64("deletedDocuments")?)
            };
            (0..self.set.len()).map(of_member).sum()
        };
        let (before, begun) = (deleted()?, Instant::now());
        self.set_everywhere("ttlMonitorEnabled", true)?;
        while deleted()? - before < self.table.expired() as i64 {
            if begun.elapsed() > PATIENCE {
                return Err("what has expired is not deleted".into());
            }
            std::thread::sleep(LOOK);
        }
        Ok(Outcome::Done)
    }

    fn flush(&self) -> Result<Outcome, Failure> {
        std::thread::scope(|scope| {
            let flushes: Vec<_> = (0..self.set.len())
                .map(|index| scope.spawn(move || self.wire(index)?.command(&doc! { "fsync": 1, "$db": "admin" })))
                .collect();
            for flush in flushes {
                let reply = flush.join().map_err(|_| "a flush's thread panicked")??;
                if let Some(why) = refusal(&reply) {
                    return Ok(Outcome::Refused(why));
                }
            }
            Ok(Outcome::Done)
        })
    }
}

/// Has so many programs work for a while, with niceness 19.
fn work_beside(count: usize, program: impl Fn() -> Vec<String>) -> Result<Outcome, Failure> {
    let mut running = Vec::new();
    for _ in 0..count {
        running.push(Command::new("nice").args(["-n", "19"]).args(program()).stdin(Stdio::null()).spawn());
    }
    std::thread::sleep(YARDSTICK);
    for child in &mut running {
        let child = child.as_mut().map_err(|error| format!("nice: {error}"))?;
        child.kill()?;
        child.wait()?;
    }
    Ok(Outcome::Done)
}

fn hello() -> Document {
    doc! { "hello": 1, "$db": "admin" }
}

fn last_write(hello: &Document) -> Option<bson::Timestamp> {
    hello.get_document("lastWrite").ok()?.get_document("opTime").ok()?.get_timestamp("ts").ok()
}

fn aggregate(pipeline: Vec<Document>) -> Document {
    doc! { "aggregate": TABLE, "pipeline": pipeline, "allowDiskUse": true, "cursor": {}, "$db": DATABASE }
}

/// What mongodump asks for.
fn dump() -> Document {
    let preference = doc! { "mode": "secondaryPreferred" };
    doc! { "find": TABLE, "sort": { "_id": 1 }, "hint": { "_id": 1 }, "$readPreference": preference, "$db": DATABASE }
}

fn collection_of(cursor: &RawDocument) -> Result<String, Failure> {
    let name = cursor.get_str("ns")?;
    Ok(name.split_once('.').map_or(name, |(_, collection)| collection).to_owned())
}

/// The error of a reply that is one.
fn refusal(reply: &Document) -> Option<String> {
    let written = reply.get_array("writeErrors").ok().and_then(|errors| errors.first().and_then(Bson::as_document));
    let failed = match written {
        Some(error) => error,
        None if reply.get_f64("ok").is_ok_and(|ok| ok == 1.0) => return None,
        None => reply,
    };
    Some(failed.get_i32("code").map_or_else(|_| reply.to_string(), |code| code.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_error_is_a_refusal_though_the_command_was_ok() {
        assert_eq!(refusal(&doc! { "ok": 1.0, "n": 1 }), None);
        assert_eq!(refusal(&doc! { "ok": 0.0, "code": 292 }), Some("292".into()));
        assert_eq!(
            refusal(&doc! { "ok": 1.0, "writeErrors": [ { "index": 0, "code": 11000 } ] }),
            Some("11000".into())
        );
    }

    #[test]
    fn no_event_is_left_out_of_the_order() {
        let named = <Event as clap::ValueEnum>::value_variants();
        assert_eq!(named, Event::ALL);
    }
}
