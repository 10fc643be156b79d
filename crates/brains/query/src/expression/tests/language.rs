//! The language itself: paths, variables, literals, folding, limits, and the operators that only structure.

use super::*;

#[test]
fn a_path_maps_over_arrays_and_takes_numbers_for_names() {
    let document = doc! {
        "a": {"b": 1, "0": "zero"},
        "list": [{"b": 1}, {"c": 2}, {"b": [3, 4]}, 5, [{"b": 6}]],
        "n": null,
    };
    yields(
        document.clone(),
        cases![
            "$a.b" => 1,
            "$a.0" => "zero",
            "$list.b" => [1, [3, 4]],
            "$list.0" => [],
            "$list.b.c" => [[]],
            "$a.b.c" => missing,
            "$none" => missing,
            "$n" => null,
            "$n.x" => missing,
            "$$ROOT.a.b" => 1,
            "$$CURRENT.a.b" => 1,
            "$$REMOVE" => missing,
            "plain" => "plain",
        ],
    );
    yields(document, vec![(Bson::String("$$NOW".into()), Some(DateTime::from_millis(NOW_MS).into()))]);
    fails(
        doc! {},
        failures![
            "$" => 16872 "'$' by itself",
            "$a." => 40353 "must not end with a '.'",
            "$a..b" => 15998 "empty strings",
            "$a.$b" => 16410 "may not start with '$'",
            "$$nope" => 17276 "Use of undefined variable: nope",
            "$$" => 9 "empty variable names",
            "$$CLUSTER_TIME" => 51144 "not available",
            "$$USER_ROLES" => 238 "not implemented",
        ],
    );
}

#[test]
fn objects_leave_out_what_is_missing_and_arrays_make_it_null() {
    yields(
        doc! {"a": 1},
        cases![
            {"x": "$a", "y": "$none", "z": {"w": "$none"}} => {"x": 1, "z": {}},
            ["$a", "$none", 3] => [1, null, 3],
            {} => {},
            [] => [],
            {"$literal": "$a"} => "$a",
            {"$literal": {"$add": [1, 2]}} => {"$add": [1, 2]},
            {"x": "$$REMOVE"} => {},
        ],
    );
    fails(
        doc! {},
        failures![
            {"$add": [1, 2], "b": 1} => 15983 "must have exactly one field",
            {"$nope": 1} => 168 "Unrecognized expression '$nope'",
            {"a": 1, "$b": 2} => 16410 "may not start with '$'",
            {"a.b": 1} => 16412 "may not contain '.'",
            {"": 1} => 15998 "empty",
            {"$function": {}} => 238 "JavaScript",
        ],
    );
}

#[test]
fn comparison_crosses_types_and_missing_is_below_null() {
    yields(
        doc! {"n": null, "big": 9_007_199_254_740_993i64},
        cases![
            {"$eq": [1, 1.0]} => true,
            {"$eq": ["$none", null]} => false,
            {"$eq": ["$none", "$none2"]} => true,
            {"$lt": ["$none", null]} => true,
            {"$lt": ["$n", 0]} => true,
            {"$gt": ["a", 5]} => true,
            {"$cmp": ["a", "b"]} => (-1),
            {"$cmp": [2, 1]} => 1,
            {"$cmp": [[1, 2], [1, 2]]} => 0,
            {"$ne": [1, 2]} => true,
            {"$lte": [1, 1]} => true,
            {"$gte": [0, 1]} => false,
            {"$gt": ["$big", 9_007_199_254_740_992.0]} => true,
        ],
    );
    fails(
        doc! {},
        failures![
            {"$eq": [1]} => 16020 "Expression $eq takes exactly 2 arguments. 1 were passed in.",
            {"$cmp": [1, 2, 3]} => 16020 "3 were passed in",
            {"$substr": ["a"]} => 16020 "Expression $substrBytes takes exactly 3 arguments. 1 were passed in.",
            {"$rand": 1} => 10065 "invalid parameter: expected an object ($rand)",
            {"$rand": {"a": 1}} => 3040501 "$rand does not currently accept arguments",
        ],
    );
}

