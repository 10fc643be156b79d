//! `settings.priority` as a document: read strictly, written with every field.
//!
//! Invariants: as those of `document.rs`. What is out of its range is `BadValue` (2), naming the field: admission's own bounds decide
//! ([`Settings::validate`]), but for what has no place in its types.
//! What it deliberately does not do: know what the settings mean (`baton_admission`).

use super::bounds;
use super::document::integer;
use super::fields::{self, Field, Fields};
use super::validate::check_is_whole as check_duration_is_whole;
use baton_admission::{Match, Mode, Rule, Settings, ShedAbove, Weights};
use baton_types::{Class, Error, Result};
use bson::{Array, Document, RawArray, RawDocument, doc};
use std::time::Duration;

const PATH: &str = "ReplSetConfig.settings.priority";
const RULES_PATH: &str = "ReplSetConfig.settings.priority.rules";
const MATCH_PATH: &str = "ReplSetConfig.settings.priority.rules.match";
const WEIGHTS_PATH: &str = "ReplSetConfig.settings.priority.weights";
const SHED_ABOVE_PATH: &str = "ReplSetConfig.settings.priority.shedAbove";

const CLASSES: &str = "high, normal or low";

/// The settings that a document states; absent ones are as by default.
pub(super) fn parse(document: &RawDocument) -> Result<Settings> {
    let mut settings = Settings::default();
    let mut fields = Fields::of(PATH, document);
    while let Some(field) = fields.next()? {
        match field.name {
            "mode" => {
                let mode = field.name_of("off, nice, checkpoint, both or full", Mode::from_name)?;
                settings.mode = mode.unwrap_or_default();
            }
            "rules" => settings.rules = field.array()?.map(parse_rules).transpose()?.unwrap_or_default(),
            "weights" => settings.weights = field.document()?.map(parse_weights).transpose()?,
            "workConserving" => settings.work_conserving = field.boolean()?,
            "worstWaitMs" => {
                let ms = u64::try_from(field.any_whole()?).map_err(|_| field.must_be("10 to 60000"))?;
                settings.worst_wait = Duration::from_millis(ms);
            }
            "shedAbove" => {
                settings.shed_above = field.document()?.map(parse_shed_above).transpose()?.unwrap_or_default()
            }
            _ => return Err(field.unknown()),
        }
    }
    // Here, as what is out of its range elsewhere in a configuration is refused when it is read, too.
    settings.validate()?;
    Ok(settings)
}

fn parse_rules(array: &RawArray) -> Result<Vec<Rule>> {
    let mut rules = Vec::new();
    for (i, element) in array.into_iter().enumerate() {
        let value = element?;
        let Some(document) = value.as_document() else {
            return Err(fields::wrong_type(&format!("{RULES_PATH}.{i}"), value, "object"));
        };
        let rule = parse_rule(document).map_err(|error| Error {
            message: format!("settings.priority.rules.{i} :: caused by :: {}", error.message),
            ..error
        })?;
        rules.push(rule);
    }
    Ok(rules)
}

fn parse_rule(document: &RawDocument) -> Result<Rule> {
    let (mut when, mut class) = (None, None);
    let mut fields = Fields::of(RULES_PATH, document);
    while let Some(field) = fields.next()? {
        match field.name {
            "match" => when = field.document()?.map(parse_match).transpose()?,
            "priority" => class = field.name_of(CLASSES, Class::from_client_name)?,
            _ => return Err(field.unknown()),
        }
    }
    let when = when.ok_or_else(|| fields.missing("match"))?;
    let class = class.ok_or_else(|| fields.missing("priority"))?;
    Ok(Rule { when, class })
}

fn parse_match(document: &RawDocument) -> Result<Match> {
    let mut when = Match::default();
    let mut fields = Fields::of(MATCH_PATH, document);
    while let Some(field) = fields.next()? {
        let pattern = match field.name {
            "appName" => &mut when.app_name,
            "user" => &mut when.user,
            "role" => &mut when.role,
            "ns" => &mut when.ns,
            "command" => &mut when.command,
            "comment" => &mut when.comment,
            _ => return Err(field.unknown()),
        };
        *pattern = field.text()?.map(str::to_owned);
    }
    Ok(when)
}

