//! Accumulators, from their specification to their result.

use super::*;
use crate::expression::tests::context;
use bson::{Decimal128, Document, bson, doc};

fn parse(name: &str, argument: impl Into<Bson>) -> Result<AccumulatorSpec> {
    let holder = RawDocumentBuf::try_from(&doc! {"a": argument.into()}).unwrap();
    AccumulatorSpec::parse(name, holder.get("a").unwrap().unwrap(), &context())
}

fn run(name: &str, argument: impl Into<Bson>, documents: &[Document]) -> Result<Bson> {
    let ctx = context();
    let spec = parse(name, argument)?;
    let mut accumulator = spec.start(&Bson::Null, &ctx)?;
    for document in documents {
        accumulator.accumulate(spec.input(&RawDocumentBuf::try_from(document).unwrap(), &ctx)?)?;
    }
    assert!(accumulator.memory_bytes() > 0);
    Ok(accumulator.finish())
}

fn xs(values: Vec<Bson>) -> Vec<Document> {
    values.into_iter().map(|x| doc! {"x": x}).collect()
}

#[track_caller]
fn over_x(name: &str, values: Vec<Bson>, expected: Bson) {
    assert_eq!(format!("{:?}", run(name, "$x", &xs(values)).unwrap()), format!("{expected:?}"), "{name}");
}

#[test]
fn sums_keep_the_widest_type_and_lose_no_digits() {
    over_x("$sum", vec![], Bson::Int32(0));
    over_x("$sum", vec![1.into(), "x".into(), 2.into(), Bson::Null], Bson::Int32(3));
    over_x("$sum", vec![1.into(), 2i64.into()], Bson::Int64(3));
    over_x("$sum", vec![i32::MAX.into(), 1.into()], Bson::Int64(2_147_483_648));
    over_x("$sum", vec![i64::MAX.into(), 1.into(), (-1).into()], Bson::Int64(i64::MAX));
    over_x("$sum", vec![i64::MAX.into(), i64::MAX.into()], Bson::Double(18_446_744_073_709_551_614.0));
    over_x("$sum", vec![1.into(), 2.5.into()], Bson::Double(3.5));
    over_x("$sum", (0..10).map(|_| Bson::Double(0.1)).collect(), Bson::Double(1.0));
    over_x("$sum", vec![1e100.into(), 1.0.into(), (-1e100).into()], Bson::Double(1.0));
    over_x("$sum", vec![f64::INFINITY.into(), 1.0.into()], Bson::Double(f64::INFINITY));
    let decimal = |text: &str| Bson::Decimal128(text.parse::<Decimal128>().unwrap());
    over_x("$sum", vec![decimal("0.1"), 1.into(), decimal("0.2")], decimal("1.3"));
    over_x("$sum", vec![decimal("1"), 0.5.into()], decimal("1.5"));
    over_x("$sum", vec![0.1.into(), decimal("1"), 2.into()], decimal("3.100000000000000005551115123125783"));
    over_x("$avg", vec![0.1.into(), decimal("0.3")], decimal("0.2000000000000000027755575615628914"));
    over_x("$avg", vec![decimal("1"), decimal("2")], decimal("1.5"));
    over_x("$avg", vec![1.into(), 2.into(), "x".into()], Bson::Double(1.5));
    over_x("$avg", vec!["x".into()], Bson::Null);
}

#[test]
fn extremes_and_ends_treat_null_and_missing_each_in_its_way() {
    over_x("$min", vec![Bson::Null, 3.into(), 1.into()], Bson::Int32(1));
    over_x("$max", vec![Bson::Null], Bson::Null);
    over_x("$max", vec![3.into(), "a".into()], "a".into());
    over_x("$first", vec![1.into(), 2.into()], Bson::Int32(1));
    over_x("$last", vec![1.into(), 2.into()], Bson::Int32(2));
    assert_eq!(run("$first", "$none", &[doc! {"x": 1}]).unwrap(), Bson::Null);
    assert_eq!(run("$push", "$x", &[doc! {"x": 1}, doc! {}, doc! {"x": null}]).unwrap(), bson!([1, null]));
    assert_eq!(run("$addToSet", "$x", &xs(vec![2.into(), 1.into(), 2.0.into()])).unwrap(), bson!([1, 2]));
    assert_eq!(run("$count", doc! {}, &xs(vec![1.into(), Bson::Null])).unwrap(), Bson::Int32(2));
    over_x("$stdDevPop", vec![1.into(), 3.into()], Bson::Double(1.0));
    over_x("$stdDevSamp", vec![1.into()], Bson::Null);
    let merged = run("$mergeObjects", "$x", &xs(vec![bson!({"a": 1, "b": 1}), Bson::Null, bson!({"b": 2})]));
    assert_eq!(merged.unwrap(), bson!({"a": 1, "b": 2}));
}

