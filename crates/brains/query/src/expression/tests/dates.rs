//! Dates, as MongoDB's manual documents them.

use super::*;
use crate::expression::date::calendar;

/// A date from its usual text.
fn at(text: &str) -> Bson {
    let date = DateTime::parse_rfc3339_str(text).unwrap();
    assert!(calendar::iso_text(date.timestamp_millis()).starts_with(&text[..10]));
    Bson::DateTime(date)
}

#[test]
fn parts_are_taken_in_the_zone() {
    yields(
        doc! {"d": at("2014-01-01T08:15:39.736Z"), "y": at("2016-01-01T00:00:00Z"), "n": null,
        "ts": bson::Timestamp { time: 7, increment: 3 }},
        cases![
            {"$year": "$d"} => 2014,
            {"$month": ["$d"]} => 1,
            {"$dayOfMonth": {"date": "$d"}} => 1,
            {"$hour": "$d"} => 8,
            {"$minute": "$d"} => 15,
            {"$second": "$d"} => 39,
            {"$millisecond": "$d"} => 736,
            {"$dayOfYear": "$d"} => 1,
            {"$dayOfWeek": "$d"} => 4,
            {"$week": "$d"} => 0,
            {"$isoWeek": "$y"} => 53,
            {"$isoWeekYear": "$y"} => 2015i64,
            {"$isoDayOfWeek": "$y"} => 5,
            {"$hour": {"date": "$d", "timezone": "+0530"}} => 13,
            {"$hour": {"date": "$d", "timezone": "America/New_York"}} => 3,
            {"$dayOfMonth": {"date": "$d", "timezone": "-09"}} => 31,
            {"$hour": {"date": "$d", "timezone": "$n"}} => null,
            {"$year": "$none"} => null,
            {"$tsSecond": "$ts"} => 7i64,
            {"$tsIncrement": "$ts"} => 3i64,
            {"$year": {"$add": ["$d", 31_536_000_000i64]}} => 2015,
        ],
    );
    fails(
        doc! {"d": at("2014-01-01T08:15:39.736Z")},
        failures![
            {"$year": "text"} => 16006 "can't convert from BSON type string to Date",
            {"$hour": {"date": "$d", "timezone": "Nowhere/City"}} => 40485 "unrecognized time zone identifier: \"Nowhere/City\"",
            {"$hour": {"date": "$d", "timezone": 1}} => 40517 "was given a int (1)",
            {"$hour": {"date": "$d", "x": 1}} => 40535 "\"x\"",
            {"$hour": {"timezone": "UTC"}} => 40539 "missing 'date'",
            {"$hour": ["$d", 1]} => 40536 "given 2",
            {"$tsSecond": 1} => 5687301 "timestamp",
        ],
    );
}

#[test]
fn dates_are_made_of_parts_and_taken_apart() {
    yields(
        doc! {"d": at("2017-01-01T01:29:09.123Z")},
        cases![
            {"$dateFromParts": {"year": 2017, "month": 2, "day": 8, "hour": 12}} => (at("2017-02-08T12:00:00Z")),
            {"$dateFromParts": {"isoWeekYear": 2017, "isoWeek": 6, "isoDayOfWeek": 3, "hour": 12}}
                => (at("2017-02-08T12:00:00Z")),
            {"$dateFromParts": {"year": 2016, "month": 12, "day": 31, "hour": 23, "minute": 46, "second": 12,
                "timezone": "America/New_York"}} => (at("2017-01-01T04:46:12Z")),
            {"$dateFromParts": {"year": 2017, "month": 14, "day": 1, "hour": 12}} => (at("2018-02-01T12:00:00Z")),
            {"$dateFromParts": {"year": 2017, "month": 0, "day": 1, "hour": 12}} => (at("2016-12-01T12:00:00Z")),
            {"$dateFromParts": {"year": 2017, "month": 1, "day": 0}} => (at("2016-12-31T00:00:00Z")),
            {"$dateFromParts": {"year": "$none"}} => null,
            {"$dateToParts": {"date": "$d"}} => {"year": 2017, "month": 1, "day": 1, "hour": 1, "minute": 29,
                "second": 9, "millisecond": 123},
            {"$dateToParts": {"date": "$d", "timezone": "America/New_York"}} => {"year": 2016, "month": 12,
                "day": 31, "hour": 20, "minute": 29, "second": 9, "millisecond": 123},
            {"$dateToParts": {"date": "$d", "iso8601": true}} => {"isoWeekYear": 2016, "isoWeek": 52,
                "isoDayOfWeek": 7, "hour": 1, "minute": 29, "second": 9, "millisecond": 123},
        ],
    );
    fails(
        doc! {},
        failures![
            {"$dateFromParts": {"month": 1}} => 40516 "either 'year' or 'isoWeekYear'",
            {"$dateFromParts": {"year": 2017, "isoWeek": 1}} => 40489 "mixing",
            {"$dateFromParts": {"year": 10000}} => 40523 "range 1 to 9999, found 10000",
            {"$dateFromParts": {"year": "2017"}} => 40515 "found string",
            {"$dateFromParts": {"year": 2017, "month": 40000}} => 31034 "40000 is not in range",
            {"$dateFromParts": {"year": 2017, "second": (i64::MAX)}} => 15 "overflow",
            {"$dateToParts": {}} => 40522 "Missing 'date'",
        ],
    );
}

