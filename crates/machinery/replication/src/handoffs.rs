//! The last times that this member handed leadership over, for operators: what made it, to whom, why, and how long nobody took writes.
//!
//! Invariant: what is kept is bounded.
//! What it deliberately does not do: survive a restart.

use baton_consensus::MemberId;
use baton_leadership::Decision;
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
    /// What moves leadership by itself, because of that.
    Policy(baton_leadership::Trigger),
}

impl Trigger {
    /// For operators.
    pub fn name(self) -> &'static str {
        match self {
            Self::StepDown => "replSetStepDown",
            Self::Handoff => "replSetHandoff",
            Self::Shutdown => "shutdown",
            Self::Policy(trigger) => trigger.name(),
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
    /// How each member stood, what decided, and what was predicted; absent if this member knew of no set by then.
    pub decision: Option<Box<Decision>>,
}

/// One that is under way.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub trigger: Trigger,
    /// Who is to lead, if it was said.
    pub target: Option<MemberId>,
    pub decision: Option<Box<Decision>>,
    asked: SystemTime,
    begun: Instant,
    /// When the last try began to keep writes waiting.
    pub blocked: Option<Instant>,
}

impl Attempt {
    pub fn begin(trigger: Trigger, target: Option<MemberId>, decision: Option<Box<Decision>>) -> Self {
        Self { trigger, target, decision, asked: SystemTime::now(), begun: Instant::now(), blocked: None }
    }
}

/// What came of one: there is a primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    pub trigger: Trigger,
    pub target: Option<MemberId>,
    pub gap: Duration,
}

#[derive(Debug, Default)]
struct State {
    kept: VecDeque<Handoff>,
    /// Since when the last one kept has nobody to take writes, as far as is known.
    gap_began: Option<Instant>,
    /// Whom that was to be.
    target: Option<MemberId>,
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
    pub fn resigned(&self, attempt: Attempt) {
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
            decision: attempt.decision,
        });
        state.target = attempt.target;
        state.gap_began = Some(attempt.blocked.unwrap_or_else(Instant::now));
    }

    /// There is a primary. Tells what that makes of the last one kept, if it was waiting for this.
    pub fn heard_of_primary(&self, host: &str) -> Option<Heard> {
        let mut state = self.0.lock();
        let gap = state.gap_began.take()?.elapsed();
        let target = state.target;
        let last = state.kept.back_mut()?;
        last.to = Some(host.to_owned());
        last.write_gap = Some(gap);
        Some(Heard { trigger: last.trigger, target, gap })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handoff_is_complete_once_there_is_a_primary_and_the_oldest_are_forgotten() {
        let handoffs = Handoffs::default();
        assert_eq!(handoffs.heard_of_primary("a:1"), None);
        assert!(handoffs.list().is_empty());
        for _ in 0..=KEPT_MAX {
            handoffs.resigned(Attempt::begin(Trigger::StepDown, None, None));
        }
        handoffs.resigned(Attempt::begin(Trigger::Handoff, Some(MemberId(2)), None));
        let heard = handoffs.heard_of_primary("b:2").map(|heard| (heard.trigger, heard.target));
        assert_eq!(heard, Some((Trigger::Handoff, Some(MemberId(2)))));
        assert_eq!(handoffs.heard_of_primary("c:3"), None, "it is complete");
        let list = handoffs.list();
        assert_eq!(list.len(), KEPT_MAX);
        let last = list.last().unwrap();
        assert_eq!((last.trigger, last.to.as_deref()), (Trigger::Handoff, Some("b:2")));
        assert!(last.write_gap.is_some());
        assert!(list[0].to.is_none());
    }
}
