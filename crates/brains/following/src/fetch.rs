//! From a source that is set to its last batch: connecting, opening the stream, judging what it begins with, reading on, giving up.
//!
//! Invariants:
//! - Nothing is appended but behind an entry that both logs have ([`judge`]), in the order of the log; a primary that catches up takes
//!   nothing of its own term or a later one.
//! - A source that is given up is not asked again before it is set again, and consensus hears of it.
//!
//! Not here: choosing the source (consensus).

use crate::following::{Following, Phase};
use crate::mutant::Mutant;
use crate::state::Obstacle;
use crate::step::{Batch, Effect, Here};
use crate::taking::Taking;
use baton_consensus::{Input as Told, Verdict, judge, sound};
use std::time::Duration;

/// How long a connection may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// How long a batch may take. A source that has nothing says so after 5 s.
const READ_WITHIN: Duration = Duration::from_secs(10);
/// How long a source that failed is not chosen again.
pub(crate) const AVOID: Duration = Duration::from_secs(1);

impl Following {
    /// Turns to the source that is set, if there is one. No work may be under way.
    pub(crate) fn begin(&mut self) {
        self.taking = None;
        self.run = self.source.map(|source| (source, self.generation));
        match self.source {
            Some(source) => {
                self.phase = Phase::Connecting;
                self.effects.push(Effect::Connect { source, within: CONNECT_WITHIN });
            }
            None => self.phase = Phase::Idle,
        }
    }

    pub(crate) fn open(&mut self, here: Here) {
        self.phase = Phase::Opening;
        self.effects.push(Effect::Open { after: here.last, within: READ_WITHIN });
    }

    /// A stream's first batch.
    pub(crate) fn take_first(&mut self, here: Here, batch: Batch) {
        let leads = here.leads && !self.is_mutant(Mutant::FetchesOnAsPrimary);
        let Some(source) = self.current() else {
            self.begin();
            return;
        };
        let mut verdict = judge(here.last, here.term, leads, batch.source, &batch.optimes);
        if self.is_mutant(Mutant::AppendsUnjudged) {
            verdict = Verdict::Append { entries: batch.optimes.len().saturating_sub(1) };
        }
        match verdict {
            Verdict::Append { entries } => self.take_batch(batch, 1, 1 + entries, here),
            Verdict::RollBack => self.begin_rollback(),
            Verdict::TooStale => {
                let oldest = batch.source.oldest;
                self.obstacle = Some(Obstacle::TooStale { source, oldest });
                self.stop("it no longer has what follows this member's log".to_owned());
                self.tell(Told::SourceTooStale { source, oldest });
                self.set_aside();
            }
            Verdict::ChangeSource => self.stop_for("it has nothing for this member".to_owned()),
        }
    }

    /// What came next.
    pub(crate) fn take_next(&mut self, here: Here, batch: Batch) {
        if self.is_superseded() {
            self.begin();
            return;
        }
        let leads = here.leads && !self.is_mutant(Mutant::FetchesOnAsPrimary);
        let until = sound(here.last, here.term, leads, &batch.optimes);
        self.take_batch(batch, 0, until, here);
    }

    fn take_batch(&mut self, batch: Batch, from: usize, until: usize, here: Here) {
        let end = match (until < batch.optimes.len(), batch.is_open) {
            (true, _) => Some("entries came that may not be appended"),
            (false, false) => Some("the source closed its cursor"),
            (false, true) => None,
        };
        self.taking = Some(Taking::new(batch, from, until.max(from), end));
        self.go_on_taking(here.wall);
    }

    /// A batch is applied.
    pub(crate) fn finish_batch(&mut self, taken: Taking) {
        let Some((source, _)) = self.run else { return };
        let term = if self.is_mutant(Mutant::FetchesOnAsPrimary) { 0 } else { taken.source.term };
        self.obstacle = None;
        self.tell(Told::BatchTaken { source, term, commit_point: taken.commit_point, last: taken.source.last });
        if self.is_superseded() {
            self.begin();
        } else if let Some(end) = taken.end {
            self.stop_for(end.into_owned());
        } else {
            self.phase = Phase::Reading;
            self.effects.push(Effect::Read { within: READ_WITHIN });
        }
    }

    /// The source does not answer, or there is nothing to be had. Told if it is still the source.
    pub(crate) fn stop_for(&mut self, reason: String) {
        let Some(source) = self.current() else {
            self.begin();
            return;
        };
        if self.is_mutant(Mutant::FailsSilently) {
            self.set_aside();
            return;
        }
        self.obstacle = Some(Obstacle::SourceFailed { source, reason: reason.clone() });
        self.stop(reason);
        self.give_up_source(AVOID);
    }

    fn stop(&mut self, reason: String) {
        let Some((source, _)) = self.run else { return };
        self.effects.push(Effect::Stopped { source, reason });
    }

    /// Has consensus look for another source.
    pub(crate) fn give_up_source(&mut self, avoid: Duration) {
        let Some((source, _)) = self.run else { return };
        self.tell(Told::SourceFailed { source, avoid });
        self.set_aside();
    }

    /// The source is not asked again before it is set again.
    pub(crate) fn set_aside(&mut self) {
        if !self.is_superseded() {
            self.source = None;
            self.effects.push(Effect::Close);
        }
        self.begin();
    }
}
