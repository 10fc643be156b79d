//! The bounds of an index scan: a set of values for each field, and the ranges of encoded keys they amount to.
//!
//! Invariants: the ranges are ascending and disjoint in key order and hold every key whose fields are all within their
//! sets; where they hold more, [`IndexBounds::needs_check`] says so and [`IndexBounds::contains`] tells.

use super::index::{IndexSpec, KeyOrder};
use super::interval::{Interval, IntervalSet};
use baton_document::keys::{self, Direction};
use baton_types::Result;

/// Beyond so many ranges the fields that would multiply them further are checked key by key instead.
const RANGES_MAX: usize = 4096;

/// Encoded keys from `start` (included) to `end` (excluded), without the index's own prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key.
    pub start: Vec<u8>,
    /// The first key beyond.
    pub end: Vec<u8>,
}

impl KeyRange {
    /// Every key.
    pub fn all() -> Self {
        Self { start: keys::LOWEST.to_vec(), end: keys::HIGHEST.to_vec() }
    }
}

/// The keys of an index that a scan looks at.
#[derive(Clone, Debug)]
pub struct IndexBounds {
    fields: Vec<FieldBounds>,
    ranges: Vec<KeyRange>,
    needs_check: bool,
}

/// The values of one field.
#[derive(Clone, Debug)]
struct FieldBounds {
    direction: Direction,
    set: IntervalSet,
    /// The intervals as bytes in the field's direction, ascending.
    bytes: Vec<(Vec<u8>, Vec<u8>)>,
}

impl IndexBounds {
    /// The bounds of a scan over `index`, one set for each of its fields.
    pub fn new(index: &IndexSpec, sets: Vec<IntervalSet>) -> Self {
        let fields: Vec<FieldBounds> =
            index.key.iter().zip(sets).map(|(field, set)| FieldBounds::new(field.order, set)).collect();
        let (ranges, needs_check) = ranges(&fields);
        Self { fields, ranges, needs_check }
    }

    /// Given ranges of whole keys (`min` and `max`), whatever the fields.
    pub fn of_range(index: &IndexSpec, range: KeyRange) -> Self {
        let all = |field: &super::IndexField| FieldBounds::new(field.order, IntervalSet::all());
        Self { fields: index.key.iter().map(all).collect(), ranges: vec![range], needs_check: false }
    }

    /// The ranges to scan, ascending; a backward scan takes them from the last to the first.
    pub fn ranges(&self) -> &[KeyRange] {
        &self.ranges
    }

    /// Whether the ranges hold keys that are out of bounds.
    pub fn needs_check(&self) -> bool {
        self.needs_check
    }

