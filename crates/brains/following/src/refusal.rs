//! An entry of the source's log that this member cannot apply: how often it is tried, and what ends it.
//!
//! It may be for a moment (memory, a file); it may be that this member's data are not what the log takes them for; or that nobody but
//! the primary takes such an entry, which is a fault of Baton's. So the entry is tried again, ever more seldom, and the member is
//! RECOVERING meanwhile. After [`ATTEMPTS_BEFORE_COPY`] attempts it gives up its copy of the collection and fetches that anew; if the
//! entry is not of one collection, or that does not help, its copy of everything. But only if the set can spare it, which consensus
//! knows: an entry that two members refuse costs neither of them its data.
//!
//! Not here: trying ([`crate::apply`]); copying (the machinery).

use crate::following::{Following, Phase};
use crate::mutant::Mutant;
use crate::step::{Copying, Effect};
use baton_consensus::{DataState, Input as Told, Moment};
use baton_types::OpTime;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Attempts that fail before this member's data are given up.
pub const ATTEMPTS_BEFORE_COPY: u32 = 4;
/// The longest wait between two attempts.
pub const PAUSE_MAX: Duration = Duration::from_secs(30);

/// What a member does about an entry that it cannot apply, or a log that it cannot roll back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Remedy {
    /// It tries again after a while.
    Again,
    /// It has given up its copy of the collection, and fetches that anew.
    Collection,
    /// It has given up its data, and copies the set's.
    Everything,
}

impl Remedy {
    /// For the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Again => "tries again",
            Self::Collection => "fetches the collection anew",
            Self::Everything => "copies everything anew",
        }
    }
}

/// An entry that cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Which.
    pub optime: OpTime,
    /// Why.
    pub reason: String,
    /// Whether it concerns one collection alone.
    pub is_of_collection: bool,
    /// Since when it has been tried.
    pub since: Moment,
    /// How often.
    pub attempts: u32,
    /// What is done about it.
    pub remedy: Remedy,
}

impl Refusal {
    /// How long to wait before the next attempt.
    pub fn pause(&self) -> Duration {
        Duration::from_secs(1 << self.attempts.saturating_sub(1).min(10)).min(PAUSE_MAX)
    }
}

impl Following {
    /// One more attempt at an entry has failed.
    pub(crate) fn refuse(&mut self, optime: OpTime, reason: String, is_of_collection: bool) {
        let before = self.refusal.take().filter(|before| before.optime == optime);
        let refusal = Refusal {
            optime,
            reason,
            is_of_collection,
            since: before.as_ref().map_or(self.now, |before| before.since),
            attempts: before.map_or(0, |before| before.attempts).saturating_add(1),
            remedy: Remedy::Again,
        };
        let is_last = refusal.attempts >= ATTEMPTS_BEFORE_COPY && !self.is_mutant(Mutant::NeverGivesUpItsCopy);
        self.refusal = Some(refusal);
        if is_last && !self.is_mutant(Mutant::RefusesSilently) {
            self.phase = Phase::AskingToSpare;
            self.effects.push(Effect::AskToSpare);
        } else {
            self.remedy(false);
        }
    }

    /// Consensus says whether the set can spare this member's copy.
    pub(crate) fn take_spared(&mut self, can_be_spared: bool) {
        if self.is_superseded() {
            self.begin();
        } else {
            self.remedy(can_be_spared || self.is_mutant(Mutant::NeverAsksToSpare));
        }
    }

    fn remedy(&mut self, gives_up_copy: bool) {
        let is_silent = self.is_mutant(Mutant::RefusesSilently);
        let Some(refusal) = &mut self.refusal else { return };
        refusal.remedy = match (gives_up_copy, refusal.is_of_collection) {
            (false, _) => Remedy::Again,
            (true, true) => Remedy::Collection,
            (true, false) => Remedy::Everything,
        };
        let (remedy, optime, pause) = (refusal.remedy, refusal.optime, refusal.pause());
        if !is_silent {
            self.effects.push(Effect::Refused(Box::new(refusal.clone())));
        }
        let mut avoid = crate::fetch::AVOID;
        match remedy {
            Remedy::Again if is_silent => {}
            Remedy::Again => {
                avoid = pause;
                self.tell(Told::Data(DataState::Recovering));
            }
            Remedy::Collection | Remedy::Everything => {
                self.next_copy = match remedy {
                    Remedy::Collection => Copying::CollectionOf(optime),
                    Remedy::Again | Remedy::Everything => Copying::Everything,
                };
                self.effects.push(Effect::NoteNotWhole);
                self.tell(Told::Data(DataState::InitialSync));
            }
        }
        self.give_up_source(avoid);
    }

    /// What could not be applied may have been.
    pub(crate) fn note_progress(&mut self, last: OpTime) {
        if self.refusal.as_ref().is_some_and(|refusal| refusal.optime <= last) {
            self.refusal = None;
            self.effects.push(Effect::Passed);
            self.tell(Told::Data(DataState::Ready));
        }
    }
}
