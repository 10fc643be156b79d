//! Making a copy of the source, as a part of the step machine: by cloning its collections, or by file; or one collection alone.
//!
//! Source: "Fault-Tolerant Replication with Pull-Based Consensus in MongoDB" (Zhou and Mu, NSDI 2021), section 3; the manual's "Replica
//! Set Data Synchronization".
//!
//! ```text
//!  source's log   … b ─────────────────── s ──▶      by cloning: the copy is whole at s
//!                   │ collections, copied │
//!                   ├──── read into a buffer ───▶
//!                   └──── applied to the copy
//!
//!  source's log   … ─────── c ────────────────▶      by file: the process starts anew with them, and follows the log from c on
//!                           │ files, as of c, copied │
//!
//!  own log        … p │ e ─── … ─── s                one collection, of which e cannot be applied
//!                     │ the collection, copied as it is at the source after e
//!                     └ the log after p, applied; e itself is logged and passed over, for what it did is in the copy
//!
//!  Answer of a lane ──▶ ├─ lanes         who has what in hand; asking again
//!                       ├─ main          from connecting to the end, and which way is taken
//!                       ├─ copiers       collection after collection, file after file
//!                       ├─ log           the source's log into the buffer
//!                       └─ catching_up   out of the buffer into the copy
//! ```
//!
//! Invariants:
//! - The data count as whole once everything up to `s` is applied, and no sooner; `s` is the source's newest entry once the last document
//!   has come.
//! - The copy, the log and `s` are of one source, and that has not rolled back meanwhile: what it took back could be in the copy.
//! - What this member acknowledged, or knows to be committed, is not lost by a copy: a source whose log ends before that, or before the
//!   log that was given up, is not copied. Of a copy by file the checkpoint's log must reach that: the source may have lost what it had
//!   when it was asked.
//! - The entries that are applied follow `b` without a gap: a stream that was lost is opened again at the last entry that came, and
//!   must begin with it.
//! - What is asked again only asks: nothing at the source is changed by it.
//! - An attempt ends when no lane has anything in hand; however it ends, that is said. It has not failed if the member's disk says that
//!   the copy is whole.
//!
//! What it deliberately does not do: choose the source (consensus); know names, documents or bytes (the machinery).

mod catching_up;
mod copiers;
mod lanes;
mod log;
mod main;
mod step;

pub use step::{Answer, Fault, FaultKind, HoldPoint, Lane, Listed, Method, Progress, ReadFrom, Settings, Task};

use crate::mutant::Mutant;
use crate::step::{Copying, Effect, Here};
use baton_consensus::{MemberId, Moment};
use baton_types::OpTime;
use catching_up::Hand;
use lanes::Work;
use log::LogReading;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Attempts until a member gives up, as in MongoDB.
pub const ATTEMPTS_MAX: u32 = 10;
/// Why an attempt ends whose source is not the source any more.
const SUPERSEDED: &str = "there is another sync source now";

/// What is copied piece by piece, in its order.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Piece {
    bytes: u64,
    is_capped: bool,
}

/// One attempt at a copy. See the file's header.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct InitialSync {
    now: Moment,
    source: MemberId,
    what: Copying,
    /// The end of the log that this member gave up: the source's must reach it.
    given_up: OpTime,
    settings: Settings,
    rollback_id: i32,
    /// `b`, or `p`.
    from: OpTime,
    /// `s`, once that is known.
    until: Option<OpTime>,
    /// Of one collection: it was read after all that the source had logged up to here.
    read_after: OpTime,
    #[serde(with = "baton_replay::pairs")]
    work: BTreeMap<Lane, Work>,
    by_file: bool,
    /// Collections or files.
    pieces: Vec<Piece>,
    /// The next of them that nobody copies.
    next_piece: usize,
    log: LogReading,
    hand: Hand,
    /// The source keeps a checkpoint for this.
    has_checkpoint: bool,
    /// There are files here that are of no use if this fails.
    has_files: bool,
    /// How it goes, once that is known.
    ending: Option<Result<(), String>>,
    /// Nothing is in hand any more, and nothing will be.
    is_over: bool,
    /// Empty between steps.
    #[serde(skip)]
    effects: Vec<Effect>,
    #[serde(skip)]
    mutant: Mutant,
}

