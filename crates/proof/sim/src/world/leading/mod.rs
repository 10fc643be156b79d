//! How the members of a world carry out what `baton-leadership` decides, as a real member's driver does.
//!
//! ```text
//!  consensus ── role, set, followers, heard ──▶ Brain ── errands ──▶ consensus (step down, announce, occupied)
//!  duties ───── tasks wanted, begun, ended ───▶        └─ admit, defer ──▶ tasks
//! ```
//!
//! Like a driver, it tells the brain the role and the term of a step before anything of that step is carried out, has gossip travel in
//! heartbeats, and carries errands out a moment later than they were asked for.
//!
//! What it deliberately does not do: judge. The checkers do, by what is noted here in [`Acted`] and [`Move`].

mod duties;
mod observing;
mod tasks;
mod words;

pub use duties::{Duties, Shape};
pub use observing::{Acted, Brain, Move, Seen, Silence, SimTask};
pub(super) use tasks::Condition;

use super::World;
use super::event::Event;
use baton_consensus::{
    Effect as FromConsensus, ElectionReason, Input as ToConsensus, MemberId, MemberState, Occupation, StepDownRequest,
};
use baton_leadership::{
    Call, CallOutcome, Effect, Follower, HandoffOutcome, Input, Leadership, Member, Role, Set, Start, State,
};
use baton_types::{Error, TaskKind};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::time::Duration;
use words::Words;

/// A driver looks no more often than this, whatever the brain says is due.
const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(1);

/// What the whole world knows of leadership.
pub(crate) struct Leading {
    /// Draws of its own, so that worlds without it are what they were before there was any.
    pub random: StdRng,
    /// The same of disks that fill, and of what that ends.
    filling: StdRng,
    /// None: leadership is not simulated here.
    pub duties: Option<Duties>,
    words: Words,
    next_task: u64,
    /// Who has been told to stand by a primary that hands over because of its brain: by whom, and when.
    entrusted: BTreeMap<MemberId, (MemberId, Duration)>,
    /// Grows whenever a task, a brain's set, or a brain comes, changes or goes.
    pub task_changes: u64,
    pub moves: Vec<Move>,
    /// When processes began anew.
    pub restarts: Vec<Duration>,
    /// What the brains asked for in the last step.
    pub acted: Vec<Acted>,
    /// Silences of members that some primary took for gone, and which ended in the last step.
    pub silences: Vec<Silence>,
}

impl Leading {
    pub fn new(seed: u64, shape: Option<Option<Shape>>) -> Self {
        let mut random = StdRng::seed_from_u64(seed.rotate_left(32) ^ 0x6c65_6164);
        let duties = shape.map(|shape| Duties::draw(&mut random, shape));
        Self {
            random,
            filling: StdRng::seed_from_u64(!seed.rotate_left(16)),
            duties,
            words: Words::default(),
            next_task: 0,
            entrusted: BTreeMap::new(),
            task_changes: 0,
            moves: Vec::new(),
            restarts: Vec::new(),
            acted: Vec::new(),
            silences: Vec::new(),
        }
    }
}

/// What a brain has its driver do a moment later.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Errand {
    Announce,
    HandOver(MemberId),
    Occupied(Occupation),
}

/// A handoff that is under way.
#[derive(Clone, Copy, Debug)]
struct HandingOver {
    to: MemberId,
    began: Duration,
    blocked: Option<Duration>,
    has_resigned: bool,
}

/// Whether an input says how another member is.
pub(super) fn is_sign_of_life(input: &ToConsensus) -> bool {
    use baton_consensus::{Request, Response};
    matches!(
        input,
        ToConsensus::Request { request: Request::Heartbeat(_), .. }
            | ToConsensus::Response { response: Response::Heartbeat(_), .. }
            | ToConsensus::Unreachable { .. }
    )
}

impl World {
    /// A process begins, with a brain that knows nothing.
    pub(super) fn boot_brain(&mut self, id: MemberId) {
        let Some(duties) = &self.leading.duties else { return };
        let measure_ms = duties.measure_ms;
        let random = &mut self.leading.random;
        let seed = random.random();
        // No two members' clocks agree.
        let behind = Duration::from_millis(random.random_range(0..1_000_000));
        let first_ms = random.random_range(0..measure_ms);
        let now = self.now;
        let Some(member) = self.members.get_mut(&id) else { return };
        let boot = member.boot;
        // The clock of a member may stand at any time.
        member.disk.incarnation = Start::next_incarnation(member.disk.incarnation, Duration::ZERO);
        let mut machine = Leadership::new(Start { incarnation: member.disk.incarnation, seed });
        machine.mutate(self.weather.brain_mutant);
        if boot > 1 {
            self.leading.restarts.push(now);
        }
        self.leading.entrusted.remove(&id);
        member.brain = Some(Brain::new(machine, now, behind));
        self.leading.task_changes += 1;
        self.schedule_ms(first_ms, Event::Measure { to: id, boot });
    }

