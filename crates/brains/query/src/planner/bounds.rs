//! From a predicate on a field to the set of index keys to look at.
//!
//! Invariants: the set holds at least one key of every document that matches (it may hold too many); where it is
//! [`Precision::Exact`], every key in it belongs to a document that matches, so that no filter is needed. A missing field
//! has the key null, an empty array the key undefined, any other array one key for each element.

use super::interval::{Cut, IntervalSet};
use super::regex_prefix;
use crate::matcher::{Comparison, InList, Operator, Predicate, RegexPredicate};
use bson::raw::CString;
use bson::spec::ElementType;
use bson::{Bson, RawBson, RawBsonRef};

/// Whether the keys say all there is to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Precision {
    /// Every key in the set belongs to a document that matches.
    Exact,
    /// The filter must still be applied.
    NeedsFilter,
}

/// The keys to look at for a predicate.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// The keys.
    pub set: IntervalSet,
    /// Whether they are enough.
    pub precision: Precision,
}

/// What is known of the indexed field.
#[derive(Clone, Copy, Debug)]
pub struct FieldFacts {
    /// Whether some document has an array on the path.
    pub is_multikey: bool,
    /// Whether a component of the path could be an array position.
    pub has_numeric_component: bool,
    /// Whether documents without the field are left out, and the field is the only one.
    pub is_sparse_alone: bool,
}

impl Bounds {
    fn exact(set: IntervalSet) -> Self {
        Self { set, precision: Precision::Exact }
    }

    fn loose(set: IntervalSet) -> Self {
        Self { set, precision: Precision::NeedsFilter }
    }
}

/// The keys for a predicate, or for its contrary; none if an index on the field does not help.
pub fn bounds(predicate: &Predicate, negated: bool, facts: FieldFacts) -> Option<Bounds> {
    if facts.has_numeric_component {
        return numeric_path_bounds(predicate, negated);
    }
    if !negated {
        return positive(predicate, facts);
    }
    match predicate {
        // Missing fields have the key null.
        Predicate::Exists => Some(Bounds::loose(IntervalSet::point(RawBsonRef::Null))),
        Predicate::Compare(_) | Predicate::In(_) => {
            // The complement holds all documents that do not match only if every key in the set belongs to one that does.
            let inner = positive(predicate, facts)?;
            if inner.precision != Precision::Exact {
                return None;
            }
            let set = inner.set.complement();
            Some(if facts.is_multikey { Bounds::loose(set) } else { Bounds::exact(set) })
        }
        Predicate::Type(_)
        | Predicate::Mod(_)
        | Predicate::Regex(_)
        | Predicate::Bits(_)
        | Predicate::Size(_)
        | Predicate::ElemMatchObject(_)
        | Predicate::ElemMatchValue(_) => None,
    }
}

/// A path such as `a.0` reaches values in two ways, and its keys only some of them: enough for plain values, too little
/// for what a missing value satisfies.
fn numeric_path_bounds(predicate: &Predicate, negated: bool) -> Option<Bounds> {
    let is_plain = match predicate {
        Predicate::Compare(_) | Predicate::In(_) => !predicate.test(None).unwrap_or(true),
        _ => false,
    };
    if negated || !is_plain {
        return None;
    }
    let facts = FieldFacts { is_multikey: true, has_numeric_component: true, is_sparse_alone: false };
    positive(predicate, facts).map(|bounds| Bounds::loose(bounds.set))
}

fn positive(predicate: &Predicate, facts: FieldFacts) -> Option<Bounds> {
    Some(match predicate {
        Predicate::Compare(comparison) => compare(comparison, facts),
        Predicate::In(list) => membership(list, facts),
        Predicate::Exists if facts.is_sparse_alone => Bounds::exact(IntervalSet::all()),
        Predicate::Exists => Bounds::loose(IntervalSet::all()),
        Predicate::Type(types) => {
            if types.contains(ElementType::Array) {
                return None;
            }
            Bounds::loose(IntervalSet::union_of(types.iter().map(IntervalSet::bracket)))
        }
        Predicate::Regex(regex) => regular_expression(regex),
        Predicate::Mod(_) => Bounds::loose(IntervalSet::bracket(ElementType::Int32)),
        Predicate::Bits(_) => Bounds::loose(IntervalSet::union_of([
            IntervalSet::bracket(ElementType::Int32),
            IntervalSet::bracket(ElementType::Binary),
        ])),
        Predicate::Size(_) | Predicate::ElemMatchObject(_) | Predicate::ElemMatchValue(_) => return None,
    })
}

fn compare(comparison: &Comparison, facts: FieldFacts) -> Bounds {
    let value = comparison.value();
    match comparison.operator {
        Operator::Eq => equal(value, facts),
        Operator::Lt | Operator::Lte | Operator::Gt | Operator::Gte => order(comparison.operator, value, facts),
    }
}

