//! Leadership on its way: what was ordered, and what came of it.
//!
//! Invariant: the brain is told the outcome of each handoff once: that consensus refused or gave it up, or who is primary since. If this
//! member is primary again, or nothing is heard for long, the brain finds that out by itself.

use super::Steward;
use crate::driver::{Inbox, Letter};
use crate::handoffs::{Heard, Trigger};
use crate::mailbox::Mailbox;
use crate::replication::Order;
use crate::warming;
use arc_swap::ArcSwap;
use baton_consensus::{self as consensus, StepDownRequest, View};
use baton_leadership::{Decision, Figures, HandoffOutcome, Input, MemberId, Rule, Warming};
use baton_storage::Storage;
use std::sync::mpsc::channel;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long the successor may take to have every entry. Each try blocks writes for a bounded time; two tries are enough to see
/// whether it keeps up.
const CATCH_UP: Duration = Duration::from_millis(1500);
/// For how long the member then leaves elections to the one that it chose.
const FREEZE: Duration = Duration::from_secs(5);

/// What carries a decision out.
#[derive(Clone)]
pub(crate) struct Hands {
    inbox: Weak<Mailbox<crate::driver::Driver>>,
    storage: Arc<Storage>,
    view: Arc<ArcSwap<View>>,
}

impl Hands {
    pub fn new(inbox: &Inbox, storage: &Arc<Storage>, view: &Arc<ArcSwap<View>>) -> Self {
        Self { inbox: Arc::downgrade(inbox), storage: Arc::clone(storage), view: Arc::clone(view) }
    }

    /// Tells a task to end.
    pub fn end(&self, task: u64, why: Rule) {
        self.storage.tasks().end(task, why.sentence());
    }

    /// A member that stops has no use for it.
    pub fn post(&self, letter: Letter) {
        if let Some(inbox) = self.inbox.upgrade() {
            let _ = inbox.post(letter);
        }
    }
}

/// Has the successor warmed, on a thread of its own, and then has the driver hand leadership over; that tells what came of it
/// ([`Moves`]).
pub(super) fn order(to: MemberId, decision: &Decision, here: &Figures, hands: &Hands) {
    tracing::info!(
        target: "REPL", id = 9_100_006, to, trigger = decision.trigger.name(), rule = decision.rule.name(),
        ranking = decision.ranking.name(), stayingSecs = decision.staying_secs, movingSecs = decision.moving_secs,
        "Leadership is to move: {}", decision.rule
    );
    let request = StepDownRequest {
        force: false,
        catch_up: CATCH_UP,
        freeze: FREEZE,
        to: Some(consensus::MemberId(to)),
        hand_off: true,
    };
    let there = decision.candidates.iter().find(|candidate| candidate.member == to).and_then(|chosen| chosen.figures);
    let gain_secs = decision.staying_secs.zip(decision.moving_secs).map(|(staying, moving)| staying - moving);
    let bounds = Warming::of_move(here, there.as_ref(), gain_secs);
    // Nobody waits for the answer.
    let (answer, _) = channel();
    let letter = Letter::Order(Order::StepDown(request, Trigger::Policy(decision.trigger)), answer);
    let work = {
        let hands = hands.clone();
        move || {
            warming::before_handoff(&hands.storage, &hands.view.load(), request.to, bounds);
            hands.post(letter);
        }
    };
    if let Err(error) = std::thread::Builder::new().name("handoff".into()).spawn(work) {
        // The brain hears nothing of it, and gives it up.
        tracing::warn!(target: "REPL", error = %error, "No thread to hand leadership over");
    }
}

/// What the driver tells of handoffs.
pub(crate) trait Moves {
    /// It did not come about.
    fn failed(&self, to: consensus::MemberId, why: String);
    /// This member resigned, and there is a primary.
    fn ended(&self, heard: &Heard, primary: consensus::MemberId, me: Option<consensus::MemberId>);
}

impl Moves for Steward {
    fn failed(&self, to: consensus::MemberId, why: String) {
        tracing::info!(target: "REPL", id = 9_100_007, to = to.0, why, "Leadership has not moved");
        self.tell(Input::Handoff(HandoffOutcome::Failed { to: to.0, why }));
    }

    fn ended(&self, heard: &Heard, primary: consensus::MemberId, me: Option<consensus::MemberId>) {
        if Some(primary) == me {
            return;
        }
        match heard.target.filter(|target| *target != primary) {
            Some(target) => self.failed(target, format!("member {primary} was elected instead")),
            None => {
                tracing::info!(target: "REPL", id = 9_100_008, to = primary.0, trigger = heard.trigger.name(), gapMillis = heard.gap.as_secs_f64() * 1e3, "Leadership has moved");
                self.tell(Input::Handoff(HandoffOutcome::Done { to: primary.0, gap: heard.gap }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_leadership::{Member, Outcome, Set};

    const ME: consensus::MemberId = consensus::MemberId(0);
    const TARGET: consensus::MemberId = consensus::MemberId(1);
    const OTHER: consensus::MemberId = consensus::MemberId(2);

    /// What the brain keeps of a handoff to the target, after which this one is primary.
    fn outcomes(primary: consensus::MemberId) -> Vec<Outcome> {
        let steward = Steward::new(1);
        steward.tell(Input::Configured(Box::new(Set::new(ME.0, (0..3).map(Member::new).collect()))));
        let heard = Heard { trigger: Trigger::Handoff, target: Some(TARGET), gap: Duration::from_millis(15) };
        steward.ended(&heard, primary, Some(ME));
        steward.look(|brain, _| brain.history().moves().map(|decision| decision.outcome.clone()).collect())
    }

    #[test]
    fn a_handoff_has_come_about_if_the_one_who_was_to_lead_does() {
        assert_eq!(outcomes(TARGET), [Outcome::Moved { to: TARGET.0, gap: Duration::from_millis(15) }]);
        let why = "member 2 was elected instead".to_owned();
        assert_eq!(outcomes(OTHER), [Outcome::Failed { to: TARGET.0, why }]);
        assert_eq!(outcomes(ME), [], "the brain knows its own election");
    }
}
