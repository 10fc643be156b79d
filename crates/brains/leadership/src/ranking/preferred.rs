//! "Preferred primary": one member leads except while it works, and the others by how long they have served.

use super::lsp;
use crate::candidates::Candidate;
use std::cmp::Ordering;

/// The better one is the lesser.
pub fn order(one: &Candidate, other: &Candidate) -> Ordering {
    other.is_preferred.cmp(&one.is_preferred).then_with(|| lsp::order(one, other))
}
