//! When automatic compaction may run: one step machine for each column family, and what drives it.
//!
//! A family's automatic compaction is switched off by default. When files are due to be merged the gate is asked; once it
//! agrees, or the debt of waiting exceeds its budget, compaction is switched on, and off again when there is nothing
//! left to do. A job that runs is never stopped.
//!
//! RocksDB may call a family due and find nothing to merge: files of the last level that it marked, say. Then the gate is not asked
//! again before the debt has changed, or some time has passed.
//!
//! Invariants: nothing is merged before the gate agreed or the budget was spent; a closed gate never lets a family come
//! near the point where RocksDB slows writers down.
//! What it deliberately does not do: choose what is merged; RocksDB does.

use crate::background::Chores;
use crate::background::compaction_pace::CompactionPace;
use crate::background::tasks::{Asked, Permit, TaskKind, WaitingTask};
use crate::background::vitals::bytes_by_level;
use crate::documents::format::family;
use crate::machine::read_failure;
use crate::storage::Storage;
use baton_types::{Class, Error, Result};
use parking_lot::Mutex;
use rust_rocksdb::properties;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Families that are compacted.
const FAMILIES: [&str; 6] =
    [family::CATALOG, family::META, family::SESSIONS, family::DOCUMENTS, family::INDEXES, family::OPLOG];

/// What waiting costs, and what it may cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Debt {
    /// Files in level 0: each is one more that a read has to look into.
    pub level0_files: u64,
    /// Bytes that RocksDB thinks are to be rewritten.
    pub pending_bytes: u64,
}

/// The debt at which compaction runs whatever the gate says: half of what makes RocksDB slow writers down.
const BUDGET: Debt = Debt { level0_files: 10, pending_bytes: 32 << 30 };
/// The longest a compaction waits, whatever the gate says: the longest that a set's configuration can have one postponed.
const WAIT_MAX: Duration = Duration::from_secs(24 * 3600);
/// How long there must be nothing to do before automatic compaction is switched off again.
const SETTLED_AFTER: Duration = Duration::from_secs(2);
/// How long a family is left alone that was due, and of which RocksDB merged nothing when it was let.
const LEFT_ALONE: Duration = Duration::from_secs(300);

impl Debt {
    fn exceeds(self, budget: Self) -> bool {
        self.level0_files >= budget.level0_files || self.pending_bytes >= budget.pending_bytes
    }
}

/// What a family looks like at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sight {
    /// Whether RocksDB would compact if it were let.
    pub is_due: bool,
    /// Whether a compaction of it runs.
    pub is_running: bool,
    /// Whether one of another family runs, for which this one may have to wait.
    pub others_run: bool,
    /// What has piled up.
    pub debt: Debt,
}

/// What is to be done to a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// Let it compact.
    On,
    /// Let it not begin another compaction.
    Off,
}

/// One family's state.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Off, and since when something was due.
    Off { due_since: Option<Duration>, left_alone: Option<LeftAlone> },
    /// On, and since when there was nothing to do.
    On { settled_since: Option<Duration> },
}

/// With this debt, until then.
#[derive(Clone, Copy, Debug)]
struct LeftAlone {
    debt: Debt,
    until: Duration,
}

/// Decides for one family. Time is what has passed since any fixed moment.
#[derive(Debug)]
pub struct Governor {
    state: State,
}

impl Default for Governor {
    fn default() -> Self {
        Self { state: State::Off { due_since: None, left_alone: None } }
    }
}