#[test]
fn dates_are_written_by_formats() {
    yields(
        doc! {"d": at("2014-01-01T08:15:39.736Z"), "n": null},
        cases![
            {"$dateToString": {"date": "$d"}} => "2014-01-01T08:15:39.736Z",
            {"$dateToString": {"date": "$d", "timezone": "-0430"}} => "2014-01-01T03:45:39.736",
            {"$dateToString": {"format": "%Y-%m-%d", "date": "$d"}} => "2014-01-01",
            {"$dateToString": {"format": "%H:%M:%S:%L%z", "date": "$d", "timezone": "America/New_York"}}
                => "03:15:39:736-0500",
            {"$dateToString": {"format": "%H:%M:%S:%L%z", "date": "$d", "timezone": "+04:30"}} => "12:45:39:736+0430",
            {"$dateToString": {"format": "minutes: %Z", "date": "$d", "timezone": "+04:30"}} => "minutes: +270",
            {"$dateToString": {"format": "%j %w %U %G-W%V-%u %%", "date": "$d"}} => "001 4 00 2014-W01-3 %",
            {"$dateToString": {"format": "%b %B", "date": "$d"}} => "Jan January",
            {"$dateToString": {"date": "$n"}} => null,
            {"$dateToString": {"date": "$n", "onNull": "none"}} => "none",
        ],
    );
    fails(
        doc! {"d": at("2014-01-01T08:15:39.736Z")},
        failures![
            {"$dateToString": {"date": "$d", "format": "%"}} => 18535 "Unmatched '%'",
            {"$dateToString": {"date": "$d", "format": "%q"}} => 18536 "'%q'",
            {"$dateToString": {"date": "$d", "format": 1}} => 18533 "found: int",
            {"$dateToString": {"format": "%Y"}} => 18628 "Missing 'date'",
            {"$dateToString": {"date": "$d", "x": 1}} => 18534 "x",
        ],
    );
}

