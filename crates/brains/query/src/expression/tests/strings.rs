//! Strings and regular expressions.

use super::*;

#[test]
fn strings_are_joined_split_and_measured() {
    yields(
        doc! {"s": "caf\u{e9}teria", "n": null},
        cases![
            {"$concat": ["a", "b", "$s"]} => "abcaf\u{e9}teria",
            {"$concat": ["a", "$n"]} => null,
            {"$concat": []} => "",
            {"$split": ["June-15-2013", "-"]} => ["June", "15", "2013"],
            {"$split": ["abc", "x"]} => ["abc"],
            {"$split": ["$n", "x"]} => null,
            {"$strLenBytes": "$s"} => 10,
            {"$strLenCP": "$s"} => 9,
            {"$toLower": "ABC\u{c9}"} => "abc\u{c9}",
            {"$toUpper": "abc1"} => "ABC1",
            {"$toUpper": "$n"} => "",
            {"$toUpper": 5} => "5",
            {"$strcasecmp": ["ABC", "abc"]} => 0,
            {"$strcasecmp": ["a", "b"]} => (-1),
        ],
    );
    fails(
        doc! {},
        failures![
            {"$concat": ["a", 1]} => 16702 "$concat only supports strings, not int",
            {"$split": [1, "a"]} => 40085 "first argument, found: int",
            {"$split": ["a", 1]} => 40086 "second argument, found: int",
            {"$split": ["a", ""]} => 40087 "non-empty separator",
            {"$strLenCP": null} => 34471 "requires a string argument, found: null",
            {"$strLenBytes": 5} => 34473 "found: int",
            {"$toLower": [[]]} => 16007 "can't convert from BSON type array to String",
        ],
    );
}

#[test]
fn substrings_count_bytes_or_code_points() {
    yields(
        doc! {"s": "caf\u{e9}teria"},
        cases![
            {"$substrBytes": ["$s", 0, 3]} => "caf",
            {"$substrBytes": ["$s", 3, 2]} => "\u{e9}",
            {"$substrBytes": ["$s", 5, (-1)]} => "teria",
            {"$substrBytes": ["$s", 50, 1]} => "",
            {"$substr": [1234, 1, 2]} => "23",
            {"$substrCP": ["$s", 3, 2]} => "\u{e9}t",
            {"$substrCP": [null, 0, 2]} => "",
            {"$indexOfBytes": ["$s", "t"]} => 5,
            {"$indexOfCP": ["$s", "t"]} => 4,
            {"$indexOfCP": ["$s", "a", 2]} => 8,
            {"$indexOfCP": ["$s", "a", 2, 5]} => (-1),
            {"$indexOfBytes": ["abc", "c", 3, 1]} => (-1),
            {"$indexOfBytes": ["abc", ""]} => 0,
            {"$indexOfCP": [null, "x"]} => null,
        ],
    );
    fails(
        doc! {"s": "caf\u{e9}teria"},
        failures![
            {"$substrBytes": ["$s", 4, 1]} => 28656 "continuation byte",
            {"$substrBytes": ["$s", 3, 1]} => 28657 "middle of a UTF-8",
            {"$substrBytes": ["$s", (-1), 1]} => 50752 "non-negative (got: -1)",
            {"$substrBytes": ["$s", "a", 1]} => 16034 "is BSON type string",
            {"$substrCP": ["$s", 0, (-1)]} => 34454 "nonnegative",
            {"$substrCP": ["$s", 0.5, 1]} => 34451 "32-bit integral value",
            {"$indexOfBytes": [1, "x"]} => 40091 "found: int",
            {"$indexOfCP": ["x", 1]} => 40094 "found: int",
            {"$indexOfCP": ["x", "x", (-1)]} => 40097 "nonnegative starting index, found: -1",
            {"$indexOfCP": ["x", "x", "a"]} => 40096 "integral starting index",
            {"$indexOfCP": ["x"]} => 28667 "at least 2 arguments, and at most 4, but 1 were passed in",
        ],
    );
}