/// The keys of documents with exactly this value.
fn equal(value: RawBsonRef<'_>, facts: FieldFacts) -> Bounds {
    match value {
        RawBsonRef::Null => {
            // Missing and null have one key; an empty array at the end of a path has undefined's, one on the way null's.
            let set = IntervalSet::union_of([
                IntervalSet::point(RawBsonRef::Undefined),
                IntervalSet::point(RawBsonRef::Null),
            ]);
            if facts.is_multikey { Bounds::loose(set) } else { Bounds::exact(set) }
        }
        RawBsonRef::Array(array) => {
            // The whole array is a key only inside another array; else its elements are, and its first will do.
            let first = match array.into_iter().next() {
                None => RawBsonRef::Undefined,
                Some(Ok(first)) => first,
                Some(Err(_)) => return Bounds::loose(IntervalSet::all()),
            };
            Bounds::loose(IntervalSet::union_of([IntervalSet::point(value), IntervalSet::point(first)]))
        }
        value => Bounds::exact(IntervalSet::point(value)),
    }
}

/// The keys below or above a value, within its type bracket.
fn order(operator: Operator, value: RawBsonRef<'_>, facts: FieldFacts) -> Bounds {
    let includes_equal = matches!(operator, Operator::Lte | Operator::Gte);
    let is_below = matches!(operator, Operator::Lt | Operator::Lte);
    let t = value.element_type();
    let (low, high) = match value {
        RawBsonRef::Null if includes_equal => return equal(value, facts),
        RawBsonRef::Null => return Bounds::exact(IntervalSet::empty()),
        RawBsonRef::Double(d) if d.is_nan() => return nan(value, includes_equal),
        RawBsonRef::Decimal128(_) if is_nan_key(value) => return nan(value, includes_equal),
        // Everything is above MinKey and below MaxKey, also missing and whole arrays, whatever their elements' keys.
        RawBsonRef::MinKey if !is_below => return Bounds::loose(IntervalSet::all()),
        RawBsonRef::MaxKey if is_below => return Bounds::loose(IntervalSet::all()),
        // Whole arrays are compared, of which the keys say nothing.
        RawBsonRef::Array(_) => return Bounds::loose(IntervalSet::all()),
        RawBsonRef::Double(_) | RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Decimal128(_) => {
            // NaN is in the bracket and neither less nor greater.
            (Cut::before(RawBsonRef::Double(f64::NEG_INFINITY)), Cut::after(RawBsonRef::Double(f64::INFINITY)))
        }
        _ => (Cut::bracket_start(t), Cut::bracket_end(t)),
    };
    Bounds::exact(match operator {
        Operator::Lt => IntervalSet::range(low, Cut::before(value)),
        Operator::Lte => IntervalSet::range(low, Cut::after(value)),
        Operator::Gt => IntervalSet::range(Cut::after(value), high),
        Operator::Eq | Operator::Gte => IntervalSet::range(Cut::before(value), high),
    })
}

fn nan(value: RawBsonRef<'_>, includes_equal: bool) -> Bounds {
    Bounds::exact(if includes_equal { IntervalSet::point(value) } else { IntervalSet::empty() })
}

/// Whether a decimal has NaN's key.
fn is_nan_key(value: RawBsonRef<'_>) -> bool {
    Cut::before(value) == Cut::before(RawBsonRef::Double(f64::NAN))
}

fn membership(list: &InList, facts: FieldFacts) -> Bounds {
    let members = list.values().iter().map(|value| equal(value.as_raw_bson_ref(), facts));
    let all: Vec<Bounds> = members.chain(list.regexes().iter().map(regular_expression)).collect();
    let precision = all.iter().map(|bounds| bounds.precision).max().unwrap_or(Precision::Exact);
    Bounds { set: IntervalSet::union_of(all.into_iter().map(|bounds| bounds.set)), precision }
}

/// Strings with the pattern's fixed prefix (all strings if it has none), and the same regular expression stored.
fn regular_expression(regex: &RegexPredicate) -> Bounds {
    let prefix = regex_prefix::of(regex.pattern(), regex.options());
    let strings = match (&*prefix.text, regex_prefix::successor(&prefix.text)) {
        ("", _) => IntervalSet::bracket(ElementType::String),
        (text, Some(end)) => {
            IntervalSet::range(Cut::before(RawBsonRef::String(text)), Cut::before(RawBsonRef::String(&end)))
        }
        (text, None) => {
            IntervalSet::range(Cut::before(RawBsonRef::String(text)), Cut::bracket_end(ElementType::String))
        }
    };
    let set = match stored(regex) {
        Some(literal) => IntervalSet::union_of([strings, IntervalSet::point(literal.as_raw_bson_ref())]),
        None => IntervalSet::union_of([strings, IntervalSet::bracket(ElementType::RegularExpression)]),
    };
    if prefix.is_whole_pattern { Bounds::exact(set) } else { Bounds::loose(set) }
}

fn stored(regex: &RegexPredicate) -> Option<RawBson> {
    let pattern = CString::try_from(regex.pattern()).ok()?;
    let options = CString::try_from(regex.options()).ok()?;
    RawBson::try_from(Bson::RegularExpression(bson::Regex { pattern, options })).ok()
}