fn parse_weights(document: &RawDocument) -> Result<Weights> {
    let (mut high, mut normal, mut low) = (None, None, None);
    let mut fields = Fields::of(WEIGHTS_PATH, document);
    while let Some(field) = fields.next()? {
        let weight = match field.name {
            "high" => &mut high,
            "normal" => &mut normal,
            "low" => &mut low,
            _ => return Err(field.unknown()),
        };
        *weight = Some(weight_of(&field)?);
    }
    let missing = |name| fields.missing(name);
    Ok(Weights {
        high: high.ok_or_else(|| missing("high"))?,
        normal: normal.ok_or_else(|| missing("normal"))?,
        low: low.ok_or_else(|| missing("low"))?,
    })
}

fn weight_of(field: &Field<'_>) -> Result<u32> {
    u32::try_from(field.any_whole()?).map_err(|_| field.must_be("1 to 10000"))
}

/// A class that is not named is never shed by load.
fn parse_shed_above(document: &RawDocument) -> Result<ShedAbove> {
    let mut shed_above = ShedAbove { high: None, normal: None, low: None };
    let mut fields = Fields::of(SHED_ABOVE_PATH, document);
    while let Some(field) = fields.next()? {
        let bound = match field.name {
            "high" => &mut shed_above.high,
            "normal" => &mut shed_above.normal,
            "low" => &mut shed_above.low,
            _ => return Err(field.unknown()),
        };
        *bound = Some(u32::try_from(field.any_whole()?).map_err(|_| field.must_be("17 to 10000"))?);
    }
    Ok(shed_above)
}

/// The document of these settings.
pub(super) fn to_document(settings: &Settings) -> Document {
    let mut document = doc! {
        "mode": settings.mode.name(),
        "rules": settings.rules.iter().map(|rule| rule_to_document(rule).into()).collect::<Array>(),
    };
    if let Some(Weights { high, normal, low }) = settings.weights {
        let weight = |weight| integer(i64::from(weight));
        document.insert("weights", doc! { "high": weight(high), "normal": weight(normal), "low": weight(low) });
    }
    if let Some(work_conserving) = settings.work_conserving {
        document.insert("workConserving", work_conserving);
    }
    document.insert("worstWaitMs", integer(bounds::millis(settings.worst_wait)));
    let ShedAbove { high, normal, low } = settings.shed_above;
    let stated = [("high", high), ("normal", normal), ("low", low)];
    let bounds = stated.into_iter().filter_map(|(name, bound)| Some((name.to_owned(), integer(i64::from(bound?)))));
    document.insert("shedAbove", bounds.collect::<Document>());
    document
}

fn rule_to_document(rule: &Rule) -> Document {
    let when: Document = rule.when.patterns().map(|(name, pattern)| (name.to_owned(), pattern.into())).collect();
    doc! { "match": when, "priority": rule.class.name() }
}