#[test]
fn trimming_and_replacing() {
    yields(
        doc! {},
        cases![
            {"$trim": {"input": " \n good  bye \t "}} => "good  bye",
            {"$ltrim": {"input": "00012300", "chars": "0"}} => "12300",
            {"$rtrim": {"input": "00012300", "chars": "0"}} => "000123",
            {"$trim": {"input": "ggggoodbyeeeee", "chars": "ge"}} => "oodby",
            {"$trim": {"input": null}} => null,
            {"$trim": {"input": "x", "chars": null}} => null,
            {"$replaceOne": {"input": "blue blue", "find": "blue", "replacement": "red"}} => "red blue",
            {"$replaceAll": {"input": "blue blue", "find": "blue", "replacement": "red"}} => "red red",
            {"$replaceAll": {"input": null, "find": "a", "replacement": "b"}} => null,
        ],
    );
    fails(
        doc! {},
        failures![
            {"$trim": {"input": 1}} => 50699 "got 1 (of type int) instead",
            {"$trim": {"input": "x", "chars": 1}} => 50700 "'chars'",
            {"$trim": {"chars": "x"}} => 50695 "$trim requires an 'input' field",
            {"$trim": {"input": "x", "y": 1}} => 50694 "unknown argument: y",
            {"$trim": "x"} => 50696 "found string",
            {"$replaceOne": {"input": 1, "find": "a", "replacement": "b"}} => 51746 "'input' be a string, found: 1",
            {"$replaceOne": {"input": "1", "find": "a"}} => 51747 "'replacement'",
            {"$replaceAll": "x"} => 51751 "found: string",
        ],
    );
}

#[test]
fn regular_expressions_find_with_positions_in_code_points() {
    let regex = |pattern: &str, options: &str| {
        Bson::RegularExpression(bson::Regex {
            pattern: pattern.to_owned().try_into().unwrap(),
            options: options.to_owned().try_into().unwrap(),
        })
    };
    yields(
        doc! {"s": "Caf\u{e9} au lait", "p": "A."},
        cases![
            {"$regexMatch": {"input": "$s", "regex": "au"}} => true,
            {"$regexMatch": {"input": "$s", "regex": "^caf", "options": "i"}} => true,
            {"$regexMatch": {"input": "$s", "regex": (regex("^caf", "i"))}} => true,
            {"$regexMatch": {"input": "$none", "regex": "x"}} => false,
            {"$regexFind": {"input": "$s", "regex": "(a)(x)?(u)"}}
                => {"match": "au", "idx": 5, "captures": ["a", null, "u"]},
            {"$regexFind": {"input": "$s", "regex": "zzz"}} => null,
            {"$regexFind": {"input": "$s", "regex": "$p", "options": "i"}}
                => {"match": "af", "idx": 1, "captures": []},
            {"$regexFindAll": {"input": "$s", "regex": "a[iu]"}} => [
                {"match": "au", "idx": 5, "captures": []}, {"match": "ai", "idx": 9, "captures": []},
            ],
            {"$regexFindAll": {"input": "\u{e9}b", "regex": "x*"}} => [
                {"match": "", "idx": 0, "captures": []},
                {"match": "", "idx": 1, "captures": []},
            ],
            {"$regexFindAll": {"input": "", "regex": "x*"}} => [{"match": "", "idx": 0, "captures": []}],
            {"$regexFindAll": {"input": "ab", "regex": "b*"}} => [
                {"match": "", "idx": 0, "captures": []}, {"match": "b", "idx": 1, "captures": []},
            ],
            // What only PCRE2 has: recursion, verbs, branches that share their groups.
            {"$regexMatch": {"input": "((a)(b))", "regex": r"^(\((?:[^()]|(?1))*\))$"}} => true,
            {"$regexFindAll": {"input": "ab", "regex": "a(*SKIP)(*FAIL)|."}} => [{"match": "b", "idx": 1, "captures": []}],
            {"$regexFind": {"input": "by", "regex": "(?|(a)x|(b)y)"}} => {"match": "by", "idx": 0, "captures": ["b"]},
            {"$regexFindAll": {"input": null, "regex": "x"}} => [],
            {"$regexMatch": {"input": "\u{664}", "regex": "\\d"}} => false,
            {"$regexFind": {"input": "ab\n", "regex": "b$"}} => {"match": "b", "idx": 1, "captures": []},
        ],
    );
    fails(
        doc! {},
        failures![
            {"$regexMatch": {"input": "x"}} => 31023 "requires 'regex' parameter",
            {"$regexMatch": {"input": 1, "regex": "x"}} => 51104 "'input' to be of type string",
            {"$regexMatch": {"input": "x", "regex": 1}} => 51105 "string or regex",
            {"$regexMatch": {"input": "x", "regex": "("}} => 51111 "Invalid Regex in $regexMatch: missing closing parenthesis",
            {"$regexFindAll": {"input": "aab", "regex": r"(?<=\Ka)"}} => 51111 "\\K is not allowed in lookarounds",
            {"$regexMatch": {"input": "x", "regex": "((a{1000}){1000}){1000}"}} => 51111 "Invalid Regex",
            {"$regexMatch": {"input": "x", "regex": "x", "options": "z"}} => 51108 "invalid flag",
            {"$regexMatch": {"input": "x", "regex": (regex("x", "i")), "options": "i"}} => 51107 "both",
            {"$regexMatch": "x"} => 51103 "object of named arguments",
        ],
    );
}

