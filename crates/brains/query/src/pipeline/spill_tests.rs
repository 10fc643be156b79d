//! Law: a pipeline gives the same with so little memory that its stages spill as with enough, whatever it accumulates.
//!
//! Random documents: numbers of all types that are added without rounding, strings, arrays, missing fields. A failing case
//! names its seed.

use super::*;
use crate::Context;
use crate::accumulator::examples;
use crate::spill::tests::space;
use bson::{Bson, DateTime, Decimal128, Document, doc};
use std::sync::atomic::Ordering::Relaxed;

/// A small generator; the same seed makes the same case.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn value(&mut self) -> Option<Bson> {
        Some(match self.below(12) {
            0 => return None,
            1 => Bson::Null,
            2 => "x".repeat(self.below(30) as usize).into(),
            3 => Bson::Array((0..self.below(3)).map(|n| Bson::Int32(n as i32)).collect()),
            4 => Bson::Double(self.below(40) as f64 / 4.0 - 3.0),
            5 => Bson::Int64(self.below(7) as i64),
            6 => Bson::Int64(i64::MAX - self.below(3) as i64),
            7 => match format!("{}.{}", self.below(5), self.below(10)).parse::<Decimal128>() {
                Ok(decimal) => Bson::Decimal128(decimal),
                Err(error) => panic!("{error}"),
            },
            _ => Bson::Int32(self.below(9) as i32 - 2),
        })
    }

    fn document(&mut self, position: i32) -> Document {
        let mut doc = doc! { "_id": position, "g": self.below(40) as i32, "p": format!("{position}") };
        if self.below(3) == 0 {
            // The same group by another type.
            doc.insert("g", self.below(40) as f64);
        }
        if self.below(5) > 0 {
            doc.insert("o", doc! { format!("k{}", self.below(4)): position, "a": self.below(3) as i32 });
        }
        if let Some(value) = self.value() {
            doc.insert("v", value);
        }
        doc
    }
}

fn run(stages: &[Document], docs: &[Document], ctx: &Context) -> Vec<Document> {
    let raw = |doc: &Document| RawDocumentBuf::try_from(doc).unwrap();
    let stages: Vec<RawDocumentBuf> = stages.iter().map(raw).collect();
    let stages: Vec<&RawDocument> = stages.iter().map(|stage| &**stage).collect();
    let out = Pipeline::parse(&stages, ctx).unwrap().run_in_memory(docs.iter().map(raw)).unwrap();
    out.iter().map(|doc| Document::try_from(doc).unwrap()).collect()
}

fn context() -> Context {
    Context::new(DateTime::from_millis(1_700_000_000_000), 7)
}

/// Runs the stages in memory and with `bytes` of it, and says whether the latter spilled.
fn both(stages: &[Document], docs: &[Document], bytes: usize) -> (Vec<Document>, Vec<Document>, bool) {
    let in_memory = run(stages, docs, &context());
    let (seen, space) = space();
    let mut ctx = context();
    (ctx.group_memory_bytes_max, ctx.memory_bytes_max) = (bytes, bytes);
    ctx.spill = Some(space);
    let spilled = run(stages, docs, &ctx);
    assert_eq!(seen.files.load(Relaxed), 0, "a file is left");
    (in_memory, spilled, ctx.effort.used_disk.load(Relaxed))
}

/// Groups by their keys; what is rounded, to nine digits.
fn comparable(mut groups: Vec<Document>) -> Vec<Document> {
    groups.sort_by_key(|group| {
        group.get("_id").and_then(|id| id.as_f64().or(id.as_i32().map(f64::from))).map(|id| id as i64)
    });
    for group in &mut groups {
        for (name, value) in group.iter_mut().filter(|(name, _)| name.starts_with("stdDev")) {
            if let Bson::Double(deviation) = value {
                *value = format!("{name} {deviation:.9e}").into();
            }
        }
    }
    groups
}

#[test]
fn every_accumulator_gives_the_same_from_what_was_spilled() {
    let mut group = doc! { "_id": "$g" };
    group.extend(examples().map(|(name, argument)| {
        let field = name.trim_start_matches('$');
        (field.to_owned(), Bson::from(doc! { name: argument }))
    }));
    let stages = [doc! { "$group": group }];
    for seed in 0..24 {
        let mut random = Random(seed);
        let docs: Vec<Document> = (0..300).map(|position| random.document(position)).collect();
        // Of some groups at a time, and of one document at a time.
        let bytes = [1, 3000, 20_000, 60_000][seed as usize % 4];
        let (in_memory, spilled, used_disk) = both(&stages, &docs, bytes);
        assert!(used_disk, "seed {seed} fits into {bytes} bytes");
        let (in_memory, spilled) = (comparable(in_memory), comparable(spilled));
        assert_eq!(in_memory.len(), spilled.len(), "seed {seed}");
        for (expected, found) in in_memory.iter().zip(&spilled) {
            assert_eq!(format!("{expected:?}"), format!("{found:?}"), "seed {seed}, {bytes} bytes");
        }
    }
}

#[test]
fn sorts_and_buckets_give_the_same_from_what_was_spilled() {
    let pipelines = [
        vec![doc! { "$sort": { "v": 1 } }],
        vec![doc! { "$sort": { "g": -1, "v": 1 } }, doc! { "$skip": 100 }],
        vec![doc! { "$sort": { "o.a": 1 } }, doc! { "$limit": 300 }],
        vec![doc! { "$bucketAuto": { "groupBy": "$v", "buckets": 7, "output": { "all": { "$push": "$_id" } } } }],
        vec![doc! { "$bucketAuto": { "groupBy": "$g", "buckets": 5, "granularity": "R5" } }],
        vec![doc! { "$sample": { "size": 400 } }],
    ];
    for seed in 0..24 {
        let mut random = Random(seed);
        let docs: Vec<Document> = (0..500).map(|position| random.document(position)).collect();
        for stages in &pipelines {
            let bytes = [100, 2000, 9000, 15_000][seed as usize % 4];
            let (in_memory, spilled, used_disk) = both(stages, &docs, bytes);
            assert!(used_disk, "seed {seed}: {stages:?} fits into {bytes} bytes");
            assert_eq!(in_memory, spilled, "seed {seed}, {bytes} bytes: {stages:?}");
        }
    }
}

/// Fails if groups come out twice, or with the states of others, where they are given in several batches.
#[test]
fn many_groups_that_spill_come_once_each_in_the_order_of_their_keys() {
    let docs: Vec<Document> = (0..2000).map(|n| doc! { "g": n * 7919 % 1000 }).collect();
    let stages = [doc! { "$group": { "_id": "$g", "n": { "$sum": 1 } } }];
    let (_, spilled, used_disk) = both(&stages, &docs, 10_000);
    let expected: Vec<Document> = (0..1000).map(|g| doc! { "_id": g, "n": 2 }).collect();
    assert!(used_disk);
    assert_eq!(spilled, expected);
}