/// The document has no room for fractions of milliseconds.
pub(super) fn check_is_whole(settings: &Settings) -> Result<()> {
    let whole = Duration::from_millis(u64::try_from(settings.worst_wait.as_millis()).unwrap_or(u64::MAX));
    check_duration_is_whole("settings.priority.worstWaitMs", settings.worst_wait, whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::RawDocumentBuf;

    fn parsed(document: &Document) -> Result<Settings> {
        parse(&RawDocumentBuf::try_from(document).unwrap())
    }

    #[test]
    fn every_field_is_read_and_written_again() {
        let rule = |when: Document, class: &str| doc! { "match": when, "priority": class };
        let written = doc! {
            "mode": "both",
            "rules": [
                rule(doc! { "appName": "report*", "command": "aggregate" }, "low"),
                rule(doc! { "user": "admin.*", "role": "backup", "ns": "shop.*", "comment": "checkout" }, "high"),
                rule(doc! {}, "normal"),
            ],
            "weights": { "high": 8, "normal": 4, "low": 1 },
            "workConserving": true,
            "worstWaitMs": 250,
            "shedAbove": { "normal": 200, "low": 20 },
        };
        let settings = parsed(&written).unwrap();
        assert_eq!((settings.mode, settings.worst_wait), (Mode::Both, Duration::from_millis(250)));
        assert_eq!(settings.work_conserving, Some(true));
        assert_eq!(settings.weights, Some(Weights { high: 8, normal: 4, low: 1 }));
        let [report, checkout, all] = &settings.rules[..] else { panic!("{settings:?}") };
        assert_eq!((report.class, checkout.class, all.class), (Class::Low, Class::High, Class::Normal));
        assert_eq!(all.when, Match::default());
        assert_eq!(to_document(&settings), written);
        check_is_whole(&settings).unwrap();

        let default = parsed(&doc! {}).unwrap();
        assert_eq!(default, Settings::default());
        assert_eq!(
            to_document(&default),
            doc! { "mode": "full", "rules": [], "worstWaitMs": 1000, "shedAbove": { "low": 64 } }
        );
    }

    #[test]
    fn what_means_nothing_is_refused_by_name() {
        let rule = |rule: Document| doc! { "rules": [{ "match": {}, "priority": "low" }, rule] };
        for (document, code, words) in [
            (doc! { "frob": 1 }, 40415, "'ReplSetConfig.settings.priority.frob' is an unknown field."),
            (doc! { "mode": "fast" }, 2, "settings.priority.mode must be off, nice, checkpoint, both or full, but is"),
            (doc! { "mode": 1 }, 14, "'ReplSetConfig.settings.priority.mode' is the wrong type 'int'"),
            (doc! { "rules": {} }, 14, "priority.rules' is the wrong type 'object', expected type 'array'"),
            (doc! { "rules": [1] }, 14, "priority.rules.0' is the wrong type 'int', expected type 'object'"),
            (rule(doc! { "match": {} }), 40414, "settings.priority.rules.1 :: caused by :: BSON field"),
            (rule(doc! { "priority": "low" }), 40414, "rules.match' is missing but a required field"),
            (
                rule(doc! { "match": {}, "priority": "urgent" }),
                2,
                "priority.rules.priority must be high, normal or low",
            ),
            (rule(doc! { "match": { "frob": "x" }, "priority": "low" }), 40415, "rules.match.frob' is an unknown"),
            (rule(doc! { "match": { "ns": 1 }, "priority": "low" }), 14, "rules.match.ns' is the wrong type 'int'"),
            (rule(doc! { "match": { "ns": "" }, "priority": "low" }), 2, "rules.1.match.ns must be 1 to 512 bytes"),
            (doc! { "weights": { "high": 1, "normal": 1 } }, 40414, "weights.low' is missing but a required field"),
            (doc! { "weights": { "high": 1, "normal": 1, "low": 0 } }, 2, "priority.weights.low must be 1 to 10000"),
            (doc! { "weights": { "high": -1, "normal": 1, "low": 1 } }, 2, "priority.weights.high must be 1 to 10000"),
            (doc! { "shedAbove": { "low": 16 } }, 2, "settings.priority.shedAbove.low must be 17 to 10000"),
            (doc! { "shedAbove": { "low": -1 } }, 2, "priority.shedAbove.low must be 17 to 10000"),
            (
                doc! { "shedAbove": { "normal": 64 } },
                2,
                "shedAbove.normal must be 17 to 10000, and not below that of a",
            ),
            (doc! { "shedAbove": { "frob": 64 } }, 40415, "shedAbove.frob' is an unknown field"),
            (doc! { "shedAbove": 64 }, 14, "priority.shedAbove' is the wrong type 'int'"),
            (doc! { "workConserving": "x" }, 14, "priority.workConserving' is the wrong type 'string'"),
            (doc! { "worstWaitMs": 9 }, 2, "settings.priority.worstWaitMs must be 10 to 60000, but is 9"),
            (doc! { "worstWaitMs": -1 }, 2, "settings.priority.worstWaitMs must be 10 to 60000"),
        ] {
            let error = parsed(&document).unwrap_err();
            assert_eq!(error.code.0, code, "{document}: {error}");
            assert!(error.message.contains(words), "{document}: {error}");
        }
    }
}
