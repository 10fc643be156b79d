//! `settings.priority` of a set's configuration, as values. Reading them from a document is the configuration's.
//!
//! Invariant: what [`Settings::validate`] passed is within the bounds that its errors name.

use crate::estimates::Estimate;
use crate::rules::Rule;
use baton_types::{Class, Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What is done for a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Nothing: classes are shown, and no more.
    Off,
    /// Threads have the niceness of their requests' class.
    Nice,
    /// The paper's checkpoint: a request waits while one of a higher class is in progress, whatever that one waits for.
    Checkpoint,
    /// Niceness and the checkpoint: the paper's own.
    Both,
    /// Niceness, and a door at which those of a higher class are first, deadlines count, and nobody waits for who does not compute.
    #[default]
    Full,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 5] = [Self::Off, Self::Nice, Self::Checkpoint, Self::Both, Self::Full];

    /// As in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Nice => "nice",
            Self::Checkpoint => "checkpoint",
            Self::Both => "both",
            Self::Full => "full",
        }
    }

    /// The mode of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// Whether threads have the niceness of their requests.
    pub fn is_nice(self) -> bool {
        matches!(self, Self::Nice | Self::Both | Self::Full)
    }

    /// Whether requests may be made to wait before they begin.
    pub fn has_door(self) -> bool {
        matches!(self, Self::Checkpoint | Self::Both | Self::Full)
    }
}

/// Shares of what begins, for who does not want that a higher class is always first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weights {
    /// `high`.
    pub high: u32,
    /// `normal`.
    pub normal: u32,
    /// `low`.
    pub low: u32,
}

impl Weights {
    /// The largest.
    pub const MAX: u32 = 10_000;

    /// Of this class.
    pub fn of(&self, class: Class) -> u32 {
        match class {
            Class::High => self.high,
            Class::Normal => self.normal,
            Class::Low | Class::Background => self.low,
        }
    }
}

/// From how many requests that compute on each processor on one of a class is refused instead of being made to wait; none: never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShedAbove {
    /// `high`.
    pub high: Option<u32>,
    /// `normal`.
    pub normal: Option<u32>,
    /// `low`.
    pub low: Option<u32>,
}

impl Default for ShedAbove {
    fn default() -> Self {
        Self { high: None, normal: None, low: Some(64) }
    }
}

impl ShedAbove {
    /// More than the door lets begin by itself: so many compute only where waits are at their end all the time.
    pub const BOUNDS: std::ops::RangeInclusive<u32> = 17..=10_000;

    /// Of this class.
    pub fn of(&self, class: Class) -> Option<u32> {
        match class {
            Class::High => self.high,
            Class::Normal => self.normal,
            Class::Low | Class::Background => self.low,
        }
    }

    fn validate(&self) -> Result<()> {
        // From the lowest class up.
        let mut below = Some(*Self::BOUNDS.start());
        for (field, value) in [("low", self.low), ("normal", self.normal), ("high", self.high)] {
            if let Some(value) = value {
                let least = below.filter(|least| (*least..=*Self::BOUNDS.end()).contains(&value));
                if least.is_none() {
                    let range = "17 to 10000, and not below that of a lower class, which must have one, too";
                    return Err(out_of_range(&format!("shedAbove.{field}"), &value, range));
                }
            }
            below = value;
        }
        Ok(())
    }
}

/// See the file's header.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// `mode`.
    pub mode: Mode,
    /// `rules`: the first that matches says of which class a request is that says nothing itself.
    pub rules: Vec<Rule>,
    /// `weights`: shares instead of strict order.
    pub weights: Option<Weights>,
    /// `workConserving`: whether one that only waits for disks or other members keeps nobody waiting; none: as the mode has it.
    #[serde(default)]
    pub work_conserving: Option<bool>,
    /// `worstWaitMs`: no request waits longer than this before it begins, or is refused.
    pub worst_wait: Duration,
    /// `shedAbove`: whom overload costs his request.
    #[serde(default)]
    pub shed_above: ShedAbove,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            rules: Vec::new(),
            weights: None,
            work_conserving: None,
            worst_wait: Duration::from_secs(1),
            shed_above: ShedAbove::default(),
        }
    }
}

impl Settings {
    /// A deadline that is further away than this is no hurry.
    const HURRY_MAX: Duration = Duration::from_secs(5);
    /// The most rules.
    pub const RULES_MAX: usize = 1000;
    /// The longest pattern of a rule, in bytes.
    pub const PATTERN_BYTES_MAX: usize = 512;
    /// The shortest and the longest `worstWaitMs`.
    pub const WORST_WAIT_MS: std::ops::RangeInclusive<u64> = 10..=60_000;

    /// Whether a request is one of those for whose sake requests are told apart: of another class than normal, or in a hurry. `left`: the
    /// time until its deadline.
    pub fn differs(class: Class, left: Option<Duration>) -> bool {
        class != Class::Normal || left.is_some_and(Self::is_hurry)
    }

    /// Whether a deadline is so near that an order of requests can matter to it.
    pub fn is_hurry(left: Duration) -> bool {
        left < Self::HURRY_MAX
    }

    /// Whether one that only waits for disks or other members keeps nobody waiting. At the paper's checkpoint it does.
    pub fn conserves_work(&self) -> bool {
        self.work_conserving.unwrap_or(self.mode == Mode::Full)
    }

    /// Whether a request passes the door unseen: where the processors serve by class, a short one would lose more at the door than
    /// others gain. `is_nice`: whether they do; `has_deadline`: whether it is in a hurry.
    pub fn lets_pass(&self, estimate: &Estimate, is_nice: bool, has_deadline: bool) -> bool {
        self.mode == Mode::Full && self.weights.is_none() && is_nice && !has_deadline && estimate.is_short()
    }

