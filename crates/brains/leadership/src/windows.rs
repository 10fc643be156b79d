//! Stated intervals for maintenance, `settings.leadership.windows`: when heavy tasks that can wait may begin.
//!
//! All times are UTC: members in different zones, and nights on which clocks are set back, make no difference.
//!
//! Invariants:
//! - A window that [`Window::validate`] passed opens at least once a week.
//! - Who has no window for a kind of task may begin it at any time.
//!
//! What it deliberately does not do: read a clock (the time is an argument), or stop what runs when its window closes.

use baton_types::TaskKind;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Minutes of a day.
const DAY_MINUTES: u16 = 24 * 60;
const DAY_SECS: u64 = 24 * 3600;
/// 1970-01-01 was a Thursday, the fourth day of [`Days::NAMES`].
const FIRST_WEEKDAY: u64 = 3;

/// A minute of the day, 00:00 to 24:00.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TimeOfDay(u16);

impl TimeOfDay {
    /// The minute of this number from midnight, 0 to 1440.
    pub fn from_minutes(minutes: u16) -> Option<Self> {
        (minutes <= DAY_MINUTES).then_some(Self(minutes))
    }

    /// Reads `HH:MM`.
    pub fn parse(text: &str) -> Option<Self> {
        let (hours, minutes) = text.split_once(':')?;
        let two_digits = |part: &str| -> Option<u16> {
            (part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit())).then(|| part.parse().ok())?
        };
        let minutes = two_digits(minutes).filter(|minutes| *minutes < 60)?;
        Self::from_minutes(two_digits(hours)? * 60 + minutes)
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.0 / 60, self.0 % 60)
    }
}

/// Days of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Days([bool; 7]);

impl Days {
    /// As in the configuration.
    pub const NAMES: [&'static str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
    /// Every day.
    pub const ALL: Self = Self([true; 7]);
    /// No day.
    pub const NONE: Self = Self([false; 7]);

    /// These, and the day of this name; none if no day has it.
    pub fn with(mut self, name: &str) -> Option<Self> {
        let day = Self::NAMES.iter().position(|known| *known == name)?;
        *self.0.get_mut(day)? = true;
        Some(self)
    }

    /// Their names, from Monday.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().zip(self.0).filter_map(|(name, is_in)| is_in.then_some(name))
    }

    /// Whether the day of this number since 1970-01-01 is one of them.
    fn has(self, day: u64) -> bool {
        self.0.get(((day + FIRST_WEEKDAY) % 7) as usize).copied().unwrap_or_default()
    }
}

/// One interval. If it ends before it begins, it ends on the day after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// `kind`: for which tasks; none: for all.
    pub kind: Option<TaskKind>,
    /// `days`: those on which it opens.
    pub days: Days,
    /// `from`.
    pub from: TimeOfDay,
    /// `to`.
    pub to: TimeOfDay,
}

impl Window {
    /// The field by which the window never opens, what it must be, and what it is.
    pub(crate) fn validate(&self) -> Result<(), (&'static str, &'static str, String)> {
        if self.days == Days::NONE {
            return Err(("days", "some day, or the window never opens", "empty".into()));
        }
        if self.from.0 >= DAY_MINUTES {
            return Err(("from", "before 24:00, or the window never opens", self.from.to_string()));
        }
        if self.from == self.to {
            return Err(("to", "another time than from, or the window never opens", self.to.to_string()));
        }
        Ok(())
    }

    /// For how long it stays open.
    fn length(&self) -> Duration {
        let minutes = if self.from < self.to { self.to.0 - self.from.0 } else { DAY_MINUTES - self.from.0 + self.to.0 };
        Duration::from_secs(u64::from(minutes) * 60)
    }

    /// When it opens on the day of this number, if it does.
    fn opens_on(&self, day: u64) -> Option<Duration> {
        self.days.has(day).then(|| Duration::from_secs(day * DAY_SECS + u64::from(self.from.0) * 60))
    }

    /// Whether it is open at this time since 1970-01-01.
    pub fn is_open(&self, wall: Duration) -> bool {
        let today = wall.as_secs() / DAY_SECS;
        let days = [Some(today), today.checked_sub(1)].into_iter().flatten();
        days.filter_map(|day| self.opens_on(day)).any(|opens| opens <= wall && wall < opens + self.length())
    }