#[test]
fn conditions_evaluate_only_what_they_need() {
    let fail = || bson::bson!({"$divide": [1, "$zero"]});
    yields(
        doc! {"zero": 0, "one": 1, "n": null},
        cases![
            {"$and": []} => true,
            {"$or": []} => false,
            {"$and": [1, "$one", "x"]} => true,
            {"$and": [1, "$zero", (fail())]} => false,
            {"$or": ["$one", (fail())]} => true,
            {"$or": ["$none", null, 0, false]} => false,
            {"$not": ["$zero"]} => true,
            {"$not": "$one"} => false,
            {"$cond": ["$one", "yes", (fail())]} => "yes",
            {"$cond": {"if": "$zero", "then": (fail()), "else": "no"}} => "no",
            {"$cond": [true, "$none", 1]} => missing,
            {"$ifNull": ["$none", "$n", 3, (fail())]} => 3,
            {"$ifNull": ["$none", "$n"]} => null,
            {"$switch": {"branches": [
                {"case": "$zero", "then": (fail())},
                {"case": "$one", "then": "b"},
                {"case": (fail()), "then": "c"},
            ]}} => "b",
            {"$switch": {"branches": [{"case": false, "then": 1}], "default": "d"}} => "d",
        ],
    );
    fails(
        doc! {"zero": 0},
        failures![
            {"$cond": [1, 2]} => 16020 "takes exactly 3 arguments. 2 were passed in.",
            {"$cond": {"if": 1, "then": 2}} => 17082 "Missing 'else'",
            {"$cond": {"if": 1, "then": 2, "else": 3, "x": 4}} => 17083 "Unrecognized parameter to $cond: x",
            {"$ifNull": [1]} => 1257300 "at least two",
            {"$switch": {"branches": []}} => 40068 "at least one branch",
            {"$switch": {"branches": [{"case": 1}]}} => 40065 "'then'",
            {"$switch": {"branches": [{"case": "$zero", "then": 1}]}} => 40066 "could not find a matching branch",
            {"$cond": [true, {"$divide": [1, 0]}, 1]} => 2 "can't $divide by zero",
        ],
    );
}

#[test]
fn variables_nest_shadow_and_end_with_their_scope() {
    yields(
        doc! {"a": 10, "list": [1, 2, 3], "docs": [{"x": 1, "y": [1, 2]}, {"x": 2}]},
        cases![
            {"$let": {"vars": {"x": "$a", "y": {"$add": ["$a", 1]}}, "in": {"$multiply": ["$$x", "$$y"]}}} => 110,
            {"$let": {"vars": {"x": 1}, "in": {"$let": {"vars": {"x": {"$add": ["$$x", 1]}}, "in": "$$x"}}}} => 2,
            {"$let": {"vars": {"d": {"p": {"q": 5}}}, "in": "$$d.p.q"}} => 5,
            {"$let": {"vars": {"CURRENT": {"a": 7}}, "in": ["$a", "$$ROOT.a"]}} => [7, 10],
            {"$map": {"input": "$list", "as": "n", "in": {"$add": ["$$n", "$a"]}}} => [11, 12, 13],
            {"$map": {"input": "$docs", "in": "$$this.x"}} => [1, 2],
            {"$map": {"input": "$docs", "in": "$$this.y"}} => [[1, 2], null],
            {"$map": {"input": "$none", "in": 1}} => null,
            {"$filter": {"input": "$list", "cond": {"$gt": ["$$this", 1]}}} => [2, 3],
            {"$filter": {"input": "$list", "as": "n", "cond": true, "limit": 2}} => [1, 2],
            {"$filter": {"input": null, "cond": true}} => null,
            {"$reduce": {"input": "$list", "initialValue": 0, "in": {"$add": ["$$value", "$$this"]}}} => 6,
            {"$reduce": {"input": ["a", "b"], "initialValue": "", "in": {"$concat": ["$$value", "$$this"]}}} => "ab",
            {"$map": {"input": "$list", "as": "i", "in": {"$reduce": {
                "input": {"$range": [0, "$$i"]}, "initialValue": "$$i", "in": {"$add": ["$$value", "$$this", "$$i"]},
            }}}} => [2, 7, 15],
        ],
    );
    fails(
        doc! {"list": [1]},
        failures![
            {"$let": {"vars": {"X": 1}, "in": 1}} => 9 "'X' starts with an invalid character",
            {"$let": {"vars": {"x": 1}, "in": "$$y"}} => 17276 "y",
            {"$let": {"vars": {"x": 1}}} => 16877 "Missing 'in'",
            {"$add": [{"$let": {"vars": {"x": 1}, "in": "$$x"}}, "$$x"]} => 17276 "x",
            {"$map": {"input": 5, "in": 1}} => 16883 "input to $map must be an array not int",
            {"$filter": {"input": "$list", "cond": 1, "limit": 0}} => 327392 "greater than 0",
            {"$filter": {"input": 5, "cond": 1}} => 28651 "must be an array not int",
            {"$reduce": {"input": 5, "initialValue": 1, "in": 1}} => 40080 "be an array, found: 5",
            {"$reduce": {"input": "$list", "in": 1}} => 40078 "initialValue",
        ],
    );
}

