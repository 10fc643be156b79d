//! The order a pattern gives, what patterns are refused, and the sorter's bounds.

use super::*;
use crate::spill::{Room, Spillable, tests::space};
use baton_types::{Interruption, MemoryAccount};
use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Document, doc};
use std::sync::Arc;

fn raw(doc: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(doc).expect("a document encodes")
}

fn pattern(spec: Document) -> SortPattern {
    SortPattern::parse(&raw(&spec)).expect("the pattern parses")
}

/// What is left of it.
fn values<T: Spillable>(sorter: Sorter<T>) -> Vec<T> {
    let mut sorted = sorter.into_sorted().expect("it can be read");
    std::iter::from_fn(|| sorted.pop().expect("it can be read")).map(|(_, value)| value).collect()
}

fn sorted(spec: Document, docs: &[Document]) -> Vec<u32> {
    let pattern = pattern(spec);
    let mut sorter = Sorter::new(None, Room::of_bytes(usize::MAX));
    for doc in docs {
        let doc = raw(doc);
        let key = pattern.key(&doc, &Interruption::default()).expect("a key");
        let id = doc.get_i32("_id").expect("an id").unsigned_abs();
        sorter.push(key, id, 4).expect("within memory");
    }
    values(sorter)
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
    let error =
        pattern(doc! { "a": 1, "b": 1 }).key(&raw(&doc! { "a": [1, 2], "b": [3, 4] }), &Interruption::default());
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
    let mut sorter = Sorter::new(Some(3), Room::of_bytes(usize::MAX));
    for (position, key) in (0_u32..).zip([5_u8, 1, 4, 1, 9, 1, 0]) {
        sorter.push(vec![key], position, 8).expect("within memory");
        assert!(sorter.len() <= 3);
    }
    assert_eq!(sorter.threshold(), Some([1_u8].as_slice()));
    assert_eq!(values(sorter), [6, 1, 3]);
}

#[test]
fn a_sort_that_outgrows_its_memory_and_must_not_spill_fails() {
    let grow = |limit: Option<u64>| -> baton_types::Result<()> {
        let mut sorter = Sorter::new(limit, Room::of_bytes(10_000));
        (0..1000_u32).try_for_each(|i| sorter.push(i.to_be_bytes().to_vec(), i, 100))
    };
    let error = grow(None).expect_err("a thousand entries do not fit");
    assert_eq!(error.code.0, 292);
    let expected = "Sort exceeded memory limit of 10000 bytes, but did not opt in to external sorting.";
    assert!(error.message.starts_with(expected), "{}", error.message);
    grow(Some(10)).expect("ten entries fit");
}

const LIMITS: [Option<u64>; 7] = [None, Some(0), Some(1), Some(10), Some(600), Some(1199), Some(2000)];

/// Fails if what is spilled comes back in another order than it would from memory, if a limit keeps other entries, if more is
/// held than may be, or if a file outlives its sort.
#[test]
fn a_sort_that_spills_gives_what_one_in_memory_gives_and_stays_within_its_memory() {
    let mixed: Vec<u8> = (0..1200_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 20) as u8).collect();
    // In order, what comes first is kept and what comes later must be known to be too late; in reverse, nothing is.
    let rising: Vec<u8> = (0..1200_u32).map(|n| (n / 5) as u8).collect();
    let falling: Vec<u8> = rising.iter().rev().copied().collect();
    for (keys, limit) in [mixed, rising, falling].iter().flat_map(|keys| LIMITS.map(|limit| (keys, limit))) {
        for bytes in [100, 1000, 20_000] {
            let (seen, space) = space();
            let run = |room: Room| {
                let bytes_max = room.bytes_max();
                let mut sorter = Sorter::new(limit, room);
                for (position, key) in (0_u32..).zip(keys) {
                    sorter.push(vec![*key], position, 100).expect("it spills");
                    assert!(sorter.memory_bytes() <= bytes_max, "{} bytes", sorter.memory_bytes());
                }
                let spilled = sorter.spilled();
                (sorter.len(), values(sorter), spilled)
            };
            let in_memory = run(Room::of_bytes(usize::MAX));
            let on_disk = run(Room::new(MemoryAccount::alone(bytes), Some(space), Arc::default()));
            assert_eq!(on_disk.0, in_memory.0, "limit {limit:?}, {bytes} bytes");
            assert_eq!(on_disk.1, in_memory.1, "limit {limit:?}, {bytes} bytes");
            let fits = limit.is_some_and(|limit| limit * 165 <= bytes as u64);
            assert_eq!(on_disk.2.spills == 0, fits, "limit {limit:?}, {bytes} bytes: {:?}", on_disk.2);
            assert_eq!(seen.files.load(std::sync::atomic::Ordering::Relaxed), 0);
        }
    }
}

/// Fails if a sort with a limit writes all it is given, and not just what may be wanted.
#[test]
fn a_limited_sort_that_spills_writes_little_of_what_cannot_be_wanted() {
    let mut sorter = Sorter::new(Some(100), Room::new(MemoryAccount::alone(2000), Some(space().1), Arc::default()));
    let keys = (0..100_000_u32).map(|n| n.wrapping_mul(2_654_435_761));
    keys.clone().try_for_each(|key| sorter.push(key.to_be_bytes().to_vec(), key, 100)).expect("it spills");
    assert!(sorter.spilled().records < 3000, "{:?}", sorter.spilled());
    let mut expected: Vec<u32> = keys.collect();
    expected.sort_unstable();
    assert_eq!(values(sorter), expected[..100]);
}

/// Fails if the last value leaves the file behind until the cursor goes.
#[test]
fn the_last_value_gives_the_file_back() {
    let (seen, space) = space();
    let mut sorter = Sorter::new(None, Room::new(MemoryAccount::alone(1000), Some(space), Arc::default()));
    (0..100_u32).try_for_each(|n| sorter.push(vec![n as u8], n, 100)).expect("it spills");
    let mut sorted = sorter.into_sorted().expect("it can be read");
    let files = || seen.files.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!((sorted.peek().expect("it can be read"), files()), (Some(&0), 1));
    sorted.skip(99).expect("it can be read");
    assert_eq!((sorted.len(), files()), (1, 1));
    assert_eq!(sorted.pop().expect("it can be read").map(|(_, n)| n), Some(99));
    assert_eq!((sorted.len(), files()), (0, 0));
}

#[test]
fn comparing_documents_is_comparing_keys() {
    let pattern = pattern(doc! { "a": -1 });
    let compare = |a: &RawDocument, b: &RawDocument| pattern.compare(a, b).expect("comparable");
    assert!(compare(&raw(&doc! { "a": 2 }), &raw(&doc! { "a": 1 })).is_lt());
    assert!(compare(&raw(&doc! { "a": 1 }), &raw(&doc! { "a": 1.0 })).is_eq());
}