    /// When it opens next.
    fn opens_after(&self, wall: Duration) -> Option<Duration> {
        let today = wall.as_secs() / DAY_SECS;
        (today..=today + 7).filter_map(|day| self.opens_on(day)).find(|opens| *opens > wall)
    }
}

/// Whether a task of this kind may begin at this time as far as these windows go.
pub(crate) fn admit(windows: &[Window], kind: TaskKind, wall: Option<Duration>) -> bool {
    let mut of_kind = of_kind(windows, kind).peekable();
    // Before anybody has said what the time is, no window is known to be open.
    of_kind.peek().is_none() || wall.is_some_and(|wall| of_kind.any(|window| window.is_open(wall)))
}

/// When the next window for this kind opens.
pub(crate) fn next_opening(windows: &[Window], kind: TaskKind, wall: Duration) -> Option<Duration> {
    of_kind(windows, kind).filter_map(|window| window.opens_after(wall)).min()
}

fn of_kind(windows: &[Window], kind: TaskKind) -> impl Iterator<Item = &Window> {
    windows.iter().filter(move |window| window.kind.is_none_or(|of| of == kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(days: Days, from: &str, to: &str) -> Window {
        let time = |text| TimeOfDay::parse(text).unwrap();
        Window { kind: None, days, from: time(from), to: time(to) }
    }

    fn days(names: &[&str]) -> Days {
        names.iter().fold(Days::NONE, |days, name| days.with(name).unwrap())
    }

    /// A minute of the first week of June 2026, which began on a Monday.
    fn at(day: u64, time: &str) -> Duration {
        const MONDAY: u64 = 20_605;
        Duration::from_secs((MONDAY + day) * DAY_SECS + u64::from(TimeOfDay::parse(time).unwrap().0) * 60)
    }

    #[test]
    fn it_is_open_from_its_first_minute_to_before_its_last() {
        let night = window(Days::ALL, "02:00", "04:30");
        let open = ["01:59", "02:00", "04:29", "04:30"].map(|time| night.is_open(at(3, time)));
        assert_eq!(open, [false, true, true, false]);
    }

    #[test]
    fn one_over_midnight_belongs_to_the_day_on_which_it_opens() {
        let night = window(days(&["fri", "sun"]), "22:00", "02:00");
        assert!(night.is_open(at(4, "23:59")) && night.is_open(at(5, "01:59")), "Friday night");
        assert!(!night.is_open(at(4, "01:00")) && !night.is_open(at(5, "22:30")), "neither Thursday's nor Saturday's");
        assert!(night.is_open(at(7, "01:00")), "Sunday's goes on into Monday");
    }

    #[test]
    fn a_whole_day_is_open_all_day() {
        let sunday = window(days(&["sun"]), "00:00", "24:00");
        assert!(sunday.is_open(at(6, "00:00")) && sunday.is_open(at(6, "23:59")));
        assert!(!sunday.is_open(at(5, "23:59")) && !sunday.is_open(at(7, "00:00")));
    }

    #[test]
    fn the_next_opening_is_within_a_week() {
        let friday = window(days(&["fri"]), "22:00", "23:00");
        assert_eq!(friday.opens_after(at(4, "21:59")), Some(at(4, "22:00")));
        assert_eq!(friday.opens_after(at(4, "22:00")), Some(at(11, "22:00")));
    }

    #[test]
    fn a_kind_with_no_window_may_begin_at_any_time_and_others_within_theirs() {
        let backups = Window { kind: Some(TaskKind::Backup), ..window(Days::ALL, "02:00", "03:00") };
        assert!(admit(&[backups], TaskKind::Compaction, None));
        assert!(!admit(&[backups], TaskKind::Backup, None), "the time is not known");
        assert!(admit(&[backups], TaskKind::Backup, Some(at(0, "02:30"))));
        assert!(!admit(&[backups], TaskKind::Backup, Some(at(0, "03:30"))));
        assert_eq!(next_opening(&[backups], TaskKind::Backup, at(0, "03:30")), Some(at(1, "02:00")));
    }

    #[test]
    fn times_of_day_are_read_strictly_and_written_as_they_were() {
        for text in ["00:00", "09:05", "23:59", "24:00"] {
            assert_eq!(TimeOfDay::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "9:05", "09:5", "24:01", "25:00", "12:60", "12", "12:00:00", "-1:00", "+1:00", "1２:00"] {
            assert_eq!(TimeOfDay::parse(text), None, "{text}");
        }
    }
}
