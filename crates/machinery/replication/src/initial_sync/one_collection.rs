//! One collection fetched anew: what a member does that cannot apply an entry of it, instead of copying everything.
//!
//! ```text
//!  own log        … p │ e ─── … ─── s
//!                     │ the collection, copied as it is at the source after e
//!                     └ the log after p, applied; e itself is logged and passed over, for what it did is in the copy
//! ```
//!
//! Invariants: as with a copy of everything, a fact says until `s` is applied that the data are not whole, so that a start in between
//! copies everything; the copy, the log and `s` are of one source, which has `e` and has not rolled back meanwhile.
//!
//! What it deliberately does not do: decide that this is to be done ([`crate::fetcher`]).

use super::log_buffer::LogBuffer;
use super::source::Source;
use super::status::CollectionProgress;
use super::{APPLY_BYTES, InitialSync, LOOK_INTERVAL};
use baton_storage::optime_of;
use baton_types::{Error, ErrorCode, OpTime, Result};
use bson::{RawBson, RawDocument, RawDocumentBuf};

/// The commands whose entries concern one collection, which keeps its name.
const COMMANDS: [&str; 8] = [
    "create",
    "drop",
    "collMod",
    "createIndexes",
    "dropIndexes",
    "startIndexBuild",
    "commitIndexBuild",
    "abortIndexBuild",
];

/// The UUID of the one collection that an entry concerns; `None` if it is not one alone.
pub(crate) fn collection_of(entry: &RawDocument) -> Option<[u8; 16]> {
    let uuid = entry.get_binary("ui").ok()?.bytes.try_into().ok()?;
    let concerns_one = match entry.get_str("op").ok()? {
        "i" | "u" | "d" => true,
        "c" => {
            let command = entry.get_document("o").ok()?.iter().next()?.ok()?.0;
            COMMANDS.contains(&command.as_str())
        }
        _ => false,
    };
    concerns_one.then_some(uuid)
}

impl InitialSync<'_> {
    /// Fetches the collection that `refused` is of anew, and applies the log until the data are whole again.
    pub fn run_one(&self, host: &str, refused: &RawDocument) -> Result<()> {
        self.tracked(host, || {
            let not_one = || Error::new(ErrorCode::InitialSyncFailure, "the entry is not of one collection");
            let uuid = collection_of(refused).ok_or_else(not_one)?;
            let optime = optime_of(refused).ok_or_else(not_one)?;
            tracing::info!(target: "INITSYNC", source = host, optime = %optime, "Fetching a collection anew");
            self.with_source(host, |line, source, rollback_id| {
                if source.newest_optime()? < optime {
                    let message = "the source does not have the entry that cannot be applied";
                    return Err(Error::new(ErrorCode::InitialSyncFailure, message));
                }
                let from = self.storage.last_entry();
                self.note(|status| status.from = from);
                self.beside_log(line, from, |buffer| {
                    self.copy_one(source, uuid)?;
                    self.catch_up_past(source, buffer, rollback_id, optime, uuid)
                })
            })
        })
    }

    fn copy_one(&self, source: &mut Source<'_>, uuid: [u8; 16]) -> Result<()> {
        if let Some(own) = self.storage.catalog().iter().find(|collection| collection.uuid == uuid) {
            self.storage.unlogged(|| self.storage.drop_collection(&own.namespace))?;
        }
        let is_it = |listed: &Option<RawBson>| {
            listed.as_ref().and_then(RawBson::as_binary).is_some_and(|binary| binary.bytes == uuid)
        };
        // One that the source has dropped since: the log says so.
        let Some(listed) = source.collections()?.into_iter().find(|listed| is_it(&listed.uuid)) else { return Ok(()) };
        let mut progress = CollectionProgress::new(listed.namespace.clone());
        source.measure(&listed, &mut progress)?;
        self.note(|status| status.collections = vec![progress]);
        self.copy(source, &listed, 0)?;
        self.storage.sync();
        Ok(())
    }

    /// Applies what follows this member's log until the copy is whole; entries of the collection that cannot be applied are passed
    /// over, up to there.
    fn catch_up_past(
        &self,
        source: &mut Source<'_>,
        buffer: &LogBuffer,
        rollback_id: i32,
        refused: OpTime,
        uuid: [u8; 16],
    ) -> Result<()> {
        let until = source.newest_optime()?;
        self.note(|status| status.until = until);
        while self.storage.last_entry() < until {
            self.check_wanted()?;
            let entries = buffer.take(APPLY_BYTES, LOOK_INTERVAL)?;
            for run in entries.chunk_by(|a, b| optime_of(a) != Some(refused) && optime_of(b) != Some(refused)) {
                self.apply_or_pass_over(run, refused, uuid)?;
            }
            self.note(|status| status.entries_applied += entries.len() as u64);
        }
        self.end(source, until, rollback_id)
    }

    fn apply_or_pass_over(&self, run: &[RawDocumentBuf], refused: OpTime, uuid: [u8; 16]) -> Result<()> {
        if let [entry] = run
            && optime_of(entry) == Some(refused)
        {
            return self.storage.pass_over(entry);
        }
        let entries: Vec<&RawDocument> = run.iter().map(|entry| &**entry).collect();
        if self.apply(&entries).is_ok() {
            return Ok(());
        }
        for entry in entries {
            match self.apply(&[entry]) {
                Err(_) if collection_of(entry) == Some(uuid) => self.storage.pass_over(entry)?,
                outcome => outcome?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::spec::BinarySubtype;
    use bson::{Binary, rawdoc};

    #[test]
    fn an_entry_is_of_one_collection_unless_it_renames_or_has_none() {
        let uuid = || Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] };
        let of = |entry: RawDocumentBuf| collection_of(&entry);
        assert_eq!(of(rawdoc! { "op": "i", "ui": uuid(), "o": {} }), Some([7; 16]));
        assert_eq!(of(rawdoc! { "op": "c", "ui": uuid(), "o": { "createIndexes": "a" } }), Some([7; 16]));
        assert_eq!(of(rawdoc! { "op": "c", "ui": uuid(), "o": { "renameCollection": "a.b", "to": "a.c" } }), None);
        assert_eq!(of(rawdoc! { "op": "c", "o": { "dropDatabase": 1 } }), None);
        assert_eq!(of(rawdoc! { "op": "n", "ui": uuid(), "o": {} }), None);
    }
}
