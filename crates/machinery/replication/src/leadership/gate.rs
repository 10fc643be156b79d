//! The gate of a set's member: storage's tasks ask it, and the brain answers.
//!
//! Invariants:
//! - A task that can wait is wanted once, under the id that storage drew for it; whoever asks again gets the brain's present answer.
//! - An answer that lets a task begin is its beginning: storage lets it run from there on.
//! - The brain hears of the end of every task that it heard of.

use super::{Known, State, Steward};
use baton_leadership::{Cost, Input, Moment, Work};
use baton_storage::tasks::{Admission, Gate, Pace, Proposal};
use baton_types::TaskCost;

impl Gate for Steward {
    fn may_begin(&self, proposal: &Proposal<'_>) -> Admission {
        let task = proposal.task;
        self.with(|state, now| {
            if state.brain.admission(task).is_none() {
                state.note(proposal);
                state.step(now, Input::Wanted { task, work: Work::of(proposal), wait_max: None });
            }
            let admission = state.brain.admission(task).unwrap_or(Admission::Begin(Pace::Full));
            match admission {
                Admission::Begin(_) => state.begin(now, proposal),
                Admission::Wait { .. } => {}
            }
            admission
        })
    }

    fn pace(&self, proposal: &Proposal<'_>) -> Pace {
        self.with(|state, now| {
            state.note(proposal);
            state.begin(now, proposal);
            state.brain.pace(proposal.task)
        })
    }

    fn ended(&self, proposal: &Proposal<'_>, cost: Option<TaskCost>) {
        self.with(|state, now| {
            if state.known.remove(&proposal.task).is_some() {
                let cost = cost.map(|cost| whole(cost, state.brain.costs().predict(&Work::of(proposal))));
                state.step(now, Input::Ended { task: proposal.task, cost });
            }
        });
    }
}

/// What was not measured is as predicted: it teaches nothing.
fn whole(cost: TaskCost, predicted: Cost) -> Cost {
    Cost {
        cpu_secs: cost.cpu.map_or(predicted.cpu_secs, |cpu| cpu.as_secs_f64()),
        read_bytes: cost.read_bytes.map_or(predicted.read_bytes, |bytes| bytes as f64),
        written_bytes: cost.written_bytes.map_or(predicted.written_bytes, |bytes| bytes as f64),
        evicted_bytes: predicted.evicted_bytes,
        duration_secs: cost.duration.as_secs_f64(),
    }
}

impl State {
    fn note(&mut self, proposal: &Proposal<'_>) {
        self.known.entry(proposal.task).or_insert_with(|| Known {
            name: format!("{} of {}", proposal.kind.name(), proposal.name),
            has_begun: false,
        });
    }

    fn begin(&mut self, now: Moment, proposal: &Proposal<'_>) {
        if let Some(known) = self.known.get_mut(&proposal.task).filter(|known| !known.has_begun) {
            known.has_begun = true;
            self.step(now, Input::Begun { task: proposal.task, work: Work::of(proposal) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_leadership::{Member, Mode, Role, Set};
    use baton_storage::tasks::TaskKind;
    use std::sync::Arc;
    use std::time::Duration;

    /// A member of a set of three that never moves without a candidate, in this role.
    fn member(role: Role) -> Arc<Steward> {
        let mut set = Set::new(0, (0..3).map(Member::new).collect());
        set.settings.mode = Mode::Always;
        let steward = Steward::new(1);
        steward.tell(Input::Configured(Box::new(set)));
        steward.tell(Input::Role { role, term: 1 });
        steward
    }

    fn backup(task: u64, waited_secs: u64) -> Proposal<'static> {
        let waited = Duration::from_secs(waited_secs);
        Proposal { task, kind: TaskKind::Backup, name: "all", expected: 0, expected_duration: None, waited }
    }

    #[test]
    fn a_task_is_wanted_once_waits_with_a_reason_and_is_forgotten_when_it_ends() {
        let steward = member(Role::Secondary);
        let Admission::Wait { why } = steward.may_begin(&backup(7, 0)) else {
            panic!("nobody has confirmed its claim")
        };
        assert_eq!(steward.may_begin(&backup(7, 1)), Admission::Wait { why });
        let waiting = steward.look(|brain, _| brain.takeover_obstacle());
        assert!(waiting.is_some(), "it waits");
        steward.ended(&backup(7, 2), None);
        assert_eq!(steward.look(|brain, _| brain.takeover_obstacle()), None);
        assert!(steward.state.lock().known.is_empty());
    }

    #[test]
    fn a_task_that_cannot_wait_makes_the_member_busy_until_its_end() {
        let steward = member(Role::Secondary);
        assert_eq!(steward.pace(&backup(8, 0)), Pace::Full);
        assert!(steward.occupation().stands_last);
        assert_eq!(steward.pace(&backup(8, 0)), Pace::Full);
        let cost = TaskCost { cpu: None, read_bytes: Some(1), written_bytes: None, duration: Duration::from_secs(1) };
        steward.ended(&backup(8, 0), Some(cost));
        assert!(!steward.occupation().stands_last);
    }

    #[test]
    fn a_member_of_no_set_lets_everything_begin() {
        let steward = Steward::new(1);
        assert_eq!(steward.may_begin(&backup(1, 0)), Admission::Begin(Pace::Full));
    }

    #[test]
    fn what_ends_that_nobody_asked_about_is_nothing_to_anybody() {
        let steward = member(Role::Secondary);
        steward.ended(&backup(9, 0), None);
        assert!(!steward.occupation().stands_last);
    }
}
