//! Applying a batch: in its order, as much at once as is due. It is synced beside what comes next: how far the log is on disk storage says
//! itself, to whom it matters, and nobody acknowledges more than that.
//!
//! A member with `secondaryDelaySecs` waits until an entry is that old; a test or an operator may have it apply nothing. While it waits
//! nothing is in its hands. Entries that fail together are tried one by one, so that what can be applied is, and what cannot is known.
//!
//! Not here: applying, and which entries are commands (the machinery).

use crate::following::{Following, Phase};
use crate::mutant::Mutant;
use crate::step::{Attempt, Effect};
use baton_types::OpTime;
use std::time::Duration;

/// How long to wait before an entry is tried again that completes an index not built here yet.
const NOT_YET_INTERVAL: Duration = Duration::from_millis(20);
/// How often a member that stays behind looks at its clock, at least: it may be set.
const CLOCK_LOOK_INTERVAL: Duration = Duration::from_secs(1);

impl Following {
    /// Applies what is due, waits for it, or finishes the batch.
    pub(crate) fn go_on_taking(&mut self, wall: Duration) {
        let Some(mut taking) = self.taking.take() else { return };
        let Some(first) = taking.first() else {
            self.finish_batch(taking);
            return;
        };
        let due_at = Duration::from_secs(u64::from(first.timestamp.seconds)) + self.delay;
        let left = if self.delay.is_zero() { Duration::ZERO } else { due_at.saturating_sub(wall) };
        if self.held || !left.is_zero() {
            let wait = if self.held { CLOCK_LOOK_INTERVAL } else { left.min(CLOCK_LOOK_INTERVAL) };
            self.phase = Phase::Waiting { held: self.held, until: self.now + wait };
        } else {
            taking.choose_due(self.delay);
            self.phase = Phase::Applying { one_by_one: false };
            self.effects.push(Effect::Apply { from: taking.at, until: taking.due });
        }
        self.taking = Some(taking);
    }

    /// What is due is tried again, all of it: the index may be built by now.
    pub(crate) fn try_again(&mut self) {
        let Some(taking) = &self.taking else { return };
        self.phase = Phase::Applying { one_by_one: false };
        self.effects.push(Effect::Apply { from: taking.at, until: taking.due });
    }

    fn apply_one(&mut self, at: usize) {
        self.phase = Phase::Applying { one_by_one: true };
        self.effects.push(Effect::Apply { from: at, until: at + 1 });
    }

    pub(crate) fn take_attempt(&mut self, attempt: Attempt, one_by_one: bool, wall: Duration) {
        let skips = one_by_one && self.is_mutant(Mutant::SkipsRefused);
        let Some(taking) = &mut self.taking else { return };
        let has_failed = matches!(attempt, Attempt::Failed { .. });
        let is_taken = attempt == Attempt::Done || (has_failed && skips);
        taking.at += usize::from(one_by_one && is_taken);
        let tries_next = if one_by_one { is_taken && taking.at < taking.due } else { has_failed };
        if tries_next {
            let at = taking.at;
            self.apply_one(at);
            return;
        }
        let first = taking.first().unwrap_or(OpTime::ZERO);
        // Also of what came before an entry that cannot be applied: whoever wrote that may wait for it.
        self.effects.push(Effect::Sync);
        match attempt {
            _ if is_taken => self.finish_due(wall),
            _ if self.is_superseded() => self.begin(),
            Attempt::NotYet if !one_by_one => {
                let wait =
                    if self.is_mutant(Mutant::ForgetsWhatIsNotYetBuilt) { Duration::MAX / 2 } else { NOT_YET_INTERVAL };
                self.phase = Phase::AwaitingBuild { until: self.now.saturating_add(wait) };
            }
            Attempt::Done | Attempt::NotYet => {
                self.stop_for("an index is not built yet that an entry completes".to_owned());
            }
            Attempt::Passing { reason } => self.stop_for(format!("entries could not be applied: {reason}")),
            Attempt::Failed { reason, is_of_collection } => self.refuse(first, reason, is_of_collection),
        }
    }

    /// Goes on with the batch behind what was due.
    fn finish_due(&mut self, wall: Duration) {
        let Some(taking) = &mut self.taking else { return };
        taking.at = taking.due;
        let (last, is_finished) = (taking.last_due(), taking.first().is_none());
        self.note_progress(last);
        if self.is_superseded() && !is_finished { self.begin() } else { self.go_on_taking(wall) }
    }
}