    /// After a step of consensus and before its effects: what has changed by it.
    pub(super) fn tell_brain(&mut self, id: MemberId, effects: &[FromConsensus], is_sign: bool) {
        let Some(member) = self.members.get_mut(&id) else { return };
        let (Some(consensus), Some(brain)) = (&member.consensus, &mut member.brain) else { return };
        let mut news = Vec::new();
        let summary = member.summary;
        let me = consensus.me();
        let configuration = consensus.configuration().map(|configuration| (configuration.version, me));
        if configuration != brain.configured {
            brain.configured = configuration;
            if let (Some(configuration), Some(me)) = (consensus.configuration(), me) {
                let timing = &configuration.settings;
                let members = configuration.members.iter().map(|member| Member {
                    id: member.id.0,
                    priority: member.priority,
                    is_voter: member.is_voter(),
                    is_arbiter: member.arbiter,
                });
                let set = Set {
                    me: me.0,
                    members: members.collect(),
                    heartbeat_interval: timing.heartbeat_interval.min(timing.election_timeout / 4),
                    election_timeout: timing.election_timeout,
                    settings: timing.leadership.clone(),
                };
                brain.known.retain(|id, _| set.member(*id).is_some());
                brain.set = Some(set.clone());
                self.leading.task_changes += 1;
                news.push(Input::Configured(Box::new(set)));
            }
        }
        let is_heir =
            effects.iter().any(|effect| matches!(effect, FromConsensus::Won { reason: ElectionReason::Handoff, .. }));
        let has_won = effects.iter().any(|effect| matches!(effect, FromConsensus::Won { .. }));
        let handed_by = match brain.role {
            // It stays what it was elected as.
            (Role::Primary { handed_by }, term) if term == summary.term => handed_by,
            _ => brain.led_by.filter(|_| is_heir).map(|member| member.0),
        };
        let role = (role_of(summary.state, handed_by), summary.term);
        if brain.role != role {
            brain.role = role;
            news.push(Input::Role { role: role.0, term: role.1 });
        }
        if let Some(primary) = summary.primary.filter(|primary| Some(*primary) != me) {
            brain.led_by = Some(primary);
        }
        if is_sign || has_won {
            let followers = || consensus.candidates().map(|candidate| follower_of(&candidate));
            if !followers().eq(brain.followers.iter().copied()) {
                brain.followers = followers().collect();
                news.push(Input::Followers(brain.followers.iter().copied().collect()));
            }
        }
        if has_won {
            brain.won_at = self.now;
            self.note_move(id, is_heir);
        }
        news.into_iter().for_each(|input| self.step_brain(id, input));
        self.conclude_handoff(id);
    }

    /// Somebody was elected: perhaps because a brain moved leadership there.
    fn note_move(&mut self, id: MemberId, is_heir: bool) {
        if let Some((from, at)) = self.leading.entrusted.remove(&id).filter(|_| is_heir) {
            self.leading.moves.push(Move { at, from, to: id });
            self.tally.moves += 1;
            let known = self.leading.moves.len();
            if let Some(brain) = self.brain_mut(id) {
                brain.moves_known = known;
            }
        }
    }

