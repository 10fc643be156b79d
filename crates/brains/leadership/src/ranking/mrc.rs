//! "Most recently completed" (the paper's default): tasks repeat, so who has just ended one is free for longest.

use crate::candidates::Candidate;
use std::cmp::Ordering;

/// The better one is the lesser.
pub fn order(one: &Candidate, other: &Candidate) -> Ordering {
    other.last_task_end_at.cmp(&one.last_task_end_at)
}
