//! The law of planning: every candidate gives exactly the documents that match, each once, in the order asked for.

use super::simulation::{HASH, Store};
use crate::Context;
use crate::matcher::Matcher;
use crate::planner::{Hint, IndexField, IndexSpec, KeyOrder, Plan, Projected, Query, plan};
use crate::sort::SortPattern;
use baton_document::keys::Direction;
use baton_document::path::{self, Path};
use baton_types::Interruption;
use bson::raw::RawDocumentBuf;
use bson::{Bson, Document, Regex, bson, doc};
use std::collections::HashSet;

/// Draws from SplitMix64: a failure is repeated by its round's number.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }

    fn list<T>(&mut self, max: usize, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(max + 1)).map(|_| one(self)).collect()
    }
}

const PATHS: [&str; 9] = ["a", "b", "c", "a.b", "a.c", "a.0", "a.b.c", "b.0.c", "_id"];

fn regex(pattern: &str) -> Bson {
    Bson::RegularExpression(Regex { pattern: pattern.try_into().unwrap(), options: "".try_into().unwrap() })
}

fn scalar(draw: &mut Draw) -> Bson {
    match draw.below(16) {
        0..=6 => Bson::Int32(draw.below(4) as i32),
        7 => Bson::Double(1.5),
        8 => Bson::Null,
        9 => "a".into(),
        10 => "ab".into(),
        11 => "b".into(),
        12 => Bson::Boolean(draw.chance(50)),
        13 => {
            draw.of(&[Bson::Double(f64::NAN), Bson::MinKey, Bson::MaxKey, Bson::Double(f64::INFINITY), Bson::Int64(2)])
        }
        14 => Bson::DateTime(bson::DateTime::from_millis(draw.below(3) as i64)),
        _ => draw.of(&[regex("^a"), Bson::Symbol("a".into()), Bson::Int64(1), Bson::Double(2.0)]),
    }
}

fn object(draw: &mut Draw, depth: usize) -> Bson {
    let mut object = Document::new();
    for name in ["b", "c", "0"] {
        if draw.chance(if name == "0" { 3 } else { 60 }) {
            object.insert(name, value(draw, depth + 1));
        }
    }
    object.into()
}

fn value(draw: &mut Draw, depth: usize) -> Bson {
    match draw.below(10) {
        _ if depth > 2 => scalar(draw),
        0..=4 => scalar(draw),
        5 | 6 => object(draw, depth),
        7 => Bson::Array(draw.list(3, |draw| object(draw, depth))),
        8 => Bson::Array(draw.list(3, scalar)),
        _ => Bson::Array(draw.list(3, |draw| value(draw, depth + 1))),
    }
}

fn document(draw: &mut Draw, id: usize) -> RawDocumentBuf {
    let mut document =
        doc! { "_id": if draw.chance(80) { Bson::Int32(id as i32) } else { Bson::String(format!("a{id}")) } };
    for name in ["a", "b", "c"] {
        if draw.chance(80) {
            // A value of undefined is in old data only, but it is.
            let value = if draw.chance(2) { Bson::Undefined } else { value(draw, 0) };
            document.insert(name, value);
        }
    }
    RawDocumentBuf::try_from(&document).unwrap()
}

fn operand(draw: &mut Draw) -> Bson {
    if draw.chance(85) { scalar(draw) } else { value(draw, 1) }
}

fn comparable(draw: &mut Draw) -> Bson {
    match operand(draw) {
        Bson::RegularExpression(_) => bson!(1),
        other => other,
    }
}

