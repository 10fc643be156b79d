//! MongoDB's total order over values of all types.
//!
//! First by type bracket (MinKey, undefined, null, numbers, strings and symbols, objects, arrays, binary, ObjectId,
//! boolean, date, timestamp, regular expression, DBPointer, code, code with scope, MaxKey), then by value; numbers by
//! exact value whatever their type. Source: MongoDB manual, "Comparison/Sort Order".
//!
//! What it deliberately does not do: collation, and missing fields (the caller says what missing is equal to).

use crate::number::Number;
use bson::raw::{RawBson, RawDbPointerRef, RawDocumentBuf, RawIter};
use bson::spec::{BinarySubtype, ElementType};
use bson::{Bson, RawArray, RawBsonRef, RawDocument};
use std::cmp::Ordering;

/// Compares two values.
pub fn compare(a: RawBsonRef<'_>, b: RawBsonRef<'_>) -> Ordering {
    compare_values(Value::Raw(a), Value::Raw(b))
}

/// Compares two values.
pub fn compare_bson(a: &Bson, b: &Bson) -> Ordering {
    compare_values(Value::owned(a), Value::owned(b))
}

/// Compares a value where it lies with one held in memory.
pub fn compare_raw_bson(a: RawBsonRef<'_>, b: &Bson) -> Ordering {
    compare_values(Value::Raw(a), Value::owned(b))
}

/// Compares two documents: field by field, each by type bracket, then name, then value; the shorter first.
pub fn compare_documents(a: &RawDocument, b: &RawDocument) -> Ordering {
    compare(RawBsonRef::Document(a), RawBsonRef::Document(b))
}

/// Compares two arrays element by element; the shorter first.
pub fn compare_arrays(a: &RawArray, b: &RawArray) -> Ordering {
    compare(RawBsonRef::Array(a), RawBsonRef::Array(b))
}

/// The type's bracket: values of different brackets order by it. MongoDB's own numbers, save MinKey and undefined.
pub fn canonical_type(t: ElementType) -> u8 {
    match t {
        ElementType::MinKey => 0,
        ElementType::Undefined => 1,
        ElementType::Null => 5,
        ElementType::Int32 | ElementType::Int64 | ElementType::Double | ElementType::Decimal128 => 10,
        ElementType::String | ElementType::Symbol => 15,
        ElementType::EmbeddedDocument => 20,
        ElementType::Array => 25,
        ElementType::Binary => 30,
        ElementType::ObjectId => 35,
        ElementType::Boolean => 40,
        ElementType::DateTime => 45,
        ElementType::Timestamp => 47,
        ElementType::RegularExpression => 50,
        ElementType::DbPointer => 55,
        ElementType::JavaScriptCode => 60,
        ElementType::JavaScriptCodeWithScope => 65,
        ElementType::MaxKey => 127,
    }
}

/// A scalar held in memory, viewed as a raw value; `None` for containers and the types without such a view.
pub(crate) fn scalar(value: &Bson) -> Option<RawBsonRef<'_>> {
    Some(match value {
        Bson::Double(n) => RawBsonRef::Double(*n),
        Bson::String(s) => RawBsonRef::String(s),
        Bson::Boolean(b) => RawBsonRef::Boolean(*b),
        Bson::Null => RawBsonRef::Null,
        Bson::JavaScriptCode(s) => RawBsonRef::JavaScriptCode(s),
        Bson::Int32(n) => RawBsonRef::Int32(*n),
        Bson::Int64(n) => RawBsonRef::Int64(*n),
        Bson::Timestamp(t) => RawBsonRef::Timestamp(*t),
        Bson::ObjectId(id) => RawBsonRef::ObjectId(*id),
        Bson::DateTime(t) => RawBsonRef::DateTime(*t),
        Bson::Symbol(s) => RawBsonRef::Symbol(s),
        Bson::Decimal128(n) => RawBsonRef::Decimal128(*n),
        Bson::Undefined => RawBsonRef::Undefined,
        Bson::MaxKey => RawBsonRef::MaxKey,
        Bson::MinKey => RawBsonRef::MinKey,
        Bson::Binary(b) => RawBsonRef::from(b),
        Bson::RegularExpression(_)
        | Bson::Array(_)
        | Bson::Document(_)
        | Bson::JavaScriptCodeWithScope(_)
        | Bson::DbPointer(_) => return None,
    })
}

