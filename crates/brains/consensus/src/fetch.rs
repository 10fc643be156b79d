//! What to do with the first batch of entries that a stream brings, and how much may be appended of those that come after.
//!
//! A member asks its source for the entries from the timestamp of its own last one on. If the first that comes is that very
//! entry, in term and timestamp, the source's log begins with the member's own, and the rest may be appended. If not, the
//! logs have parted, or one is too short; which of both gives way is decided by the end of the logs: the one that ends later
//! stands.
//!
//! Invariants:
//! - Nothing is appended but behind an entry that both logs have.
//! - A primary never rolls back; and while it catches up, it takes no entry of its own term or a later one.
//! - Only the log that ends earlier is rolled back.
//! - It is rolled back only for a log that has an entry of the present term: that log has all that is committed, as the primary's
//!   has. Another one may itself be about to give way, and end later all the same: whoever has only the beginning of what is
//!   committed ends in an older term than a log that was never committed.

use baton_types::{OpTime, Term, Timestamp};
use serde::{Deserialize, Serialize};

/// What a source says along with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceState {
    /// Its term.
    pub term: Term,
    /// The last entry of its log.
    pub last: OpTime,
    /// The oldest entry it still has.
    pub oldest: Timestamp,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Skip the first entry of the batch, which is one's own last; append the following ones, this many at most.
    Append {
        /// How many.
        entries: usize,
    },
    /// The logs have parted, and this member's ends earlier: find the last common entry, and roll back to it.
    RollBack,
    /// The source no longer has what follows this member's last entry. Look for another that does; if none has, only an
    /// initial sync helps.
    TooStale,
    /// Nothing to be had here.
    ChangeSource,
}

/// Judges a batch that was asked for from the timestamp of `own_last` on, by a member in `term`, which is primary of it if it
/// `leads`.
pub fn judge(own_last: OpTime, term: Term, leads: bool, source: SourceState, batch: &[OpTime]) -> Verdict {
    if let Some((first, rest)) = batch.split_first()
        && *first == own_last
    {
        return Verdict::Append { entries: sound(own_last, term, leads, rest) };
    }
    if source.last <= own_last {
        return Verdict::ChangeSource;
    }
    if source.oldest > own_last.timestamp {
        return Verdict::TooStale;
    }
    if leads || source.last.term < term.max(source.term) {
        return Verdict::ChangeSource;
    }
    Verdict::RollBack
}

/// How many of the entries that come after `last` may be appended: up to the first that is out of order, or that a primary which catches
/// up has no use for.
pub fn sound(mut last: OpTime, term: Term, leads: bool, entries: &[OpTime]) -> usize {
    let follows = |optime: &&OpTime| {
        let follows = optime.timestamp > last.timestamp && optime.term >= last.term && (!leads || optime.term < term);
        last = **optime;
        follows
    };
    entries.iter().take_while(follows).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(term: Term, seconds: u32) -> OpTime {
        OpTime { term, timestamp: Timestamp { seconds, increment: 1 } }
    }

    fn source(last: OpTime) -> SourceState {
        SourceState { term: last.term, last, oldest: Timestamp { seconds: 1, increment: 1 } }
    }

    #[test]
    fn what_follows_ones_own_last_entry_is_appended() {
        let batch = [at(1, 5), at(1, 6), at(2, 7)];
        assert_eq!(judge(at(1, 5), 2, false, source(at(2, 7)), &batch), Verdict::Append { entries: 2 });
    }

    #[test]
    fn a_primary_that_catches_up_stops_before_its_own_term() {
        let batch = [at(1, 5), at(1, 6), at(2, 7)];
        assert_eq!(judge(at(1, 5), 2, true, source(at(2, 7)), &batch), Verdict::Append { entries: 1 });
    }

    #[test]
    fn the_log_that_ends_earlier_gives_way() {
        let batch = [at(2, 5), at(2, 6)];
        assert_eq!(judge(at(1, 5), 2, false, source(at(2, 6)), &batch), Verdict::RollBack);
        assert_eq!(judge(at(3, 5), 3, false, source(at(2, 6)), &batch), Verdict::ChangeSource);
    }

    #[test]
    fn a_log_without_an_entry_of_the_present_term_is_no_reason_to_roll_back() {
        let batch = [at(2, 5), at(2, 6)];
        assert_eq!(judge(at(1, 5), 3, false, source(at(2, 6)), &batch), Verdict::ChangeSource);
        let in_a_later_term = SourceState { term: 3, ..source(at(2, 6)) };
        assert_eq!(judge(at(1, 5), 2, false, in_a_later_term, &batch), Verdict::ChangeSource);
    }

    #[test]
    fn a_primary_never_rolls_back() {
        assert_eq!(judge(at(1, 5), 3, true, source(at(2, 6)), &[at(2, 6)]), Verdict::ChangeSource);
    }

    #[test]
    fn too_stale_is_not_diverged() {
        let source = SourceState { term: 1, last: at(1, 90), oldest: Timestamp { seconds: 50, increment: 1 } };
        assert_eq!(judge(at(1, 5), 1, false, source, &[at(1, 50)]), Verdict::TooStale);
    }

    #[test]
    fn a_batch_out_of_order_is_cut_before_the_disorder() {
        let batch = [at(1, 5), at(1, 6), at(1, 6), at(1, 7)];
        assert_eq!(judge(at(1, 5), 1, false, source(at(1, 7)), &batch), Verdict::Append { entries: 1 });
    }
}
