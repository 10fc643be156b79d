//! Law: optimising a pipeline changes no result, nor does running its leading part as a query first.
//!
//! Random pipelines of simple stages over random documents with arrays, nested documents and missing fields. A failing
//! case names its seed.

use super::*;
use crate::Context;
use bson::{Bson, DateTime, Document, doc};

const CASES: u64 = 3_000;

/// A small generator; the same seed makes the same case.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn pick<'t>(&mut self, of: &[&'t str]) -> &'t str {
        of[self.below(of.len() as u64) as usize]
    }

    fn path(&mut self) -> &'static str {
        self.pick(&["a", "b", "c", "a.b", "a.c", "b.a", "b.0", "c.0.a"])
    }

    fn value(&mut self, depth: u64) -> Bson {
        match self.below(if depth > 0 { 8 } else { 5 }) {
            0..=2 => Bson::Int32(self.below(3) as i32),
            3 => Bson::Null,
            4 => self.pick(&["x", "y"]).into(),
            5 | 6 => Bson::Array((0..self.below(3)).map(|_| self.value(depth - 1)).collect()),
            _ => self.fields(depth - 1).into(),
        }
    }

    fn fields(&mut self, depth: u64) -> Document {
        let mut doc = Document::new();
        for name in ["a", "b", "c"] {
            if self.below(3) > 0 {
                doc.insert(name, self.value(depth));
            }
        }
        doc
    }

    fn filter(&mut self, depth: u64) -> Document {
        let mut filter = Document::new();
        for _ in 0..=self.below(2) {
            let condition = match self.below(5) {
                0 => self.value(0),
                1 => doc! { "$gte": self.below(3) as i32 }.into(),
                2 => doc! { "$exists": self.below(2) == 0 }.into(),
                3 => doc! { "$ne": self.below(3) as i32 }.into(),
                _ => doc! { "$in": [0, Bson::Null] }.into(),
            };
            filter.insert(self.path(), condition);
        }
        if depth > 0 && self.below(4) == 0 {
            let branches = vec![Bson::from(self.filter(depth - 1)), Bson::from(self.filter(depth - 1))];
            filter.insert(self.pick(&["$or", "$and", "$nor"]), branches);
        }
        if self.below(6) == 0 {
            filter.insert("$expr", doc! { "$eq": [format!("${}", self.pick(&["a", "b"])), self.below(3) as i32] });
        }
        filter
    }

    fn stage(&mut self) -> Document {
        match self.below(13) {
            0..=3 => doc! { "$match": self.filter(1) },
            4 => doc! { "$sort": { self.path(): if self.below(2) == 0 { 1 } else { -1 }, "_id": 1 } },
            5 => doc! { "$limit": 1 + self.below(12) as i32 },
            6 => doc! { "$skip": self.below(4) as i32 },
            7 => doc! { "$addFields": { self.pick(&["a", "b", "d", "a.b"]): "$c" } },
            8 => doc! { "$project": { self.pick(&["a", "a.b"]): 1, "c": 1, "d": "$b" } },
            9 => doc! { "$project": { self.pick(&["a", "b.a", "_id"]): 0 } },
            10 => doc! { "$unset": self.pick(&["a", "b", "c.a"]) },
            11 => doc! { "$unwind": format!("${}", self.pick(&["a", "b"])) },
            _ => {
                let path = format!("${}", self.pick(&["b", "c"]));
                doc! { "$unwind": { "path": path, "preserveNullAndEmptyArrays": true, "includeArrayIndex": "a" } }
            }
        }
    }
}

fn raw(doc: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(doc).expect("a document encodes")
}

/// The results of a query by hand: filter, sort, window.
fn run_query(query: &LeadingQuery, docs: &[RawDocumentBuf], ctx: &Context) -> Result<Vec<RawDocumentBuf>> {
    let mut stages = Vec::new();
    if let Some((filter, _)) = &query.filter {
        stages.push(filter::conjunction(std::slice::from_ref(filter)).map(|f| stage("$match", &f))?);
    }
    if let Some(sort) = &query.sort {
        stages.push(stage("$sort", sort.spec()));
    }
    let refs: Vec<&RawDocument> = stages.iter().map(|stage| &**stage).collect();
    let found = Pipeline::parse(&refs, ctx)?.run_in_memory(docs.iter().cloned())?;
    let wanted = query.limit.map_or(usize::MAX, |limit| limit as usize);
    Ok(found.into_iter().skip(query.skip as usize).take(wanted).collect())
}

fn stage(name: &str, argument: &RawDocument) -> RawDocumentBuf {
    field::single(name, argument.into()).expect("a stage")
}

#[test]
fn optimising_changes_no_result() {
    let ctx = Context::new(DateTime::from_millis(0), 1);
    let mut with_results = 0;
    for seed in 0..CASES {
        let mut random = Random(seed);
        let docs: Vec<RawDocumentBuf> = (0..12)
            .map(|id| {
                let mut doc = doc! { "_id": id };
                doc.extend(random.fields(2));
                raw(&doc)
            })
            .collect();
        let stages: Vec<Document> = (0..=random.below(6)).map(|_| random.stage()).collect();
        let encoded: Vec<RawDocumentBuf> = stages.iter().map(raw).collect();
        let refs: Vec<&RawDocument> = encoded.iter().map(|stage| &**stage).collect();
        let pipeline = Pipeline::parse(&refs, &ctx).unwrap_or_else(|e| panic!("seed {seed}: {stages:?}: {e}"));
        // What fails for a document that a filter would have dropped may pass once the filter has moved.
        let Ok(expected) = pipeline.run_in_memory(docs.iter().cloned()) else { continue };
        with_results += u64::from(!expected.is_empty());

        let optimized = pipeline.optimize().expect("it optimises");
        let shown = optimized.explain().expect("it prints");
        let got = optimized.run_in_memory(docs.iter().cloned()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_eq!(got, expected, "seed {seed}: {stages:?} became {shown:?}");

        let query = optimized.leading_query();
        let found = run_query(&query, &docs, &ctx).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let rest = query.rest.run_in_memory(found).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_eq!(rest, expected, "seed {seed}: {stages:?} split after {}", shown.len() - query.rest.stages().len());
    }
    // A law that only empty results keep would show nothing.
    assert!(with_results > CASES / 3, "{with_results} of {CASES} cases had results");
}
