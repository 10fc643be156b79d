//! Reading dates from text: by a format, or in the usual notations.
//!
//! Without a format these are understood: `2018-07-04`, `2018/07/04`, `20180704`, `07/04/2018`, `July 4, 2018`,
//! `4 July 2018`, with a day of the week before or a time (`12:34`, `12:34:56.789`, `3pm`) and a zone after them.
//! MongoDB's parser knows more notations; what is not understood is an error, never a guess.

use super::calendar::{DAY_MS, days_from_date, iso_year_start, month_days};
use super::zone::{Zone, parse_offset_ms};

pub(crate) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const WEEKDAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

/// Why a text is no date.
type Reason = String;

/// What has been read of a date.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    iso_year: Option<i64>,
    iso_week: Option<i64>,
    iso_day: Option<i64>,
    hour: i64,
    minute: i64,
    second: i64,
    millisecond: i64,
    offset_ms: Option<i64>,
    zone: Option<Zone>,
}

impl Reading {
    /// The moment, in milliseconds; the zone that was given beside the text counts unless the text has one.
    fn moment(&self, zone: Option<Zone>) -> Result<i64, Reason> {
        let days = self.days()?;
        // 60 is a leap second, and 24:00 the end of the day.
        if self.hour > 24 || self.minute > 59 || self.second > 60 {
            return Err("the time is out of range".to_owned());
        }
        let local =
            days * DAY_MS + self.hour * 3_600_000 + self.minute * 60_000 + self.second * 1000 + self.millisecond;
        let own = self.offset_ms.map(Zone::Fixed).or(self.zone);
        if own.is_some() && zone.is_some() {
            return Err(
                "you cannot pass in a date/time string with time zone information together with a timezone argument"
                    .to_owned(),
            );
        }
        own.or(zone).unwrap_or(Zone::UTC).to_utc_ms(local).ok_or_else(|| "the date is out of range".to_owned())
    }

    fn days(&self) -> Result<i64, Reason> {
        let incomplete = || "an incomplete date/time string has been found, with elements missing".to_owned();
        let out_of_range = || "the date is out of range".to_owned();
        if let (Some(year), Some(day)) = (self.year, self.day_of_year) {
            let whole = days_from_date(year + 1, 1, 1) - days_from_date(year, 1, 1);
            return if (1..=whole).contains(&day) { Ok(days_from_date(year, 1, day)) } else { Err(out_of_range()) };
        }
        if let (Some(year), Some(week)) = (self.iso_year, self.iso_week) {
            let day = self.iso_day.unwrap_or(1);
            return if (1..=53).contains(&week) && (1..=7).contains(&day) {
                Ok(iso_year_start(year) + (week - 1) * 7 + day - 1)
            } else {
                Err(out_of_range())
            };
        }
        match (self.year, self.month, self.day) {
            (Some(year), Some(month), Some(day)) => {
                if (1..=12).contains(&month) && (1..=month_days(year, month)).contains(&day) {
                    Ok(days_from_date(year, month, day))
                } else {
                    Err(out_of_range())
                }
            }
            _ => Err(incomplete()),
        }
    }
}

/// What is left of the text.
struct Cursor<'t> {
    rest: &'t str,
}

impl<'t> Cursor<'t> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn eat(&mut self, literal: &str) -> bool {
        match self.rest.strip_prefix(literal) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn take_while(&mut self, most: usize, wanted: fn(char) -> bool) -> &'t str {
        let end = self
            .rest
            .char_indices()
            .enumerate()
            .find(|(count, (_, c))| *count >= most || !wanted(*c))
            .map_or(self.rest.len(), |(_, (offset, _))| offset);
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    /// A number of at least one digit and at most so many; its value and how many there were.
    fn number(&mut self, digits_max: usize) -> Option<(i64, usize)> {
        let digits = self.take_while(digits_max, |c| c.is_ascii_digit());
        digits.parse().ok().map(|number| (number, digits.len()))
    }

    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn word(&mut self) -> &'t str {
        self.take_while(usize::MAX, |c| c.is_ascii_alphabetic())
    }
}

fn month_of(word: &str) -> Option<i64> {
    let position = MONTHS.iter().position(|month| {
        word.eq_ignore_ascii_case(month) || (word.len() >= 3 && word.eq_ignore_ascii_case(&month[..3]))
    });
    position.and_then(|position| i64::try_from(position + 1).ok())
}

fn is_weekday(word: &str) -> bool {
    let lower = word.to_ascii_lowercase();
    WEEKDAYS.iter().any(|day| *day == lower || day[..3] == lower)
}