impl InitialSync {
    /// Begins an attempt.
    pub fn begin(now: Moment, source: MemberId, what: Copying, given_up: OpTime, mutant: Mutant) -> Self {
        let mut copy = Self {
            now,
            source,
            what,
            given_up,
            settings: Settings { method: Method::Cloning, can_restart: false, copiers: 1 },
            rollback_id: 0,
            from: OpTime::ZERO,
            until: None,
            read_after: OpTime::ZERO,
            work: BTreeMap::new(),
            by_file: false,
            pieces: Vec::new(),
            next_piece: 0,
            log: LogReading::default(),
            hand: Hand::default(),
            has_checkpoint: false,
            has_files: false,
            ending: None,
            is_over: false,
            effects: Vec::new(),
            mutant,
        };
        copy.tell(Progress::Begun { source, what });
        copy.give(Lane::Main, Task::Connect { clones: false });
        copy
    }

    /// What came of a lane's task.
    pub fn take_answer(&mut self, now: Moment, here: Here, lane: Lane, answer: Answer) {
        self.now = now;
        let Some(work) = self.work.get(&lane).filter(|work| work.is_under_way()) else { return };
        let (task, reconnects) = (work.task.clone(), work.reconnects());
        match answer {
            _ if self.ending.is_some() => self.release(lane),
            Answer::Failed(fault) if lane == Lane::Log => self.log_lost(here, fault),
            Answer::Failed(fault) => self.take_fault(here, lane, task, fault),
            _ if reconnects => self.resume(lane),
            answer => {
                self.release(lane);
                match lane {
                    Lane::Main => self.main_lane(here, task, answer),
                    Lane::Log => self.log_lane(here, task, answer),
                    Lane::Copier(_) => self.copier_lane(lane, task, &answer),
                }
            }
        }
        self.end_if_idle();
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Moment) {
        self.now = now;
        self.end_pauses();
    }

    /// Its source is not the source any more. Every connection is closed. A copy whose end is being noted is whole all the same, and
    /// needs no source.
    pub fn abandon(&mut self) {
        if self.is_under_way(Lane::Main, &Task::EndClone) && !self.is_mutant(Mutant::AbandonsAWholeCopy) {
            return;
        }
        self.fail(SUPERSEDED.to_owned());
        self.end_if_idle();
    }

    /// How it went, once it is over.
    pub fn outcome(&self) -> Option<&Result<(), String>> {
        self.ending.as_ref().filter(|_| self.is_over)
    }

    /// The copy is whole here, if it is.
    pub fn whole_at(&self) -> OpTime {
        self.until.unwrap_or(self.from)
    }

    /// What is to be done, since this was last asked.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// What it is doing.
    pub fn name(&self) -> &'static str {
        match (self.ending.is_some(), self.until.is_some(), self.by_file) {
            (true, _, _) => "ending a copy",
            (false, true, _) => "catching up with the copied log",
            (false, false, true) => "copying files",
            (false, false, false) => "copying",
        }
    }

    fn is_mutant(&self, mutant: Mutant) -> bool {
        cfg!(feature = "mutants") && self.mutant == mutant
    }

    fn tell(&mut self, progress: Progress) {
        self.effects.push(Effect::Progress(Box::new(progress)));
    }

    /// The attempt has failed, for the first reason that is given.
    fn fail(&mut self, reason: String) {
        self.end_with(Err(reason));
    }

    /// What waits for the source is not waited for; what is in hand ends.
    fn end_with(&mut self, ending: Result<(), String>) {
        if self.ending.is_none() {
            self.ending = Some(ending);
            self.drop_all_work();
        }
    }

    /// Once nothing is in hand, leaves nothing behind. If the source does not hear that its checkpoint is not needed any more, it removes
    /// that some time.
    fn end_if_idle(&mut self) {
        if self.ending.is_none() || !self.work.is_empty() || self.is_over {
            return;
        }
        if std::mem::take(&mut self.has_checkpoint) {
            self.give(Lane::Main, Task::EndCheckpoint);
        } else if std::mem::take(&mut self.has_files) {
            self.give(Lane::Main, Task::Discard);
        } else {
            self.is_over = !self.is_mutant(Mutant::NeverEndsACopy);
        }
    }
}
