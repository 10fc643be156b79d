//! Entries of the source's log, out of the buffer into the copy; and which collection an entry is of.

use super::lane::{Context, LaneWorker};
use crate::apply::{apply, is_not_yet};
use baton_following::{Answer, Attempt};
use baton_storage::optime_of;
use baton_types::{Error, ErrorCode, OpTime, Result};
use bson::RawDocument;
use std::ops::Range;

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

impl LaneWorker {
    /// The collection that is copied for an entry that cannot be applied.
    pub(super) fn uuid(&self) -> Result<[u8; 16]> {
        let not_one = || Error::new(ErrorCode::InitialSyncFailure, "the entry is not of one collection");
        self.refused.as_ref().and_then(|entry| collection_of(entry)).ok_or_else(not_one)
    }

    pub(super) fn take(&mut self, bytes_max: u64) -> Result<Answer> {
        self.hand = self.session.buffer.lock().take(bytes_max)?;
        let optimes = self.hand.iter().map(|entry| optime_of(entry).unwrap_or(OpTime::ZERO)).collect();
        Ok(Answer::Taken { optimes })
    }

    pub(super) fn apply(&mut self, context: &Context<'_>, places: Range<usize>) -> Answer {
        let entries: Vec<&RawDocument> =
            self.hand.get(places).unwrap_or_default().iter().map(|entry| &**entry).collect();
        Answer::Applied(match apply(context.storage, context.apply_command, &entries) {
            Ok(()) => Attempt::Done,
            Err(error) if is_not_yet(&error) => Attempt::NotYet,
            Err(error) => {
                let copied = self.uuid().ok();
                let of = entries.first().and_then(|entry| collection_of(entry));
                Attempt::Failed {
                    reason: error.message.to_string(),
                    is_of_collection: copied.is_some() && of == copied,
                }
            }
        })
    }

    pub(super) fn pass_over(&mut self, context: &Context<'_>, at: usize) -> Result<Answer> {
        if let Some(entry) = self.hand.get(at) {
            context.storage.follower().pass_over(entry)?;
        }
        Ok(Answer::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::spec::BinarySubtype;
    use bson::{Binary, RawDocumentBuf, rawdoc};

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
