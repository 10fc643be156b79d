//! In which term an entry was written: positions are kept as timestamps, which alone are unique, and the term belongs to
//! a stretch of them.
//!
//! Invariant: the term of a timestamp is known before the timestamp is given out as a position.

use arc_swap::ArcSwap;
use baton_types::{OpTime, Timestamp};
use std::sync::Arc;

/// How many stretches are remembered. Positions asked for are recent ones.
const STRETCHES_MAX: usize = 64;

/// Stretches of timestamps with one term each, the oldest first.
pub(super) struct Terms(ArcSwap<Vec<OpTime>>);

impl Terms {
    /// Everything so far counts as written in the term of `last`.
    pub fn new(last: OpTime) -> Self {
        Self(ArcSwap::from_pointee(vec![OpTime { term: last.term, timestamp: Timestamp::ZERO }]))
    }

    /// The position with this timestamp.
    pub fn position(&self, timestamp: u64) -> OpTime {
        let timestamp = Timestamp::from_u64(timestamp);
        let stretches = self.0.load();
        let stretch = stretches.iter().rfind(|stretch| stretch.timestamp <= timestamp).or(stretches.first());
        OpTime { term: stretch.map_or(0, |stretch| stretch.term), timestamp }
    }

    /// Notes that entries have this term from here on.
    pub fn begin(&self, first: OpTime) {
        let mut stretches = Vec::clone(&self.0.load());
        // What a truncation took.
        stretches.retain(|stretch| stretch.timestamp < first.timestamp);
        if stretches.len() == STRETCHES_MAX {
            stretches.remove(0);
        }
        stretches.push(first);
        self.0.store(Arc::new(stretches));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_has_the_term_of_its_stretch_and_truncated_stretches_are_forgotten() {
        let at = |term, timestamp| OpTime { term, timestamp: Timestamp::from_u64(timestamp) };
        let terms = Terms::new(at(3, 10));
        terms.begin(at(4, 20));
        terms.begin(at(6, 30));
        assert_eq!(terms.position(10), at(3, 10));
        assert_eq!(terms.position(19), at(3, 19));
        assert_eq!(terms.position(20), at(4, 20));
        assert_eq!(terms.position(35), at(6, 35));
        terms.begin(at(7, 25));
        assert_eq!(terms.position(24), at(4, 24));
        assert_eq!(terms.position(35), at(7, 35));
    }

    #[test]
    fn old_stretches_give_way_to_new_ones() {
        let at = |term, timestamp| OpTime { term, timestamp: Timestamp::from_u64(timestamp) };
        let terms = Terms::new(at(1, 0));
        for term in 2..200 {
            terms.begin(at(term, 10 * term as u64));
        }
        assert_eq!(terms.position(1995), at(199, 1995));
        assert_eq!(terms.position(1985), at(198, 1985));
    }
}