fn operators(draw: &mut Draw, depth: usize) -> Document {
    match draw.below(18) {
        0..=2 => doc! { "$eq": operand(draw) },
        3..=6 => doc! { draw.of(&["$gt", "$gte", "$lt", "$lte"]): comparable(draw) },
        7 => doc! { "$gte": comparable(draw), "$lt": comparable(draw) },
        8 => doc! { "$in": draw.list(4, operand) },
        9 => doc! { "$nin": draw.list(3, operand) },
        10 => doc! { "$ne": comparable(draw) },
        11 => doc! { "$exists": draw.chance(50) },
        12 => {
            doc! { "$type": draw.of(&[bson!("number"), bson!("string"), bson!("array"), bson!("null"), bson!(["int", "object"])]) }
        }
        13 => doc! { "$regex": draw.of(&["^a", "b", "^ab", "^a.*"]) },
        14 => draw.of(&[doc! { "$mod": [2, 0] }, doc! { "$size": 2 }, doc! { "$bitsAnySet": 3 }]),
        15 if depth < 2 => doc! { "$not": operators(draw, depth + 1) },
        16 => doc! { "$all": draw.list(2, operand) },
        17 if depth < 2 => match draw.chance(50) {
            true => doc! { "$elemMatch": operators(draw, depth + 1) },
            false => {
                let mut fields = Document::new();
                for name in ["b", "c"] {
                    if draw.chance(70) {
                        fields.insert(name, operators(draw, depth + 1));
                    }
                }
                doc! { "$elemMatch": fields }
            }
        },
        _ => doc! { "$eq": operand(draw) },
    }
}

fn filter(draw: &mut Draw, depth: usize) -> Document {
    let one = |draw: &mut Draw| {
        if draw.chance(30) {
            doc! { draw.of(&PATHS): operand(draw) }
        } else {
            doc! { draw.of(&PATHS): operators(draw, 0) }
        }
    };
    match draw.below(10) {
        0..=3 => one(draw),
        4..=7 => {
            let conjuncts: Vec<Document> = (0..1 + draw.below(3)).map(|_| one(draw)).collect();
            doc! { "$and": conjuncts }
        }
        _ if depth > 1 => one(draw),
        8 => {
            let branches: Vec<Document> = (0..1 + draw.below(3)).map(|_| filter(draw, depth + 1)).collect();
            let mut conjuncts = vec![doc! { "$or": branches }];
            conjuncts.extend(draw.list(1, one));
            doc! { "$and": conjuncts }
        }
        _ => doc! { "$nor": [filter(draw, depth + 1)] },
    }
}

fn index(draw: &mut Draw, i: usize) -> IndexSpec {
    let mut fields: Vec<&str> = Vec::new();
    for _ in 0..1 + draw.below(3) {
        let path = draw.of(&PATHS);
        if !fields.contains(&path) && (path != "_id" || !fields.is_empty()) {
            fields.push(path);
        }
    }
    if fields.is_empty() {
        fields.push("a");
    }
    let mut spec = IndexSpec::ordered(&format!("i{i}"), []);
    for path in fields {
        let order = match draw.below(10) {
            0 => KeyOrder::Hashed(HASH),
            1..=3 => KeyOrder::Ordered(Direction::Descending),
            _ => KeyOrder::Ordered(Direction::Ascending),
        };
        spec.key.push(IndexField { path: path.into(), order });
    }
    spec.sparse = draw.chance(25);
    if draw.chance(20) {
        let partial = draw.of(&[
            doc! { "a": { "$exists": true } },
            doc! { "a": { "$gt": 1 } },
            doc! { "b": { "$in": [1, "a"] }, "c": { "$exists": true } },
            doc! { "$or": [{ "a": 1 }, { "b": { "$lte": 2 } }] },
            doc! { "c": { "$type": "number" } },
        ]);
        spec.partial = Some(parse(&partial));
    }
    spec
}

fn parse(filter: &Document) -> Matcher {
    let context = Context::new(bson::DateTime::from_millis(0), 1);
    Matcher::parse(&RawDocumentBuf::try_from(filter).unwrap(), &context).expect("a generated filter")
}

fn sort(draw: &mut Draw) -> SortPattern {
    let mut spec = Document::new();
    for _ in 0..1 + draw.below(2) {
        spec.insert(draw.of(&["a", "b", "c", "a.b", "a.c", "a.0", "_id"]), if draw.chance(50) { 1 } else { -1 });
    }
    SortPattern::parse(&RawDocumentBuf::try_from(&spec).unwrap()).unwrap()
}

/// What a round's failure is reported with.
fn explain(store: &Store, filter: &Document, plan: &Plan) -> String {
    let documents: Vec<String> =
        store.documents.values().map(|d| Document::try_from(&**d).unwrap().to_string()).collect();
    format!("{filter}\n{}\nover\n{}", plan.explain(), documents.join("\n"))
}