impl Governor {
    /// Looks at the family; `may_begin` is asked only if a compaction is due.
    pub fn step(&mut self, now: Duration, sight: Sight, may_begin: impl FnOnce() -> bool) -> Option<Switch> {
        match &mut self.state {
            State::Off { due_since, .. } if !sight.is_due => *due_since = None,
            State::Off { left_alone: Some(alone), .. } if now < alone.until && sight.debt == alone.debt => {}
            State::Off { due_since, .. } => {
                let waited = now.saturating_sub(*due_since.get_or_insert(now));
                let is_forced = waited >= WAIT_MAX || sight.debt.exceeds(BUDGET);
                if is_forced || may_begin() {
                    self.state = State::On { settled_since: None };
                    return Some(Switch::On);
                }
            }
            State::On { settled_since } if sight.is_running || (sight.is_due && sight.others_run) => {
                *settled_since = None;
            }
            State::On { settled_since } => {
                if now.saturating_sub(*settled_since.get_or_insert(now)) >= SETTLED_AFTER {
                    let left_alone =
                        sight.is_due.then_some(LeftAlone { debt: sight.debt, until: now.saturating_add(LEFT_ALONE) });
                    self.state = State::Off { due_since: None, left_alone };
                    return Some(Switch::Off);
                }
            }
        }
        None
    }
}

/// A family's governor, and what it was told when it asked.
#[derive(Default)]
struct Governed {
    governor: Governor,
    /// The compaction that waits.
    waiting: Option<WaitingTask>,
    /// What the gate permitted, until there is nothing left to do.
    permit: Option<Permit>,
}

/// The governors of all families.
pub(crate) struct Governors {
    started: Instant,
    families: Mutex<[Governed; FAMILIES.len()]>,
    pace: Arc<CompactionPace>,
}

impl Governors {
    /// Those of compactions that go at this pace.
    pub fn new(pace: Arc<CompactionPace>) -> Self {
        Self { started: Instant::now(), families: Mutex::default(), pace }
    }

    /// How long there have been any.
    pub fn running_for(&self) -> Duration {
        self.started.elapsed()
    }
}

impl Chores<'_> {
    /// Lets compactions that are due begin, if they may, and those that run yield to urgent writes. To be called several times a second.
    pub fn tend_compaction(&self) -> Result<()> {
        let mut governors = self.0.governors.families.lock();
        let running = self.0.tasks().running();
        let mut is_pressed = false;
        for (Governed { governor, waiting, permit }, name) in governors.iter_mut().zip(FAMILIES) {
            let property = |property: &properties::PropName| -> Result<u64> {
                let value = self.0.db().property_int_value_cf(self.0.family(name), property).map_err(read_failure)?;
                Ok(value.unwrap_or(0))
            };
            let runs = |is_it: fn(&str, &str) -> bool| {
                running.iter().any(|task| task.kind == TaskKind::Compaction && is_it(&task.name, name))
            };
            let sight = Sight {
                is_due: property(properties::COMPACTION_PENDING)? != 0,
                is_running: runs(|task, family| task == family),
                others_run: runs(|task, family| task != family),
                debt: Debt {
                    level0_files: property(&properties::num_files_at_level(0))?,
                    pending_bytes: property(properties::ESTIMATE_PENDING_COMPACTION_BYTES)?,
                },
            };
            is_pressed |= sight.debt.exceeds(BUDGET);
            let asked_before = waiting.take();
            let may_begin = || {
                let asked = match asked_before {
                    Some(waiting) => waiting.ask_again(),
                    None => self.0.tasks().admit(TaskKind::Compaction, name, self.0.bytes_to_merge(name, sight.debt)),
                };
                match asked {
                    // RocksDB's jobs are registered themselves.
                    Asked::Admitted(task) => {
                        *permit = Some(task.leave_to_others());
                        true
                    }
                    Asked::Waits(again) => {
                        *waiting = Some(again);
                        false
                    }
                }
            };
            if let Some(switch) = governor.step(self.0.governors.started.elapsed(), sight, may_begin) {
                self.0.switch_compaction(name, switch)?;
                if switch == Switch::Off {
                    *permit = None;
                }
            }
        }
        self.0.note_pressure(is_pressed);
        // Whoever is behind yields to nobody: writers would wait for that in the end.
        self.0.governors.pace.set(!is_pressed && self.0.queue().urgency().class() == Class::High);
        Ok(())
    }
}

