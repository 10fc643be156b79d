//! What becomes of a task that wants to begin: it begins, waits, or leadership moves first (the paper's Policy 1, and postponement).
//!
//! ```text
//!  forced (deadline, debt, stall, disk) ─────────────────────────────▶ begin
//!  no window of its kind is open ────────────────────────────────────▶ wait
//!  nobody waits for it, and somebody for another one here ───────────▶ wait
//!  secondary ── slot confirmed? ─────────────────────────────────────▶ begin, or wait
//!  primary ─── worthwhile? ─ no ──▶ as a secondary, by its own slot ─▶ begin, or wait
//!                 │ yes
//!                 ▼
//!              may move now? ─ no ─▶ wait
//!                 │ yes
//!              candidate? ─ no ────▶ wait
//!                 │ yes
//!              large statement under way? ─ yes, and lately asked ──▶ wait
//!                 │ no
//!                 └─────────────────────────────────────────────────▶ hand over
//! ```
//!
//! Invariants:
//! - A task that waits is admitted at its deadline, whatever else is the case.
//! - With the mode off every task is admitted at once, and leadership never moves.
//! - A light task is admitted at once.
//! - What nobody waits for does not begin beside what somebody waits for, but by its deadline or where it must.
//! - For a task leadership moves in the midst of a client's large statement only once the task has waited for a while: a move ends the
//!   statement, and drivers do not send it again.
//! - Leadership is handed to nobody with an obstacle, to nobody below another's priority, and only within the limits.

use crate::candidates::{Candidate, DISK_FREE_MIN};
use crate::cost::is_worthwhile;
use crate::decision::{Outcome, Trigger};
use crate::leadership::{Handoff, Leadership};
use crate::limits::HOUR;
use crate::mutant::Mutant;
use crate::ranking::Ranking;
use crate::rule::Rule;
use crate::set::{Member, MemberId, Set};
use crate::settings::Mode;
use crate::state::{State, Transition};
use crate::step::{Effect, Moment, Role, TaskId};
use crate::tasks::{Phase, Task};
use crate::windows;
use baton_types::TaskKind;
use std::time::Duration;

/// So near to slowing writers down a compaction waits no longer.
const STALL_NEARNESS_MAX: f64 = 0.8;
/// So many levels above their target are more than readers should have to look through.
const DEBT_LEVELS_MAX: u32 = 4;
/// Leadership goes back to the preferred primary unless that costs more, in seconds of service.
const RETURN_SECS_MAX: f64 = 1.0;

/// A statement that has gone on for so long, in seconds, is a large one.
const STATEMENT_SECS_MIN: f64 = 0.25;
/// A task waits for so long for the end of large statements; then what they have done is a cost of the move, beside the others.
const STATEMENT_PATIENCE: Duration = Duration::from_secs(60);

/// What becomes of a task.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    Begin(Rule),
    /// It begins once this member may be busy.
    InSlot(Rule),
    Wait(Rule),
    Move(MemberId, Rule),
}

impl Leadership {
    /// Everything that the policy has to do now.
    pub(crate) fn settle_policy(&mut self, set: &Set) {
        let asked_before = self.asks_to_end.take();
        if set.settings.mode == Mode::Off && !self.is_mutant(Mutant::MovesWhenOff) {
            self.wants_slot_as_primary = false;
            self.admit_all(Rule::ModeOff);
            return;
        }
        if self.is_primary() {
            self.settle_disk(set, asked_before);
            let candidates = if self.tasks.has_waiting() { self.candidates(set, None) } else { Vec::new() };
            self.settle_waiting(set, &candidates);
            self.settle_return(set);
        } else {
            self.wants_slot_as_primary = false;
            self.settle_need(set);
            self.settle_waiting(set, &[]);
        }
    }

    pub(crate) fn admit_all(&mut self, why: Rule) {
        let waiting: Vec<TaskId> = self.tasks.waiting().map(|(id, _, _)| id).collect();
        waiting.into_iter().for_each(|id| self.admit(id, why));
    }

