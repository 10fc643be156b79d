//! The machine: what it keeps, and which part of it an input is for.

use crate::initial_sync::InitialSync;
use crate::mutant::Mutant;
use crate::refusal::Refusal;
use crate::rollback::Search;
use crate::state::Obstacle;
use crate::step::{Copying, Effect, Input, TakenAway};
use crate::taking::Taking;
use baton_consensus::{MemberId, Moment};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What it is doing. Work is under way but in [`Phase::Idle`], [`Phase::Waiting`] and [`Phase::AwaitingBuild`]; in [`Phase::Copying`]
/// several lanes may have some.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Phase {
    Idle,
    Connecting,
    Copying,
    Opening,
    Reading,
    /// The batch waits: until it is due, or for whoever holds it.
    Waiting {
        held: bool,
        until: Moment,
    },
    Applying {
        one_by_one: bool,
    },
    AwaitingBuild {
        until: Moment,
    },
    AskingToSpare,
    LookingBack,
    Paging,
    TakingAway,
}

/// What a member does that follows another's log. See the crate's header.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Following {
    pub(crate) now: Moment,
    /// Whom to follow.
    pub(crate) source: Option<MemberId>,
    /// Grows whenever that is set: what belongs to an older one is dropped.
    pub(crate) generation: u64,
    /// Whom the present work is about, and since when.
    pub(crate) run: Option<(MemberId, u64)>,
    pub(crate) phase: Phase,
    /// The batch in the driver's hands.
    pub(crate) taking: Option<Taking>,
    pub(crate) delay: Duration,
    pub(crate) held: bool,
    /// Somebody waits until nothing is in hand.
    rests: bool,
    pub(crate) refusal: Option<Refusal>,
    /// What is copied next.
    pub(crate) next_copy: Copying,
    /// The copy that is being made, in [`Phase::Copying`].
    pub(crate) copy: Option<Box<InitialSync>>,
    /// Attempts at one that failed, one after the other.
    pub(crate) failed_copies: u32,
    pub(crate) search: Search,
    /// What went wrong last.
    pub(crate) obstacle: Option<Obstacle>,
    /// Empty between steps.
    #[serde(skip)]
    pub(crate) effects: Vec<Effect>,
    #[serde(skip)]
    mutant: Mutant,
}

impl Default for Following {
    fn default() -> Self {
        Self {
            now: Moment::ZERO,
            source: None,
            generation: 0,
            run: None,
            phase: Phase::Idle,
            taking: None,
            delay: Duration::ZERO,
            held: false,
            rests: false,
            refusal: None,
            next_copy: Copying::Everything,
            copy: None,
            failed_copies: 0,
            search: Search::default(),
            obstacle: None,
            effects: Vec::new(),
            mutant: Mutant::None,
        }
    }
}

impl Following {
    /// Takes what has happened, and says what is to be done.
    pub fn step(&mut self, now: Moment, input: Input) -> Vec<Effect> {
        self.now = self.now.max(now);
        self.take(input);
        if self.rests && (!self.has_in_hand() || self.is_mutant(Mutant::RestsAtOnce)) {
            self.rests = false;
            self.effects.push(Effect::Rested);
        }
        std::mem::take(&mut self.effects)
    }

    fn take(&mut self, input: Input) {
        match (input, self.phase.clone()) {
            (Input::Source(source), _) => self.set_source(source),
            (Input::Delay(delay), _) => self.set_delay(delay),
            (Input::Hold(on), phase) => self.hold(on, &phase),
            (Input::Rest, _) => {
                self.rests = true;
                self.search.is_abandoned = true;
                self.set_source(None);
            }
            (Input::Tick { wall }, Phase::Waiting { until, .. }) if until <= self.now => self.go_on_taking(wall),
            (Input::Tick { .. }, Phase::AwaitingBuild { until }) if until <= self.now => self.try_again(),
            (Input::Connected { here, is_whole, given_up }, Phase::Connecting) => {
                self.take_connected(here, is_whole, given_up);
            }
            (Input::Tick { .. }, Phase::Copying) => self.tick_copy(),
            (Input::Copied { here, lane, answer }, Phase::Copying) => self.take_copied(here, lane, answer),
            (Input::Fetched { here, batch }, Phase::Opening) => self.take_first(here, batch),
            (Input::Fetched { here, batch }, Phase::Reading) => self.take_next(here, batch),
            (Input::Failed { reason }, Phase::Connecting | Phase::Opening | Phase::Reading) => self.stop_for(reason),
            (Input::Failed { reason }, Phase::LookingBack | Phase::Paging) => {
                self.end_rollback(TakenAway::Failed { reason }, None);
            }
            (Input::Applied { attempt, wall }, Phase::Applying { one_by_one }) => {
                self.take_attempt(attempt, one_by_one, wall);
            }
            (Input::Spared(can_be_spared), Phase::AskingToSpare) => self.take_spared(can_be_spared),
            (Input::LookedBack { own, is_oldest }, Phase::LookingBack) => self.take_looked_back(own, is_oldest),
            (Input::Paged { here, source, theirs, known }, Phase::Paging) => {
                self.take_page(here, source, &theirs, known);
            }
            (Input::TakenAway { position, outcome }, Phase::TakingAway) => {
                self.end_rollback(outcome, Some(position));
            }
            // A clock that nobody waits for, and answers that nobody asked for.
            (
                Input::Tick { .. }
                | Input::Connected { .. }
                | Input::Copied { .. }
                | Input::Fetched { .. }
                | Input::Failed { .. }
                | Input::Applied { .. }
                | Input::Spared(_)
                | Input::LookedBack { .. }
                | Input::Paged { .. }
                | Input::TakenAway { .. },
                _,
            ) => {}
        }
    }

