//! A batch that is being taken: how far it is, and what comes after it.

use crate::step::Batch;
use baton_consensus::SourceState;
use baton_types::OpTime;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::time::Duration;

/// See the file's header.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Taking {
    optimes: Vec<OpTime>,
    /// The next to be applied.
    pub at: usize,
    /// The end of those that are applied together.
    pub due: usize,
    /// The end of those that may be applied.
    until: usize,
    pub source: SourceState,
    pub commit_point: OpTime,
    /// Why the stream is over after it, if it is.
    pub end: Option<Cow<'static, str>>,
}

impl Taking {
    pub fn new(batch: Batch, at: usize, until: usize, end: Option<&'static str>) -> Self {
        let Batch { optimes, source, commit_point, .. } = batch;
        let until = until.min(optimes.len());
        Self { optimes, at, due: at, until, source, commit_point, end: end.map(Cow::Borrowed) }
    }

    /// The next entry to be applied, if there is one.
    pub fn first(&self) -> Option<OpTime> {
        self.left().first().copied()
    }

    fn left(&self) -> &[OpTime] {
        self.optimes.get(self.at..self.until).unwrap_or_default()
    }

    /// Chooses what is applied together: all; or the entries of one second, where this member stays behind.
    pub fn choose_due(&mut self, delay: Duration) {
        let left = self.left();
        let second = |optime: &OpTime| optime.timestamp.seconds;
        let due = match left.first() {
            Some(first) if !delay.is_zero() => left.iter().take_while(|optime| second(optime) == second(first)).count(),
            Some(_) | None => left.len(),
        };
        self.due = self.at + due;
    }

    /// The last of those that are applied together.
    pub fn last_due(&self) -> OpTime {
        self.due.checked_sub(1).and_then(|last| self.optimes.get(last)).copied().unwrap_or(OpTime::ZERO)
    }
}