    /// Steps a brain, and has carried out what it asks for.
    pub(super) fn step_brain(&mut self, id: MemberId, input: Input) {
        let now = self.now;
        let Some(member) = self.members.get_mut(&id) else { return };
        let boot = member.boot;
        let Some(brain) = &mut member.brain else { return };
        let clock = brain.clock(now);
        let told = self.weather.trace.then(|| format!("{now:?} brain {id} at {clock:?}: {input:?}"));
        let recorder = self.rings.as_mut().and_then(|rings| rings.leadership.get_mut(&id));
        let effects = match recorder {
            Some(recorder) => {
                let as_outcomes = |effects: &Vec<Effect>| effects.iter().cloned().map(CallOutcome::Effect).collect();
                let call = Call::Take(input.clone());
                recorder.observe(&mut brain.machine, clock, call, |machine| machine.step(clock, input), as_outcomes)
            }
            None => brain.machine.step(clock, input),
        };
        if let Some(told) = told {
            eprintln!("{told}\n    {}", brain.machine.state().name());
            effects.iter().for_each(|effect| eprintln!("    -> {effect:?}"));
        }
        self.tally.stepped(now, id);
        let mut errands = Vec::new();
        let first_acted = self.leading.acted.len();
        for effect in effects {
            let Some(brain) = self.brain_mut(id) else { return };
            let state = brain.machine.state();
            let seen = match &effect {
                Effect::HandOver { to, .. } | Effect::Resume { to, .. } => Some(brain.see(now, *to)),
                _ => None,
            };
            let is_named = matches!(effect, Effect::End { .. }) && brain.is_named(id);
            match &effect {
                Effect::Admit { task, why, .. } => {
                    self.tally.decided(*why);
                    self.admitted(id, *task, *why);
                }
                Effect::Defer { why, .. } => {
                    self.tally.decided(*why);
                    self.tally.deferred += 1;
                }
                Effect::HandOver { to, decision } | Effect::Resume { to, decision } => {
                    self.tally.decided(decision.rule);
                    errands.push(Errand::HandOver(MemberId(*to)));
                }
                Effect::Gossip => errands.push(Errand::Announce),
                Effect::Claim { .. } => self.tally.claims += 1,
                Effect::End { task, why } => {
                    self.tally.decided(*why);
                    self.told_to_end(id, *task);
                }
                Effect::Release { .. } | Effect::Transition(_) => {}
            }
            self.leading.acted.push(Acted { member: id, effect, state, seen, is_named, is_beside_backup: false });
        }
        let is_backup = |task: &SimTask| !task.is_waiting && task.work.kind == TaskKind::Backup;
        let is_beside_backup = self.brain(id).is_some_and(|brain| brain.tasks().any(is_backup));
        // Of this step alone: another of the same moment may have wanted one since.
        for acted in self.leading.acted.iter_mut().skip(first_acted) {
            acted.is_beside_backup = is_beside_backup && matches!(acted.effect, Effect::Admit { .. });
        }
        let Some(brain) = self.brain_mut(id) else { return };
        let occupation = Occupation {
            stands_last: brain.machine.standing_obstacle(Duration::ZERO).is_some(),
            leaves_primary_alone: brain.machine.takeover_obstacle().is_some(),
        };
        if occupation != brain.occupation {
            brain.occupation = occupation;
            errands.push(Errand::Occupied(occupation));
        }
        let wait = |deadline: Duration| deadline.saturating_sub(brain.clock(now)).max(LOOK_INTERVAL_MIN);
        let due = brain.machine.next_deadline().map(|deadline| now + wait(deadline));
        if due != brain.look_at {
            brain.look_at = due;
            if let Some(due) = due {
                self.schedule(due.saturating_sub(now), Event::Look { to: id, boot });
            }
        }
        for what in errands {
            let wait = Duration::from_micros(self.leading.random.random_range(0..2_000));
            self.schedule(wait, Event::Errand { to: id, boot, what });
        }
    }

    /// A brain's own timer.
    pub(super) fn look(&mut self, id: MemberId) {
        let now = self.now;
        let Some(brain) = self.brain_mut(id) else { return };
        if brain.look_at.is_some_and(|at| at <= now) {
            brain.look_at = None;
            self.step_brain(id, Input::Tick);
        }
    }

    pub(super) fn run_errand(&mut self, id: MemberId, what: Errand) {
        match what {
            Errand::Announce => self.deliver(id, ToConsensus::Announce),
            Errand::Occupied(occupation) => self.deliver(id, ToConsensus::Occupied(occupation)),
            Errand::HandOver(to) => {
                let began = self.now;
                let catch_up = Duration::from_millis(self.leading.random.random_range(500..5_000));
                let Some(brain) = self.brain_mut(id) else { return };
                brain.handing_over = Some(HandingOver { to, began, blocked: None, has_resigned: false });
                let request =
                    StepDownRequest { force: false, catch_up, freeze: Duration::ZERO, to: Some(to), hand_off: true };
                self.deliver(id, ToConsensus::StepDown(request));
            }
        }
    }

    pub(super) fn writes_blocked(&mut self, id: MemberId) {
        let now = self.now;
        if let Some(handing_over) = self.brain_mut(id).and_then(|brain| brain.handing_over.as_mut()) {
            handing_over.blocked = Some(now);
        }
    }

