//! The laws of order, keys and validation, on random values of every type.
//!
//! The generator favours what lies close together (few distinct names and scalars, numbers of different types around the
//! same value), because that is where orders go wrong.

#![allow(clippy::unwrap_used)] // helpers of tests, which clippy does not see as tests

use baton_document::bson::oid::ObjectId;
use baton_document::bson::raw::{RawBson, RawDocumentBuf};
use baton_document::bson::spec::{BinarySubtype, ElementType};
use baton_document::bson::{self, Binary, Bson, Document, RawBsonRef, RawDocument};
use baton_document::decimal::{Decimal, EXPONENT_MAX, EXPONENT_MIN};
use baton_document::keys::{self, Direction};
use baton_document::{Number, Path, index_keys, order, path, validate};
use baton_types::Interruption;
use proptest::prelude::*;
use std::cmp::Ordering;
use std::ops::ControlFlow;

fn integers() -> impl Strategy<Value = i64> {
    prop_oneof![
        -3i64..4,
        any::<i64>(),
        any::<i32>().prop_map(i64::from),
        (0u32..64, -2i64..3).prop_map(|(bit, near)| (1i64 << bit).wrapping_add(near)),
        (0u32..64, -2i64..3).prop_map(|(bit, near)| (1i64 << bit).wrapping_neg().wrapping_add(near)),
    ]
}

fn doubles() -> impl Strategy<Value = f64> {
    let special =
        [0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN, f64::MIN_POSITIVE, 5e-324];
    prop_oneof![
        prop::sample::select(special.to_vec()),
        any::<f64>(),
        integers().prop_map(|n| n as f64),
        (-30i32..31).prop_map(|n| f64::from(n) / 10.0),
    ]
}

fn decimals() -> impl Strategy<Value = Decimal> {
    let coefficients = prop_oneof![0u128..1000, any::<u64>().prop_map(u128::from), 0u128..10u128.pow(34)];
    let exponents = prop_oneof![-3i32..4, -40i32..41, EXPONENT_MIN..=EXPONENT_MAX];
    prop_oneof![
        (any::<bool>(), coefficients, exponents)
            .prop_map(|(sign, digits, ten)| Decimal::from_scaled(sign, digits, ten)),
        doubles().prop_map(Decimal::from_f64_full),
        doubles().prop_map(Decimal::from_f64),
        integers().prop_map(Decimal::from),
        Just(Decimal::NAN),
        Just(Decimal::INFINITY),
        Just(Decimal::NEG_INFINITY),
        // Any bits at all: long coefficients, payloads, signed NaN.
        any::<[u8; 16]>().prop_map(Decimal::from_bytes),
    ]
}

fn numbers() -> impl Strategy<Value = Bson> {
    prop_oneof![
        integers().prop_map(|n| Bson::Int32(n as i32)),
        integers().prop_map(Bson::Int64),
        doubles().prop_map(Bson::Double),
        decimals().prop_map(|n| Bson::Decimal128(n.into())),
    ]
}

fn texts() -> impl Strategy<Value = String> {
    prop_oneof!["[\u{0}\u{1}\u{2}ab\u{7f}é]{0,4}", "[a-c]{0,20}"]
}

fn names() -> impl Strategy<Value = String> {
    prop_oneof!["[ab]", "[\u{1}01é]{0,2}"]
}

fn db_pointer(namespace: &str, id: [u8; 12]) -> Bson {
    let size = |n: usize| (n as i32).to_le_bytes();
    let text = [&size(namespace.len() + 1), namespace.as_bytes(), &[0]].concat();
    let body = [&[0x0c, b'p', 0][..], &text, &id, &[0]].concat();
    let document = RawDocumentBuf::from_bytes([&size(body.len() + 4)[..], &body].concat()).unwrap();
    let value: RawBson = document.get("p").unwrap().unwrap().into();
    value.try_into().unwrap()
}

