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
use crate::server::failpoints::CommandFault;
use crate::server::{Client, Operation, Server};
use crate::table::{CommandSpec, Flags};
use baton_replication::Left as LeftWait;
use baton_request::{Acknowledgement, WriteConcern};
use baton_storage::{Placed, SessionHandle};
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
        let optime = self.placed.wait();
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

/// What is left of a request whose thread goes on.
pub struct Leaving {
    left: Left,
    rest: Rest,
}

/// Sends a reply, which is a whole message.
type Deliver = Box<dyn FnOnce(Vec<u8>) + Send>;

struct Rest {
    server: Arc<Server>,
    client: Arc<Client>,
    operation: Operation,
    spec: &'static CommandSpec,
    concern: WriteConcern,
    standing: Standing,
    retryable: bool,
}

impl Leaving {
    pub(super) fn new(call: Call<'_>, left: Left) -> Box<Self> {
        let (concern, retryable) = (call.write_concern(), call.is_retryable());
        let rest = Rest {
            server: Arc::clone(call.server),
            client: Arc::clone(call.client),
            operation: call.operation,
            spec: call.spec,
            concern,
            standing: call.standing,
            retryable,
        };
        Box::new(Self { left, rest })
    }

    /// Goes on without this thread. `out` has the reply so far, of which `head` tells; `deliver` sends it, and hangs up if it is dropped.
    pub fn go(self, out: Vec<u8>, head: ReplyHead, deliver: Deliver) {
        let Self { left: Left { placed, session }, rest } = self;
        let server = Arc::clone(&rest.server);
        placed.leave(Box::new(move |optime| {
            guarded(&server, || {
                if let Some(session) = session {
                    session.committed(optime);
                }
                rest.committed(optime, out, head, deliver);
            });
        }));
    }
}

/// A panic in `finish` is that of one request.
fn guarded(server: &Server, finish: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(finish)).is_err() {
        server.counters.panics.fetch_add(1, Relaxed);
    }
}

impl Rest {
    /// It is as safe on this member as was asked for.
    fn committed(self, optime: OpTime, out: Vec<u8>, head: ReplyHead, deliver: Deliver) {
        let is_own_majority = self.standing.is_own_majority && self.server.topology.is_own_majority();
        let server = Arc::clone(&self.server);
        let replication =
            server.replication().filter(|_| self.concern.w == Acknowledgement::Majority && !is_own_majority);
        let Some(replication) = replication else { return self.finish(None, out, head, deliver) };
        let began = Instant::now();
        let until = (self.concern.timeout_ms > 0).then(|| began + Duration::from_millis(self.concern.timeout_ms));
        let interrupted = self.operation.check();
        let (era, of) = (self.standing.era, Arc::clone(&server));
        let then = move |outcome: Result<()>| {
            guarded(&of, || {
                if outcome.is_ok() {
                    let [count, micros] = &self.server.counters.majority_waits;
                    count.fetch_add(1, Relaxed);
                    micros.fetch_add(began.elapsed().as_micros() as u64, Relaxed);
                }
                self.finish(outcome.err(), out, head, deliver);
            });
        };
        let left = LeftWait { until, interrupted: Box::new(move || interrupted()), then: Box::new(then) };
        replication.waiters().when_majority(era, optime, left);
    }

    /// Ends the reply, and sends it.
    fn finish(self, unreplicated: Option<Error>, mut out: Vec<u8>, head: ReplyHead, deliver: Deliver) {
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
