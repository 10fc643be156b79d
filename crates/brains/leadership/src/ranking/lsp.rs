//! "Longest-served primary": clients read from primaries, so who was one for longest has the warmest caches.

use crate::candidates::Candidate;
use std::cmp::Ordering;

/// The better one is the lesser.
pub fn order(one: &Candidate, other: &Candidate) -> Ordering {
    other.served_as_primary.cmp(&one.served_as_primary)
}
