//! By lot: what a ranking is worth shows in the comparison with none.

use crate::candidates::Candidate;
use std::cmp::Ordering;

/// The better one is the lesser.
pub fn order(one: &Candidate, other: &Candidate) -> Ordering {
    one.lot.cmp(&other.lot)
}
