//! The one road from a request to its reply, with a file for each toll on it.
//!
//! ```text
//!  name, envelope ─▶ checks ─▶ session ─▶ class, door ─▶ faults ─▶ cluster time ─▶ the command ─▶ write concern ─▶ the reply's end ─▶ aftermath
//!  baton-request     checks.rs            admission.rs  faults.rs  waits.rs        running.rs      waits.rs          ending.rs         aftermath.rs
//! ```
//!
//! Afterwards the operation is counted and, if it was slow, logged.
//!
//! Invariants: every request gets exactly one reply, unless it wanted none; whatever fails is answered with MongoDB's
//! error document and leaves the connection usable, but for a panic, which closes it; nothing here depends on which command it is.
//! What it deliberately does not do: touch the socket.

mod admission;
mod checks;
mod ending;
mod errors;
mod faults;
mod leaving;
mod running;
mod waits;

use self::errors::{Failure, bare, write_error};
pub use self::leaving::Leaving;
pub(crate) use self::leaving::Left;
use crate::aftermath;
use crate::call::Call;
use crate::mirroring;
use crate::server::{Client, Server};
use crate::table::{self, CommandSpec, Flags};
use baton_machine::take_usual_slices;
use baton_request::{Envelope, Fields, Kind};
use baton_types::{Error, ErrorCode};
use baton_wire::{ReplyBuilder, ReplyHead, Request};
use bson::RawDocumentBuf;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What the connection is to do next.
pub enum Next {
    /// Send the reply and read the next request.
    Read,
    /// Send the reply, carry out this request, and send its reply, too.
    Stream(RawDocumentBuf),
    /// Send the reply, if there is one, and hang up.
    Close,
    /// Read the next request: the reply, of which this much is there, is finished and sent by somebody else.
    Later(Box<Leaving>, ReplyHead),
}

/// How a command ended.
enum Outcome {
    Replied(Next),
    HangUp,
    /// It has written, and nobody has waited for that.
    Written(Left),
    Leaves(Box<Leaving>),
}

/// Carries out one request and appends its reply to `out`; nothing if the client wants none.
///
/// A panic costs the request and its connection. What of the member must not be left half done ends the process instead, before a
/// panic comes here ([`baton_types::must_not_unwind`]).
pub fn dispatch(server: &Arc<Server>, client: &Arc<Client>, request: &Request<'_>, out: &mut Vec<u8>) -> Next {
    let start = out.len();
    let attempted = catch_unwind(AssertUnwindSafe(|| attempt(server, client, request, out)));
    // A request that computed for long may have taken others.
    take_usual_slices();
    server.priority.rest(client);
    match attempted {
        Ok(next) => next,
        Err(_) => {
            server.counters.panics.fetch_add(1, Relaxed);
            out.truncate(start);
            if !request.flags.more_to_come() {
                let mut builder = ReplyBuilder::new(out, request);
                let message = "The request broke an invariant and was given up; the member's log says which";
                write_error(server, &mut builder, Error::new(ErrorCode::UnknownError, message), false, None);
                builder.finish();
            }
            Next::Close
        }
    }
}

fn attempt(server: &Arc<Server>, client: &Arc<Client>, request: &Request<'_>, out: &mut Vec<u8>) -> Next {
    let start = out.len();
    let mut builder = ReplyBuilder::new(out, request);
    let outcome = answer(server, client, request.reborrowed(), &mut builder);
    let next = match outcome {
        Outcome::Leaves(leaving) => return Next::Later(leaving, builder.leave()),
        Outcome::Replied(next) => Some(next),
        Outcome::HangUp | Outcome::Written(_) => None,
    };
    if matches!(next, Some(Next::Stream(_))) {
        builder.more_to_come();
    }
    builder.finish();
    if request.flags.more_to_come() || next.is_none() {
        out.truncate(start);
    }
    next.unwrap_or(Next::Close)
}

fn answer<'a>(
    server: &'a Arc<Server>,
    client: &'a Arc<Client>,
    request: Request<'a>,
    builder: &mut ReplyBuilder<'_>,
) -> Outcome {
    let Some((index, spec)) = table::find(request.command_name()).filter(|(_, spec)| is_available(server, spec)) else {
        server.counters.unknown_commands.fetch_add(1, Relaxed);
        let unknown = |name: &str| Error::new(ErrorCode::CommandNotFound, format!("no such command: '{name}'"));
        let error = Envelope::parse(&request, "").map_or_else(|error| error, |(envelope, _)| unknown(envelope.name));
        write_error(server, builder, error, false, None);
        return Outcome::Replied(Next::Read);
    };
    server.counters.count_command(index);
    if !spec.flags.has(Flags::WHILE_STARTING) {
        server.await_start();
    }
    let (retryable, result) = match Envelope::parse(&request, spec.name) {
        Err(error) => (false, Err(bare(error))),
        Ok((envelope, fields)) => {
            let retryable = envelope.txn_number.is_some() && spec.flags.has(Flags::RETRYABLE);
            (retryable, carry_out(server, client, spec, request, envelope, fields, builder))
        }
    };
    result.unwrap_or_else(|(error, beside)| {
        server.counters.count_failure(index);
        write_error(server, builder, error, retryable, beside);
        Outcome::Replied(Next::Read)
    })
}

fn is_available(server: &Server, spec: &CommandSpec) -> bool {
    !spec.flags.has(Flags::TEST_ONLY) || server.parameters.enable_test_commands.load(Relaxed)
}

fn carry_out<'a>(
    server: &'a Arc<Server>,
    client: &'a Arc<Client>,
    spec: &'static CommandSpec,
    request: Request<'a>,
    mut envelope: Envelope<'a>,
    fields: Fields<'a>,
    builder: &mut ReplyBuilder<'_>,
) -> Result<Outcome, Failure> {
    checks::check(server, client, spec, &mut envelope).map_err(bare)?;
    let collection = spec.collection_of(&envelope, &fields);
    let session = envelope.session.map(|id| server.sessions.touch(id)).transpose().map_err(bare)?;
    let fault = faults::fault_of(server, client, spec, request.body, envelope.db, collection);
    let mut call = Call::begin(server, client, spec, (envelope, fields), request, session, collection);
    if !matches!(spec.kind, Kind::Insert | Kind::Update | Kind::Delete) {
        server.counters.count_operations(spec.kind, 1);
    }
    call.expire_on_demand();
    admission::admit(&mut call, collection).map_err(bare)?;
    mirroring::mirror(&call);
    let result = running::run(&mut call, fault.unwrap_or_default(), builder);
    if let Ok(Outcome::Written(left)) = result {
        return Ok(Outcome::Leaves(Leaving::new(call, left)));
    }
    aftermath::record(&call, collection, &result, builder.body_size_bytes());
    if let Some(pass) = call.operation.take_pass() {
        client.hold_pass(pass);
    }
    result
}
