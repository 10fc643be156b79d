//! A write that nobody waits for: what is left of its request goes where the write is, and whoever makes come true what the client
//! waits for finishes the reply and sends it.
//!
//! ```text
//!   command ─ Left ─▶ Leaving ─ go ─▶ commit queue ──▶ (replication's waiters) ──▶ finish ─▶ deliver
//!   its own thread                     who writes, or syncs    who brings the commit point, or ends the wait
//! ```
//!
//! Invariants:
//! - A request that leaves is answered once: with what it has written so far, and why its write concern is not met, if it is not.
//! - Its operation lasts until then: it is shown, and killed, like any other.
//! - A panic while it is finished costs it and its connection, and not the thread that does so.
//! - What could make another commit necessary (a profile, a fault on demand, members to be asked one by one) does not leave.

use super::ending;
use crate::aftermath;
use crate::call::{Call, Reply, Standing};
use crate::mutant::{self, Mutant};
use crate::server::failpoints::CommandFault;
use crate::server::{Client, Operation, Server};
use crate::table::{CommandSpec, Flags};
use baton_replication::{Left as LeftWait, Waits};
use baton_request::{Acknowledgement, WriteConcern};
use baton_storage::{Placed, SessionHandle, Then};
use baton_types::{Error, ErrorCode, OpTime, Result};
use baton_wire::{ReplyBuilder, ReplyHead};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The last transaction of a command that has only to answer.
pub(crate) struct Left {
    placed: Placed,
    /// The session whose retryable write it is.
    session: Option<SessionHandle>,
}

impl Left {
    pub fn new(placed: Placed, session: Option<SessionHandle>) -> Self {
        Self { placed, session }
    }

    /// Waits for it after all.
    pub fn wait(self, call: &mut Call<'_>) {
        let placed = self.placed;
        let optime = call.operation.paused(|| placed.wait());
        call.author.note(optime);
        call.newest = Some(optime);
        if let Some(session) = self.session {
            session.committed(optime);
        }
    }
}

/// Whether a command's thread may go on before its last transaction is committed.
pub(super) fn may_leave(call: &Call<'_>, reply: &Reply<'_>, fault: &CommandFault) -> bool {
    let is_plain = !call.request.flags.more_to_come()
        && !call.hang_up.get()
        && !call.envelope.oplog_query_data
        && !call.server.profiler.is_active()
        && fault.write_concern_error.is_none()
        && reply.is_plain();
    is_plain
        && call.spec.flags.has(Flags::WRITE_CONCERN)
        && matches!(call.server.topology.demand(&call.write_concern()), Ok(None))
}

/// What is left of a request whose thread goes on. It is handed from one who makes come true what it waits for to the next.
pub struct Leaving {
    /// Until it goes.
    placed: Option<Placed>,
    /// The session whose retryable write it is, until that is committed.
    session: Option<SessionHandle>,
    server: Arc<Server>,
    client: Arc<Client>,
    operation: Operation,
    spec: &'static CommandSpec,
    concern: WriteConcern,
    standing: Standing,
    retryable: bool,
    /// Once it goes.
    answer: Option<Answer>,
    /// Since when it waits for a majority.
    began: Instant,
}

/// Sends a reply, which is a whole message.
type Deliver = Box<dyn FnOnce(Vec<u8>) + Send>;

/// The reply so far, of which `head` tells, and who sends it.
struct Answer {
    out: Vec<u8>,
    head: ReplyHead,
    deliver: Deliver,
}

impl Leaving {
    pub(super) fn new(mut call: Call<'_>, left: Left) -> Box<Self> {
        let (concern, retryable) = (call.write_concern(), call.is_retryable());
        call.operation.leave_thread();
        Box::new(Self {
            placed: Some(left.placed),
            session: left.session,
            server: Arc::clone(call.server),
            client: Arc::clone(call.client),
            operation: call.operation,
            spec: call.spec,
            concern,
            standing: call.standing,
            retryable,
            answer: None,
            began: Instant::now(),
        })
    }

    /// Goes on without this thread. `out` has the reply so far, of which `head` tells; `deliver` sends it, and hangs up if it is dropped.
    /// `is_put_off`: the caller has the commit queue [lead](baton_storage::CommitQueue::lead_what_was_left) what was left there, once it has
    /// left all that it will for now.
    pub fn go(mut self: Box<Self>, out: Vec<u8>, head: ReplyHead, deliver: Deliver, is_put_off: bool) {
        self.answer = Some(Answer { out, head, deliver });
        if let Some(placed) = self.placed.take() {
            match is_put_off {
                true => placed.leave_to_others(self),
                false => placed.leave(self),
            }
        }
    }

    /// Ends the reply, and sends it.
    fn finish(self, unreplicated: Option<Error>) {
        let Some(Answer { mut out, head, deliver }) = self.answer else { return };
        let error = unreplicated.map(|error| {
            let info = self.concern.error_info(error.code == ErrorCode::WriteConcernFailed);
            error.with_info(info)
        });
        let mut builder = ReplyBuilder::resume(&mut out, head);
        ending::append(&self.server, &mut builder.resume_body(), error.as_ref(), self.retryable);
        let reply_bytes = builder.body_size_bytes();
        builder.finish();
        aftermath::record_left(&self.server, &self.client, &self.operation, self.spec, reply_bytes);
        // Before the client can send its next request.
        drop(self.operation);
        deliver(out);
    }
}

