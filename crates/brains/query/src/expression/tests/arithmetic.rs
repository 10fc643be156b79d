//! Arithmetic, rounding, bits and trigonometry.

use super::*;
use bson::Decimal128;

fn decimal(text: &str) -> Bson {
    Bson::Decimal128(text.parse::<Decimal128>().unwrap())
}

#[test]
fn the_widest_type_wins_and_integers_widen_instead_of_wrapping() {
    yields(
        doc! {"i": 3, "l": 4i64, "d": 0.5, "n": null, "max": i32::MAX, "long": i64::MAX},
        cases![
            {"$add": []} => 0,
            {"$add": "$i"} => 3,
            {"$add": ["$i", "$l"]} => 7i64,
            {"$add": ["$i", "$d"]} => 3.5,
            {"$add": ["$i", "$n"]} => null,
            {"$add": ["$i", "$none"]} => null,
            {"$add": ["$max", 1]} => 2_147_483_648i64,
            {"$add": ["$long", 1]} => 9.223372036854776e18,
            {"$subtract": ["$i", "$l"]} => (-1i64),
            {"$multiply": ["$max", 2]} => 4_294_967_294i64,
            {"$multiply": []} => 1,
            {"$divide": [6, 3]} => 2.0,
            {"$divide": [7, "$n"]} => null,
            {"$mod": [-7, 3]} => (-1),
            {"$mod": [5.5, 2]} => 1.5,
        ],
    );
    yields(
        doc! {"dec": decimal("1.10")},
        vec![
            (bson::bson!({"$add": ["$dec", 1]}), Some(decimal("2.10"))),
            (bson::bson!({"$multiply": ["$dec", 2]}), Some(decimal("2.20"))),
            (bson::bson!({"$divide": [1, decimal("4")]}), Some(decimal("0.25"))),
            (bson::bson!({"$sqrt": decimal("4")}), Some(decimal("2"))),
            (bson::bson!({"$ln": decimal("1")}), Some(decimal("0"))),
            (bson::bson!({"$abs": decimal("-1.5")}), Some(decimal("1.5"))),
            (bson::bson!({"$floor": decimal("-1.5")}), Some(decimal("-2"))),
            (bson::bson!({"$exp": decimal("1")}), Some(decimal("2.718281828459045235360287471352662"))),
            (bson::bson!({"$pow": [decimal("2"), 10]}), Some(decimal("1024.000000000000000000000000000000"))),
            (bson::bson!({"$exp": decimal("0")}), Some(decimal("1"))),
            (bson::bson!({"$log10": decimal("100")}), Some(decimal("2"))),
            (bson::bson!({"$trunc": decimal("1.29")}), Some(decimal("1"))),
            (bson::bson!({"$trunc": [decimal("1.5"), 3]}), Some(decimal("1.500"))),
            (bson::bson!({"$round": [decimal("1E+3"), 1]}), Some(decimal("1000.0"))),
            (bson::bson!({"$ceil": decimal("1E+3")}), Some(decimal("1000"))),
            (bson::bson!({"$add": [0.1, decimal("1")]}), Some(decimal("1.100000000000000"))),
            (bson::bson!({"$sum": [0.1, decimal("1")]}), Some(decimal("1.100000000000000005551115123125783"))),
            (bson::bson!({"$sum": [0.5, 2, decimal("1.25")]}), Some(decimal("3.75"))),
            (bson::bson!({"$avg": [0.1, decimal("0")]}), Some(decimal("0.05000000000000000277555756156289135"))),
        ],
    );
}

#[test]
fn dates_take_part_in_sums_and_differences() {
    let at = |ms| Bson::DateTime(DateTime::from_millis(ms));
    yields(
        doc! {"t": at(1000), "u": at(250)},
        vec![
            (bson::bson!({"$add": ["$t", 5]}), Some(at(1005))),
            (bson::bson!({"$add": [5, "$t", 0.6]}), Some(at(1006))),
            (bson::bson!({"$subtract": ["$t", "$u"]}), Some(Bson::Int64(750))),
            (bson::bson!({"$subtract": ["$t", 1]}), Some(at(999))),
        ],
    );
    fails(
        doc! {"t": at(1000)},
        failures![
            {"$add": ["$t", "$t"]} => 16612 "only one date allowed",
            {"$subtract": [1, "$t"]} => 14 "can't $subtract date from int",
            {"$add": ["$t", 9_223_372_036_854_775_807i64]} => 15 "overflow",
        ],
    );
}

