//! The order a pattern gives, what patterns are refused, and the sorter's bounds.

use super::*;
use baton_types::MemoryAccount;
use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Document, doc};

fn raw(doc: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(doc).expect("a document encodes")
}

fn pattern(spec: Document) -> SortPattern {
    SortPattern::parse(&raw(&spec)).expect("the pattern parses")
}

fn sorted(spec: Document, docs: &[Document]) -> Vec<i32> {
    let pattern = pattern(spec);
    let mut sorter = Sorter::new(None, MemoryAccount::alone(usize::MAX));
    for doc in docs {
        let doc = raw(doc);
        let key = pattern.key(&doc).expect("a key");
        let id = doc.get_i32("_id").expect("an id");
        sorter.push(key, id, 4).expect("within memory");
    }
    sorter.into_sorted().map(|(_, id)| id).collect()
}

#[test]
fn an_array_sorts_by_its_least_or_greatest_element() {
    let docs = [
        doc! { "_id": 1, "a": [5, 1] },
        doc! { "_id": 2, "a": 3 },
        doc! { "_id": 3, "a": [] },
        doc! { "_id": 4 },
        doc! { "_id": 5, "a": [2, 9] },
        doc! { "_id": 6, "a": null },
    ];
    assert_eq!(sorted(doc! { "a": 1 }, &docs), [3, 4, 6, 1, 5, 2]);
    assert_eq!(sorted(doc! { "a": -1 }, &docs), [5, 1, 2, 4, 6, 3]);
}

#[test]
fn a_compound_key_is_taken_from_one_element() {
    let docs =
        [doc! { "_id": 1, "a": [{ "b": 1, "c": 9 }, { "b": 2, "c": 0 }] }, doc! { "_id": 2, "a": { "b": 1, "c": 5 } }];
    assert_eq!(sorted(doc! { "a.b": 1, "a.c": 1 }, &docs), [2, 1]);
    assert_eq!(sorted(doc! { "a.b": -1, "a.c": 1 }, &docs), [1, 2]);
}

#[test]
fn types_sort_in_mongodbs_order() {
    let docs = [
        doc! { "_id": 1, "a": "x" },
        doc! { "_id": 2, "a": 7 },
        doc! { "_id": 3, "a": { "b": 1 } },
        doc! { "_id": 4, "a": true },
        doc! { "_id": 5 },
        doc! { "_id": 6, "a": 6.5 },
    ];
    assert_eq!(sorted(doc! { "a": 1 }, &docs), [5, 6, 2, 1, 3, 4]);
}

#[test]
fn parallel_arrays_cannot_be_sorted_by() {
    let error = pattern(doc! { "a": 1, "b": 1 }).key(&raw(&doc! { "a": [1, 2], "b": [3, 4] }));
    assert_eq!(error.expect_err("parallel arrays").code.0, 2);
}

#[test]
fn bad_patterns_are_refused_with_mongodbs_codes() {
    let cases = [
        (15976, doc! {}),
        (15974, doc! { "a": "x" }),
        (15974, doc! { "a": null }),
        (15975, doc! { "a": 0 }),
        (15975, doc! { "a": 2 }),
        (17312, doc! { "a": {} }),
        (17312, doc! { "a": { "$foo": 1 } }),
        (9, doc! { "a": { "$meta": "textScore", "b": 1 } }),
        (31138, doc! { "a": { "$meta": "foo" } }),
        (238, doc! { "a": { "$meta": "textScore" } }),
        (40352, doc! { "": 1 }),
        (40353, doc! { "a.": 1 }),
        (15998, doc! { "a..b": 1 }),
        (16410, doc! { "$a": 1 }),
    ];
    for (code, spec) in cases {
        let error = SortPattern::parse(&raw(&spec)).expect_err("refused");
        assert_eq!(error.code.0, code, "{spec}: {error}");
    }
    let mut twice = RawDocumentBuf::new();
    twice.append(bson::raw::cstr!("a"), 1);
    twice.append(bson::raw::cstr!("a"), -1);
    assert_eq!(SortPattern::parse(&twice).expect_err("twice").code.0, 7472500);
}

#[test]
fn natural_is_a_direction_of_its_own() {
    let natural = |spec: Document| natural_direction(&raw(&spec));
    assert!(natural(doc! { "a": 1 }).expect("a sort").is_none());
    assert!(natural(doc! { "$natural": -1 }).expect("a hint").is_some());
    assert_eq!(natural(doc! { "$natural": 1, "a": 1 }).expect_err("compound").code.0, 2);
    assert_eq!(natural(doc! { "$natural": 5 }).expect_err("no direction").code.0, 2);
}

#[test]
fn a_limit_keeps_the_best_and_is_stable() {
    let mut sorter = Sorter::new(Some(3), MemoryAccount::alone(usize::MAX));
    for (position, key) in [5_u8, 1, 4, 1, 9, 1, 0].into_iter().enumerate() {
        sorter.push(vec![key], position, 8).expect("within memory");
        assert!(sorter.len() <= 3);
    }
    assert_eq!(sorter.threshold(), Some([1_u8].as_slice()));
    assert_eq!(sorter.into_sorted().map(|(_, position)| position).collect::<Vec<_>>(), [6, 1, 3]);
}

#[test]
fn a_sort_that_outgrows_its_memory_fails() {
    let grow = |limit: Option<u64>| -> baton_types::Result<()> {
        let mut sorter = Sorter::new(limit, MemoryAccount::alone(10_000));
        (0..1000_u32).try_for_each(|i| sorter.push(i.to_be_bytes().to_vec(), i, 100))
    };
    let error = grow(None).expect_err("a thousand entries do not fit");
    assert_eq!(error.code.0, 292);
    let expected = "Sort exceeded memory limit of 10000 bytes, and sorting on disk (allowDiskUse) is not implemented;";
    assert!(error.message.starts_with(expected), "{}", error.message);
    grow(Some(10)).expect("ten entries fit");
}

#[test]
fn comparing_documents_is_comparing_keys() {
    let pattern = pattern(doc! { "a": -1 });
    let compare = |a: &RawDocument, b: &RawDocument| pattern.compare(a, b).expect("comparable");
    assert!(compare(&raw(&doc! { "a": 2 }), &raw(&doc! { "a": 1 })).is_lt());
    assert!(compare(&raw(&doc! { "a": 1 }), &raw(&doc! { "a": 1.0 })).is_eq());
}