/// Reads a date in one of the usual notations.
pub(crate) fn read(text: &str, zone: Option<Zone>) -> Result<i64, Reason> {
    let mut cursor = Cursor { rest: text.trim() };
    let mut reading = Reading::default();
    let unexpected =
        |cursor: &Cursor<'_>| format!("Unexpected character: '{}'", cursor.peek().unwrap_or('\0').escape_default());
    if cursor.rest.is_empty() {
        return Err("Empty string".to_owned());
    }
    if !read_date(&mut cursor, &mut reading) {
        return Err(unexpected(&cursor));
    }
    let separated = cursor.eat("T") || cursor.eat("t") || cursor.peek().is_some_and(char::is_whitespace);
    cursor.skip_spaces();
    if separated && cursor.peek().is_some_and(|c| c.is_ascii_digit()) && !read_time(&mut cursor, &mut reading) {
        return Err(unexpected(&cursor));
    }
    cursor.skip_spaces();
    if !cursor.rest.is_empty() {
        match (parse_offset_ms(cursor.rest), Zone::parse(cursor.rest)) {
            (Some(offset), _) => reading.offset_ms = Some(offset),
            (None, Some(zone)) => reading.zone = Some(zone),
            (None, None) if cursor.rest.eq_ignore_ascii_case("z") => reading.offset_ms = Some(0),
            (None, None) => return Err(unexpected(&cursor)),
        }
    }
    reading.moment(zone)
}

fn read_date(cursor: &mut Cursor<'_>, reading: &mut Reading) -> bool {
    if cursor.peek().is_some_and(|c| c.is_ascii_alphabetic()) {
        let word = cursor.word();
        if is_weekday(word) {
            cursor.eat(",");
            cursor.skip_spaces();
            return read_date_without_weekday(cursor, reading);
        }
        return read_month_first(cursor, reading, word);
    }
    read_date_without_weekday(cursor, reading)
}

fn read_date_without_weekday(cursor: &mut Cursor<'_>, reading: &mut Reading) -> bool {
    if cursor.peek().is_some_and(|c| c.is_ascii_alphabetic()) {
        let word = cursor.word();
        return read_month_first(cursor, reading, word);
    }
    let Some((first, digits)) = cursor.number(8) else { return false };
    match digits {
        8 => {
            reading.year = Some(first / 10_000);
            reading.month = Some(first / 100 % 100);
            reading.day = Some(first % 100);
            true
        }
        4 => {
            reading.year = Some(first);
            read_after_year(cursor, reading)
        }
        1 | 2 if cursor.eat("/") => {
            reading.month = Some(first);
            reading.day = cursor.number(2).map(|(day, _)| day);
            cursor.eat("/") && {
                reading.year = cursor.number(4).filter(|(_, digits)| *digits == 4).map(|(year, _)| year);
                reading.year.is_some()
            }
        }
        1 | 2 => {
            reading.day = Some(first);
            cursor.skip_spaces();
            cursor.eat("-");
            reading.month = month_of(cursor.word());
            cursor.eat("-");
            cursor.eat(",");
            cursor.skip_spaces();
            reading.year = cursor.number(4).filter(|(_, digits)| *digits == 4).map(|(year, _)| year);
            reading.month.is_some() && reading.year.is_some()
        }
        _ => false,
    }
}

/// What follows a year: `-07-04`, `/07/04`, `-W27-3`, `-185`; `-07` is the month's first day; a year alone, and
/// `/07`, are incomplete, but no surprise.
fn read_after_year(cursor: &mut Cursor<'_>, reading: &mut Reading) -> bool {
    let separator = match cursor.peek() {
        Some('-') => "-",
        Some('/') => "/",
        _ => return true,
    };
    cursor.eat(separator);
    if cursor.eat("W") {
        reading.iso_year = reading.year.take();
        reading.iso_week = cursor.number(2).map(|(week, _)| week);
        if cursor.eat(separator) {
            reading.iso_day = cursor.number(1).map(|(day, _)| day);
        }
        return reading.iso_week.is_some();
    }
    match cursor.number(3) {
        Some((day, 3)) => reading.day_of_year = Some(day),
        Some((month, _)) => {
            reading.month = Some(month);
            if cursor.eat(separator) {
                reading.day = cursor.number(2).map(|(day, _)| day);
                return reading.day.is_some();
            }
            if separator == "-" {
                reading.day = Some(1);
            }
        }
        None => return false,
    }
    true
}

/// `July 4, 2018` and `July 4th 2018`.
fn read_month_first(cursor: &mut Cursor<'_>, reading: &mut Reading, word: &str) -> bool {
    let Some(month) = month_of(word) else { return false };
    reading.month = Some(month);
    cursor.eat(".");
    cursor.skip_spaces();
    let Some((day, _)) = cursor.number(2) else { return false };
    reading.day = Some(day);
    for suffix in ["st", "nd", "rd", "th"] {
        if cursor.eat(suffix) {
            break;
        }
    }
    cursor.eat(",");
    cursor.skip_spaces();
    reading.year = cursor.number(4).filter(|(_, digits)| *digits == 4).map(|(year, _)| year);
    true
}