fn check(store: &Store, filter: &Document, query: &Query<'_>, candidate: &Plan) {
    let wanted = store.matching(query);
    let rows = store.run(candidate).unwrap_or_else(|e| panic!("{e}: {}", explain(store, filter, candidate)));
    let found: HashSet<Vec<u8>> = rows.iter().map(|row| row.id.clone()).collect();
    assert!(found.len() == rows.len(), "a document twice: {}", explain(store, filter, candidate));
    assert!(found == wanted, "{} instead of {}: {}", found.len(), wanted.len(), explain(store, filter, candidate));
    if let Some(pattern) = query.sort {
        let keys: Vec<Vec<u8>> =
            rows.iter().map(|row| pattern.key(&store.documents[&row.id], &Interruption::default()).unwrap()).collect();
        assert!(keys.is_sorted(), "out of order ({:?}): {}", pattern.spec(), explain(store, filter, candidate));
    }
    if let Some(Projected { fields: Some(fields), .. }) = &query.projection {
        for row in &rows {
            let Some(made) = &row.document else { panic!("no document: {}", explain(store, filter, candidate)) };
            for field in fields.iter().map(|field| Path::parse(field)) {
                let (made, real) = (path::get(made, &field), path::get(&store.documents[&row.id], &field));
                // Equality of values is not enough: the type counts.
                assert_eq!(format!("{made:?}"), format!("{real:?}"), "{}", explain(store, filter, candidate));
            }
        }
    }
}

#[test]
fn every_candidate_gives_what_matches_in_the_order_asked_for() {
    const ROUNDS: u64 = 200;
    let mut indexed = 0_u32;
    let mut covered = 0_u32;
    let mut ordered = 0_u32;
    for round in 0..ROUNDS {
        let mut draw = Draw(round);
        let documents: Vec<RawDocumentBuf> = (0..4 + draw.below(12)).map(|id| document(&mut draw, id)).collect();
        let specs: Vec<IndexSpec> = (0..1 + draw.below(4)).map(|i| index(&mut draw, i)).collect();
        let store = Store::new(documents, specs);
        let indexes = store.specs();
        for _ in 0..30 {
            let filter = filter(&mut draw, 0);
            let matcher = parse(&filter);
            let mut query = Query::new(&matcher);
            let pattern = sort(&mut draw);
            let sortable = |document: &RawDocumentBuf| pattern.key(document, &Interruption::default()).is_ok();
            if draw.chance(40) && store.documents.values().all(sortable) {
                query.sort = Some(&pattern);
            }
            let spec = RawDocumentBuf::new();
            if draw.chance(30) {
                let fields: Vec<String> = draw.list(2, |draw| draw.of(&["a", "b", "a.b", "a.0", "c"]).to_string());
                query.projection = Some(Projected { spec: &spec, fields: Some(fields), is_simple: true });
            } else if draw.chance(20) {
                query.is_count = true;
            }
            let candidates = plan(&query, &indexes).expect("planning succeeds");
            assert!(!candidates.is_empty());
            for candidate in &candidates {
                check(&store, &filter, &query, candidate);
                indexed += u32::from(!candidate.is_collection_scan());
                covered += u32::from(candidate.any(&mut |p| matches!(p, Plan::IndexScan(scan) if scan.covers)));
                ordered += u32::from(query.sort.is_some() && !candidate.has_blocking_sort());
            }
            // A hint changes the plan and not the answer, unless the index leaves documents out.
            let hinted = indexes.iter().find(|index| !index.sparse && index.partial.is_none());
            if let Some(index) = hinted {
                let hint = Hint::Name(index.name.clone());
                let query = Query { hint: Some(&hint), ..query };
                for candidate in plan(&query, &indexes).expect("planning succeeds") {
                    check(&store, &filter, &query, &candidate);
                }
            }
        }
    }
    // The generator must not drift to where nothing is tested.
    assert!(indexed > 1_500 && covered > 30 && ordered > 200, "{indexed} {covered} {ordered}");
}