#[test]
fn the_n_ones_keep_so_many() {
    let documents = xs(vec![5.into(), 1.into(), Bson::Null, 4.into()]);
    let n = |name, n: i32| run(name, doc! {"input": "$x", "n": n}, &documents).unwrap();
    assert_eq!(n("$firstN", 2), bson!([5, 1]));
    assert_eq!(n("$lastN", 2), bson!([null, 4]));
    assert_eq!(n("$minN", 2), bson!([1, 4]));
    assert_eq!(n("$maxN", 9), bson!([5, 4, 1]));
    assert_eq!(parse("$firstN", doc! {"input": "$x", "n": 0}).unwrap_err().code.0, 5_787_908);
    assert_eq!(parse("$firstN", doc! {"input": "$x"}).unwrap_err().code.0, 5_787_906);
}

#[test]
fn how_many_may_depend_on_the_group() {
    let ctx = context();
    let spec = parse("$firstN", doc! {"input": "$x", "n": {"$cond": [{"$eq": ["$k", "a"]}, 1, 2]}}).unwrap();
    let kept = |key: &str| {
        let mut accumulator = spec.start(&bson!({"k": key}), &ctx).unwrap();
        for x in 0..3 {
            accumulator.accumulate(Some(Bson::Int32(x))).unwrap();
        }
        accumulator.finish()
    };
    assert_eq!(kept("a"), bson!([0]));
    assert_eq!(kept("b"), bson!([0, 1]));
}

#[test]
fn top_and_bottom_rank_by_their_own_sort() {
    let documents = [
        doc! {"p": "a", "s": 31},
        doc! {"p": "b", "s": 33},
        doc! {"p": "c", "s": 33},
        doc! {"p": "d", "s": [1, 99]},
        doc! {"p": "e"},
    ];
    let ranked = |name, sort: Document, n: Option<i32>| {
        let mut argument = doc! {"output": "$p", "sortBy": sort};
        if let Some(n) = n {
            argument.insert("n", n);
        }
        run(name, argument, &documents).unwrap()
    };
    assert_eq!(ranked("$top", doc! {"s": -1}, None), bson!("d"));
    assert_eq!(ranked("$top", doc! {"s": 1}, None), bson!("e"));
    assert_eq!(ranked("$bottom", doc! {"s": -1}, None), bson!("e"));
    assert_eq!(ranked("$topN", doc! {"s": -1, "p": 1}, Some(3)), bson!(["d", "b", "c"]));
    assert_eq!(ranked("$topN", doc! {"s": 1}, Some(2)), bson!(["e", "d"]));
    assert_eq!(ranked("$bottomN", doc! {"s": 1, "p": -1}, Some(2)), bson!(["c", "b"]));
    assert!(parse("$top", doc! {"output": "$p"}).is_err());
    assert!(parse("$topN", doc! {"output": "$p", "sortBy": {"s": 1}}).is_err());
}

#[test]
fn holding_too_much_is_refused() {
    let mut ctx = context();
    ctx.accumulator_bytes_max = 1000;
    let holder = RawDocumentBuf::try_from(&doc! {"a": "$x"}).unwrap();
    for name in ["$push", "$addToSet"] {
        let spec = AccumulatorSpec::parse(name, holder.get("a").unwrap().unwrap(), &ctx).unwrap();
        let mut accumulator = spec.start(&Bson::Null, &ctx).unwrap();
        let error = (0..100).find_map(|x| accumulator.accumulate(Some(Bson::Int32(x))).err()).unwrap();
        assert_eq!(error.code.0, 146, "{name}");
    }
}

#[test]
fn what_is_no_accumulator_is_named() {
    assert_eq!(parse("$nope", 1).unwrap_err().code.0, 15952);
    assert_eq!(parse("$accumulator", doc! {}).unwrap_err().code.0, 238);
    assert_eq!(parse("$sum", bson!(["$a", "$b"])).unwrap_err().code.0, 40237);
    assert!(parse("$count", 1).is_err());
    assert!(ACCUMULATORS.windows(2).all(|pair| pair[0].0 < pair[1].0));
}