    fn settle_waiting(&mut self, set: &Set, candidates: &[Candidate]) {
        let verdicts: Vec<(TaskId, Verdict, Moment)> = self
            .tasks
            .waiting()
            .map(|(id, task, deadline)| (id, self.verdict(set, task, deadline, candidates), deadline))
            .collect();
        if self.is_primary() {
            self.wants_slot_as_primary = verdicts.iter().any(|(_, verdict, _)| matches!(verdict, Verdict::InSlot(_)));
            self.settle_register(set);
        }
        for (id, verdict, until) in verdicts {
            match verdict {
                Verdict::Begin(why) => self.begin(set, id, why, candidates),
                Verdict::InSlot(why) => match self.slot_obstacle(set) {
                    None => self.begin(set, id, why, candidates),
                    Some(obstacle) => self.defer(set, id, obstacle, until, candidates),
                },
                Verdict::Move(..) if self.handoff.is_some() => {
                    self.defer(set, id, Rule::HandoffUnderWay, until, candidates);
                }
                Verdict::Move(to, why) => {
                    self.defer(set, id, Rule::HandoffUnderWay, until, candidates);
                    if let Some(kind) = self.tasks.get(id).map(|task| task.work.kind) {
                        self.hand_over(set, Trigger::Task { task: id, kind }, why, candidates.to_vec(), to);
                    }
                }
                Verdict::Wait(why) => self.defer(set, id, why, until, candidates),
            }
        }
    }

    fn verdict(&self, set: &Set, task: &Task, deadline: Moment, candidates: &[Candidate]) -> Verdict {
        if !task.is_heavy {
            return Verdict::Begin(Rule::Light);
        }
        if let Some(why) = self.must_begin(set, task, deadline) {
            return Verdict::Begin(why);
        }
        if self.is_needed_as_primary(set) {
            return Verdict::Wait(Rule::NeededAsPrimary);
        }
        let is_open = windows::admit(&set.settings.windows, task.work.kind, self.wall());
        if !is_open && !self.is_mutant(Mutant::IgnoresWindows) {
            return Verdict::Wait(Rule::WindowClosed);
        }
        match self.role {
            Role::Other => Verdict::Begin(Rule::NotServing),
            // Side by side both would take as long as one after the other.
            Role::Primary { .. } | Role::Secondary if self.gives_way(set, task) => Verdict::Wait(Rule::OthersAwaited),
            Role::Secondary if !set.am_voter() => Verdict::Begin(Rule::NoVote),
            Role::Secondary => Verdict::InSlot(Rule::SlotConfirmed),
            Role::Primary { .. } => self.verdict_as_primary(set, task, deadline, candidates),
        }
    }

    /// Whether nobody waits for a task, and somebody for another one of this member, which runs, or must begin now, or is not kept from it
    /// by windows.
    fn gives_way(&self, set: &Set, task: &Task) -> bool {
        let is_open = |kind| windows::admit(&set.settings.windows, kind, self.wall());
        let is_about = |other: &Task| match other.phase {
            Phase::Waiting { deadline, .. } => {
                is_open(other.work.kind) || self.must_begin(set, other, deadline).is_some()
            }
            Phase::Admitted | Phase::Running => true,
        };
        !task.is_awaited() && self.tasks.awaited().any(is_about) && !self.is_mutant(Mutant::BeginsBesideTheAwaited)
    }

    /// Why a task can wait no longer.
    fn must_begin(&self, set: &Set, task: &Task, deadline: Moment) -> Option<Rule> {
        if self.now >= deadline && !self.is_mutant(Mutant::PostponesForEver) {
            return Some(Rule::Deadline);
        }
        let is_disk_full = self.figures.disk_free < DISK_FREE_MIN;
        match task.work.kind {
            TaskKind::Compaction if self.figures.stall_nearness >= STALL_NEARNESS_MAX => Some(Rule::NearStall),
            TaskKind::Compaction
                if self.figures.debt_bytes >= set.settings.debt_bytes_max
                    || self.figures.debt_levels >= DEBT_LEVELS_MAX =>
            {
                Some(Rule::DebtBudget)
            }
            TaskKind::OplogTruncation | TaskKind::DropCleanup | TaskKind::TtlDeletion if is_disk_full => {
                Some(Rule::FreesSpace)
            }
            TaskKind::Flush
            | TaskKind::Compaction
            | TaskKind::IndexBuild
            | TaskKind::OplogTruncation
            | TaskKind::TtlDeletion
            | TaskKind::DropCleanup
            | TaskKind::Validate
            | TaskKind::Checkpoint
            | TaskKind::Backup
            | TaskKind::InitialSyncSource => None,
        }
    }