#[test]
fn dates_are_read_by_format_or_in_the_usual_notations() {
    yields(
        doc! {"n": null},
        cases![
            {"$dateFromString": {"dateString": "2017-02-08T12:10:40.787"}} => (at("2017-02-08T12:10:40.787Z")),
            {"$dateFromString": {"dateString": "2017-02-08T12:10:40.787", "timezone": "America/New_York"}}
                => (at("2017-02-08T17:10:40.787Z")),
            {"$dateFromString": {"dateString": "2017-02-08"}} => (at("2017-02-08T00:00:00Z")),
            {"$dateFromString": {"dateString": "2017-02"}} => (at("2017-02-01T00:00:00Z")),
            {"$dateFromString": {"dateString": "2017-02-08T12:10:40+02:00"}} => (at("2017-02-08T10:10:40Z")),
            {"$dateFromString": {"dateString": "July 4, 2018"}} => (at("2018-07-04T00:00:00Z")),
            {"$dateFromString": {"dateString": "Wed, 04 Jul 2018 10:00:00 GMT"}} => (at("2018-07-04T10:00:00Z")),
            {"$dateFromString": {"dateString": "07/04/2018 3:05 pm"}} => (at("2018-07-04T15:05:00Z")),
            {"$dateFromString": {"dateString": "06-15-2018", "format": "%m-%d-%Y"}} => (at("2018-06-15T00:00:00Z")),
            {"$dateFromString": {"dateString": "15-6-2018", "format": "%d-%m-%Y", "timezone": "+01"}}
                => (at("2018-06-14T23:00:00Z")),
            {"$dateFromString": {"dateString": "2017-W06-3", "format": "%G-W%V-%u"}} => (at("2017-02-08T00:00:00Z")),
            {"$dateFromString": {"dateString": "12 March 2018", "format": "%d %B %Y"}} => (at("2018-03-12T00:00:00Z")),
            {"$dateFromString": {"dateString": "nonsense", "onError": "bad"}} => "bad",
            {"$dateFromString": {"dateString": "$n", "onNull": "none"}} => "none",
            {"$dateFromString": {"dateString": "$n"}} => null,
        ],
    );
    fails(
        doc! {},
        failures![
            {"$dateFromString": {"dateString": "nonsense"}} => 241 "Error parsing date string 'nonsense'",
            {"$dateFromString": {"dateString": "2017/02"}} => 241 "incomplete",
            {"$dateFromString": {"dateString": "2017-02-30"}} => 241 "out of range",
            {"$dateFromString": {"dateString": "2017-02-08T00:00:00Z", "timezone": "+01"}} => 241 "time zone information",
            {"$dateFromString": {"dateString": 1}} => 241 "found: int with value 1",
            {"$dateFromString": {"dateString": "x", "format": 1}} => 40684 "found: int",
            {"$dateFromString": {}} => 40542 "dateString",
        ],
    );
}

#[test]
fn dates_are_stepped_on_the_local_calendar() {
    yields(
        doc! {"jan": at("2021-01-31T00:00:00Z"), "d": at("2020-12-31T12:10:05Z"), "dst": at("2020-03-07T17:00:00Z")},
        cases![
            {"$dateAdd": {"startDate": "$jan", "unit": "month", "amount": 1}} => (at("2021-02-28T00:00:00Z")),
            {"$dateAdd": {"startDate": "$d", "unit": "month", "amount": 2}} => (at("2021-02-28T12:10:05Z")),
            {"$dateAdd": {"startDate": "$d", "unit": "quarter", "amount": (-1)}} => (at("2020-09-30T12:10:05Z")),
            {"$dateAdd": {"startDate": "$d", "unit": "year", "amount": 1}} => (at("2021-12-31T12:10:05Z")),
            {"$dateAdd": {"startDate": "$dst", "unit": "day", "amount": 1, "timezone": "America/New_York"}}
                => (at("2020-03-08T16:00:00Z")),
            {"$dateAdd": {"startDate": "$dst", "unit": "hour", "amount": 24, "timezone": "America/New_York"}}
                => (at("2020-03-08T17:00:00Z")),
            {"$dateSubtract": {"startDate": "$d", "unit": "week", "amount": 1}} => (at("2020-12-24T12:10:05Z")),
            {"$dateSubtract": {"startDate": "$jan", "unit": "second", "amount": 1i64}} => (at("2021-01-30T23:59:59Z")),
            {"$dateAdd": {"startDate": "$none", "unit": "day", "amount": 1}} => null,
        ],
    );
    fails(
        doc! {"d": at("2020-12-31T12:10:05Z")},
        failures![
            {"$dateAdd": {"startDate": "$d", "unit": "fortnight", "amount": 1}} => 9 "unknown time unit value: fortnight",
            {"$dateAdd": {"startDate": "x", "unit": "day", "amount": 1}} => 5166403 "convertible to a date",
            {"$dateAdd": {"startDate": "$d", "unit": 1, "amount": 1}} => 5166404 "'unit' to be a string, but got int",
            {"$dateAdd": {"startDate": "$d", "unit": "day", "amount": 1.5}} => 5166405 "integer amount",
            {"$dateAdd": {"startDate": "$d", "unit": "day"}} => 5166402 "to be present",
            {"$dateAdd": {"startDate": "$d", "unit": "year", "amount": (i64::MAX)}} => 5166406 "overflow",
            {"$dateAdd": {"startDate": "$d", "unit": "millisecond", "amount": (i64::MAX)}} => 5166406 "overflow",
        ],
    );
}