    /// `BadValue` (2), naming the field, if a value is out of its range.
    pub fn validate(&self) -> Result<()> {
        if self.rules.len() > Self::RULES_MAX {
            return Err(out_of_range("rules", &format!("{} entries", self.rules.len()), "at most 1000 entries"));
        }
        for (i, rule) in self.rules.iter().enumerate() {
            for (field, pattern) in rule.when.patterns() {
                if pattern.is_empty() || pattern.len() > Self::PATTERN_BYTES_MAX {
                    let name = format!("rules.{i}.match.{field}");
                    return Err(out_of_range(&name, &format!("{} bytes", pattern.len()), "1 to 512 bytes long"));
                }
            }
        }
        if let Some(weights) = &self.weights {
            for (field, value) in [("high", weights.high), ("normal", weights.normal), ("low", weights.low)] {
                if !(1..=Weights::MAX).contains(&value) {
                    return Err(out_of_range(&format!("weights.{field}"), &value, "1 to 10000"));
                }
            }
        }
        let worst_wait_ms = u64::try_from(self.worst_wait.as_millis()).unwrap_or(u64::MAX);
        if !Self::WORST_WAIT_MS.contains(&worst_wait_ms) {
            return Err(out_of_range("worstWaitMs", &worst_wait_ms, "10 to 60000"));
        }
        self.shed_above.validate()
    }
}

fn out_of_range(field: &str, value: &dyn std::fmt::Display, range: &str) -> Error {
    Error::new(ErrorCode::BadValue, format!("settings.priority.{field} must be {range}, but is {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Match;

    fn refused(change: impl FnOnce(&mut Settings)) -> String {
        let mut settings = Settings::default();
        change(&mut settings);
        let error = settings.validate().unwrap_err();
        assert_eq!(error.code, ErrorCode::BadValue);
        error.message.to_string()
    }

    fn rule(pattern: &str) -> Rule {
        Rule { when: Match { app_name: Some(pattern.to_owned()), ..Match::default() }, class: Class::Low }
    }

    #[test]
    fn the_defaults_are_valid_and_every_field_out_of_range_is_named() {
        Settings::default().validate().unwrap();
        Settings { rules: vec![rule("report*"); 1000], ..Settings::default() }.validate().unwrap();
        let weights = Weights { high: 8, normal: 4, low: 1 };
        Settings { weights: Some(weights), ..Settings::default() }.validate().unwrap();
        let shed = |low, normal, high| ShedAbove { high, normal, low };
        Settings { shed_above: shed(Some(17), Some(17), None), ..Settings::default() }.validate().unwrap();
        Settings { shed_above: shed(None, None, None), ..Settings::default() }.validate().unwrap();
        let cases = [
            ("shedAbove.low", refused(|s| s.shed_above = shed(Some(16), None, None))),
            ("shedAbove.low", refused(|s| s.shed_above = shed(Some(10_001), None, None))),
            ("shedAbove.normal", refused(|s| s.shed_above = shed(None, Some(64), None))),
            ("shedAbove.high", refused(|s| s.shed_above = shed(Some(64), Some(128), Some(127)))),
            ("rules", refused(|s| s.rules = vec![rule("a"); 1001])),
            ("rules.1.match.appName", refused(|s| s.rules = vec![rule("a"), rule("")])),
            ("rules.0.match.appName", refused(|s| s.rules = vec![rule(&"a".repeat(513))])),
            ("weights.low", refused(|s| s.weights = Some(Weights { low: 0, ..weights }))),
            ("weights.high", refused(|s| s.weights = Some(Weights { high: 10_001, ..weights }))),
            ("worstWaitMs", refused(|s| s.worst_wait = Duration::from_millis(9))),
            ("worstWaitMs", refused(|s| s.worst_wait = Duration::from_secs(61))),
        ];
        for (field, message) in cases {
            assert!(message.starts_with(&format!("settings.priority.{field} must be ")), "{message}");
        }
    }

    #[test]
    fn short_requests_pass_where_processors_serve_by_class_and_nothing_else_is_to_be_ordered() {
        let settings = Settings::default();
        let short = Estimate { computes: Some(Duration::from_micros(40)), ..Estimate::default() };
        let long = Estimate { computes: Some(Duration::from_millis(4)), ..Estimate::default() };
        assert!(settings.lets_pass(&short, true, false));
        assert!(!settings.lets_pass(&long, true, false));
        assert!(!settings.lets_pass(&short, false, false), "the door is all that there is");
        assert!(!settings.lets_pass(&short, true, true), "deadlines have an order");
        assert!(!settings.lets_pass(&Estimate::default(), true, false), "nobody knows");
        let weights = Some(Weights { high: 2, normal: 1, low: 1 });
        assert!(!Settings { weights, ..settings.clone() }.lets_pass(&short, true, false));
        assert!(!Settings { mode: Mode::Both, ..settings }.lets_pass(&short, true, false));
    }

    #[test]
    fn requests_are_told_apart_by_class_and_by_a_near_deadline() {
        let secs = Duration::from_secs;
        assert!(!Settings::differs(Class::Normal, None));
        assert!(!Settings::differs(Class::Normal, Some(secs(30))));
        assert!(Settings::differs(Class::Normal, Some(secs(1))));
        assert!(Settings::differs(Class::High, None) && Settings::differs(Class::Low, Some(secs(30))));
    }

    #[test]
    fn modes_are_found_by_the_names_they_have() {
        assert!(Mode::ALL.iter().all(|mode| Mode::from_name(mode.name()) == Some(*mode)));
        assert_eq!(Mode::from_name("Off"), None);
    }
}