impl Storage {
    /// About how much a compaction of the family will read: what RocksDB thinks, and at least what is in the levels that it begins with.
    /// Never 0, which would say that nobody knows.
    fn bytes_to_merge(&self, name: &str, debt: Debt) -> u64 {
        let levels = self.db().property_value_cf(self.family(name), properties::LEVELSTATS).ok().flatten();
        let first: u64 = bytes_by_level(&levels.unwrap_or_default()).iter().take(2).sum();
        debt.pending_bytes.max(first).max(1)
    }

    fn switch_compaction(&self, name: &str, switch: Switch) -> Result<()> {
        let disabled = if switch == Switch::Off { "true" } else { "false" };
        self.db().set_options_cf(self.family(name), &[("disable_auto_compactions", disabled)]).map_err(|error| {
            Error::new(
                baton_types::ErrorCode::InternalError,
                format!("Cannot switch the compaction of family {name}: {error}"),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Sight =
        Sight { is_due: false, is_running: false, others_run: false, debt: Debt { level0_files: 0, pending_bytes: 0 } };
    const DUE: Sight = Sight { is_due: true, debt: Debt { level0_files: 4, pending_bytes: 1 }, ..IDLE };

    fn at(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn a_gate_that_is_open_lets_compaction_begin_at_once_and_it_ends_when_there_is_nothing_left() {
        let mut governor = Governor::default();
        assert_eq!(governor.step(at(0), IDLE, || unreachable!("nothing is due")), None);
        assert_eq!(governor.step(at(1), DUE, || true), Some(Switch::On));
        assert_eq!(governor.step(at(2), DUE, || unreachable!("it is on")), None);
        assert_eq!(governor.step(at(3), Sight { is_running: true, ..IDLE }, || unreachable!("it is on")), None);
        assert_eq!(governor.step(at(4), IDLE, || unreachable!("it is on")), None, "not settled yet");
        assert_eq!(governor.step(at(6), IDLE, || unreachable!("it is on")), Some(Switch::Off));
    }

    #[test]
    fn a_family_that_is_due_and_of_which_nothing_is_merged_is_switched_off_and_left_alone() {
        let mut governor = Governor::default();
        assert_eq!(governor.step(at(0), DUE, || true), Some(Switch::On));
        let behind = Sight { others_run: true, ..DUE };
        for secs in 1..20 {
            assert_eq!(
                governor.step(at(secs), behind, || unreachable!("it is on")),
                None,
                "it may have to wait for another"
            );
        }
        assert_eq!(governor.step(at(20), DUE, || unreachable!("it is on")), None);
        assert_eq!(governor.step(at(22), DUE, || unreachable!("it is on")), Some(Switch::Off));
        assert_eq!(governor.step(at(100), DUE, || unreachable!("it is left alone")), None);
        let mut other = Governor { state: governor.state };
        let deeper = Sight { debt: Debt { level0_files: 5, pending_bytes: 1 }, ..DUE };
        assert_eq!(other.step(at(101), deeper, || true), Some(Switch::On), "there is more to merge");
        assert_eq!(governor.step(at(22) + LEFT_ALONE, DUE, || true), Some(Switch::On), "it may be possible by now");
    }

    #[test]
    fn a_gate_that_is_closed_is_asked_again_until_the_budget_is_spent() {
        let mut governor = Governor::default();
        let mut asked = 0;
        let mut step = |secs, sight| {
            governor.step(at(secs), sight, || {
                asked += 1;
                false
            })
        };
        assert_eq!(step(10, DUE), None);
        assert_eq!(step(80_000, DUE), None);
        assert_eq!(step(80_010, IDLE), None, "what was due is not any more");
        assert_eq!(step(80_020, DUE), None, "so the wait begins anew");
        assert_eq!(step(160_000, DUE), None);
        let deep = Sight { debt: BUDGET, ..DUE };
        assert_eq!(step(160_010, deep), Some(Switch::On));
        assert_eq!(asked, 4);
        let mut patient = Governor::default();
        assert_eq!(patient.step(at(0), DUE, || false), None);
        assert_eq!(patient.step(WAIT_MAX, DUE, || false), Some(Switch::On));
    }
}