/// A panic in it is that of one request.
fn guarded(server: &Server, work: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(work)).is_err() {
        server.counters.panics.fetch_add(1, Relaxed);
    }
}

/// It is as safe on this member as was asked for.
impl Then for Leaving {
    fn is_safe(mut self: Box<Self>, optime: OpTime) {
        let server = Arc::clone(&self.server);
        guarded(&server, || {
            if let Some(session) = self.session.take() {
                session.committed(optime);
            }
            let is_own_majority = self.standing.is_own_majority && server.topology.is_own_majority();
            let is_told_at_once = is_own_majority || mutant::is(Mutant::MajorityAtOnce);
            let waits = self.concern.w == Acknowledgement::Majority && !is_told_at_once;
            let Some(replication) = server.replication().filter(|_| waits) else { return self.finish(None) };
            self.operation.waits_for("waiting for a majority to have what was written");
            self.began = Instant::now();
            let timeout = Duration::from_millis(self.concern.timeout_ms);
            let until = (self.concern.timeout_ms > 0).then(|| self.began + timeout);
            let (era, class) = (self.standing.era, self.operation.class);
            replication.waiters().when_majority(era, optime, LeftWait { class, until, of: self });
        });
    }
}

/// It waits for a majority.
impl Waits for Leaving {
    fn check(&self) -> Result<()> {
        self.operation.check_interrupt()
    }

    fn ended(self: Box<Self>, outcome: Result<()>) {
        let server = Arc::clone(&self.server);
        guarded(&server, || {
            if outcome.is_ok() {
                let [count, micros] = &server.counters.majority_waits;
                count.fetch_add(1, Relaxed);
                micros.fetch_add(self.began.elapsed().as_micros() as u64, Relaxed);
            }
            self.finish(outcome.err());
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::Next;
    use crate::testing::Member;
    use bson::{Document, doc};
    use std::sync::atomic::Ordering::Relaxed;

    /// What a write that leaves has been given to finish it with.
    fn leave(member: &Member, command: Document) -> impl FnOnce(super::Deliver) + use<> {
        let (next, out) = member.begin("shop", command);
        let Next::Later(leaving, head) = next else { panic!("it has only to answer") };
        move |deliver| leaving.go(out, head, deliver, false)
    }

    #[test]
    fn a_panic_while_a_reply_is_finished_costs_that_request_alone() {
        let member = Member::new();
        let go = leave(&member, doc! { "insert": "carts", "documents": [{ "_id": 1 }] });
        go(Box::new(|_| panic!("asked to")));
        assert_eq!(member.server.counters.panics.load(Relaxed), 1);
        assert!(member.server.operations.running().iter().all(|(_, state)| state.name != "insert"), "it is over");
        member.ok("shop", doc! { "insert": "carts", "documents": [{ "_id": 2 }] });
        assert_eq!(member.ok("shop", doc! { "count": "carts" }).get_i32("n").ok(), Some(2));
    }

    #[test]
    fn an_operation_that_leaves_is_shown_until_its_reply_is_sent() {
        let member = Member::new();
        let go = leave(&member, doc! { "insert": "carts", "documents": [{ "_id": 1 }] });
        let is_shown =
            |member: &Member| member.server.operations.running().iter().any(|(_, state)| state.name == "insert");
        assert!(is_shown(&member));
        go(Box::new(|_| {}));
        assert!(!is_shown(&member));
    }

    #[test]
    fn what_writes_more_than_once_or_reads_what_it_leaves_as_it_was_is_answered_by_its_own_thread() {
        let member = Member::new();
        member.ok("shop", doc! { "insert": "carts", "documents": [{ "_id": 1, "n": 1 }, { "_id": 2, "n": 1 }] });
        for command in [
            doc! { "update": "carts", "updates": [{ "q": {}, "u": { "$inc": { "n": 1 } }, "multi": true }] },
            doc! { "update": "carts", "updates": [
                { "q": { "_id": 1 }, "u": { "$inc": { "n": 1 } } }, { "q": { "_id": 2 }, "u": { "$inc": { "n": 1 } } },
            ] },
            doc! { "update": "carts", "updates": [{ "q": { "_id": 9 }, "u": { "$inc": { "n": 1 } } }] },
            doc! { "insert": "carts", "documents": [{ "_id": 3 }, { "_id": 1 }], "ordered": false },
            doc! { "delete": "carts", "deletes": [{ "q": { "_id": 3 }, "limit": 0 }] },
            doc! { "find": "carts" },
        ] {
            let (next, _) = member.begin("shop", command.clone());
            assert!(matches!(next, Next::Read), "{command}");
        }
        assert_eq!(member.ok("shop", doc! { "count": "carts" }).get_i32("n").ok(), Some(2));
    }
}