    /// Whether a key (its encoded fields; more may follow) is within bounds.
    pub fn contains(&self, key: &[u8]) -> Result<bool> {
        let mut rest = key;
        for field in &self.fields {
            let component = keys::skip(&mut rest, field.direction)?;
            if !field.set.is_all() && !field.contains(component) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The values of field `i`.
    pub fn set(&self, i: usize) -> Option<&IntervalSet> {
        self.fields.get(i).map(|field| &field.set)
    }

    /// The sets of all fields, in order.
    pub fn sets(&self) -> impl ExactSizeIterator<Item = &IntervalSet> {
        self.fields.iter().map(|field| &field.set)
    }

    /// Whether the scan is over the whole index.
    pub fn is_all(&self) -> bool {
        matches!(&*self.ranges, [only] if *only == KeyRange::all()) && !self.needs_check
    }

    /// Whether at most one key is within bounds (record keys apart).
    pub fn is_one_key(&self) -> bool {
        self.fields.iter().all(|field| field.set.is_one_point())
    }

    /// The bounds of field `i` as explain prints them.
    pub fn display(&self, i: usize, scan: Direction) -> Vec<String> {
        let Some(field) = self.fields.get(i) else { return Vec::new() };
        let backward = field.direction != scan;
        let shown = |interval: &Interval| interval.display(backward);
        match backward {
            false => field.set.intervals().iter().map(shown).collect(),
            true => field.set.intervals().iter().rev().map(shown).collect(),
        }
    }
}

impl FieldBounds {
    fn new(order: KeyOrder, set: IntervalSet) -> Self {
        let direction = order.direction();
        let mut bytes: Vec<(Vec<u8>, Vec<u8>)> =
            set.intervals().iter().map(|interval| interval_bytes(interval, direction)).collect();
        if direction == Direction::Descending {
            bytes.reverse();
        }
        Self { direction, set, bytes }
    }

    fn contains(&self, component: &[u8]) -> bool {
        let following = self.bytes.partition_point(|(start, _)| &**start <= component);
        following.checked_sub(1).and_then(|i| self.bytes.get(i)).is_some_and(|(_, end)| component < &**end)
    }

    /// The encodings of the values, if the set holds single values only; in key order.
    fn points(&self) -> Option<Vec<Vec<u8>>> {
        let mut points = Vec::with_capacity(self.set.intervals().len());
        for interval in self.set.intervals() {
            let mut bytes = interval.point_bytes()?.to_vec();
            if self.direction == Direction::Descending {
                bytes.iter_mut().for_each(|byte| *byte = !*byte);
            }
            points.push(bytes);
        }
        if self.direction == Direction::Descending {
            points.reverse();
        }
        Some(points)
    }
}

fn interval_bytes(interval: &Interval, direction: Direction) -> (Vec<u8>, Vec<u8>) {
    let (low, high) = (interval.low.to_bytes(direction), interval.high.to_bytes(direction));
    match direction {
        Direction::Ascending => (low, high),
        Direction::Descending => (high, low),
    }
}

/// Leading fields with single values make prefixes; the first other field ends each with its intervals.
fn ranges(fields: &[FieldBounds]) -> (Vec<KeyRange>, bool) {
    if fields.iter().any(|field| field.set.is_empty()) {
        return (Vec::new(), false);
    }
    if fields.iter().all(|field| field.set.is_all()) {
        return (vec![KeyRange::all()], false);
    }
    let mut prefixes: Vec<Vec<u8>> = vec![Vec::new()];
    for (i, field) in fields.iter().enumerate() {
        let needs_check_beyond = fields.iter().skip(i + 1).any(|later| !later.set.is_all());
        if let Some(points) = field.points()
            && prefixes.len().saturating_mul(points.len()) <= RANGES_MAX
        {
            prefixes = product(&prefixes, &points);
            continue;
        }
        if field.set.is_all() && !prefixes.iter().all(Vec::is_empty) {
            return (prefixes.into_iter().map(prefix_range).collect(), needs_check_beyond);
        }
        if prefixes.len().saturating_mul(field.bytes.len()) <= RANGES_MAX {
            let ranges = prefixes.iter().flat_map(|prefix| field.bytes.iter().map(|bytes| joined(prefix, bytes)));
            return (ranges.collect(), needs_check_beyond);
        }
        // One range over all of the field's intervals.
        let (Some((start, _)), Some((_, end))) = (field.bytes.first(), field.bytes.last()) else {
            return (Vec::new(), false);
        };
        let hull = (start.clone(), end.clone());
        return (prefixes.iter().map(|prefix| joined(prefix, &hull)).collect(), true);
    }
    (prefixes.into_iter().map(prefix_range).collect(), false)
}

fn product(prefixes: &[Vec<u8>], points: &[Vec<u8>]) -> Vec<Vec<u8>> {
    prefixes.iter().flat_map(|prefix| points.iter().map(|point| [&**prefix, point].concat())).collect()
}

fn joined(prefix: &[u8], (start, end): &(Vec<u8>, Vec<u8>)) -> KeyRange {
    KeyRange { start: [prefix, start].concat(), end: [prefix, end].concat() }
}

/// All keys with a prefix.
fn prefix_range(prefix: Vec<u8>) -> KeyRange {
    let mut end = prefix.clone();
    keys::append_prefix_end(&mut end);
    KeyRange { start: prefix, end }
}