#[test]
fn differences_count_the_boundaries_between() {
    let between = |from: &str, to: &str, unit: &str| bson::bson!({"$dateDiff": {"startDate": (at(from)), "endDate": (at(to)), "unit": unit}});
    yields(
        doc! {},
        vec![
            (between("2020-12-31T23:59:59Z", "2021-01-01T00:00:00Z", "year"), Some(Bson::Int64(1))),
            (between("2020-01-01T00:00:00Z", "2020-12-31T00:00:00Z", "year"), Some(Bson::Int64(0))),
            (between("2020-03-31T00:00:00Z", "2020-04-01T00:00:00Z", "quarter"), Some(Bson::Int64(1))),
            (between("2021-01-31T00:00:00Z", "2020-11-01T00:00:00Z", "month"), Some(Bson::Int64(-2))),
            (between("2021-01-02T00:00:00Z", "2021-01-03T00:00:00Z", "week"), Some(Bson::Int64(1))),
            (between("2021-01-03T00:00:00Z", "2021-01-09T23:00:00Z", "week"), Some(Bson::Int64(0))),
            (between("2021-01-01T23:00:00Z", "2021-01-02T01:00:00Z", "day"), Some(Bson::Int64(1))),
            (between("2021-01-01T00:59:59Z", "2021-01-01T01:00:00Z", "hour"), Some(Bson::Int64(1))),
            (between("2021-01-01T00:00:00Z", "2021-01-01T00:00:01.5Z", "millisecond"), Some(Bson::Int64(1500))),
            (
                bson::bson!({"$dateDiff": {
                    "startDate": (at("2021-01-03T00:00:00Z")), "endDate": (at("2021-01-04T00:00:00Z")),
                    "unit": "week", "startOfWeek": "Mon",
                }}),
                Some(Bson::Int64(1)),
            ),
        ],
    );
    fails(
        doc! {},
        failures![
            {"$dateDiff": {"startDate": 1, "endDate": 1, "unit": "day"}} => 5166307 "'startDate' to be a date, but got int",
            {"$dateDiff": {"startDate": 1, "unit": "day"}} => 5166304 "endDate",
        ],
    );
}

#[test]
fn dates_are_cut_to_units_and_bins() {
    let cut = |text: &str, unit: &str, bin: i32, zone: &str| bson::bson!({"$dateTrunc": {"date": (at(text)), "unit": unit, "binSize": bin, "timezone": zone}});
    let d = "2021-03-20T11:30:05.123Z";
    yields(
        doc! {},
        vec![
            (cut(d, "second", 1, "UTC"), Some(at("2021-03-20T11:30:05Z"))),
            (cut(d, "minute", 15, "UTC"), Some(at("2021-03-20T11:30:00Z"))),
            (cut(d, "hour", 2, "UTC"), Some(at("2021-03-20T10:00:00Z"))),
            (cut(d, "day", 1, "America/New_York"), Some(at("2021-03-20T04:00:00Z"))),
            (cut(d, "week", 1, "UTC"), Some(at("2021-03-14T00:00:00Z"))),
            (cut(d, "month", 1, "UTC"), Some(at("2021-03-01T00:00:00Z"))),
            (cut(d, "quarter", 1, "UTC"), Some(at("2021-01-01T00:00:00Z"))),
            (cut(d, "year", 10, "UTC"), Some(at("2020-01-01T00:00:00Z"))),
            (cut("1999-12-31T23:00:00Z", "month", 6, "UTC"), Some(at("1999-07-01T00:00:00Z"))),
            (
                bson::bson!({"$dateTrunc": {"date": (at(d)), "unit": "week", "startOfWeek": "monday"}}),
                Some(at("2021-03-15T00:00:00Z")),
            ),
        ],
    );
    fails(
        doc! {"d": at(d), "before": at("1999-03-20T11:30:05.123Z")},
        failures![
            {"$dateTrunc": {"date": "$d", "unit": "day", "binSize": 0}} => 5439018 "greater than 0",
            {"$dateTrunc": {"date": "x", "unit": "day"}} => 5439012 "to be a date, but got string",
            {"$dateTrunc": {"date": "$d", "unit": "week", "startOfWeek": "x"}} => 9 "day of a week: x",
            {"$dateTrunc": {"date": "$d", "unit": "year", "binSize": (i64::MAX)}} => 5439006 "overflow",
            {"$dateTrunc": {"date": "$before", "unit": "month", "binSize": (i64::MAX)}} => 5439006 "overflow",
        ],
    );
}