    fn verdict_as_primary(&self, set: &Set, task: &Task, deadline: Moment, candidates: &[Candidate]) -> Verdict {
        if self.handoff.is_some() {
            return Verdict::Wait(Rule::HandoffUnderWay);
        }
        if !set.others().any(Member::is_electable) {
            return Verdict::InSlot(Rule::NoOtherMember);
        }
        let is_costed = set.settings.mode == Mode::CostBased;
        let staying = self.costs.staying_secs(&task.work, &self.figures);
        let spares_statement = self.spares_statement(task);
        // What is waited for costs nothing.
        let spared = if spares_statement { self.figures.undone_secs } else { 0.0 };
        let is_worth = |moving: f64| !is_costed || is_worthwhile(staying, moving - spared, &set.settings);
        if !is_worth(self.costs.moving_secs(&self.figures, None)) {
            return Verdict::InSlot(Rule::NotWorthwhile);
        }
        if let Some((why, ends)) = self.limit(set) {
            // Whoever has just been handed leadership was chosen for being free. It stays so for as long as it can.
            let was_chosen = matches!(self.role, Role::Primary { handed_by: Some(_) });
            let is_settling = was_chosen && why == Rule::TooSoonAfterElection;
            return if ends > deadline && !is_settling {
                Verdict::InSlot(Rule::NoMoveInTime)
            } else {
                Verdict::Wait(why)
            };
        }
        let able = || candidates.iter().filter(|candidate| candidate.obstacle.is_none());
        let Some(best) = able().next() else { return Verdict::Wait(Rule::NoCandidate) };
        if self.is_mutant(Mutant::TakesTheWorst) {
            return able()
                .next_back()
                .map_or(Verdict::Wait(Rule::NoCandidate), |last| Verdict::Move(last.member, Rule::WorthMoving));
        }
        // A warmer cache is no reason to pass over who has the higher priority.
        let equals = able().take_while(|candidate| candidate.priority >= best.priority);
        match equals.into_iter().find(|candidate| is_worth(candidate.moving_secs)) {
            Some(_) if spares_statement => Verdict::Wait(Rule::StatementUnderWay),
            Some(best) => Verdict::Move(best.member, if is_costed { Rule::WorthMoving } else { Rule::AlwaysMoves }),
            None => Verdict::InSlot(Rule::NotWorthwhile),
        }
    }

    /// Whether a task that has not waited for long would end a large statement.
    fn spares_statement(&self, task: &Task) -> bool {
        self.figures.undone_secs >= STATEMENT_SECS_MIN && self.now.saturating_sub(task.since) < STATEMENT_PATIENCE
    }

    /// Why leadership may not move now, and until when.
    pub(crate) fn limit(&self, set: &Set) -> Option<(Rule, Moment)> {
        // What was counted a while ago may be too much by now, but never too little.
        let lately = self.peers.values().filter(|peer| self.now.saturating_sub(peer.heard_at) < HOUR);
        let heard = lately.map(|peer| peer.gossip.terms_last_hour).max().unwrap_or(0);
        let limit = self.limits.obstacle(self.now, set, heard);
        let ignored = |rule| match rule {
            Rule::TooSoonAfterElection => self.is_mutant(Mutant::PassesOnAtOnce),
            Rule::Cooldown => self.is_mutant(Mutant::NoCooldown),
            _ => self.is_mutant(Mutant::CountsNoMoves),
        };
        limit.filter(|(rule, _)| !ignored(*rule))
    }

    fn begin(&mut self, set: &Set, id: TaskId, why: Rule, candidates: &[Candidate]) {
        let Some(task) = self.tasks.get(id) else { return };
        let (kind, is_heavy) = (task.work.kind, task.is_heavy);
        if self.is_primary() && is_heavy {
            let trigger = Trigger::Task { task: id, kind };
            let decision = self.decision(set, trigger, why, candidates.to_vec(), Outcome::Stayed);
            self.history.add_stay(decision);
        }
        self.admit(id, why);
    }

    fn admit(&mut self, id: TaskId, why: Rule) {
        self.tasks.set_phase(id, self.now, Phase::Admitted);
        if matches!(why, Rule::Deadline | Rule::NoMoveInTime) {
            self.tasks.set_reluctant(id);
        }
        self.effects.push(Effect::Admit { task: id, pace: self.pace(id), why });
    }

    fn defer(&mut self, set: &Set, id: TaskId, why: Rule, until: Moment, candidates: &[Candidate]) {
        let Some(task) = self.tasks.get(id) else { return };
        let Phase::Waiting { deadline, told } = task.phase else { return };
        if told == Some(why) {
            return;
        }
        if self.is_primary() {
            let trigger = Trigger::Task { task: id, kind: task.work.kind };
            if why != Rule::HandoffUnderWay {
                let outcome = Outcome::Postponed { until };
                let decision = self.decision(set, trigger, why, candidates.to_vec(), outcome);
                self.history.add_stay(decision);
                if told.is_none() && self.state() == State::PrimaryFree {
                    self.effects.push(Effect::Transition(Transition::Postpone));
                }
            }
        }
        self.tasks.set_phase(id, self.now, Phase::Waiting { deadline, told: Some(why) });
        self.effects.push(Effect::Defer { task: id, why, until });
    }

