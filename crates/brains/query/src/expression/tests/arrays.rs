//! Arrays and sets.

use super::*;

#[test]
fn elements_are_picked_by_position() {
    yields(
        doc! {"list": [1, 2, 3], "n": null},
        cases![
            {"$arrayElemAt": ["$list", 0]} => 1,
            {"$arrayElemAt": ["$list", (-1)]} => 3,
            {"$arrayElemAt": ["$list", 15]} => missing,
            {"$arrayElemAt": ["$list", (-4)]} => missing,
            {"$arrayElemAt": ["$n", 0]} => null,
            {"$first": "$list"} => 1,
            {"$last": "$list"} => 3,
            {"$first": [[]]} => missing,
            {"$last": "$none"} => null,
            {"$slice": ["$list", 2]} => [1, 2],
            {"$slice": ["$list", (-2)]} => [2, 3],
            {"$slice": ["$list", 1, 5]} => [2, 3],
            {"$slice": ["$list", (-5), 1]} => [1],
            {"$slice": ["$list", 15, 2]} => [],
            {"$slice": ["$n", 1]} => null,
            {"$firstN": {"input": "$list", "n": 2}} => [1, 2],
            {"$lastN": {"input": "$list", "n": 2}} => [2, 3],
            {"$maxN": {"input": [1, null, 5, 3], "n": 2}} => [5, 3],
            {"$minN": {"input": [1, null, 5, 3], "n": 10}} => [1, 3, 5],
            {"$reverseArray": "$list"} => [3, 2, 1],
            {"$size": "$list"} => 3,
            {"$isArray": "$list"} => true,
            {"$isArray": ["$n"]} => false,
        ],
    );
    fails(
        doc! {"list": [1]},
        failures![
            {"$arrayElemAt": [1, 0]} => 28689 "must be an array, but is int",
            {"$arrayElemAt": ["$list", "a"]} => 28690 "numeric value, but is string",
            {"$arrayElemAt": ["$list", 0.5]} => 28691 "32-bit integer: 0.5",
            {"$first": 5} => 28689 "$first's argument must be an array, but is int",
            {"$slice": [1, 1]} => 28724 "type: int",
            {"$slice": ["$list", "a"]} => 28725 "string",
            {"$slice": ["$list", 1, 0]} => 28729 "must be positive: 0",
            {"$firstN": {"input": "$list", "n": 0}} => 5787908 "greater than 0",
            {"$firstN": {"input": 5, "n": 1}} => 5788200 "array",
            {"$firstN": {"input": "$list"}} => 5787906 "Missing value for 'n'",
            {"$size": "$none"} => 17124 "must be an array, but was of type: missing",
            {"$reverseArray": 1} => 34435 "type: int",
        ],
    );
}

#[test]
fn arrays_are_searched_joined_and_made() {
    yields(
        doc! {"list": [1, 2, 3], "n": null},
        cases![
            {"$in": [2.0, "$list"]} => true,
            {"$in": ["$none", "$list"]} => false,
            {"$in": ["x", "$list"]} => false,
            {"$indexOfArray": ["$list", 3]} => 2,
            {"$indexOfArray": ["$list", 3, 0, 2]} => (-1),
            {"$indexOfArray": ["$list", 1, 5]} => (-1),
            {"$indexOfArray": ["$n", 1]} => null,
            {"$concatArrays": ["$list", [4]]} => [1, 2, 3, 4],
            {"$concatArrays": ["$list", "$n"]} => null,
            {"$range": [0, 10, 3]} => [0, 3, 6, 9],
            {"$range": [3, 0, (-1)]} => [3, 2, 1],
            {"$range": [0, 0]} => [],
            {"$zip": {"inputs": [["a", "b"], [1, 2, 3]]}} => [["a", 1], ["b", 2]],
            {"$zip": {"inputs": [["a"], [1, 2]], "useLongestLength": true, "defaults": ["z", 0]}}
                => [["a", 1], ["z", 2]],
            {"$zip": {"inputs": [["a"], "$n"]}} => null,
            {"$objectToArray": {"a": 1, "b": "$n"}} => [{"k": "a", "v": 1}, {"k": "b", "v": null}],
            {"$arrayToObject": [[["a", 1], ["b", 2]]]} => {"a": 1, "b": 2},
            {"$arrayToObject": [[{"k": "a", "v": 1}]]} => {"a": 1},
            {"$arrayToObject": [[]]} => {},
        ],
    );
    fails(
        doc! {},
        failures![
            {"$in": [1, 2]} => 40081 "second argument, found: int",
            {"$concatArrays": [[1], 2]} => 28664 "only supports arrays, not int",
            {"$range": [0, 5, 0]} => 34449 "non-zero step",
            {"$range": ["a", 5]} => 34443 "found value of type: string",
            {"$range": [0.5, 5]} => 34444 "32-bit integer, found value: 0.5",
            {"$range": [0, 2_147_483_647]} => 146 "too much memory",
            {"$zip": {"inputs": []}} => 34465 "at least one",
            {"$zip": {"inputs": [[1]], "defaults": [1]}} => 34466 "useLongestLength",
            {"$zip": {"inputs": [1]}} => 34468 "non-array",
            {"$objectToArray": 1} => 40390 "found: int",
            {"$arrayToObject": 1} => 40386 "found: int",
            {"$arrayToObject": [[1]]} => 40398 "int",
            {"$arrayToObject": [[["a"]]]} => 40397 "size: 1",
            {"$arrayToObject": [[["a", 1], {"k": "b", "v": 2}]]} => 40396 "now found: object",
            {"$arrayToObject": [[{"k": "a"}]]} => 40392 "keys:1",
            {"$arrayToObject": [[{"k": "a", "z": "b"}]]} => 40393 "Missing either or both keys from: {k: \"a\", z: \"b\"}",
            {"$arrayToObject": [[{"v": 1, "k": 2}]]} => 40394 "Found type: int",
        ],
    );
}

