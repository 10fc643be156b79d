//! What the driver tells leadership, and how it begins and ends with it.
//!
//! Invariant: leadership knows the role and term of a step before anything of that step is carried out, so that it never says of itself
//! what consensus no longer is.

use super::Driver;
use crate::handoffs::{Attempt, Trigger};
use crate::leadership::{Hands, Meter, Moves, followers_of, role_of, set_of};
use baton_consensus::{ConfigurationVersion, Effect, ElectionReason, Input, MemberId, Request, Response};
use baton_leadership::{self as leadership, Decision, Outcome, Role};
use baton_storage::tasks::AlwaysOpen;
use baton_types::{Error, ErrorCode, Result, Term};
use std::sync::Arc;

/// What leadership was told last.
#[derive(Default)]
pub(super) struct Told {
    configuration: Option<(ConfigurationVersion, Option<MemberId>)>,
    role: Option<(Role, Term)>,
    /// The last primary but this member that was heard of: who resigns in this member's favour.
    led_by: Option<MemberId>,
}

/// Whether an input says how another member is.
pub(super) fn is_sign_of_life(input: &Input) -> bool {
    matches!(
        input,
        Input::Request { request: Request::Heartbeat(_), .. }
            | Input::Response { response: Response::Heartbeat(_), .. }
            | Input::Unreachable { .. }
    )
}

impl Driver {
    /// Binds the gate, and starts the thread.
    pub(super) fn begin_leading(&mut self, meter: Meter) -> Result<()> {
        self.tell_leadership(&[], false);
        let steward = &self.shared.leadership;
        let no_thread = |error| Error::new(ErrorCode::InternalError, format!("no thread for leadership: {error}"));
        let hands = Hands::new(&self.inbox, &self.storage, &self.shared.view);
        self.leading = Some(steward.start(meter, hands).map_err(no_thread)?);
        self.storage.tasks().bind(Arc::clone(steward) as _);
        Ok(())
    }

    /// Whoever waits at the gate while the member stops is let go.
    pub(super) fn end_leading(&mut self) {
        self.storage.tasks().bind(Arc::new(AlwaysOpen));
        self.shared.leadership.close();
        if let Some(thread) = self.leading.take()
            && thread.join().is_err()
        {
            tracing::error!(target: "REPL", "The leadership thread panicked");
        }
    }

    /// After a step of consensus: what has changed by it.
    pub(super) fn tell_leadership(&mut self, effects: &[Effect], is_sign: bool) {
        let summary = self.consensus.summary();
        let steward = &self.shared.leadership;
        let me = self.consensus.me();
        let configuration = self.consensus.configuration().map(|configuration| (configuration.version, me));
        if configuration != self.told.configuration {
            self.told.configuration = configuration;
            if let Some(set) = self.consensus.configuration().and_then(|configuration| set_of(configuration, me)) {
                steward.tell(leadership::Input::Configured(Box::new(set)));
            }
        }
        let is_heir =
            effects.iter().any(|effect| matches!(effect, Effect::Won { reason: ElectionReason::Handoff, .. }));
        let handed_by = match self.told.role {
            // It stays what it was elected as.
            Some((Role::Primary { handed_by }, term)) if term == summary.term => handed_by,
            _ => self.told.led_by.filter(|_| is_heir).map(|member| member.0),
        };
        let role = (role_of(summary.state, handed_by), summary.term);
        if self.told.role != Some(role) {
            self.told.role = Some(role);
            steward.tell(leadership::Input::Role { role: role.0, term: role.1 });
        }
        if let Some(primary) = summary.primary.filter(|primary| Some(*primary) != me) {
            self.told.led_by = Some(primary);
        }
        if is_sign {
            steward.tell(leadership::Input::Followers(followers_of(self.consensus.candidates())));
        }
    }

    /// What leadership knows about why and to whom leadership moves.
    pub(super) fn decision_for(&self, trigger: Trigger) -> Option<Box<Decision>> {
        let steward = &self.shared.leadership;
        match trigger {
            Trigger::Policy(_) => steward.look(|brain, _| {
                let last = brain.history().moves().next_back();
                last.filter(|last| matches!(last.outcome, Outcome::Moving { .. })).cloned().map(Box::new)
            }),
            Trigger::StepDown | Trigger::Handoff | Trigger::Shutdown => steward.explain().map(Box::new),
        }
    }

    /// A step-down that was given up. An operator hears of his own himself.
    pub(super) fn tell_failure(&self, attempt: &Attempt, error: &Error) {
        if let (Trigger::Policy(_), Some(to)) = (attempt.trigger, attempt.target) {
            self.shared.leadership.failed(to, error.message.to_string());
        }
    }
}