#[test]
fn request_variables_are_looked_up_when_evaluating() {
    let mut ctx = context();
    ctx.set_variable("v", Bson::Int32(1)).unwrap();
    let expression = parse(bson::bson!({"$add": ["$$v", "$a"]}), &ctx).unwrap();
    ctx.set_variable("v", Bson::Int32(40)).unwrap();
    let document = RawDocumentBuf::try_from(&doc! {"a": 2}).unwrap();
    assert_eq!(expression.evaluate(&document, &ctx).unwrap(), Some(Bson::Int32(42)));
}

#[test]
fn dependencies_name_the_documents_fields_only() {
    let ctx = context();
    let dependencies = |expression| parse(expression, &ctx).unwrap().dependencies();
    let found = dependencies(bson::bson!({"$let": {
        "vars": {"x": "$a.b"}, "in": {"$add": ["$$x.c", "$d", {"$size": {"$ifNull": ["$e", []]}}]},
    }}));
    assert_eq!(found.fields.into_iter().collect::<Vec<_>>(), ["a.b", "d", "e"]);
    assert!(!found.whole_document && !found.random);
    assert!(dependencies(bson::bson!({"$mergeObjects": ["$$ROOT", {"x": 1}]})).whole_document);
    assert!(dependencies(bson::bson!({"$lt": [{"$rand": {}}, 0.5]})).random);
    assert_eq!(parse("$a.b", &ctx).unwrap().as_field_path().as_deref(), Some("a.b"));
    assert_eq!(parse(bson::bson!({"$add": [1, 2]}), &ctx).unwrap().as_constant(), Some(Some(&Bson::Int32(3))));
}

#[test]
fn random_numbers_differ_within_a_request_and_repeat_with_its_seed() {
    let draw = || {
        let ctx = context();
        let expression = parse(bson::bson!([{"$rand": {}}, {"$rand": {}}]), &ctx).unwrap();
        expression.evaluate(&RawDocumentBuf::new(), &ctx).unwrap()
    };
    let first = draw();
    assert_eq!(first, draw());
    let Some(Bson::Array(numbers)) = first else { panic!() };
    assert_ne!(numbers[0], numbers[1]);
    assert!(numbers.iter().all(|number| (0.0..1.0).contains(&number.as_f64().unwrap())));
}

#[test]
fn nesting_beyond_the_limit_is_refused_and_at_the_limit_is_not() {
    let nested = |levels: usize| (0..levels).fold(Bson::Boolean(true), |inner, _| Bson::Document(doc! {"$not": inner}));
    assert!(evaluate(nested(190), doc! {}).is_ok());
    fails(doc! {}, vec![(nested(201), 15, "maximum nesting depth")]);
}