    fn hand_over(&mut self, set: &Set, trigger: Trigger, why: Rule, candidates: Vec<Candidate>, to: MemberId) {
        self.returns_to = Some(self.preferred.unwrap_or(set.me)).filter(|id| *id != to);
        self.handoff = Some(Handoff { to, since: self.now });
        self.limits.begin_move(self.now);
        let mut candidates = candidates;
        if self.is_mutant(Mutant::ExplainsTheBestOnly) {
            candidates.truncate(1);
        }
        let decision = self.decision(set, trigger, why, candidates, Outcome::Moving { to });
        self.history.add_move(decision.clone());
        let decision = Box::new(decision);
        self.effects.push(match trigger {
            Trigger::PreferredFree => Effect::Resume { to, decision },
            Trigger::Task { .. } | Trigger::DiskSlow | Trigger::DiskNearlyFull | Trigger::Operator => {
                Effect::HandOver { to, decision }
            }
        });
    }

    /// A primary whose disk fails, or fills, hands over before anything stops it. One whose disk fills has the member that would be
    /// best end its tasks, if nothing else keeps anybody from leading; `asked_before` if that still goes for it.
    fn settle_disk(&mut self, set: &Set, asked_before: Option<MemberId>) {
        let (trigger, why) = if self.disk.is_sick(self.now) {
            (Trigger::DiskSlow, Rule::DiskSlow)
        } else if self.figures.disk_free < DISK_FREE_MIN {
            (Trigger::DiskNearlyFull, Rule::DiskNearlyFull)
        } else {
            return;
        };
        if self.handoff.is_some() || self.limit(set).is_some() {
            return;
        }
        let candidates = self.candidates(set, Some(why));
        match candidates.first().filter(|best| best.obstacle.is_none()).map(|best| best.member) {
            Some(to) => self.hand_over(set, trigger, why, candidates, to),
            None => {
                if why == Rule::DiskNearlyFull {
                    // Who was asked gives its slot back a moment after its tasks have ended: no second one is asked meanwhile.
                    let ranked = candidates.iter().map(|candidate| candidate.member).filter(|id| self.runs_task(*id));
                    let asked = asked_before.into_iter().chain(ranked).find(|id| self.could_lead(set, *id, why));
                    self.asks_to_end = asked;
                }
                let outcome = Outcome::Postponed { until: Moment::MAX };
                let decision = self.decision(set, trigger, Rule::NoCandidate, candidates, outcome);
                self.history.add_stay(decision);
            }
        }
    }

    /// Has this member's tasks end if the primary needs it in its place.
    fn settle_need(&mut self, set: &Set) {
        if self.is_needed_as_primary(set) {
            let why = Rule::NeededAsPrimary;
            self.effects.extend(self.tasks.tell_to_end().into_iter().map(|task| Effect::End { task, why }));
        }
    }

    /// Whether the primary of this member's term said lately that its disk fills, and that this member is to end its tasks.
    fn is_needed_as_primary(&self, set: &Set) -> bool {
        if self.role != Role::Secondary {
            return false;
        }
        self.peers.values().any(|peer| {
            let gossip = &peer.gossip;
            let Some(asked) = gossip.asks_to_end else { return false };
            let is_of_primary = gossip.is_primary && gossip.term == self.term;
            let is_mine = asked == set.me || self.is_mutant(Mutant::EndsTasksForAnybody);
            let is_fresh = self.now.saturating_sub(peer.heard_at) <= set.gossip_age_max();
            is_of_primary && is_mine && is_fresh
        })
    }

    /// With the ranking "preferred", leadership returns once its owner has done its work.
    fn settle_return(&mut self, set: &Set) {
        let Some(preferred) = self.preferred.filter(|_| set.settings.ranking == Ranking::Preferred) else { return };
        if self.tasks.has_pressing() || self.handoff.is_some() || self.limit(set).is_some() {
            return;
        }
        let candidates = self.candidates(set, None);
        let my_priority = set.member(set.me).map_or(0.0, |me| me.priority);
        let may_return = candidates.first().is_some_and(|best| {
            best.member == preferred
                && best.obstacle.is_none()
                && best.priority >= my_priority
                && (set.settings.mode == Mode::Always || best.moving_secs <= RETURN_SECS_MAX)
        });
        if may_return {
            self.hand_over(set, Trigger::PreferredFree, Rule::PreferredFree, candidates, preferred);
        }
    }

    /// Who would get leadership if an operator asked now, and how each member stands: what a dry run shows.
    pub fn explain(&mut self, now: Moment) -> Option<crate::Decision> {
        self.now = self.now.max(now);
        let set = self.set.as_ref()?;
        let candidates = self.candidates(set, None);
        let to = candidates.first().filter(|best| best.obstacle.is_none()).map(|best| best.member);
        Some(self.decision(set, Trigger::Operator, Rule::Asked, candidates, Outcome::WouldMove { to }))
    }
}