fn scalars() -> impl Strategy<Value = Bson> {
    let subtypes = prop::sample::select(vec![BinarySubtype::Generic, BinarySubtype::BinaryOld, BinarySubtype::Uuid]);
    let lengths = prop_oneof![0usize..4, 250usize..260];
    prop_oneof![
        4 => numbers(),
        3 => texts().prop_map(Bson::String),
        1 => texts().prop_map(Bson::Symbol),
        1 => texts().prop_map(Bson::JavaScriptCode),
        1 => prop::sample::select(vec![Bson::MinKey, Bson::MaxKey, Bson::Null, Bson::Undefined]),
        1 => any::<bool>().prop_map(Bson::Boolean),
        1 => integers().prop_map(|n| Bson::DateTime(bson::DateTime::from_millis(n))),
        1 => (any::<u32>(), 0u32..3).prop_map(|(time, increment)| Bson::Timestamp(bson::Timestamp { time, increment })),
        1 => any::<[u8; 12]>().prop_map(|id| Bson::ObjectId(ObjectId::from_bytes(id))),
        1 => ("[a-c\u{1}]{0,2}", "[im]{0,1}").prop_map(|(pattern, options)| Bson::RegularExpression(bson::Regex {
            pattern: pattern.try_into().unwrap(),
            options: options.try_into().unwrap(),
        })),
        1 => (subtypes, lengths, any::<u8>()).prop_map(|(subtype, length, byte)| Bson::Binary(Binary {
            subtype,
            bytes: vec![byte; length],
        })),
        1 => ("[ab\u{0}]{0,2}", any::<[u8; 12]>()).prop_map(|(namespace, id)| db_pointer(&namespace, id)),
    ]
}

fn documents(of: impl Strategy<Value = Bson>) -> impl Strategy<Value = Document> {
    prop::collection::vec((names(), of), 0..4).prop_map(|fields| fields.into_iter().collect())
}

fn values() -> impl Strategy<Value = Bson> {
    scalars().prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            documents(inner.clone()).prop_map(Bson::Document),
            prop::collection::vec(inner.clone(), 0..4).prop_map(Bson::Array),
            (texts(), documents(inner)).prop_map(|(code, scope)| {
                Bson::JavaScriptCodeWithScope(bson::JavaScriptCodeWithScope { code, scope })
            }),
        ]
    })
}

fn directions() -> impl Strategy<Value = Direction> {
    prop::sample::select(vec![Direction::Ascending, Direction::Descending])
}

fn directed(ordering: Ordering, direction: Direction) -> Ordering {
    if direction == Direction::Descending { ordering.reverse() } else { ordering }
}

fn raw(value: &Bson) -> RawBson {
    RawBson::try_from(value.clone()).unwrap()
}

fn key(value: &Bson, direction: Direction) -> Vec<u8> {
    let mut out = Vec::new();
    keys::encode_bson(&mut out, value, direction).unwrap();
    out
}

