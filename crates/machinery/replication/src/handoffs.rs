//! The last times that this member handed leadership over, for operators: what made it, to whom, and how long nobody took writes.
//!
//! Invariant: what is kept is bounded.
//! What it deliberately does not do: survive a restart.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime};

/// How many are kept.
const KEPT_MAX: usize = 100;

/// What made a primary hand over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// `replSetStepDown`.
    StepDown,
    /// `replSetHandoff`.
    Handoff,
    /// The member stops.
    Shutdown,
}

impl Trigger {
    /// For operators.
    pub fn name(self) -> &'static str {
        match self {
            Self::StepDown => "replSetStepDown",
            Self::Handoff => "replSetHandoff",
            Self::Shutdown => "shutdown",
        }
    }
}

/// One time that this member handed over.
#[derive(Clone, Debug)]
pub struct Handoff {
    /// When it was asked for.
    pub asked: SystemTime,
    /// By what.
    pub trigger: Trigger,
    /// From the asking to the resignation.
    pub waited: Duration,
    /// Who is primary since; absent until this member has heard of one.
    pub to: Option<String>,
    /// From when this member took no more writes until it heard of the new primary; absent as `to` is.
    pub write_gap: Option<Duration>,
}

/// One that is under way.
#[derive(Debug)]
pub(crate) struct Attempt {
    trigger: Trigger,
    asked: SystemTime,
    begun: Instant,
    /// When the last try began to keep writes waiting.
    pub blocked: Option<Instant>,
}

impl Attempt {
    pub fn begin(trigger: Trigger) -> Self {
        Self { trigger, asked: SystemTime::now(), begun: Instant::now(), blocked: None }
    }
}

#[derive(Debug, Default)]
struct State {
    kept: VecDeque<Handoff>,
    /// Since when the last one kept has nobody to take writes, as far as is known.
    gap_began: Option<Instant>,
}

/// See the file's header.
#[derive(Debug, Default)]
pub(crate) struct Handoffs(Mutex<State>);

impl Handoffs {
    /// The oldest first.
    pub fn list(&self) -> Vec<Handoff> {
        self.0.lock().kept.iter().cloned().collect()
    }

    /// This member has resigned.
    pub fn resigned(&self, attempt: &Attempt) {
        let mut state = self.0.lock();
        if state.kept.len() == KEPT_MAX {
            state.kept.pop_front();
        }
        state.kept.push_back(Handoff {
            asked: attempt.asked,
            trigger: attempt.trigger,
            waited: attempt.begun.elapsed(),
            to: None,
            write_gap: None,
        });
        state.gap_began = Some(attempt.blocked.unwrap_or_else(Instant::now));
    }

    /// There is a primary.
    pub fn heard_of_primary(&self, host: &str) {
        let mut state = self.0.lock();
        let Some(began) = state.gap_began.take() else { return };
        if let Some(last) = state.kept.back_mut() {
            last.to = Some(host.to_owned());
            last.write_gap = Some(began.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handoff_is_complete_once_there_is_a_primary_and_the_oldest_are_forgotten() {
        let handoffs = Handoffs::default();
        handoffs.heard_of_primary("a:1");
        assert!(handoffs.list().is_empty());
        for _ in 0..=KEPT_MAX {
            handoffs.resigned(&Attempt::begin(Trigger::StepDown));
        }
        handoffs.resigned(&Attempt::begin(Trigger::Handoff));
        handoffs.heard_of_primary("b:2");
        handoffs.heard_of_primary("c:3");
        let list = handoffs.list();
        assert_eq!(list.len(), KEPT_MAX);
        let last = list.last().unwrap();
        assert_eq!((last.trigger, last.to.as_deref()), (Trigger::Handoff, Some("b:2")));
        assert!(last.write_gap.is_some());
        assert!(list[0].to.is_none());
    }
}
