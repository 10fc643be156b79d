//! Sets of values of one field, as sorted intervals over the key encoding.
//!
//! Invariants: an interval lies between two [`Cut`]s, positions *between* values, so that it is half-open and its
//! arithmetic has no cases; the intervals of a set are ascending, disjoint and not adjacent; everything is in ascending
//! encoding, and turned round only when it becomes bytes of a descending field.

use baton_document::keys::{self, Direction};
use bson::spec::ElementType;
use bson::{Bson, RawBsonRef};
use std::cmp::Ordering;

/// Below every encoded value. Not 0x00, so that its mirror image is a byte too.
const LOWEST: u8 = 0x01;
/// Above every encoded value.
const HIGHEST: u8 = 0xff;

/// A position between values: just below or just above a value, or at the beginning of a type bracket.
#[derive(Clone, Debug)]
pub struct Cut {
    /// The value's encoding, or the bracket's first byte.
    bytes: Vec<u8>,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    BeforeValue,
    AfterValue,
    /// Below every encoding that begins with the byte.
    Bracket,
}

impl Cut {
    /// Below everything.
    pub fn lowest() -> Self {
        Self::bracket(LOWEST)
    }

    /// Above everything.
    pub fn highest() -> Self {
        Self::bracket(HIGHEST)
    }

    /// Just below a value.
    pub fn before(value: RawBsonRef<'_>) -> Self {
        Self { bytes: encoded(value), place: Place::BeforeValue }
    }

    /// Just above a value.
    pub fn after(value: RawBsonRef<'_>) -> Self {
        Self { bytes: encoded(value), place: Place::AfterValue }
    }

    /// Below all values of a type's bracket.
    pub fn bracket_start(t: ElementType) -> Self {
        Self::bracket(keys::bracket_bounds(t, Direction::Ascending).0)
    }

    /// Above all values of a type's bracket.
    pub fn bracket_end(t: ElementType) -> Self {
        Self::bracket(keys::bracket_bounds(t, Direction::Ascending).1)
    }

    fn bracket(byte: u8) -> Self {
        Self { bytes: vec![byte], place: Place::Bracket }
    }

    /// The position as bytes: the encodings on its far side are at or above them, those on its near side below.
    pub fn to_bytes(&self, direction: Direction) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        match (direction, self.place) {
            (Direction::Ascending, Place::BeforeValue | Place::Bracket) => {}
            (Direction::Ascending, Place::AfterValue) => keys::append_prefix_end(&mut bytes),
            (Direction::Descending, Place::Bracket) => {
                bytes.iter_mut().for_each(|byte| *byte = !byte.wrapping_sub(1));
            }
            (Direction::Descending, place) => {
                bytes.iter_mut().for_each(|byte| *byte = !*byte);
                if place == Place::BeforeValue {
                    keys::append_prefix_end(&mut bytes);
                }
            }
        }
        bytes
    }

    /// The value beside the cut, unless it is a bracket's.
    fn value(&self) -> Option<Bson> {
        match self.place {
            Place::Bracket => None,
            Place::BeforeValue | Place::AfterValue => keys::decode(&mut &*self.bytes, Direction::Ascending).ok(),
        }
    }
}

fn encoded(value: RawBsonRef<'_>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16);
    keys::encode(&mut bytes, value, Direction::Ascending);
    bytes
}

impl Ord for Cut {
    fn cmp(&self, other: &Self) -> Ordering {
        let is_after = |cut: &Self| cut.place == Place::AfterValue;
        self.bytes.cmp(&other.bytes).then_with(|| is_after(self).cmp(&is_after(other)))
    }
}

impl PartialOrd for Cut {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Cut {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Cut {}

/// The values between two cuts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Where it begins.
    pub low: Cut,
    /// Where it ends.
    pub high: Cut,
}

impl Interval {
    /// Whether exactly one value lies in it.
    pub fn is_point(&self) -> bool {
        self.high.place == Place::AfterValue && self.low.place != Place::AfterValue && self.low.bytes == self.high.bytes
    }

    /// The encoding of the one value in it, ascending.
    pub fn point_bytes(&self) -> Option<&[u8]> {
        self.is_point().then_some(&*self.high.bytes)
    }

