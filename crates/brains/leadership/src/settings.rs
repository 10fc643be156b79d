//! `settings.leadership` of a set's configuration, as values. Reading them from a document is the configuration's.
//!
//! Invariant: what [`Settings::validate`] passed is finite and within the bounds that its errors name.

use crate::ranking::Ranking;
use crate::windows::Window;
use baton_types::{Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Whether leadership moves before heavy work (the paper's Policy 1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Never: every task begins at once, and nothing is claimed.
    Off,
    /// Before every heavy task, if there is a candidate.
    Always,
    /// If the task is predicted to cost more than the move, by a margin.
    #[default]
    CostBased,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Off, Self::Always, Self::CostBased];

    /// As in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Always => "always",
            Self::CostBased => "costBased",
        }
    }

    /// The mode of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// See the file's header.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// `mode`.
    pub mode: Mode,
    /// `ranking`: which member gets leadership (the paper's Policy 2).
    pub ranking: Ranking,
    /// `maxPostponeSecs`: a task that waits begins after so long, whatever the policy says.
    pub postpone_max: Duration,
    /// `maxDebtBytes`: a compaction that waits begins once so many bytes wait to be compacted.
    pub debt_bytes_max: u64,
    /// `cooldownSecs`: the least time between two moves.
    pub cooldown: Duration,
    /// `minTenureSecs`: nobody hands over who was elected less than so long ago.
    pub tenure_min: Duration,
    /// `maxMovesPerHour`: the most moves of the set within any hour.
    pub moves_per_hour_max: u32,
    /// `minGainSecs`: what a move must save at least, in seconds of the set's full service.
    pub gain_secs_min: f64,
    /// `minGainRatio`: how many times what the move costs must be saved by it.
    pub gain_ratio_min: f64,
    /// `refusalBound`: by how much a candidate's score may be worse than this member's own, 0 to 1.
    pub refusal_bound: f64,
    /// `windows`: a heavy task that can wait begins within one of these, if any is for its kind; but at its deadline whatever they say.
    pub windows: Vec<Window>,
    /// `isLab`: whether the random ranking may be chosen: in the lab, to compare the others with.
    pub is_lab: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            ranking: Ranking::default(),
            postpone_max: Duration::from_secs(600),
            debt_bytes_max: 8 << 30,
            cooldown: Duration::from_secs(120),
            tenure_min: Duration::from_secs(60),
            moves_per_hour_max: 12,
            gain_secs_min: 0.5,
            gain_ratio_min: 2.0,
            refusal_bound: 0.3,
            windows: Vec::new(),
            is_lab: false,
        }
    }
}

impl Settings {
    /// The longest that anything may be put off, and the longest cooldown.
    pub const DELAY_MAX: Duration = Duration::from_secs(24 * 3600);
    /// The most windows.
    pub const WINDOWS_MAX: usize = 64;
    /// The largest number of bytes: what a document has room for.
    pub const BYTES_MAX: u64 = i64::MAX as u64;

