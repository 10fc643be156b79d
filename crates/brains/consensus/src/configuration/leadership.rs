//! `settings.leadership` as a document: read strictly, written with every field.
//!
//! Invariants: as those of `document.rs`. What is out of its range is `BadValue` (2), naming the field: the policy's own bounds decide
//! ([`Settings::validate`]), but for what has no place in its types.
//! What it deliberately does not do: know what the settings mean (`baton_leadership`).

use super::bounds;
use super::document::integer;
use super::fields::{self, Field, Fields};
use super::validate::check_is_whole as check_duration_is_whole;
use baton_leadership::{Days, Mode, Ranking, Settings, TimeOfDay, Window};
use baton_types::{Error, Result, TaskKind};
use bson::{Array, Document, RawArray, RawDocument, doc};
use std::time::Duration;

const PATH: &str = "ReplSetConfig.settings.leadership";
const WINDOW_PATH: &str = "ReplSetConfig.settings.leadership.windows";

const TIME_OF_DAY: &str = "a time of day in UTC, written HH:MM, 00:00 to 24:00";

/// The settings that a document states; absent ones are as by default.
pub(super) fn parse(document: &RawDocument) -> Result<Settings> {
    let mut settings = Settings::default();
    let mut fields = Fields::of(PATH, document);
    while let Some(field) = fields.next()? {
        let default = Settings::default();
        match field.name {
            "mode" => {
                settings.mode = field.name_of("off, always or costBased", Mode::from_name)?.unwrap_or(default.mode);
            }
            "ranking" => {
                let ranking = field.name_of("mrc, lsp, preferred or score", Ranking::from_name)?;
                settings.ranking = ranking.unwrap_or(default.ranking);
            }
            "maxPostponeSecs" => settings.postpone_max = secs(&field, "0 to 86400")?,
            "maxDebtBytes" => settings.debt_bytes_max = natural(&field, "1 to 9223372036854775807")?,
            "cooldownSecs" => settings.cooldown = secs(&field, "0 to 86400")?,
            "minTenureSecs" => settings.tenure_min = secs(&field, "0 to 86400")?,
            "maxMovesPerHour" => {
                const RANGE: &str = "1 to 3600";
                settings.moves_per_hour_max =
                    u32::try_from(natural(&field, RANGE)?).map_err(|_| field.must_be(RANGE))?;
            }
            "minGainSecs" => settings.gain_secs_min = field.any_double()?.unwrap_or(default.gain_secs_min),
            "minGainRatio" => settings.gain_ratio_min = field.any_double()?.unwrap_or(default.gain_ratio_min),
            "refusalBound" => settings.refusal_bound = field.any_double()?.unwrap_or(default.refusal_bound),
            "windows" => settings.windows = field.array()?.map(parse_windows).transpose()?.unwrap_or_default(),
            "isLab" => settings.is_lab = field.boolean()?.unwrap_or(false),
            _ => return Err(field.unknown()),
        }
    }
    // Here, as what is out of its range elsewhere in a configuration is refused when it is read, too.
    settings.validate()?;
    Ok(settings)
}

/// A number that is not negative.
fn natural(field: &Field<'_>, range: &str) -> Result<u64> {
    u64::try_from(field.any_whole()?).map_err(|_| field.must_be(range))
}

fn secs(field: &Field<'_>, range: &str) -> Result<Duration> {
    natural(field, range).map(Duration::from_secs)
}

fn parse_windows(array: &RawArray) -> Result<Vec<Window>> {
    let mut windows = Vec::new();
    for (i, element) in array.into_iter().enumerate() {
        let value = element?;
        let Some(document) = value.as_document() else {
            return Err(fields::wrong_type(&format!("{WINDOW_PATH}.{i}"), value, "object"));
        };
        let window = parse_window(document).map_err(|error| Error {
            message: format!("settings.leadership.windows.{i} :: caused by :: {}", error.message),
            ..error
        })?;
        windows.push(window);
    }
    Ok(windows)
}

fn parse_window(document: &RawDocument) -> Result<Window> {
    let (mut kind, mut days, mut from, mut to) = (None, Days::ALL, None, None);
    let mut fields = Fields::of(WINDOW_PATH, document);
    while let Some(field) = fields.next()? {
        match field.name {
            "kind" => kind = field.name_of(&kinds(), TaskKind::from_name)?,
            "days" => days = field.array()?.map(|array| parse_days(&field, array)).transpose()?.unwrap_or(Days::ALL),
            "from" => from = field.name_of(TIME_OF_DAY, TimeOfDay::parse)?,
            "to" => to = field.name_of(TIME_OF_DAY, TimeOfDay::parse)?,
            _ => return Err(field.unknown()),
        }
    }
    let from = from.ok_or_else(|| fields.missing("from"))?;
    let to = to.ok_or_else(|| fields.missing("to"))?;
    Ok(Window { kind, days, from, to })
}

/// The kinds of tasks, for a message.
fn kinds() -> String {
    format!("one of {}", TaskKind::ALL.map(TaskKind::name).join(", "))
}

fn parse_days(field: &Field<'_>, array: &RawArray) -> Result<Days> {
    let mut days = Days::NONE;
    for element in array {
        let element = element?;
        let more = element.as_str().and_then(|name| days.with(name));
        days = more.ok_or_else(|| field.must_be("an array of mon, tue, wed, thu, fri, sat and sun"))?;
    }
    Ok(days)
}

/// The document of these settings.
pub(super) fn to_document(settings: &Settings) -> Document {
    let bytes = i64::try_from(settings.debt_bytes_max).unwrap_or(i64::MAX);
    let mut document = doc! {
        "mode": settings.mode.name(),
        "ranking": settings.ranking.name(),
        "maxPostponeSecs": integer(bounds::secs(settings.postpone_max)),
        "maxDebtBytes": bytes,
        "cooldownSecs": integer(bounds::secs(settings.cooldown)),
        "minTenureSecs": integer(bounds::secs(settings.tenure_min)),
        "maxMovesPerHour": integer(i64::from(settings.moves_per_hour_max)),
        "minGainSecs": settings.gain_secs_min,
        "minGainRatio": settings.gain_ratio_min,
        "refusalBound": settings.refusal_bound,
        "windows": settings.windows.iter().map(|window| window_to_document(window).into()).collect::<Array>(),
    };
    if settings.is_lab {
        document.insert("isLab", true);
    }
    document
}

fn window_to_document(window: &Window) -> Document {
    let mut document = Document::new();
    if let Some(kind) = window.kind {
        document.insert("kind", kind.name());
    }
    document.insert("days", window.days.names().map(Into::into).collect::<Array>());
    document.insert("from", window.from.to_string());
    document.insert("to", window.to.to_string());
    document
}

/// The document has no room for fractions of seconds.
pub(super) fn check_is_whole(settings: &Settings) -> Result<()> {
    let durations = [
        ("settings.leadership.maxPostponeSecs", settings.postpone_max),
        ("settings.leadership.cooldownSecs", settings.cooldown),
        ("settings.leadership.minTenureSecs", settings.tenure_min),
    ];
    for (field, duration) in durations {
        check_duration_is_whole(field, duration, Duration::from_secs(duration.as_secs()))?;
    }
    Ok(())
}
