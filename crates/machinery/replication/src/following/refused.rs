//! An entry of the source's log that this member cannot apply, as operators are told of it. How often it is tried, and what ends it, is
//! the machine's ([`baton_following::Refusal`]).

use baton_following::{Refusal, Remedy};
use baton_types::OpTime;
use bson::RawDocument;
use std::time::SystemTime;

/// Of the entry that is shown.
const EXCERPT_BYTES_MAX: usize = 512;

/// See the file's header.
#[derive(Clone, Debug)]
pub struct RefusedEntry {
    /// Which.
    pub optime: OpTime,
    /// The entry, abbreviated.
    pub entry: String,
    /// Why it cannot be applied.
    pub reason: String,
    /// Since when it has been tried.
    pub since: SystemTime,
    /// How often.
    pub attempts: u32,
    /// What is done about it.
    pub remedy: Remedy,
}

impl RefusedEntry {
    /// After one more attempt has failed; `before` is what was told of this entry or another one.
    pub(crate) fn new(refusal: &Refusal, entry: Option<&RawDocument>, before: Option<&Self>) -> Self {
        let before = before.filter(|before| before.optime == refusal.optime);
        Self {
            optime: refusal.optime,
            entry: entry.map(excerpt).unwrap_or_default(),
            reason: refusal.reason.clone(),
            since: before.map_or_else(SystemTime::now, |before| before.since),
            attempts: refusal.attempts,
            remedy: refusal.remedy,
        }
    }

    /// For `infoMessage` and the log.
    pub fn message(&self) -> String {
        let Self { optime, entry, reason, attempts, .. } = self;
        let what_now = match self.remedy {
            Remedy::Again => {
                "it is RECOVERING and tries again; it fetches the collection anew, or everything, once every other voter can be \
                 read from and has more"
            }
            Remedy::Collection => "it fetches the collection anew",
            Remedy::Everything => "it copies the set's data anew",
        };
        format!(
            "the entry {optime} of the log could not be applied in {attempts} attempt(s): {reason}; {what_now}. The entry: {entry}"
        )
    }
}

fn excerpt(entry: &RawDocument) -> String {
    let mut text = bson::Document::try_from(entry).map_or_else(|_| format!("{entry:?}"), |entry| entry.to_string());
    if text.len() > EXCERPT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(EXCERPT_BYTES_MAX));
        text.push_str(" …");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_types::Timestamp;
    use bson::rawdoc;
    use std::time::Duration;

    fn refusal(seconds: u32, attempts: u32) -> Refusal {
        let optime = OpTime { term: 1, timestamp: Timestamp { seconds, increment: 1 } };
        Refusal {
            optime,
            reason: "not here".to_owned(),
            is_of_collection: true,
            since: Duration::ZERO,
            attempts,
            remedy: Remedy::Again,
        }
    }

    #[test]
    fn what_is_said_names_the_entry_in_short_and_the_reason() {
        let entry = rawdoc! { "op": "i", "ns": "a.b", "o": { "_id": "x".repeat(2000) } };
        let message = RefusedEntry::new(&refusal(7, 1), Some(&entry), None).message();
        assert!(message.contains("not here") && message.contains("a.b") && message.len() < 1200, "{message}");
    }

    #[test]
    fn the_time_is_that_of_the_first_attempt_at_this_entry() {
        let first = RefusedEntry { since: SystemTime::UNIX_EPOCH, ..RefusedEntry::new(&refusal(7, 1), None, None) };
        assert_eq!(RefusedEntry::new(&refusal(7, 2), None, Some(&first)).since, first.since);
        assert_ne!(RefusedEntry::new(&refusal(8, 1), None, Some(&first)).since, first.since);
    }
}