    /// `BadValue` (2), naming the field, if a value is out of its range.
    pub fn validate(&self) -> Result<()> {
        let durations = [
            ("maxPostponeSecs", self.postpone_max),
            ("cooldownSecs", self.cooldown),
            ("minTenureSecs", self.tenure_min),
        ];
        for (field, value) in durations {
            if value > Self::DELAY_MAX {
                return Err(out_of_range(field, &value.as_secs(), "0 to 86400"));
            }
        }
        if !(1..=Self::BYTES_MAX).contains(&self.debt_bytes_max) {
            return Err(out_of_range("maxDebtBytes", &self.debt_bytes_max, "1 to 9223372036854775807"));
        }
        if !(1..=3600).contains(&self.moves_per_hour_max) {
            return Err(out_of_range("maxMovesPerHour", &self.moves_per_hour_max, "1 to 3600"));
        }
        // Written so that NaN is out of range, too.
        let numbers = [
            ("minGainSecs", self.gain_secs_min, 0.01, 3600.0),
            ("minGainRatio", self.gain_ratio_min, 1.0, 1000.0),
            ("refusalBound", self.refusal_bound, 0.0, 1.0),
        ];
        for (field, value, least, most) in numbers {
            if !(least..=most).contains(&value) {
                return Err(out_of_range(field, &value, &format!("{least} to {most}")));
            }
        }
        if self.ranking == Ranking::Random && !self.is_lab {
            return Err(out_of_range("ranking", &"random", "mrc, lsp, preferred or score"));
        }
        if self.windows.len() > Self::WINDOWS_MAX {
            return Err(out_of_range("windows", &format!("{} entries", self.windows.len()), "at most 64 entries"));
        }
        for (i, window) in self.windows.iter().enumerate() {
            window
                .validate()
                .map_err(|(field, range, value)| out_of_range(&format!("windows.{i}.{field}"), &value, range))?;
        }
        Ok(())
    }
}

fn out_of_range(field: &str, value: &dyn std::fmt::Display, range: &str) -> Error {
    Error::new(ErrorCode::BadValue, format!("settings.leadership.{field} must be {range}, but is {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::windows::{Days, TimeOfDay};

    fn window(from: &str, to: &str) -> Window {
        let time = |text| TimeOfDay::parse(text).unwrap();
        Window { kind: None, days: Days::ALL, from: time(from), to: time(to) }
    }

    fn refused(change: impl FnOnce(&mut Settings)) -> String {
        let mut settings = Settings::default();
        change(&mut settings);
        let error = settings.validate().unwrap_err();
        assert_eq!(error.code, ErrorCode::BadValue);
        error.message.to_string()
    }

    #[test]
    fn the_defaults_are_valid_and_every_field_out_of_range_is_named() {
        Settings::default().validate().unwrap();
        let day = Duration::from_secs(86_401);
        let cases = [
            ("maxPostponeSecs", refused(|s| s.postpone_max = day)),
            ("cooldownSecs", refused(|s| s.cooldown = day)),
            ("minTenureSecs", refused(|s| s.tenure_min = day)),
            ("maxDebtBytes", refused(|s| s.debt_bytes_max = 0)),
            ("maxMovesPerHour", refused(|s| s.moves_per_hour_max = 0)),
            ("minGainSecs", refused(|s| s.gain_secs_min = 0.0)),
            ("minGainRatio", refused(|s| s.gain_ratio_min = f64::NAN)),
            ("refusalBound", refused(|s| s.refusal_bound = 1.5)),
            ("ranking", refused(|s| s.ranking = Ranking::Random)),
            ("maxDebtBytes", refused(|s| s.debt_bytes_max = u64::MAX)),
            ("windows", refused(|s| s.windows = vec![window("02:00", "04:00"); 65])),
            ("windows.1.to", refused(|s| s.windows = vec![window("02:00", "04:00"), window("05:00", "05:00")])),
            ("windows.0.from", refused(|s| s.windows = vec![window("24:00", "04:00")])),
            ("windows.0.days", {
                refused(|s| s.windows = vec![Window { days: Days::NONE, ..window("02:00", "04:00") }])
            }),
        ];
        for (field, message) in cases {
            assert!(message.starts_with(&format!("settings.leadership.{field} must be ")), "{message}");
        }
        Settings { ranking: Ranking::Random, is_lab: true, ..Settings::default() }.validate().unwrap();
    }

    #[test]
    fn modes_and_rankings_are_found_by_the_names_they_have() {
        assert!(Mode::ALL.iter().all(|mode| Mode::from_name(mode.name()) == Some(*mode)));
        assert!(Ranking::ALL.iter().all(|ranking| Ranking::from_name(ranking.name()) == Some(*ranking)));
        assert_eq!((Mode::from_name("Off"), Ranking::from_name("")), (None, None));
    }
}
