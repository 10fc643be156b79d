//! The hand-over to initial sync, and back.
//!
//! A member without data, or with data that are not whole, copies its source before it follows. One collection is tried once: if that
//! fails, everything is copied. A member whose attempts have failed too often gives up: its process ends, and whoever looks after it
//! finds why in its log.
//!
//! Not here: an attempt ([`crate::initial_sync`]).

use crate::following::{Following, Phase};
use crate::initial_sync::{ATTEMPTS_MAX, Answer, InitialSync, Lane, Progress};
use crate::mutant::Mutant;
use crate::step::{Copying, Effect, Here};
use baton_consensus::{DataState, Input as Told};
use baton_types::OpTime;

impl Following {
    pub(crate) fn take_connected(&mut self, here: Here, is_whole: bool, given_up: OpTime) {
        match self.current() {
            None => self.begin(),
            Some(_) if is_whole => self.open(here),
            Some(source) => {
                let what = std::mem::replace(&mut self.next_copy, Copying::Everything);
                self.phase = Phase::Copying;
                if self.is_mutant(Mutant::ReadyWhileItCopies) {
                    self.tell(Told::Data(DataState::Ready));
                }
                self.copy = Some(Box::new(InitialSync::begin(self.now, source, what, given_up, self.mutant())));
                self.go_on_copying(None);
            }
        }
    }

    pub(crate) fn take_copied(&mut self, here: Here, lane: Lane, answer: Answer) {
        let now = self.now;
        if let Some(copy) = &mut self.copy {
            copy.take_answer(now, here, lane, answer);
        }
        self.go_on_copying(Some(here));
    }

    pub(crate) fn tick_copy(&mut self) {
        let now = self.now;
        if let Some(copy) = &mut self.copy {
            copy.tick(now);
        }
        self.go_on_copying(None);
    }

    /// The source that is copied is not the source any more.
    pub(crate) fn abandon_copy(&mut self) {
        self.effects.push(Effect::Close);
        if let Some(copy) = &mut self.copy {
            copy.abandon();
        }
        self.go_on_copying(None);
    }

    /// Asks for what the copy asks for; goes on once it is over.
    fn go_on_copying(&mut self, here: Option<Here>) {
        let Some(copy) = &mut self.copy else { return };
        self.effects.extend(copy.take_effects());
        let (Some(outcome), whole_at) = (copy.outcome().cloned(), copy.whole_at()) else { return };
        self.copy = None;
        match (outcome, here) {
            (Ok(()), here) => {
                self.effects.push(Effect::Progress(Box::new(Progress::Whole(whole_at))));
                self.failed_copies = 0;
                self.refusal = None;
                self.obstacle = None;
                self.tell(Told::Data(DataState::Ready));
                match here.filter(|_| !self.is_superseded()) {
                    Some(here) => self.open(here),
                    None => self.begin(),
                }
            }
            (Err(reason), _) => {
                self.failed_copies = self.failed_copies.saturating_add(1);
                let attempts = self.failed_copies;
                let gives_up = attempts >= ATTEMPTS_MAX;
                let failed = Progress::Failed { reason: reason.clone(), attempts, gives_up };
                self.effects.push(Effect::Progress(Box::new(failed)));
                self.stop_for(format!("initial sync: {reason}"));
            }
        }
    }
}