    /// A primary resigns in somebody's favour.
    pub(super) fn entrust(&mut self, from: MemberId, to: MemberId) {
        let now = self.now;
        let Some(brain) = self.brain_mut(from) else { return };
        if brain.handing_over.is_some_and(|handing_over| handing_over.to == to) {
            self.leading.entrusted.insert(to, (from, now));
        }
    }

    /// Whether a brain's handoff is in the way of an operator's.
    pub(super) fn is_handing_over(&self, id: MemberId) -> bool {
        let brain = self.members.get(&id).and_then(|member| member.brain.as_ref());
        brain.is_some_and(|brain| brain.handing_over.is_some_and(|handing_over| !handing_over.has_resigned))
    }

    pub(super) fn stepped_down(&mut self, id: MemberId, outcome: Result<(), Error>) {
        let Some(brain) = self.brain_mut(id) else { return };
        let Some(handing_over) = &mut brain.handing_over else { return };
        match outcome {
            Ok(()) => handing_over.has_resigned = true,
            Err(error) => {
                let to = handing_over.to.0;
                brain.handing_over = None;
                self.step_brain(id, Input::Handoff(HandoffOutcome::Failed { to, why: error.message.to_string() }));
            }
        }
    }

    /// Whoever has resigned hears of a primary.
    fn conclude_handoff(&mut self, id: MemberId) {
        let now = self.now;
        let Some(member) = self.members.get_mut(&id) else { return };
        let Some(brain) = &mut member.brain else { return };
        let Some(HandingOver { to, began, blocked, .. }) = brain.handing_over.filter(|it| it.has_resigned) else {
            return;
        };
        let Some(primary) = member.summary.primary else { return };
        brain.handing_over = None;
        let outcome = if primary == to {
            HandoffOutcome::Done { to: to.0, gap: now - blocked.unwrap_or(began) }
        } else {
            HandoffOutcome::Failed { to: to.0, why: "somebody else was elected".into() }
        };
        self.step_brain(id, Input::Handoff(outcome));
    }

    /// A brain whose tasks are about to change: checkers look at them anew.
    pub(super) fn brain_to_change(&mut self, id: MemberId) -> Option<&mut Brain> {
        self.leading.task_changes += 1;
        self.brain_mut(id)
    }

    pub(super) fn brain_mut(&mut self, id: MemberId) -> Option<&mut Brain> {
        self.members.get_mut(&id)?.brain.as_mut()
    }
}

fn role_of(state: MemberState, handed_by: Option<i32>) -> Role {
    match state {
        MemberState::Primary => Role::Primary { handed_by },
        MemberState::Secondary => Role::Secondary,
        MemberState::Startup
        | MemberState::Recovering
        | MemberState::Startup2
        | MemberState::Unknown
        | MemberState::Arbiter
        | MemberState::Down
        | MemberState::Rollback
        | MemberState::Removed => Role::Other,
    }
}

fn follower_of(candidate: &baton_consensus::Candidate) -> (i32, Follower) {
    use baton_consensus::Obstacle;
    let (is_reachable, is_secondary) = match candidate.obstacle {
        Some(Obstacle::Unreachable) => (false, false),
        Some(Obstacle::NotSecondary(_)) => (true, false),
        Some(Obstacle::Arbiter | Obstacle::NoPriority | Obstacle::NoVote) | None => (true, true),
    };
    let lag = Duration::from_secs(candidate.lag_secs.into());
    (candidate.member.0, Follower { is_reachable, is_secondary, lag })
}

impl Default for Brain {
    fn default() -> Self {
        Self::new(Leadership::new(Start { incarnation: 0, seed: 0 }), Duration::ZERO, Duration::ZERO)
    }
}

impl Brain {
    fn new(machine: Leadership, now: Duration, behind: Duration) -> Self {
        Self {
            machine,
            clock_began: now,
            clock_behind: behind,
            configured: None,
            set: None,
            role: (Role::Other, -1),
            led_by: None,
            won_at: Duration::ZERO,
            followers: Vec::new(),
            known: BTreeMap::new(),
            moves_known: 0,
            tasks: BTreeMap::new(),
            handing_over: None,
            occupation: Occupation::default(),
            look_at: None,
        }
    }

    /// What the process' clock says.
    fn clock(&self, now: Duration) -> Duration {
        now - self.clock_began + self.clock_behind
    }

    /// Where the machine is in Figure 1.
    pub fn state(&self) -> State {
        self.machine.state()
    }
}