#[test]
fn arrays_are_sorted_by_element_or_field() {
    yields(
        doc! {"team": [
            {"name": "pat", "age": 30, "address": {"city": "P"}},
            {"name": "dallas", "age": 36, "address": {"city": "B"}},
            {"name": "charlie", "age": 42, "address": {"city": "P"}},
        ]},
        cases![
            {"$sortArray": {"input": [1, 4, 1, 6, 12, 5], "sortBy": 1}} => [1, 1, 4, 5, 6, 12],
            {"$sortArray": {"input": [20, 4, {"a": "Free"}, 6, "G", [1]], "sortBy": (-1)}}
                => [[1], {"a": "Free"}, "G", 20, 6, 4],
            {"$map": {"input": {"$sortArray": {"input": "$team", "sortBy": {"name": 1}}}, "in": "$$this.name"}}
                => ["charlie", "dallas", "pat"],
            {"$map": {
                "input": {"$sortArray": {"input": "$team", "sortBy": {"address.city": (-1), "age": (-1)}}},
                "in": "$$this.name",
            }} => ["charlie", "pat", "dallas"],
            {"$sortArray": {"input": null, "sortBy": 1}} => null,
        ],
    );
    fails(
        doc! {},
        failures![
            {"$sortArray": {"input": 1, "sortBy": 1}} => 2942504 "type: int",
            {"$sortArray": {"input": [], "sortBy": 2}} => 2942507 "1 or -1",
            {"$sortArray": {"input": []}} => 2942503 "sortBy",
        ],
    );
}

#[test]
fn arrays_count_as_sets() {
    yields(
        doc! {"n": null},
        cases![
            {"$setUnion": [["b", "a"], ["c", "a"]]} => ["a", "b", "c"],
            {"$setUnion": [[1], "$n"]} => null,
            {"$setIntersection": [["a", "b", "a"], ["b", "c"]]} => ["b"],
            {"$setIntersection": []} => [],
            {"$setDifference": [["b", "a", "b"], ["a"]]} => ["b"],
            {"$setDifference": ["$n", ["a"]]} => null,
            {"$setEquals": [["a", "b", "a"], ["b", "a"]]} => true,
            {"$setEquals": [["a"], ["b"]]} => false,
            {"$setIsSubset": [["a"], ["b", "a"]]} => true,
            {"$setIsSubset": [["a", "z"], ["b", "a"]]} => false,
            {"$allElementsTrue": [[true, 1, "x"]]} => true,
            {"$allElementsTrue": [[null]]} => false,
            {"$allElementsTrue": [[]]} => true,
            {"$anyElementTrue": [[0, false, [false]]]} => true,
            {"$anyElementTrue": [[]]} => false,
        ],
    );
    fails(
        doc! {},
        failures![
            {"$setUnion": [1]} => 17043 "All operands of $setUnion must be arrays. One argument is of type: int",
            {"$setIntersection": [[], 1]} => 17047 "int",
            {"$setDifference": [[1], 1]} => 17049 "Second",
            {"$setIsSubset": [1, [1]]} => 17046 "First",
            {"$setEquals": [[], null]} => 17044 "null",
            {"$allElementsTrue": [1]} => 17040 "must be an array, but is int",
            {"$anyElementTrue": [null]} => 17041 "null",
        ],
    );
}

#[test]
fn sizes_are_in_bytes() {
    yields(
        doc! {"s": "caf\u{e9}"},
        cases![
            {"$binarySize": "$s"} => 5,
            {"$binarySize": "$none"} => null,
            {"$bsonSize": {"a": "$s"}} => 18,
            {"$bsonSize": null} => null,
        ],
    );
    fails(doc! {}, failures![{"$binarySize": 1} => 51276 "found: int", {"$bsonSize": [[]]} => 31393 "found: array"]);
}