    /// As MongoDB's explain prints it; `backward` swaps the ends.
    pub fn display(&self, backward: bool) -> String {
        let low_inclusive = self.low.place != Place::AfterValue;
        let high_inclusive = self.high.place == Place::AfterValue || self.high == Cut::highest();
        let (low, high) = (label(&self.low), label(&self.high));
        if backward {
            let open = if high_inclusive { '[' } else { '(' };
            let close = if low_inclusive { ']' } else { ')' };
            format!("{open}{high}, {low}{close}")
        } else {
            let open = if low_inclusive { '[' } else { '(' };
            let close = if high_inclusive { ']' } else { ')' };
            format!("{open}{low}, {high}{close}")
        }
    }
}

/// The first value of each bracket, as explain prints it. A bracket's end is printed as the next one's first value.
const FIRST_VALUES: [(ElementType, &str); 17] = [
    (ElementType::MinKey, "MinKey"),
    (ElementType::Undefined, "undefined"),
    (ElementType::Null, "null"),
    (ElementType::Int32, "nan.0"),
    (ElementType::String, "\"\""),
    (ElementType::EmbeddedDocument, "{}"),
    (ElementType::Array, "[]"),
    (ElementType::Binary, "BinData(0, )"),
    (ElementType::ObjectId, "ObjectId('000000000000000000000000')"),
    (ElementType::Boolean, "false"),
    (ElementType::DateTime, "new Date(-9223372036854775808)"),
    (ElementType::Timestamp, "Timestamp(0, 0)"),
    (ElementType::RegularExpression, "//"),
    (ElementType::DbPointer, "DBRef()"),
    (ElementType::JavaScriptCode, "Code(\"\")"),
    (ElementType::JavaScriptCodeWithScope, "CodeWScope(\"\", {})"),
    (ElementType::MaxKey, "MaxKey"),
];

fn label(cut: &Cut) -> String {
    match (cut.value(), &*cut.bytes) {
        (Some(value), _) => value_label(&value),
        (None, [LOWEST]) => "MinKey".into(),
        (None, [HIGHEST]) => "MaxKey".into(),
        (None, bytes) => FIRST_VALUES
            .iter()
            .find(|(t, _)| keys::bracket_bounds(*t, Direction::Ascending).0 >= bytes.first().copied().unwrap_or(0))
            .map_or("MaxKey", |(_, label)| label)
            .into(),
    }
}

fn value_label(value: &Bson) -> String {
    match value {
        Bson::Double(d) if d.is_nan() => "nan.0".into(),
        Bson::Double(d) if d.is_infinite() => if *d > 0.0 { "inf.0" } else { "-inf.0" }.into(),
        Bson::MinKey => "MinKey".into(),
        Bson::MaxKey => "MaxKey".into(),
        Bson::Undefined => "undefined".into(),
        Bson::ObjectId(id) => format!("ObjectId('{id}')"),
        Bson::DateTime(t) => format!("new Date({})", t.timestamp_millis()),
        Bson::Timestamp(t) => format!("Timestamp({}, {})", t.time, t.increment),
        Bson::Array(elements) => format!("[ {} ]", elements.iter().map(value_label).collect::<Vec<_>>().join(", ")),
        Bson::Document(fields) if fields.is_empty() => "{}".into(),
        Bson::Document(fields) => {
            let fields: Vec<String> = fields.iter().map(|(k, v)| format!("{k}: {}", value_label(v))).collect();
            format!("{{ {} }}", fields.join(", "))
        }
        other => other.to_string(),
    }
}

/// A set of values: ascending, disjoint, not adjacent intervals.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct IntervalSet {
    intervals: Vec<Interval>,
}

impl IntervalSet {
    /// No value.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Every value.
    pub fn all() -> Self {
        Self::range(Cut::lowest(), Cut::highest())
    }

    /// One value.
    pub fn point(value: RawBsonRef<'_>) -> Self {
        Self::range(Cut::before(value), Cut::after(value))
    }

    /// All values of a type's bracket.
    pub fn bracket(t: ElementType) -> Self {
        Self::range(Cut::bracket_start(t), Cut::bracket_end(t))
    }

    /// What lies between two cuts; nothing if they are not ascending.
    pub fn range(low: Cut, high: Cut) -> Self {
        Self { intervals: if low < high { vec![Interval { low, high }] } else { Vec::new() } }
    }

    /// The union of many sets.
    pub fn union_of(sets: impl IntoIterator<Item = Self>) -> Self {
        let mut intervals: Vec<Interval> = sets.into_iter().flat_map(|set| set.intervals).collect();
        intervals.sort_by(|a, b| a.low.cmp(&b.low));
        let mut merged: Vec<Interval> = Vec::with_capacity(intervals.len());
        for interval in intervals {
            match merged.last_mut() {
                Some(last) if interval.low <= last.high => {
                    if interval.high > last.high {
                        last.high = interval.high;
                    }
                }
                _ => merged.push(interval),
            }
        }
        Self { intervals: merged }
    }

