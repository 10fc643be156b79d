//! Carries the step machine's effects out.
//!
//! Invariants:
//! - What is persisted is synced before the machine hears of it, and so before any effect that tells of it.
//! - Own writes are open only between [`Effect::BeginTerm`] and [`Effect::Resign`], and the follower is at rest by then. (The entry
//!   that begins a set's log is of no term.)
//! - Whoever waits for the set to acknowledge a write is told when this member is primary no more.
//! - Drivers are told that it is primary no more before the first write is refused for that reason: whoever asks anew who leads,
//!   because of the refusal, is not sent here again.
//! - Writes that waited when this member handed over are refused once it is known who leads, and before it follows anybody or leads
//!   again: they hold locks that whoever applies entries waits for, and this thread waits for him.

use super::{Asker, Driver, Letter, facts};
use crate::acknowledgements::stepped_down;
use crate::figures::{ElectionWon, VoteCast};
use crate::leadership::Moves;
use crate::probe::configuration_of;
use crate::self_host;
use baton_consensus::{
    Configuration, DataState, Effect, ElectionReason, Input, LastVote, MemberId, Request, RequestKind, ResignReason,
    Response,
};
use baton_types::{Namespace, OpTime, Result, Term, must_not_unwind};
use bson::rawdoc;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

/// How long any other answer than a heartbeat's is waited for, at most.
const OTHERS_TIMEOUT_MAX: Duration = Duration::from_secs(2);
/// How long writes that a primary which hands over has kept waiting may not know that they are refused.
const KEPT_MAX: Duration = Duration::from_millis(100);

/// Whether carrying an effect out waits for storage, for the follower, or for a thread to begin.
pub(super) fn waits(effect: &Effect) -> bool {
    match effect {
        Effect::PersistVote(_)
        | Effect::PersistConfiguration(_)
        | Effect::FetchConfiguration { .. }
        | Effect::BeginTerm(_)
        | Effect::BlockWrites
        | Effect::UnblockWrites
        | Effect::Resign { .. }
        | Effect::SyncSource(_) => true,
        Effect::Send { .. }
        | Effect::Respond { .. }
        | Effect::TermAdopted(_)
        | Effect::Won { .. }
        | Effect::SteppedDown(_)
        | Effect::Reconfigured(_)
        | Effect::Stood(_)
        | Effect::Committed(_)
        | Effect::RefusedMember { .. }
        | Effect::Heard { .. }
        | Effect::TopologyChanged => false,
    }
}

/// Does `work` on a thread that `builder` makes; on this one, before it returns, if there is none to be had.
fn do_elsewhere(builder: Builder, work: impl Fn() + Send + Sync + 'static) -> Option<JoinHandle<()>> {
    let work = Arc::new(work);
    let there = Arc::clone(&work);
    let guarded = move || {
        let _guard = must_not_unwind("keeping the configuration");
        there();
    };
    match builder.spawn(guarded) {
        Ok(thread) => Some(thread),
        Err(error) => {
            tracing::warn!(target: "REPL", error = %error, "No thread to be had; what it was for is done without");
            work();
            None
        }
    }
}