#[test]
fn a_reduction_cannot_build_a_bottomless_value() {
    let deep = bson::bson!({"$reduce": {"input": {"$range": [0, 100_000]}, "initialValue": [], "in": ["$$value"]}});
    fails(doc! {}, vec![(deep, 15, "maximum nesting depth")]);
}

#[test]
fn nested_lets_cannot_add_up_to_a_bottomless_value() {
    let wrap = |levels: usize, inner: Bson| (0..levels).fold(inner, |inner, _| Bson::Array(vec![inner]));
    let mut expression = Bson::String("$$x".to_owned());
    for _ in 0..60 {
        expression = Bson::Document(doc! {"$let": {"vars": {"x": wrap(60, "$$x".into())}, "in": expression}});
    }
    let expression = doc! {"$let": {"vars": {"x": "$a"}, "in": expression}};
    fails(doc! {"a": 1}, vec![(expression.into(), 15, "maximum nesting depth")]);
}

#[test]
fn the_table_is_sorted_and_names_are_unique() {
    let names: Vec<&str> = crate::expression::table::OPERATORS.iter().map(|operator| operator.name).collect();
    assert!(names.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn set_and_get_field_take_names_with_dots_and_dollars() {
    yields(
        doc! {"a.b": 1, "$c": 2, "plain": {"x": 3}, "n": null},
        cases![
            {"$getField": "a.b"} => 1,
            {"$getField": {"$literal": "$c"}} => 2,
            {"$getField": {"field": "x", "input": "$plain"}} => 3,
            {"$getField": {"field": "y", "input": "$plain"}} => missing,
            {"$getField": {"field": "x", "input": "$n"}} => null,
            {"$getField": {"field": "x", "input": 5}} => missing,
            {"$setField": {"field": "a.b", "input": "$plain", "value": 9}} => {"x": 3, "a.b": 9},
            {"$setField": {"field": "x", "input": "$plain", "value": "$$REMOVE"}} => {},
            {"$unsetField": {"field": "x", "input": "$plain"}} => {},
            {"$setField": {"field": "x", "input": "$n", "value": 1}} => null,
            {"$mergeObjects": ["$plain", null, {"x": 4, "y": 5}]} => {"x": 4, "y": 5},
            {"$mergeObjects": ["$none"]} => {},
        ],
    );
    fails(
        doc! {},
        failures![
            {"$getField": "$a"} => 5654600 "field path reference",
            {"$getField": {"field": 5, "input": {}}} => 5654602 "got int",
            {"$setField": {"field": "x", "input": 5, "value": 1}} => 4161105 "Object",
            {"$mergeObjects": [1]} => 40400 "requires object inputs, but input 1 is of type int",
        ],
    );
}

#[test]
fn a_requests_own_current_is_where_paths_begin() {
    let mut ctx = context();
    ctx.set_variable("CURRENT", bson::bson!({"a": 5, "b": [{"c": 1}, {"c": 2}]})).unwrap();
    let document = RawDocumentBuf::try_from(&doc! {"a": 1}).unwrap();
    for (expression, expected) in [
        (bson::bson!("$a"), bson::bson!(5)),
        (bson::bson!("$$CURRENT.a"), bson::bson!(5)),
        (bson::bson!("$$ROOT.a"), bson::bson!(1)),
        (bson::bson!("$b.c"), bson::bson!([1, 2])),
        (bson::bson!({"$size": "$b"}), bson::bson!(2)),
    ] {
        assert_eq!(parse(expression, &ctx).unwrap().evaluate(&document, &ctx).unwrap(), Some(expected));
    }
}

#[test]
fn names_that_clients_may_bind() {
    for name in ["a", "aB_1", "CURRENT", "\u{e9}"] {
        crate::expression::check_variable_name(name).unwrap();
    }
    for name in ["", "A", "ROOT", "NOW", "1a", "_a", "a-b"] {
        assert_eq!(crate::expression::check_variable_name(name).unwrap_err().code.0, 9, "{name}");
    }
}