    /// What is in both.
    pub fn intersect(&self, other: &Self) -> Self {
        let mut intervals = Vec::new();
        let (mut i, mut j) = (0, 0);
        while let (Some(a), Some(b)) = (self.intervals.get(i), other.intervals.get(j)) {
            let low = (&a.low).max(&b.low);
            let high = (&a.high).min(&b.high);
            if low < high {
                intervals.push(Interval { low: low.clone(), high: high.clone() });
            }
            if a.high <= b.high { i += 1 } else { j += 1 }
        }
        Self { intervals }
    }

    /// What is not in the set.
    pub fn complement(&self) -> Self {
        let mut intervals = Vec::with_capacity(self.intervals.len() + 1);
        let mut low = Cut::lowest();
        for interval in &self.intervals {
            if low < interval.low {
                intervals.push(Interval { low, high: interval.low.clone() });
            }
            low = interval.high.clone();
        }
        if low < Cut::highest() {
            intervals.push(Interval { low, high: Cut::highest() });
        }
        Self { intervals }
    }

    /// Whether every value of `other` is in this set.
    pub fn contains_all(&self, other: &Self) -> bool {
        other.intersect(&self.complement()).is_empty()
    }

    /// The intervals, ascending.
    pub fn intervals(&self) -> &[Interval] {
        &self.intervals
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }

    /// Whether it holds everything.
    pub fn is_all(&self) -> bool {
        matches!(&*self.intervals, [only] if only.low == Cut::lowest() && only.high == Cut::highest())
    }

    /// Whether it holds single values only.
    pub fn is_points(&self) -> bool {
        self.intervals.iter().all(Interval::is_point)
    }

    /// Whether it holds exactly one value.
    pub fn is_one_point(&self) -> bool {
        matches!(&*self.intervals, [only] if only.is_point())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::iter::once;

    fn at_least(n: i32) -> IntervalSet {
        IntervalSet::range(Cut::before(RawBsonRef::Int32(n)), Cut::highest())
    }

    fn display(set: &IntervalSet) -> Vec<String> {
        set.intervals().iter().map(|interval| interval.display(false)).collect()
    }

    #[test]
    fn the_algebra_of_sets_holds() {
        let five = IntervalSet::point(RawBsonRef::Double(5.0));
        assert!(five.is_one_point());
        assert_eq!(five, IntervalSet::point(RawBsonRef::Int32(5)));
        assert_eq!(display(&five.complement()), ["[MinKey, 5)", "(5, MaxKey]"]);
        assert_eq!(five.complement().complement(), five);
        assert!(IntervalSet::union_of([five.clone(), five.complement()]).is_all());
        assert!(five.intersect(&five.complement()).is_empty());
        assert!(IntervalSet::all().complement().is_empty());
        assert!(IntervalSet::empty().complement().is_all());
        assert!(at_least(3).contains_all(&at_least(4)));
        assert!(!at_least(4).contains_all(&at_least(3)));
        assert_eq!(IntervalSet::union_of(once(at_least(3))), at_least(3));
    }

    #[test]
    fn intervals_print_as_explain_has_them() {
        assert_eq!(display(&IntervalSet::all()), ["[MinKey, MaxKey]"]);
        assert_eq!(display(&IntervalSet::bracket(ElementType::String)), ["[\"\", {})"]);
        assert_eq!(
            display(&IntervalSet::bracket(ElementType::DateTime)),
            ["[new Date(-9223372036854775808), Timestamp(0, 0))"]
        );
        assert_eq!(at_least(3).intervals()[0].display(true), "[MaxKey, 3]");
    }

    #[test]
    fn bytes_of_a_cut_part_the_encodings_in_both_directions() {
        let values = [
            RawBsonRef::MinKey,
            RawBsonRef::Null,
            RawBsonRef::Int32(4),
            RawBsonRef::Double(4.5),
            RawBsonRef::String("a"),
            RawBsonRef::String("ab"),
            RawBsonRef::Boolean(true),
            RawBsonRef::MaxKey,
        ];
        let cuts = values.iter().flat_map(|v| [Cut::before(*v), Cut::after(*v), Cut::bracket_start(v.element_type())]);
        for cut in cuts.chain([Cut::lowest(), Cut::highest()]) {
            for value in values {
                let is_above = Cut::before(value) >= cut;
                for direction in [Direction::Ascending, Direction::Descending] {
                    let mut key = Vec::new();
                    keys::encode(&mut key, value, direction);
                    let comes_after = key >= cut.to_bytes(direction);
                    assert_eq!(comes_after, is_above == (direction == Direction::Ascending), "{cut:?} {value:?}");
                }
            }
        }
    }
}
