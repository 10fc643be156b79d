//! Going back to where this member's log parts from its source's.
//!
//! The last entry that both have is looked for from this member's end backward: entries of its own are tried further and further from
//! there, until the source has one or one after it that is here too; from there on both are read forward, page by page. So it costs as
//! much as lies behind the parting here, whatever the source wrote since. Then all that comes after is taken away at once.
//!
//! Invariants:
//! - Nothing that is known to be committed is taken away. If that were asked for, two members would disagree about what a majority has,
//!   and going on would lose it: it is refused, loudly.
//! - With the last page, before anything is taken away, the source is still ahead, with an entry of the present term; this member is
//!   not primary; and nobody wants it to rest or to follow another. Consensus knows of the rollback by then, so that it stays so.
//! - However it ends, consensus hears that it has.
//!
//! Consensus takes the source away as soon as it hears of a rollback, and sets one when that has ended: that a source is taken away
//! does not end it.

use crate::fetch::AVOID;
use crate::following::{Following, Phase};
use crate::mutant::Mutant;
use crate::refusal::Remedy;
use crate::state::Obstacle;
use crate::step::{Effect, Here, TakenAway};
use baton_consensus::{DataState, Input as Told, Position, SourceState, Verdict, judge};
use baton_types::{OpTime, Timestamp};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Entries asked for at once.
pub const ENTRIES_PER_LOOK: usize = 500;
/// How long a page may take.
const PAGE_WITHIN: Duration = Duration::from_secs(2);

/// How far the search is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Search {
    secs_back: u32,
    /// The own entry that was tried last.
    tried: Option<OpTime>,
    /// Whether there is none before it.
    is_oldest: bool,
    /// The last entry that both have, as far as is known.
    common: Option<OpTime>,
    /// Somebody wants this member for something else.
    pub is_abandoned: bool,
}

impl Following {
    pub(crate) fn begin_rollback(&mut self) {
        self.tell(Told::Data(DataState::Rollback));
        self.search = Search::default();
        self.look_back();
    }

    fn look_back(&mut self) {
        self.phase = Phase::LookingBack;
        self.effects.push(Effect::LookBack { secs: self.search.secs_back });
    }

    fn look_further_back(&mut self) {
        if self.search.is_oldest {
            self.end_rollback(
                TakenAway::Unrecoverable { reason: "the source and this member have no entry in common".to_owned() },
                None,
            );
        } else {
            self.search.secs_back = self.search.secs_back.saturating_mul(2).max(1);
            self.look_back();
        }
    }

    pub(crate) fn take_looked_back(&mut self, own: OpTime, is_oldest: bool) {
        let is_new = self.search.tried.replace(own) != Some(own);
        self.search.is_oldest = is_oldest;
        if self.search.is_abandoned {
            self.abandon();
        } else if is_new {
            self.page(own.timestamp);
        } else {
            self.look_further_back();
        }
    }

    fn page(&mut self, from: Timestamp) {
        self.phase = Phase::Paging;
        self.effects.push(Effect::Page { from, entries_max: ENTRIES_PER_LOOK, within: PAGE_WITHIN });
    }

    pub(crate) fn take_page(&mut self, here: Here, source: SourceState, theirs: &[OpTime], known: usize) {
        let looks_again = !self.is_mutant(Mutant::RollsBackWithoutLookingAgain);
        if looks_again && (self.search.is_abandoned || here.leads) {
            self.abandon();
            return;
        }
        if looks_again && judge(here.last, here.term, here.leads, source, &[]) != Verdict::RollBack {
            let reason = "the source is not ahead any more".to_owned();
            self.end_rollback(TakenAway::Failed { reason }, None);
            return;
        }
        let first_look = self.search.common.is_none();
        if let Some(both) = known.checked_sub(1).and_then(|last| theirs.get(last)) {
            self.search.common = Some(*both);
        }
        let parts_here = known < theirs.len();
        match (self.search.common, theirs.last()) {
            (None, _) => self.look_further_back(),
            (Some(_), _) if self.is_mutant(Mutant::GuessesTheCommonEntry) && first_look => {
                let guess = self.search.tried.unwrap_or_default();
                self.take_away(guess, here);
            }
            (Some(_), Some(last)) if !parts_here && theirs.len() >= ENTRIES_PER_LOOK => {
                self.page(Timestamp::from_u64(last.timestamp.as_u64() + 1));
            }
            (Some(common), _) if parts_here => self.take_away(common, here),
            (Some(_), _) => {
                let reason = "the source has nothing that this member does not have".to_owned();
                self.end_rollback(TakenAway::Failed { reason }, None);
            }
        }
    }

    fn take_away(&mut self, common: OpTime, here: Here) {
        if here.committed > common.timestamp {
            let reason = format!("it would take away what the set has committed: the last entry both have is {common}");
            self.end_rollback(TakenAway::Failed { reason }, None);
            return;
        }
        self.phase = Phase::TakingAway;
        self.effects.push(Effect::TakeAway { common });
    }

    /// Somebody wants this member for something else. The source has done nothing wrong.
    fn abandon(&mut self) {
        let Some((source, _)) = self.run else { return };
        let reason = "this member is wanted for something else".to_owned();
        self.effects.push(Effect::NotRolledBack { source, reason, remedy: Remedy::Again });
        self.tell(Told::Data(self.data_without_rollback()));
        self.set_aside();
    }

    /// What this member's data are when nothing was taken away.
    fn data_without_rollback(&self) -> DataState {
        if self.refusal.is_some() { DataState::Recovering } else { DataState::Ready }
    }

    /// However it went, consensus hears of the end; of the end of the log first of all.
    pub(crate) fn end_rollback(&mut self, outcome: TakenAway, position: Option<Position>) {
        if self.is_mutant(Mutant::NeverReadyAgain) {
            self.set_aside();
            return;
        }
        let Some((source, _)) = self.run else { return };
        if let Some(position) = position {
            self.tell(Told::Log(position));
        }
        let (reason, remedy, data) = match outcome {
            TakenAway::Done => {
                self.obstacle = None;
                // What could not be applied came after what is gone.
                if self.refusal.take().is_some() {
                    self.effects.push(Effect::Passed);
                }
                self.tell(Told::Data(DataState::Ready));
                self.set_aside();
                return;
            }
            TakenAway::Failed { reason } => (reason, Remedy::Again, self.data_without_rollback()),
            TakenAway::Unrecoverable { reason } => (reason, Remedy::Everything, DataState::InitialSync),
        };
        self.obstacle = Some(Obstacle::NotRolledBack { source, reason: reason.clone() });
        self.effects.push(Effect::NotRolledBack { source, reason, remedy });
        if remedy == Remedy::Again {
            // First of all: by the end of the rollback another source is chosen, or this one after a while.
            self.tell(Told::SourceFailed { source, avoid: AVOID });
        } else {
            self.effects.push(Effect::NoteNotWhole);
        }
        self.tell(Told::Data(data));
        self.set_aside();
    }
}