#[test]
fn wrong_operands_are_refused_with_mongodbs_codes() {
    fails(
        doc! {"zero": 0},
        failures![
            {"$add": ["a", 1]} => 14 "$add only supports numeric or date types, not string",
            {"$multiply": [[], 1]} => 14 "$multiply only supports numeric types, not array",
            {"$divide": [1, "$zero"]} => 2 "can't $divide by zero",
            {"$divide": ["a", 1]} => 14 "string and int",
            {"$mod": [1, 0]} => 16610 "can't $mod by zero",
            {"$mod": ["a", 1]} => 16611 "string and int",
            {"$abs": "a"} => 28765 "$abs only supports numeric types, not string",
            {"$abs": (i64::MIN)} => 28680 "long long min",
            {"$ln": 0} => 28766 "must be a positive number, but is 0",
            {"$log10": (-1)} => 28761 "positive",
            {"$log": [10, 1]} => 28759 "base must be a positive number not equal to 1",
            {"$log": ["a", 2]} => 28756 "argument must be numeric, not string",
            {"$sqrt": (-1)} => 28714 "greater than or equal to 0",
            {"$pow": [0, (-1)]} => 28764 "base of 0",
            {"$pow": ["a", 1]} => 28762 "base must be numeric",
            {"$round": [1, 1.5]} => 51082 "integral",
            {"$round": [1, 101]} => 51083 "[-20, 100]",
            {"$round": "a"} => 51081 "numeric types, not string",
            {"$bitAnd": [1, 1.5]} => 14 "int and long",
            {"$acos": 2} => 50989 "cannot apply $acos to 2, value must be in [-1,1]",
            {"$sin": (f64::INFINITY)} => 50989 "(-inf,inf)",
            {"$abs": [1, 2]} => 16020 "takes exactly 1 arguments. 2 were passed in.",
        ],
    );
}

#[test]
fn functions_of_one_number() {
    yields(
        doc! {"n": null},
        cases![
            {"$abs": (-3)} => 3,
            {"$abs": (i32::MIN)} => 2_147_483_648i64,
            {"$abs": "$n"} => null,
            {"$ceil": 1.2} => 2.0,
            {"$ceil": 7} => 7,
            {"$floor": (-1.2)} => (-2.0),
            {"$exp": 0} => 1.0,
            {"$ln": 1} => 0.0,
            {"$log": [100, 10]} => 2.0,
            {"$log10": 1000} => 3.0,
            {"$sqrt": 16} => 4.0,
            {"$pow": [2, 10]} => 1024,
            {"$pow": [2, 31]} => 2_147_483_648i64,
            {"$pow": [2, 64]} => 18_446_744_073_709_551_616.0,
            {"$pow": [2, (-1)]} => 0.5,
            {"$pow": [(-1), (-3)]} => (-1),
            {"$pow": [2.0, 2]} => 4.0,
            {"$cos": 0} => 1.0,
            {"$atan2": [0, 1]} => 0.0,
            {"$degreesToRadians": 180} => (std::f64::consts::PI),
            {"$sin": "$n"} => null,
            {"$bitAnd": [7, 5]} => 5,
            {"$bitOr": [1, 4i64]} => 5i64,
            {"$bitXor": [3, 1]} => 2,
            {"$bitNot": 0} => (-1),
            {"$bitAnd": []} => (-1),
        ],
    );
}

#[test]
fn rounding_is_half_to_even_in_decimal() {
    yields(
        doc! {},
        cases![
            {"$round": 10.5} => 10.0,
            {"$round": 11.5} => 12.0,
            {"$round": [19.25, 1]} => 19.2,
            {"$round": [28.73, 1]} => 28.7,
            {"$round": [1234, (-2)]} => 1200,
            {"$round": [150, (-2)]} => 200,
            {"$round": [250, (-2)]} => 200,
            {"$round": [7, 3]} => 7,
            {"$round": [null, 3]} => null,
            {"$trunc": 7.85} => 7.0,
            {"$trunc": [7.85, 1]} => 7.8,
            {"$trunc": [(-1299), (-2)]} => (-1200),
        ],
    );
}

#[test]
fn accumulators_reduce_their_arguments_or_their_one_array() {
    yields(
        doc! {"list": [1, 2, 3, "x", null], "a": 4, "none_numeric": ["x"]},
        cases![
            {"$sum": "$list"} => 6,
            {"$sum": ["$list", 1]} => 1,
            {"$sum": ["$a", 1.5]} => 5.5,
            {"$sum": [0.1, 0.2, 0.3]} => 0.6,
            {"$avg": "$list"} => 2.0,
            {"$avg": "$none_numeric"} => null,
            {"$min": "$list"} => 1,
            {"$max": "$list"} => "x",
            {"$max": ["$a", 9, "$none"]} => 9,
            {"$min": []} => null,
            {"$stdDevPop": [1, 3]} => 1.0,
            {"$stdDevSamp": [1]} => null,
            {"$sum": []} => 0,
        ],
    );
}