impl Driver {
    /// Does what is asked; returns what there is to report.
    pub(super) fn carry_out(&mut self, effect: Effect) -> Option<Input> {
        match effect {
            Effect::Send { to, request } => {
                self.send(to, request);
                None
            }
            Effect::Respond { id, mut response } => {
                if let Ok(Response::Heartbeat(heartbeat)) = &mut response {
                    heartbeat.gossip.leadership = Some(self.shared.leadership.gossip());
                }
                if let Some(asker) = self.asked.remove(&id) {
                    let _ = asker.send(response);
                }
                None
            }
            Effect::PersistVote(vote) => {
                facts::put_vote(&self.storage, vote);
                self.count_vote(vote);
                Some(Input::VotePersisted(vote))
            }
            Effect::PersistConfiguration(configuration) => {
                self.persist_configuration(*configuration);
                None
            }
            Effect::FetchConfiguration { host } => {
                self.fetch_configuration(host);
                None
            }
            Effect::TermAdopted(term) => {
                tracing::info!(target: "REPL", id = 6015301, term, "Current term changed");
                None
            }
            Effect::Won { term, reason } => {
                self.count_won(term, reason);
                tracing::info!(target: "ELECTION", id = 21450, term, reason = reason.name(), "Election succeeded, assuming primary role");
                None
            }
            Effect::BeginTerm(term) => {
                let begun = self.begin_term(term);
                self.shared.figures.term_began();
                Some(begun)
            }
            Effect::BlockWrites => {
                if let Some(attempt) = &mut self.handing_over {
                    attempt.blocked = Some(Instant::now());
                }
                self.storage.queue().block_writes();
                Some(Input::WritesBlocked(self.position()))
            }
            Effect::UnblockWrites => {
                self.storage.queue().unblock_writes();
                None
            }
            Effect::Resign { reason } => {
                self.shared.figures.resigned(reason);
                tracing::info!(target: "REPL", id = 21809, reason = ?reason, "Stepping down from primary");
                self.show_topology();
                self.close_to_writes(reason);
                self.shared.waiters.fail_all(&stepped_down());
                self.shared.acknowledgements.fail_all(&stepped_down());
                Some(Input::Log(self.position()))
            }
            Effect::SteppedDown(outcome) => {
                match (self.handing_over.take(), &outcome) {
                    (Some(attempt), Ok(())) => self.shared.handoffs.resigned(attempt),
                    (Some(attempt), Err(error)) => self.tell_failure(&attempt, error),
                    (None, _) => {}
                }
                Self::answer(&mut self.stepping_down, outcome)
            }
            Effect::Reconfigured(outcome) => Self::answer(&mut self.reconfiguring, outcome),
            Effect::Stood(outcome) => Self::answer(&mut self.standing, outcome),
            Effect::Committed(optime) => {
                self.committed(optime);
                None
            }
            Effect::SyncSource(source) => {
                if source.is_some() {
                    self.refuse_kept();
                }
                self.fetch_from(source);
                None
            }
            Effect::RefusedMember { member, reason } => {
                tracing::warn!(target: "REPL", member = member.0, reason, "A member cannot be worked with; it counts as down");
                None
            }
            Effect::Heard { from, leadership } => {
                self.shared.leadership.hear(from.0, &leadership);
                None
            }
            Effect::TopologyChanged => {
                self.show_topology();
                None
            }
        }
    }

    fn answer(asker: &mut Asker, outcome: Result<()>) -> Option<Input> {
        if let Some(asker) = asker.take() {
            let _ = asker.send(outcome);
        }
        None
    }

    fn send(&mut self, to: MemberId, mut request: Request) {
        if let Request::Heartbeat(heartbeat) = &mut request {
            heartbeat.gossip.leadership = Some(self.shared.leadership.gossip());
        }
        let Some(configuration) = self.consensus.configuration() else { return };
        let Some(member) = configuration.member(to) else { return };
        let timeout = match request.kind() {
            RequestKind::Heartbeat => configuration.settings.heartbeat_timeout,
            RequestKind::RequestVotes | RequestKind::UpdatePosition | RequestKind::StepUp => {
                configuration.settings.election_timeout.min(OTHERS_TIMEOUT_MAX)
            }
        };
        if let Err(error) = self.lanes.send(to, &member.host, request, timeout) {
            tracing::warn!(target: "REPL", to = member.host, error = %error, "A member cannot be asked");
        }
    }

    fn host_of(&self, id: MemberId) -> Option<String> {
        Some(self.consensus.configuration()?.member(id)?.host.clone())
    }

    fn fetch_from(&self, source: Option<MemberId>) {
        let host = source.and_then(|id| Some((id, self.host_of(id)?)));
        tracing::info!(target: "REPL", id = 21799, syncSource = host.as_ref().map(|(_, host)| host.as_str()), "Sync source chosen");
        self.shared.figures.source_chosen(host.is_some());
        self.follower.set_source(host);
    }