/// A value in either representation. Scalars held in memory are viewed as raw ones; containers are walked as they are.
#[derive(Clone, Copy)]
enum Value<'a> {
    Raw(RawBsonRef<'a>),
    Owned(&'a Bson),
}

impl<'a> Value<'a> {
    fn owned(value: &'a Bson) -> Self {
        scalar(value).map_or(Self::Owned(value), Self::Raw)
    }

    fn bracket(self) -> u8 {
        canonical_type(match self {
            Self::Raw(value) => value.element_type(),
            Self::Owned(value) => value.element_type(),
        })
    }

    /// The fields of a document or the elements of an array; none for any other type.
    fn children(self) -> Children<'a> {
        match self {
            Self::Raw(RawBsonRef::Document(document)) => Children::Raw(document.iter_elements()),
            Self::Raw(RawBsonRef::Array(array)) => Children::Raw(array.iter_elements()),
            Self::Raw(RawBsonRef::JavaScriptCodeWithScope(code)) => Children::Raw(code.scope.iter_elements()),
            Self::Owned(Bson::Document(document)) => Children::Document(document.iter()),
            Self::Owned(Bson::Array(array)) => Children::Array(array.iter()),
            Self::Owned(Bson::JavaScriptCodeWithScope(code)) => Children::Document(code.scope.iter()),
            Self::Raw(_) | Self::Owned(_) => Children::Array([].iter()),
        }
    }

    /// The code of a code with scope.
    fn code(self) -> &'a str {
        match self {
            Self::Raw(RawBsonRef::JavaScriptCodeWithScope(code)) => code.code,
            Self::Owned(Bson::JavaScriptCodeWithScope(code)) => &code.code,
            Self::Raw(_) | Self::Owned(_) => "",
        }
    }

    /// Pattern and options of a regular expression.
    fn regex(self) -> (&'a str, &'a str) {
        match self {
            Self::Raw(RawBsonRef::RegularExpression(regex)) => (regex.pattern.as_str(), regex.options.as_str()),
            Self::Owned(Bson::RegularExpression(regex)) => (regex.pattern.as_str(), regex.options.as_str()),
            Self::Raw(_) | Self::Owned(_) => ("", ""),
        }
    }

    fn db_pointer(self) -> Vec<u8> {
        match self {
            Self::Raw(RawBsonRef::DbPointer(pointer)) => db_pointer_bytes(pointer),
            Self::Owned(Bson::DbPointer(pointer)) => match RawBson::DbPointer(pointer.clone()).as_raw_bson_ref() {
                RawBsonRef::DbPointer(pointer) => db_pointer_bytes(pointer),
                _ => Vec::new(),
            },
            Self::Raw(_) | Self::Owned(_) => Vec::new(),
        }
    }
}

/// Iterates over a container of either representation. An element that cannot be read ends it.
enum Children<'a> {
    Raw(RawIter<'a>),
    Document(bson::document::Iter<'a>),
    Array(std::slice::Iter<'a, Bson>),
}

impl<'a> Iterator for Children<'a> {
    type Item = (&'a str, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Raw(iter) => {
                let element = iter.next()?.ok()?;
                Some((element.key().as_str(), Value::Raw(element.value().ok()?)))
            }
            Self::Document(iter) => iter.next().map(|(key, value)| (key.as_str(), Value::owned(value))),
            Self::Array(iter) => iter.next().map(|value| ("", Value::owned(value))),
        }
    }
}

fn compare_values(a: Value<'_>, b: Value<'_>) -> Ordering {
    if let (Value::Raw(a), Value::Raw(b)) = (a, b)
        && let Some(ordering) = compare_scalars(a, b)
    {
        return ordering;
    }
    let bracket = a.bracket();
    let by_type = bracket.cmp(&b.bracket());
    if by_type != Ordering::Equal {
        return by_type;
    }
    match bracket {
        20 => compare_children(a.children(), b.children(), true),
        25 => compare_children(a.children(), b.children(), false),
        50 => a.regex().cmp(&b.regex()),
        55 => {
            let (a, b) = (a.db_pointer(), b.db_pointer());
            a.len().cmp(&b.len()).then_with(|| a.cmp(&b))
        }
        65 => a.code().cmp(b.code()).then_with(|| compare_children(a.children(), b.children(), true)),
        _ => Ordering::Equal,
    }
}

/// Compares within one bracket of scalars; `None` for containers, the rare types, and values of different brackets.
fn compare_scalars(a: RawBsonRef<'_>, b: RawBsonRef<'_>) -> Option<Ordering> {
    use RawBsonRef as R;
    Some(match (a, b) {
        (R::Int32(a), R::Int32(b)) => a.cmp(&b),
        (R::String(a) | R::Symbol(a), R::String(b) | R::Symbol(b)) => a.cmp(b),
        (R::ObjectId(a), R::ObjectId(b)) => a.bytes().cmp(&b.bytes()),
        (R::Boolean(a), R::Boolean(b)) => a.cmp(&b),
        (R::DateTime(a), R::DateTime(b)) => a.cmp(&b),
        (R::Timestamp(a), R::Timestamp(b)) => (a.time, a.increment).cmp(&(b.time, b.increment)),
        (R::JavaScriptCode(a), R::JavaScriptCode(b)) => a.cmp(b),
        (R::Binary(a), R::Binary(b)) => binary_length(a.subtype, a.bytes)
            .cmp(&binary_length(b.subtype, b.bytes))
            .then_with(|| u8::from(a.subtype).cmp(&u8::from(b.subtype)))
            .then_with(|| a.bytes.cmp(b.bytes)),
        (a, b) => return Some(Number::from_raw(a)?.compare(Number::from_raw(b)?)),
    })
}

