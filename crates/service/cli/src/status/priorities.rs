//! What members say of the classes of requests, and of the rules that give them: a line for each that there is something to say of.
//!
//! Invariant: pure; nothing is told of a class that nobody has used, nor of a member where all was of one class.

use super::survey::{Told, whole};
use bson::{Bson, Document};

/// The lines.
pub(super) fn lines(told: &[Told]) -> Vec<String> {
    told.iter().flat_map(|one| lines_of(&one.name, &one.server)).collect()
}

fn lines_of(member: &str, server: &Document) -> Vec<String> {
    let Ok(priority) = server.get_document("priority") else { return Vec::new() };
    let mut lines = Vec::new();
    if let Ok(classes) = priority.get_document("classes") {
        let used = |(_, of): &(&String, &Bson)| of.as_document().is_some_and(|of| served(of) > 0);
        for (class, of) in classes.iter().filter(used) {
            lines.extend(of.as_document().map(|of| format!("  {member}  {class:<6}  {}", class_line(of))));
        }
    }
    let rules = priority.get_array("rules").map(Vec::as_slice).unwrap_or_default();
    for (index, rule) in rules.iter().filter_map(Bson::as_document).enumerate() {
        let when = rule.get_document("match").map(ToString::to_string).unwrap_or_default();
        let class = rule.get_str("priority").unwrap_or("?");
        let matched = number(rule, "matched");
        if matched > 0 {
            lines.push(format!("  {member}  rule {index}: {when} is {class}, {matched} requests"));
        }
    }
    match priority.get_str("niceness") {
        Ok(right) if right != "all" && !lines.is_empty() => {
            let lack = format!(
                "  {member}  may not set its threads' niceness ({right}): high is first at the door alone; give it CAP_SYS_NICE or a limit \
                 of niceness of 40"
            );
            lines.insert(0, lack);
        }
        _ => {}
    }
    lines
}

fn number(document: &Document, key: &str) -> i64 {
    document.get(key).map_or(0, whole)
}

fn served(of: &Document) -> i64 {
    of.get_document("serviceMicros").map_or(0, |times| number(times, "count"))
}

fn class_line(of: &Document) -> String {
    let empty = Document::new();
    let times = of.get_document("serviceMicros").unwrap_or(&empty);
    let mut line = format!(
        "{} requests, half of them in {}, 99 of 100 in {}; worst wait {}",
        served(of),
        time(number(times, "p50")),
        time(number(times, "p99")),
        time(number(of, "worstWaitMicros")),
    );
    let refused = of.get_document("refused").unwrap_or(&empty);
    for (count, what) in [
        (number(of, "waiting"), "wait now"),
        (number(of, "aged"), "waited to the end"),
        (number(refused, "deadline"), "refused as too late"),
        (number(refused, "overload"), "refused as too many"),
    ] {
        if count > 0 {
            line.push_str(&format!(", {count} {what}"));
        }
    }
    line
}

fn time(micros: i64) -> String {
    match micros {
        0 => "0".into(),
        ..1000 => format!("{micros} us"),
        _ => format!("{:.1} ms", micros as f64 / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::doc;

    #[test]
    fn a_line_for_each_class_that_was_used_and_each_rule_that_has_matched() {
        let class = |count: i64| {
            doc! {
                "waiting": 2_i64, "worstWaitMicros": 12_000_i64, "aged": 1_i64, "refused": { "deadline": 3_i64, "overload": 0_i64 },
                "serviceMicros": { "count": count, "p50": 200_i64, "p99": 5_000_i64 },
            }
        };
        let server = doc! { "priority": {
            "classes": { "high": class(0), "low": class(7) },
            "rules": [
                { "match": { "appName": "report*" }, "priority": "low", "matched": 7_i64 },
                { "match": {}, "priority": "high", "matched": 0_i64 },
            ],
        } };
        assert_eq!(
            lines_of("a:1", &server),
            [
                "  a:1  low     7 requests, half of them in 200 us, 99 of 100 in 5.0 ms; worst wait 12.0 ms, 2 wait now, 1 waited \
                 to the end, 3 refused as too late",
                "  a:1  rule 0: { \"appName\": \"report*\" } is low, 7 requests",
            ]
        );
        assert!(lines_of("a:1", &Document::new()).is_empty());
    }

    #[test]
    fn who_may_not_set_niceness_is_named_where_classes_differ() {
        let server = |right: &str, count: i64| {
            doc! { "priority": { "niceness": right, "classes": { "high": { "serviceMicros": { "count": count } } } } }
        };
        let told = |server: &Document| lines_of("a:1", server).iter().any(|line| line.contains("CAP_SYS_NICE"));
        assert!(told(&server("none", 1)) && told(&server("lower", 1)));
        assert!(!told(&server("all", 1)));
        assert!(!told(&server("none", 0)), "nobody misses it");
    }
}
