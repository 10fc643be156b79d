//! How the members of a set build an index together: one member's part in one build, as a step machine.
//!
//! ```text
//!  primary    pass over the documents, asking ──▶ [verify] ──▶ wait for votes ──▶ commit entry
//!                                   │ what the index does not allow, or a kill
//!                                   └──────────────────────────────────────────▶ abort entry
//!  follower   pass over the documents ──▶ vote, again and again ──▶ the primary's entry is applied
//! ```
//!
//! Source: MongoDB's README of its index builds (two phases, `commitQuorum`, `voteCommitIndexBuild`). Unlike there, votes are kept
//! by nobody: whoever has built goes on voting until the build has ended, so that every new primary hears of them, and none is lost
//! for good.
//!
//! Invariants, each with a checker in the worlds of `baton-sim`:
//! - Only a primary ends a build, by an entry. It commits only what it has itself built, and asked of every document what the index
//!   demands, without another primary in between: as a follower it takes documents as facts.
//! - It commits only when those whom the commit quorum asks for have said that they have built, in the configuration of that moment.
//! - A member votes only for what it has built.
//! - What was committed nobody ends any more: a member that was asked to, and has not built, builds. Whoever leads decides anew: the
//!   entry that it waited for was another primary's, and is lost.
//! - What is to be done depends on what the member was told alone, so that a recording can be stepped through again.
//! - If the set has a primary for long enough, and those whom the quorum asks for are there, every build ends on all members, and
//!   ends alike.
//!
//! Not here: filling an index, logging, asking the primary (the commands' driver); what was committed before a rollback (storage).

mod mutant;
mod quorum;
mod recorded;
#[cfg(test)]
mod tests;

pub use mutant::Mutant;
pub use quorum::CommitQuorum;

use crate::configuration::{Configuration, MemberId};
use baton_types::{Error, ErrorCode, Term};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A pass over the documents of the collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BuildPass {
    /// Puts entries in and asks what the index demands.
    Decide,
    /// Puts entries in.
    Follow,
    /// Asks.
    Verify,
}

/// The set by which votes are counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BuildSet {
    /// This member, if the configuration has it.
    pub me: Option<MemberId>,
    /// Without one, the member is alone.
    pub configuration: Option<Configuration>,
}

