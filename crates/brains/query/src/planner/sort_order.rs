//! Whether the order in which an index is scanned is the order that is asked for.
//!
//! Invariants: a field whose bounds are one value takes no part in the order; a field with arrays orders documents by
//! their least (greatest) element only if nothing has narrowed its keys, nor those of a field sharing an array with it.

use super::access::Access;
use crate::sort::{SortPart, SortPattern};
use baton_document::keys::Direction;

/// The direction of a scan that yields documents in the pattern's order, if one does.
pub(super) fn providing_direction(access: &Access, pattern: &SortPattern) -> Option<Direction> {
    let index = &access.index;
    let mut wanted: Vec<&SortPart> = pattern.parts().iter().collect();
    // Parts of one value only are in any order.
    wanted.retain(|part| index.position(&part.field).is_none_or(|i| !is_constant(access, i)));
    let mut wanted = wanted.into_iter().peekable();
    let mut scan: Option<Direction> = None;
    for (i, field) in index.key.iter().enumerate() {
        let Some(part) = wanted.peek() else { break };
        if is_constant(access, i) {
            continue;
        }
        let super::KeyOrder::Ordered(direction) = field.order else { return None };
        if part.field != field.path.as_str() || !is_whole(access, i) {
            return None;
        }
        let needed = if direction == part.direction { Direction::Ascending } else { Direction::Descending };
        if *scan.get_or_insert(needed) != needed {
            return None;
        }
        wanted.next();
    }
    if wanted.peek().is_some() {
        return None;
    }
    Some(scan.unwrap_or(Direction::Ascending))
}

/// Whether every key within bounds has the same value for field `i`, and so has every document.
fn is_constant(access: &Access, i: usize) -> bool {
    let is_ordered = access.index.key.get(i).is_some_and(|field| matches!(field.order, super::KeyOrder::Ordered(_)));
    is_ordered && !access.index.is_multikey_at(i) && access.bounds.set(i).is_some_and(|set| set.is_one_point())
}

/// Whether a document's first key in the scan is the one it sorts by.
fn is_whole(access: &Access, i: usize) -> bool {
    let index = &access.index;
    if !index.is_multikey_at(i) {
        return true;
    }
    let Some(field) = index.key.get(i) else { return false };
    index.key.iter().zip(access.bounds.sets()).enumerate().all(|(j, (other, set))| {
        let shares_array = index.is_multikey_at(j) && other.path.first() == field.path.first();
        set.is_all() || !shares_array
    })
}