fn compare_children(mut a: Children<'_>, mut b: Children<'_>, names: bool) -> Ordering {
    loop {
        let ((name_a, value_a), (name_b, value_b)) = match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(a), Some(b)) => (a, b),
        };
        let mut ordering = value_a.bracket().cmp(&value_b.bracket());
        if names {
            ordering = ordering.then_with(|| name_a.cmp(name_b));
        }
        let ordering = ordering.then_with(|| compare_values(value_a, value_b));
        if ordering != Ordering::Equal {
            return ordering;
        }
    }
}

/// The length as it stands in the document: the old subtype repeats the length inside, which the bson crate hides.
pub(crate) fn binary_length(subtype: BinarySubtype, bytes: &[u8]) -> usize {
    bytes.len() + if subtype == BinarySubtype::BinaryOld { 4 } else { 0 }
}

/// A DBPointer's bytes as they stand in a document (its fields are closed to us): length, namespace, NUL, ObjectId.
pub(crate) fn db_pointer_bytes(pointer: RawDbPointerRef<'_>) -> Vec<u8> {
    let mut document = RawDocumentBuf::new();
    document.append(bson::raw::cstr!(""), RawBsonRef::DbPointer(pointer));
    let bytes = document.as_bytes();
    // Around it: the document's length (4), type and empty name (2); its terminator (1).
    bytes.get(6..bytes.len() - 1).unwrap_or_default().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{bson, doc, rawdoc};

    #[test]
    fn the_brackets_come_in_mongodbs_order() {
        let ascending = [
            Bson::MinKey,
            Bson::Undefined,
            Bson::Null,
            Bson::Double(f64::NAN),
            Bson::Double(f64::NEG_INFINITY),
            Bson::Int32(-1),
            Bson::Double(0.5),
            Bson::Int64(1),
            Bson::String(String::new()),
            Bson::Symbol("a".into()),
            Bson::String("b".into()),
            bson!({}),
            bson!({ "a": 1 }),
            bson!([]),
            bson!([1]),
            Bson::Binary(bson::Binary { subtype: BinarySubtype::Generic, bytes: vec![9] }),
            Bson::Binary(bson::Binary { subtype: BinarySubtype::Generic, bytes: vec![0, 0] }),
            Bson::ObjectId(bson::oid::ObjectId::from_bytes([0; 12])),
            Bson::Boolean(false),
            Bson::Boolean(true),
            Bson::DateTime(bson::DateTime::from_millis(-1)),
            Bson::DateTime(bson::DateTime::from_millis(1)),
            Bson::Timestamp(bson::Timestamp { time: 0, increment: 1 }),
            Bson::Timestamp(bson::Timestamp { time: 0x8000_0000, increment: 0 }),
            Bson::JavaScriptCode("x".into()),
            Bson::JavaScriptCodeWithScope(bson::JavaScriptCodeWithScope { code: "x".into(), scope: doc! {} }),
            Bson::MaxKey,
        ];
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(compare_bson(a, b), i.cmp(&j), "{a} against {b}");
            }
        }
    }

    #[test]
    fn documents_compare_type_before_name_before_value() {
        for (less, more) in [
            (doc! { "b": 1 }, doc! { "a": "x" }),
            (doc! { "a": 2 }, doc! { "b": 1 }),
            (doc! { "a": 1 }, doc! { "a": 2 }),
            (doc! { "a": 1 }, doc! { "a": 1, "b": Bson::MinKey }),
        ] {
            assert_eq!(compare_bson(&less.clone().into(), &more.clone().into()), Ordering::Less, "{less} {more}");
        }
    }

    #[test]
    fn both_representations_order_alike() {
        let raw = rawdoc! { "v": { "a": [1, 2.5, "x", null] } };
        let value = raw.get("v").unwrap().unwrap();
        assert_eq!(compare_raw_bson(value, &bson!({ "a": [1i64, 2.5, "x", null] })), Ordering::Equal);
        assert_eq!(compare_raw_bson(value, &bson!({ "a": [1i64, 2.5, "x"] })), Ordering::Greater);
    }
}