#[test]
fn a_search_that_goes_back_without_end_is_given_up() {
    let input = "a".repeat(40) + "!";
    for operator in ["$regexMatch", "$regexFind", "$regexFindAll"] {
        let mut bomb = Document::new();
        bomb.insert(operator, doc! {"input": &input, "regex": "^(a+)+$"});
        let error = evaluate(bomb, doc! {}).unwrap_err();
        let message = format!(
            "Error occurred while executing the regular expression in {operator}. Result code: match limit exceeded"
        );
        assert_eq!((error.code.0, error.message), (51156, message));
    }
}

#[test]
fn the_older_operators_write_numbers_as_c_does() {
    let timestamp = bson::Timestamp { time: 1_500_000_000, increment: 5 };
    let early = bson::Timestamp { time: 1, increment: 0 };
    yields(
        doc! {"t": timestamp, "early": early, "half": Bson::Decimal128("2.5".parse().unwrap())},
        cases![
            {"$toLower": 1e16} => "1e+16",
            {"$toUpper": 1e16} => "1E+16",
            {"$toLower": 9e-05} => "9e-05",
            {"$toLower": 1e6} => "1e+06",
            {"$toLower": 123456.0} => "123456",
            {"$toLower": 2.14159265} => "2.14159",
            {"$toLower": 0.0001} => "0.0001",
            {"$toLower": 999999.5} => "1e+06",
            {"$toLower": 0.0} => "0",
            {"$toLower": 2.5} => "2.5",
            {"$toLower": (f64::NAN)} => "nan",
            {"$substrBytes": [1e6, 0, 3]} => "1e+",
            {"$toUpper": "$t"} => "JUL 14 02:40:00:5",
            {"$toLower": "$early"} => "jan  1 00:00:01:0",
            // A double is cut, a decimal rounded half to even.
            {"$substr": ["abcdef", 2.9, 1]} => "c",
            {"$substr": ["abcdef", "$half", 1]} => "c",
            {"$substr": ["abcdef", 0, (Bson::Decimal128("3.5".parse().unwrap()))]} => "abcd",
        ],
    );
}

#[test]
fn a_token_is_found_between_bytes_that_a_range_cuts() {
    yields(
        doc! {"s": "\u{e9}ab\u{e9}"},
        cases![
            {"$indexOfBytes": ["$s", "ab", 1, 5]} => 2,
            {"$indexOfBytes": ["$s", "\u{e9}", 1]} => 4,
            {"$indexOfBytes": ["$s", "\u{e9}", 1, 5]} => (-1),
            {"$indexOfBytes": ["$s", "", 3]} => 3,
            {"$indexOfBytes": ["$s", "", 9]} => (-1),
            {"$indexOfCP": ["$s", "\u{e9}", 1]} => 3,
            {"$indexOfCP": ["$s", "b", 0, 2]} => (-1),
        ],
    );
}