    /// Has the rest of the member, drivers and the log see what has changed.
    fn show_topology(&mut self) {
        let view = Arc::new(self.consensus.view());
        let before = self.shared.view.swap(Arc::clone(&view));
        match (before.is_too_stale, view.is_too_stale) {
            (false, true) => {
                tracing::error!(target: "REPL", id = 21085, last = %view.position.written, "Too stale to use any sync source: none has what follows this member's oplog. RECOVERING until one does; or stop this member, empty its data folder and start it again: it copies the set's data")
            }
            (true, false) => {
                tracing::info!(target: "REPL", id = 21086, "No longer too stale: there is a sync source that has what follows this member's oplog")
            }
            (false, false) | (true, true) => {}
        }
        let is_other = view.primary != view.me;
        let primary = view.primary.filter(|_| is_other || view.is_writable_primary);
        if let Some((primary, host)) = primary.and_then(|id| Some((id, self.host_of(id)?)))
            && let Some(heard) = self.shared.handoffs.heard_of_primary(&host)
        {
            self.shared.leadership.ended(&heard, primary, view.me);
        }
        (self.on_topology)(&view);
        if primary.is_some() {
            self.refuse_kept();
        }
    }

    /// On a thread of its own, since the host may not answer.
    fn fetch_configuration(&self, host: String) {
        let (set_name, inbox) = (self.set_name.clone(), Arc::clone(&self.inbox));
        let spawned =
            Builder::new().name("configuration".into()).spawn(move || match configuration_of(&host, &set_name) {
                Ok(Some(configuration)) => {
                    let _ = inbox.post(Letter::Input(Input::ConfigurationFetched(Box::new(configuration))));
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::info!(target: "REPL", host, error = %error, "No configuration from another member")
                }
            });
        if let Err(error) = spawned {
            tracing::warn!(target: "REPL", error = %error, "No thread to fetch the configuration");
        }
    }

    /// Learns by which host a configuration that comes names this member.
    pub(super) fn settle_host(&mut self, configuration: &Configuration) {
        if let Some(host) = self_host::find(configuration, &self.host, self.process_id) {
            self.consensus.set_host(host.clone());
            self.recorder.changed(&self.consensus, self.begun.elapsed());
            self.host = host;
        }
    }

    /// Has a configuration written by a thread of its own: a new primary takes writes meanwhile, and nobody waits for it to report
    /// its position. That it is written is told by a letter, so after all effects that are due now, whoever writes it.
    fn persist_configuration(&mut self, configuration: Configuration) {
        self.settle_host(&configuration);
        let is_told = self.consensus.configuration().is_none() && self.reconfiguring.is_none();
        if is_told && self.storage.oplog().last_entry() != OpTime::ZERO {
            // Its log is of no set, or of another one: it must not count for anything here, and nobody here need have that.
            tracing::warn!(target: "REPL", "This member has data that is not of the set it is told to join; copying the set's");
            self.storage.follower().note_not_whole(OpTime::ZERO);
            self.inputs.push_back(Input::Data(DataState::InitialSync));
        }
        self.lanes.retain(|id| configuration.member(id).is_some());
        self.follower.set_delay(configuration.member_at(&self.host).map_or(Duration::ZERO, |member| member.delay));
        self.note_members(configuration.members.len());
        self.await_configuration();
        let (storage, inbox) = (Arc::clone(&self.storage), Arc::clone(&self.inbox));
        let write = move || {
            facts::put_configuration(&storage, &configuration);
            let version = configuration.version;
            tracing::info!(target: "REPL", id = 21392, version = version.version, term = version.term, "New replica set config in use");
            let _ = inbox.post(Letter::Input(Input::ConfigurationPersisted(version)));
        };
        self.writing_configuration = do_elsewhere(Builder::new().name("configuration".into()), write);
    }

    /// Until the configuration that is being written is on disk.
    pub(super) fn await_configuration(&mut self) {
        if let Some(thread) = self.writing_configuration.take()
            && thread.join().is_err()
        {
            tracing::error!(target: "REPL", "The thread that writes the configuration panicked");
        }
    }