/// What a member learns of a build.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum BuildInput {
    /// The set is so from now on. Until a member knows it, it completes nothing.
    Set(Box<BuildSet>),
    /// It is primary in this term; or is not primary.
    Leads(Option<Term>),
    /// The pass is over that it was to make.
    Passed(BuildPass),
    /// The pass was ended by what the index does not allow, or cannot go on.
    Failed(#[serde(with = "recorded::code")] Error),
    /// A member says that it has built.
    Vote(MemberId),
    /// A member says that it cannot build, or an operator asked it to end the build.
    Objection(#[serde(with = "recorded::code")] Error),
    /// The build is to end.
    Killed(#[serde(with = "recorded::code")] Error),
    /// Another quorum was set.
    Quorum(CommitQuorum),
    /// The primary has committed: nobody can end the build any more, and this member must have built to go on.
    Committed,
    /// The entry that was to end the build was refused: this member is not primary (any more).
    Refused,
}

/// What is to be done next. It stays to be done until an input changes it.
#[derive(Clone, Debug, Serialize)]
pub enum BuildTask {
    /// Make this pass. What one that puts entries in has done, the next goes on from; one that asks begins anew.
    Pass(BuildPass),
    /// Tell the primary that this member has built.
    Vote,
    /// Ask the primary to give the build up.
    Object(#[serde(with = "recorded::code")] Error),
    /// Log that the build is complete, if this member is primary of that term still: what it has asked it has asked in that.
    Commit(Term),
    /// Log that the build is given up.
    Abort(#[serde(with = "recorded::code")] Error),
    /// Wait for votes.
    AwaitVotes,
}

/// See the file's header.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IndexBuild {
    set: Option<Box<BuildSet>>,
    leads: Option<Term>,
    /// Every document has its entries.
    is_filled: bool,
    /// Every document was asked by this member, and since then it has led.
    is_checked: bool,
    /// Something was put in without being asked, or others have led in between.
    has_followed: bool,
    quorum: CommitQuorum,
    votes: BTreeSet<MemberId>,
    /// Why the build is to end.
    #[serde(with = "recorded::code::optional")]
    end: Option<Error>,
    /// An entry says that it does not.
    is_committed: bool,
    #[cfg(feature = "mutants")]
    #[serde(skip)]
    mutant: Mutant,
}

impl IndexBuild {
    /// A member's part in a build that begins here, or goes on: then `is_resumed`, and what was put in counts as unasked.
    pub fn new(quorum: CommitQuorum, is_resumed: bool) -> Self {
        Self {
            set: None,
            leads: None,
            is_filled: false,
            is_checked: false,
            has_followed: is_resumed,
            quorum,
            votes: BTreeSet::new(),
            end: None,
            is_committed: false,
            #[cfg(feature = "mutants")]
            mutant: Mutant::None,
        }
    }

    /// Builds a fault in.
    #[cfg(feature = "mutants")]
    pub fn mutate(&mut self, mutant: Mutant) {
        self.mutant = mutant;
    }

    /// Whether this is the mutant that the checkers are to catch. Never, in a member that anybody runs.
    #[cfg(feature = "mutants")]
    fn is_mutant(&self, mutant: Mutant) -> bool {
        self.mutant == mutant
    }

    #[cfg(not(feature = "mutants"))]
    fn is_mutant(&self, _: Mutant) -> bool {
        false
    }

    /// Learns something.
    pub fn step(&mut self, input: BuildInput) {
        match input {
            BuildInput::Set(set) => self.set = Some(set),
            BuildInput::Leads(leads) => self.lead(leads),
            BuildInput::Passed(pass) => self.passed(pass),
            BuildInput::Failed(error) | BuildInput::Objection(error) | BuildInput::Killed(error) => {
                if !self.is_committed || self.is_mutant(Mutant::EndsWhatIsCommitted) {
                    self.end.get_or_insert(error);
                }
            }
            BuildInput::Vote(member) => {
                // A member that does not lead is told nothing that it could use.
                if self.leads.is_some() {
                    self.votes.insert(member);
                }
            }
            BuildInput::Quorum(quorum) => self.quorum = quorum,
            BuildInput::Committed => {
                self.is_committed = true;
                self.end = self.end.take().filter(|_| self.is_mutant(Mutant::EndsWhatIsCommitted));
            }
            BuildInput::Refused => self.lead(None),
        }
    }

    fn lead(&mut self, leads: Option<Term>) {
        // What it puts in from now on it does not ask, from the first document on.
        self.has_followed |= leads.is_none() && !self.is_mutant(Mutant::ForgetsHalfAPass);
        if self.leads == leads {
            return;
        }
        let has_led = std::mem::replace(&mut self.leads, leads).is_some();
        self.votes.clear();
        // What other primaries let in they have asked of the index as far as they had built it.
        self.has_followed |= has_led;
        self.is_checked &= self.is_mutant(Mutant::StaysChecked);
        // Were the entry that it has waited for in its own log, the build were over: the set has lost it.
        self.is_committed &= leads.is_none() || self.is_mutant(Mutant::StaysCommitted);
        if leads.is_none() && self.end.as_ref().is_some_and(|error| !is_will(error)) {
            // What this member found as primary the next one finds, if it is still so.
            self.end = None;
        }
    }

    fn passed(&mut self, pass: BuildPass) {
        match pass {
            BuildPass::Decide => {
                self.is_filled = true;
                self.is_checked = self.leads.is_some() && !self.has_followed;
            }
            BuildPass::Follow => {
                self.is_filled = true;
                self.has_followed = true;
            }
            BuildPass::Verify => self.is_checked = self.leads.is_some(),
        }
    }

    /// Whether this member has built.
    pub fn is_filled(&self) -> bool {
        self.is_filled
    }

    /// Whether it is known that the build is to end, so that a pass is of no use any more.
    pub fn is_ending(&self) -> bool {
        self.end.is_some()
    }

    /// Whether it was told of this set last.
    pub fn knows(&self, me: Option<MemberId>, configuration: Option<&Configuration>) -> bool {
        self.set.as_ref().is_some_and(|set| set.me == me && set.configuration.as_ref() == configuration)
    }

    /// What is to be done now.
    pub fn task(&self) -> BuildTask {
        if let Some(error) = &self.end {
            return if self.leads.is_some() {
                BuildTask::Abort(error.clone())
            } else {
                BuildTask::Object(error.clone())
            };
        }
        let votes_early = self.is_mutant(Mutant::VotesEarly) && self.leads.is_none();
        if !self.is_filled && !votes_early {
            let decides = self.leads.is_some() && !self.has_followed;
            return BuildTask::Pass(if decides { BuildPass::Decide } else { BuildPass::Follow });
        }
        let Some(term) = self.leads else { return BuildTask::Vote };
        if !self.is_checked && !self.is_mutant(Mutant::FactsUnverified) {
            return BuildTask::Pass(BuildPass::Verify);
        }
        if self.is_quorum_met() { BuildTask::Commit(term) } else { BuildTask::AwaitVotes }
    }

    fn is_quorum_met(&self) -> bool {
        let Some(BuildSet { me, configuration }) = self.set.as_deref() else { return false };
        let Some(configuration) = configuration.as_ref().filter(|_| !self.is_mutant(Mutant::QuorumUnasked)) else {
            return true;
        };
        let mut built: BTreeSet<MemberId> = self.votes.clone();
        built.extend(me);
        if self.is_mutant(Mutant::StrangersCount) {
            return built.len() >= configuration.commit_voters().count();
        }
        configuration.is_commit_quorum_met(&self.quorum, &built)
    }
}

/// Whether somebody wants the build to end, whoever leads.
fn is_will(error: &Error) -> bool {
    matches!(error.code, ErrorCode::Interrupted | ErrorCode::MaxTimeMSExpired | ErrorCode::ClientDisconnect)
}