    fn set_source(&mut self, source: Option<MemberId>) {
        if self.is_mutant(Mutant::FetchesOnAsPrimary) && source.is_none() {
            return;
        }
        self.generation += 1;
        self.source = source;
        match self.phase {
            // Consensus takes the source away itself; another one means that it does not know yet.
            Phase::LookingBack | Phase::Paging | Phase::TakingAway => {
                let present = self.run.map(|(source, _)| source);
                self.search.is_abandoned |= source.is_some() && source != present;
            }
            Phase::Idle | Phase::Waiting { .. } | Phase::AwaitingBuild { .. } => {
                self.effects.push(Effect::Close);
                self.begin();
            }
            Phase::Copying => self.abandon_copy(),
            Phase::Connecting | Phase::Opening | Phase::Reading | Phase::Applying { .. } | Phase::AskingToSpare => {
                self.effects.push(Effect::Close)
            }
        }
    }

    fn set_delay(&mut self, delay: Duration) {
        self.delay = delay;
        if let Phase::Waiting { until, .. } = &mut self.phase {
            *until = self.now;
        }
    }

    fn hold(&mut self, on: bool, phase: &Phase) {
        self.held = on;
        match (on, phase) {
            // What came while nothing was to be taken is fetched anew: its source may be gone by now, and nobody has it then.
            (false, Phase::Waiting { held: true, .. }) => {
                self.effects.push(Effect::Close);
                self.begin();
            }
            (true, Phase::Waiting { held: false, until }) => self.phase = Phase::Waiting { held: true, until: *until },
            _ => {}
        }
    }

    /// When [`Input::Tick`] is due.
    pub fn next_deadline(&self) -> Option<Moment> {
        match self.phase {
            Phase::Waiting { until, .. } | Phase::AwaitingBuild { until } => Some(until),
            Phase::Copying => self.copy.as_ref()?.next_deadline(),
            _ => None,
        }
    }

    /// Names the source that is set: another number, another setting.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The entry that cannot be applied, if there is one.
    pub fn refusal(&self) -> Option<&Refusal> {
        self.refusal.as_ref()
    }

    /// Whether something is being done to this member's data that must not be left half done.
    pub fn has_in_hand(&self) -> bool {
        matches!(self.phase, Phase::Copying | Phase::Applying { .. } | Phase::TakingAway)
    }

    /// Whether a copy of the source is being made.
    pub fn is_copying(&self) -> bool {
        self.phase == Phase::Copying
    }

    /// Whether the present work is about a source that is no more.
    pub(crate) fn is_superseded(&self) -> bool {
        self.run.is_none_or(|(_, generation)| generation != self.generation)
    }

    /// The source that the present work is about, while it is the source.
    pub(crate) fn current(&self) -> Option<MemberId> {
        self.run.filter(|(_, generation)| *generation == self.generation).map(|(source, _)| source)
    }

    pub(crate) fn tell(&mut self, told: baton_consensus::Input) {
        self.effects.push(Effect::Tell(Box::new(told)));
    }

    /// Builds a fault in.
    #[cfg(feature = "mutants")]
    pub fn mutate(&mut self, mutant: Mutant) {
        self.mutant = mutant;
    }

    pub(crate) fn mutant(&self) -> Mutant {
        self.mutant
    }

    /// Whether this is the mutant that the checkers are to catch. Never, in a member that anybody runs.
    pub(crate) fn is_mutant(&self, mutant: Mutant) -> bool {
        cfg!(feature = "mutants") && self.mutant == mutant
    }
}