    /// Ends the fetching, and begins the log of a term with its first entry.
    fn begin_term(&mut self, term: Term) -> Input {
        self.refuse_kept();
        self.follower.rest();
        self.storage.open_to_writes(term);
        let o = rawdoc! { "msg": "new primary" };
        match Namespace::new("admin", "$cmd").and_then(|namespace| self.storage.by_member().note(&namespace, &o)) {
            Ok(_) => {}
            Err(error) => tracing::error!(target: "REPL", error = %error, "The first entry of the term was refused"),
        }
        // Of the primary before, whoever it was. Clients are let in only after this.
        if let Err(error) = self.storage.drop_temporary_collections() {
            tracing::warn!(target: "REPL", error = %error, "Temporary collections are left");
        }
        tracing::info!(target: "REPL", id = 21331, term, "Transition to primary complete; database writes are now permitted");
        Input::TermBegun(term)
    }

    /// Who handed over keeps the writes that wait until it is known who leads: their clients would only ask in vain, and take the
    /// processors from those who elect.
    fn close_to_writes(&mut self, reason: ResignReason) {
        match reason {
            ResignReason::Request => {
                self.storage.queue().close_and_keep();
                self.keeps_refused_until = Some(Instant::now() + KEPT_MAX);
            }
            _ => self.storage.queue().close_to_writes(),
        }
    }

    /// The writes that wait since this member resigned are refused now, if there are any.
    pub(super) fn refuse_kept(&mut self) {
        if self.keeps_refused_until.take().is_some() {
            self.storage.queue().refuse_kept();
        }
    }

    fn count_vote(&self, vote: LastVote) {
        let Some(configuration) = self.consensus.configuration() else { return };
        let me = configuration.member_at(&self.host);
        match vote.candidate {
            Some(candidate) if me.is_some_and(|me| me.id == candidate) => {
                if let Some(reason) = self.consensus.standing_reason() {
                    self.shared.figures.stood(reason);
                }
            }
            Some(candidate) => self.shared.figures.voted(VoteCast {
                date: SystemTime::now(),
                term: vote.term,
                candidate,
                last_applied: self.storage.queue().applied(),
                priority: me.map_or(0.0, |me| me.priority),
            }),
            None => {}
        }
    }

    fn count_won(&self, term: Term, reason: ElectionReason) {
        let Some(configuration) = self.consensus.configuration() else { return };
        self.shared.figures.won(ElectionWon {
            reason,
            date: SystemTime::now(),
            term,
            committed: self.consensus.summary().commit_point,
            last_seen: self.storage.queue().applied(),
            votes_needed: configuration.majority_of_votes(),
            priority: configuration.member_at(&self.host).map_or(0.0, |me| me.priority),
            election_timeout: configuration.settings.election_timeout,
            term_began: None,
            majority_available: None,
        });
    }

    fn committed(&mut self, optime: OpTime) {
        if self.committed_term != optime.term {
            self.committed_term = optime.term;
            self.shared.figures.committed(optime.term);
        }
        // Those who wait are told afterwards, out of the worker.
        self.storage.oplog().set_commit_point(optime);
        self.shared.waiters.committed(optime);
    }

    /// Has the last commit point on disk, from time to time and at the end.
    pub(super) fn note_commit_point(&mut self) {
        let commit_point = self.consensus.summary().commit_point;
        let (noted, _) = std::mem::replace(&mut self.commit_point_noted, (commit_point, Instant::now()));
        if noted != commit_point {
            facts::put_commit_point(&self.storage, commit_point);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn what_no_thread_is_to_be_had_for_is_done_at_once_and_once() {
        let work = || {
            let (done, by) = channel();
            (move || done.send(std::thread::current().id()).unwrap(), by)
        };
        let (elsewhere, by) = work();
        do_elsewhere(Builder::new(), elsewhere).unwrap().join().unwrap();
        assert_ne!(by.recv().unwrap(), std::thread::current().id());
        let (here, by) = work();
        let no_memory_has_room_for_it = Builder::new().stack_size(usize::MAX / 4);
        assert!(do_elsewhere(no_memory_has_room_for_it, here).is_none());
        assert_eq!(by.try_iter().collect::<Vec<_>>(), [std::thread::current().id()]);
    }
}