fn read_time(cursor: &mut Cursor<'_>, reading: &mut Reading) -> bool {
    let Some((hour, _)) = cursor.number(2) else { return false };
    reading.hour = hour;
    let colon = cursor.eat(":");
    if colon || cursor.peek().is_some_and(|c| c.is_ascii_digit()) {
        let Some((minute, 2)) = cursor.number(2) else { return false };
        reading.minute = minute;
        if (colon && cursor.eat(":")) || (!colon && cursor.peek().is_some_and(|c| c.is_ascii_digit())) {
            let Some((second, 2)) = cursor.number(2) else { return false };
            reading.second = second;
            if cursor.eat(".") || cursor.eat(",") {
                let digits = cursor.take_while(usize::MAX, |c| c.is_ascii_digit());
                if digits.is_empty() {
                    return false;
                }
                // Three digits count; fewer stand for tenths and hundredths.
                let padded: String = digits.chars().chain("000".chars()).take(3).collect();
                reading.millisecond = padded.parse().unwrap_or(0);
            }
        }
    }
    cursor.skip_spaces();
    let afternoon = if cursor.eat("pm") || cursor.eat("PM") {
        Some(12)
    } else if cursor.eat("am") || cursor.eat("AM") {
        Some(0)
    } else {
        None
    };
    match afternoon {
        Some(_) if !(1..=12).contains(&reading.hour) => false,
        Some(half) => {
            reading.hour = reading.hour % 12 + half;
            true
        }
        None => true,
    }
}

/// Reads a date by a format of `%` specifiers.
pub(crate) fn read_by_format(text: &str, format: &str, zone: Option<Zone>) -> Result<i64, Reason> {
    let mut cursor = Cursor { rest: text };
    let mut reading = Reading::default();
    let mut specifiers = format.chars();
    while let Some(next) = specifiers.next() {
        if next != '%' {
            let mut buffer = [0; 4];
            if !cursor.eat(next.encode_utf8(&mut buffer)) {
                return Err(format!("Format literal not found: expected '{next}'"));
            }
            continue;
        }
        let Some(specifier) = specifiers.next() else {
            return Err("Unmatched '%' at end of format string".to_owned());
        };
        read_specifier(&mut cursor, &mut reading, specifier)?;
    }
    if !cursor.rest.is_empty() {
        return Err(format!("Trailing data '{}'", cursor.rest));
    }
    reading.moment(zone)
}

fn read_specifier(cursor: &mut Cursor<'_>, reading: &mut Reading, specifier: char) -> Result<(), Reason> {
    let mut number = |what: &str, digits: usize| {
        cursor.number(digits).map(|(number, _)| number).ok_or_else(|| format!("A {what} could not be found"))
    };
    match specifier {
        'Y' => reading.year = Some(number("four digit year", 4)?),
        'G' => reading.iso_year = Some(number("four digit year", 4)?),
        'm' => reading.month = Some(number("two digit month", 2)?),
        'd' => reading.day = Some(number("two digit day", 2)?),
        'j' => reading.day_of_year = Some(number("three digit day-of-year", 3)?),
        'V' => reading.iso_week = Some(number("two digit week", 2)?),
        'u' => reading.iso_day = Some(number("one digit day of week", 1)?),
        'H' => reading.hour = number("two digit hour", 2)?,
        'M' => reading.minute = number("two digit minute", 2)?,
        'S' => reading.second = number("two digit second", 2)?,
        'L' => reading.millisecond = number("three digit millisecond", 3)?,
        'b' | 'B' => {
            reading.month = Some(month_of(cursor.word()).ok_or("A textual month could not be found")?);
        }
        'z' => {
            let sign_and_digits = cursor.take_while(6, |c| c.is_ascii_digit() || matches!(c, '+' | '-' | ':'));
            let offset = if sign_and_digits.is_empty() && (cursor.eat("Z") || cursor.eat("z")) {
                Some(0)
            } else {
                parse_offset_ms(sign_and_digits)
            };
            reading.offset_ms = Some(offset.ok_or("The timezone could not be found in the database")?);
        }
        'Z' => {
            let negative = cursor.eat("-");
            cursor.eat("+");
            let (minutes, _) = cursor.number(4).ok_or("The timezone offset could not be found")?;
            reading.offset_ms = Some(if negative { -minutes } else { minutes } * 60_000);
        }
        '%' => {
            if !cursor.eat("%") {
                return Err("Format literal not found: expected '%'".to_owned());
            }
        }
        other => return Err(format!("Invalid format character '%{other}' in format string")),
    }
    Ok(())
}