/// A value's bytes, to compare it exactly, NaN and all.
fn bytes(value: &Bson) -> Vec<u8> {
    let mut document = RawDocumentBuf::new();
    document.append(bson::raw::cstr!("v"), raw(value));
    document.into_bytes()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_order_is_total(mut three in [values(), values(), values()]) {
        let [a, b, _] = &three;
        prop_assert_eq!(order::compare_bson(a, a), Ordering::Equal);
        prop_assert_eq!(order::compare_bson(a, b), order::compare_bson(b, a).reverse());
        three.sort_by(order::compare_bson);
        prop_assert_ne!(order::compare_bson(&three[0], &three[2]), Ordering::Greater);
        if order::compare_bson(&three[0], &three[2]) == Ordering::Equal {
            prop_assert_eq!(order::compare_bson(&three[0], &three[1]), Ordering::Equal);
        }
    }

    #[test]
    fn numbers_are_totally_ordered(mut three in [numbers(), numbers(), numbers()]) {
        let compare = |a: &Bson, b: &Bson| Number::from_bson(a).unwrap().compare(Number::from_bson(b).unwrap());
        prop_assert_eq!(compare(&three[0], &three[1]), compare(&three[1], &three[0]).reverse());
        three.sort_by(compare);
        prop_assert_ne!(compare(&three[0], &three[2]), Ordering::Greater);
    }

    #[test]
    fn both_representations_order_alike(a in values(), b in values()) {
        let expected = order::compare_bson(&a, &b);
        let (raw_a, raw_b) = (raw(&a), raw(&b));
        prop_assert_eq!(order::compare(raw_a.as_raw_bson_ref(), raw_b.as_raw_bson_ref()), expected);
        prop_assert_eq!(order::compare_raw_bson(raw_a.as_raw_bson_ref(), &b), expected);
    }

    #[test]
    fn keys_order_as_values_do(a in values(), b in values(), direction in directions()) {
        let expected = directed(order::compare_bson(&a, &b), direction);
        prop_assert_eq!(key(&a, direction).cmp(&key(&b, direction)), expected);
    }

    #[test]
    fn keys_of_numbers_order_as_numbers_do(a in numbers(), b in numbers(), direction in directions()) {
        let expected = directed(order::compare_bson(&a, &b), direction);
        prop_assert_eq!(key(&a, direction).cmp(&key(&b, direction)), expected);
    }

    #[test]
    fn a_decimal_keeps_its_place_beside_its_double(a in decimals(), step in -1i64..2, direction in directions()) {
        let near = f64::from_bits(a.to_f64().to_bits().wrapping_add_signed(step));
        let (a, b) = (Bson::Decimal128(a.into()), Bson::Double(near));
        let expected = directed(order::compare_bson(&a, &b), direction);
        prop_assert_eq!(key(&a, direction).cmp(&key(&b, direction)), expected);
    }

    #[test]
    fn compound_keys_order_component_by_component(
        a in [values(), values()],
        b in [values(), values()],
        directions in [directions(), directions()],
        same_first in any::<bool>(),
    ) {
        let mut b = b;
        if same_first {
            b[0] = a[0].clone();
        }
        let compound = |values: &[Bson; 2]| {
            let mut out = key(&values[0], directions[0]);
            out.extend(key(&values[1], directions[1]));
            out
        };
        let expected = directed(order::compare_bson(&a[0], &b[0]), directions[0])
            .then(directed(order::compare_bson(&a[1], &b[1]), directions[1]));
        prop_assert_eq!(compound(&a).cmp(&compound(&b)), expected);
        // A prefix's end lies above every key with the prefix and below every key beyond it.
        let mut end = key(&a[0], directions[0]);
        keys::append_prefix_end(&mut end);
        let by_first = directed(order::compare_bson(&b[0], &a[0]), directions[0]);
        prop_assert_eq!(compound(&b) > end, by_first == Ordering::Greater);
    }

    #[test]
    fn decoding_gives_back_the_value(value in values(), direction in directions(), suffix in any::<[u8; 3]>()) {
        let encoded = key(&value, direction);
        let mut with_suffix = encoded.clone();
        with_suffix.extend_from_slice(&suffix);
        let mut rest = with_suffix.as_slice();
        let decoded = keys::decode(&mut rest, direction).unwrap();
        prop_assert_eq!(rest, &suffix[..]);
        prop_assert_eq!(order::compare_bson(&decoded, &value), Ordering::Equal);
        prop_assert_eq!(&key(&decoded, direction), &encoded);
        let mut rest = with_suffix.as_slice();
        prop_assert_eq!(keys::skip(&mut rest, direction).unwrap(), &encoded[..]);
        // What comes back is canonical, and what was canonical comes back as it was.
        let same = bytes(&decoded) == bytes(&value);
        prop_assert_eq!(keys::is_lossless(raw(&value).as_raw_bson_ref()), same);
        prop_assert!(keys::is_lossless(raw(&decoded).as_raw_bson_ref()));
    }

    #[test]
    fn every_value_lies_within_its_brackets_bounds(value in values(), direction in directions()) {
        let (low, high) = keys::bracket_bounds(value.element_type(), direction);
        prop_assert!((low..high).contains(&key(&value, direction)[0]));
    }

    #[test]
    fn fast_paths_write_what_the_general_one_writes(n in integers(), text in texts(), id in any::<[u8; 12]>()) {
        let fast = |write: &dyn Fn(&mut Vec<u8>)| { let mut out = Vec::new(); write(&mut out); out };
        prop_assert_eq!(fast(&|out| keys::encode_i64(out, n)), key(&Bson::Int64(n), Direction::Ascending));
        prop_assert_eq!(fast(&|out| keys::encode_str(out, &text)), key(&Bson::String(text.clone()), Direction::Ascending));
        let expected = key(&Bson::ObjectId(ObjectId::from_bytes(id)), Direction::Ascending);
        prop_assert_eq!(fast(&|out| keys::encode_object_id(out, &id)), expected);
    }

    #[test]
    fn decimal_conversions_are_exact_where_they_say_so(n in integers(), d in doubles(), any in decimals()) {
        prop_assert_eq!(Decimal::from(n).to_i64_exact(), Some(n));
        let back = Decimal::from_f64_full(d).to_f64();
        prop_assert!(back == d || (back.is_nan() && d.is_nan()));
        prop_assert_eq!(Decimal::from(bson::Decimal128::from(any)), any);
        if let Some(n) = any.to_i64_exact() {
            prop_assert_eq!(any.compare_i64(n), Ordering::Equal);
        }
        if any.is_finite() {
            prop_assert_eq!(Decimal::parse(&any.to_string()).unwrap().compare(any), Ordering::Equal);
        }
    }

    #[test]
    fn integer_arithmetic_is_exact_or_turns_into_a_double(a in integers(), b in integers()) {
        let exact = i128::from(a) + i128::from(b);
        match Number::Int64(a).add(Number::Int64(b)) {
            Number::Int64(sum) => prop_assert_eq!(i128::from(sum), exact),
            Number::Double(sum) => {
                prop_assert!(i64::try_from(exact).is_err());
                prop_assert_eq!(sum, a as f64 + b as f64);
            }
            other => prop_assert!(false, "{other:?}"),
        }
        match Number::Int32(a as i32).multiply(Number::Int32(b as i32)).to_i64_exact() {
            Some(product) => prop_assert_eq!(product, i64::from(a as i32) * i64::from(b as i32)),
            None => prop_assert!(false, "a product of 32-bit integers fits 64 bits"),
        }
    }

    #[test]
    fn any_bytes_are_safe_to_decode(bytes in prop::collection::vec(any::<u8>(), 0..64), direction in directions()) {
        let decoded = keys::decode(&mut bytes.as_slice(), direction);
        let skipped = keys::skip(&mut bytes.as_slice(), direction);
        prop_assert!(decoded.is_err() || skipped.is_ok());
    }

    #[test]
    fn a_damaged_key_is_safe_to_decode(
        value in values(), at in any::<prop::sample::Index>(), byte in any::<u8>(), direction in directions(),
    ) {
        let mut damaged = key(&value, direction);
        let at = at.index(damaged.len());
        damaged[at] = byte;
        let decoded = keys::decode(&mut damaged.as_slice(), direction);
        let skipped = keys::skip(&mut damaged.as_slice(), direction);
        prop_assert!(decoded.is_err() || skipped.is_ok());
    }

    #[test]
    fn what_is_valid_can_be_read_to_the_end(
        document in documents(values()), damage in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
    ) {
        let mut bytes = RawDocumentBuf::try_from(&document).unwrap().into_bytes();
        if let Some((at, byte)) = damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        } else {
            prop_assert!(validate::document(&bytes).is_ok());
        }
        if let Ok(valid) = validate::document(&bytes) {
            prop_assert!(read_all(valid));
        }
    }

    #[test]
    fn index_keys_are_the_values_a_comparison_visits(document in documents(values()), name in names()) {
        let document = RawDocumentBuf::try_from(&document).unwrap();
        let path = Path::parse(&name);
        let mut visited = Vec::new();
        let flow = path::visit(&document, &path, &mut |value| {
            visited.push(value.unwrap_or(RawBsonRef::Null));
            ControlFlow::Continue(())
        });
        prop_assert!(flow.unwrap().is_continue());
        let found = index_keys::index_keys(&document, &[path], false, &Interruption::default()).unwrap();
        if found.is_multikey() {
            // The array itself is visited last, and indexed only as undefined, if empty.
            visited.pop();
            if visited.is_empty() {
                visited.push(RawBsonRef::Undefined);
            }
        }
        visited.sort_by(|a, b| order::compare(*a, *b));
        visited.dedup_by(|a, b| order::compare(*a, *b) == Ordering::Equal);
        prop_assert_eq!(visited.len(), found.keys.len());
        for (visited, key) in visited.iter().zip(&found.keys) {
            prop_assert_eq!(order::compare(*visited, key.values[0]), Ordering::Equal);
        }
    }

    #[test]
    fn paths_into_any_document_are_safe(
        document in documents(values()), first in "[ab01]", second in "[ab01]", sparse in any::<bool>(),
    ) {
        let document = RawDocumentBuf::try_from(&document).unwrap();
        let paths = [Path::parse(&format!("{first}.{second}")), Path::parse(&first)];
        for path in &paths {
            prop_assert!(path::visit(&document, path, &mut |_| ControlFlow::Continue(())).is_ok());
        }
        match index_keys::index_keys(&document, &paths, sparse, &Interruption::default()) {
            Ok(keys) => prop_assert!(sparse || !keys.keys.is_empty()),
            Err(error) => prop_assert!([171, 16746].contains(&error.code.0), "{error}"),
        }
    }
}

/// Reads every element of every level through the bson crate.
fn read_all(document: &RawDocument) -> bool {
    document.iter_elements().all(|element| {
        let Ok(element) = element else { return false };
        match element.value() {
            Ok(RawBsonRef::Document(inner)) => read_all(inner),
            Ok(RawBsonRef::JavaScriptCodeWithScope(code)) => read_all(code.scope),
            Ok(RawBsonRef::Array(array)) => {
                array.iter_elements().all(|element| element.is_ok_and(|element| element.value().is_ok()))
            }
            Ok(value) => value.element_type() == element.element_type(),
            Err(_) => false,
        }
    })
}

#[test]
fn the_bracket_order_of_keys_is_the_order_of_types() {
    let types = (0u8..=255).filter_map(ElementType::from);
    let mut brackets: Vec<(u8, (u8, u8))> =
        types.map(|t| (order::canonical_type(t), keys::bracket_bounds(t, Direction::Ascending))).collect();
    brackets.sort_unstable();
    brackets.dedup();
    assert!(brackets.windows(2).all(|pair| pair[0].1.1 <= pair[1].1.0), "{brackets:?}");
}
