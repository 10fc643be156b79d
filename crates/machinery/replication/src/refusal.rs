//! An entry of the source's log that this member cannot apply: what is said of it, how often it is tried, and what ends it.
//!
//! It may be for a moment (memory, a file); it may be that this member's data are not what the log takes them for; or that nobody
//! but the primary takes such an entry, which is a fault of Baton's. So the entry is tried again, ever more seldom. Meanwhile the
//! member is RECOVERING, and says so with the entry and the reason. After [`ATTEMPTS_BEFORE_COPY`] attempts it gives up its copy of
//! the collection and fetches that anew; if the entry is not of one collection, or that does not help, its copy of everything. But
//! only if every other voter with data can be read from and has more ([`baton_consensus::View`]'s `can_spare_my_copy`): an entry
//! that two members refuse costs neither of them its data.
//!
//! Not here: carrying any of that out ([`crate::fetcher`]).

use baton_storage::optime_of;
use baton_types::{Error, ErrorCode, OpTime};
use bson::RawDocument;
use std::time::{Duration, SystemTime};

/// Attempts that fail before this member's data are given up.
pub(crate) const ATTEMPTS_BEFORE_COPY: u32 = 4;
/// The longest wait between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(30);
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

/// What a member does about an entry that it cannot apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// It tries again after a while.
    Again,
    /// It has given up its copy of the collection, and fetches that anew.
    Collection,
    /// It has given up its data, and copies the set's.
    Everything,
}

impl Remedy {
    /// For the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Again => "tries again",
            Self::Collection => "fetches the collection anew",
            Self::Everything => "copies everything anew",
        }
    }
}

impl RefusedEntry {
    /// After one more attempt at an entry has failed; `before` is what was known of this one or another.
    pub(crate) fn again(before: Option<&Self>, entry: &RawDocument, error: &Error) -> Self {
        let optime = optime_of(entry).unwrap_or(OpTime::ZERO);
        let before = before.filter(|before| before.optime == optime);
        Self {
            optime,
            entry: excerpt(entry),
            reason: error.to_string(),
            since: before.map_or_else(SystemTime::now, |before| before.since),
            attempts: before.map_or(0, |before| before.attempts).saturating_add(1),
            remedy: Remedy::Again,
        }
    }

    /// How long to wait before the next attempt.
    pub(crate) fn pause(&self) -> Duration {
        Duration::from_secs(1 << self.attempts.saturating_sub(1).min(10)).min(PAUSE_MAX)
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

/// Whether the attempt failed for what this member is doing, and not for the entry.
pub(crate) fn is_passing(error: &Error) -> bool {
    matches!(
        error.code,
        ErrorCode::ShutdownInProgress | ErrorCode::InterruptedAtShutdown | ErrorCode::InterruptedDueToReplStateChange
    )
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
    use bson::rawdoc;

    fn entry(seconds: u32) -> bson::RawDocumentBuf {
        rawdoc! { "op": "i", "ns": "a.b", "ts": bson::Timestamp { time: seconds, increment: 1 }, "t": 1_i64, "o": { "_id": "x".repeat(2000) } }
    }

    #[test]
    fn attempts_at_one_entry_are_counted_and_grow_rare_and_another_entry_begins_anew() {
        let error = Error::new(ErrorCode::CannotCreateIndex, "not here");
        let mut refused = RefusedEntry::again(None, &entry(7), &error);
        let first = refused.pause();
        for attempts in 2..20 {
            refused = RefusedEntry::again(Some(&refused), &entry(7), &error);
            assert_eq!(refused.attempts, attempts);
        }
        assert!(first < refused.pause() && refused.pause() == PAUSE_MAX);
        assert_eq!(RefusedEntry::again(Some(&refused), &entry(8), &error).attempts, 1);
    }

    #[test]
    fn what_is_said_names_the_entry_in_short_and_the_reason() {
        let refused = RefusedEntry::again(None, &entry(7), &Error::new(ErrorCode::CannotCreateIndex, "not here"));
        let message = refused.message();
        assert!(message.contains("not here") && message.contains("a.b") && message.len() < 1200, "{message}");
    }
}
