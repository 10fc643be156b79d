//! The one road from a request to its reply.
//!
//! In order: name, envelope, what the table says about the command, session, faults on demand, deadline, the command
//! itself, and then what every reply ends with. Afterwards the operation is counted and, if it was slow, logged.
//!
//! Invariants: every request gets exactly one reply, unless it wanted none; whatever fails is answered with MongoDB's
//! error document and leaves the connection usable, but for a panic, which closes it; nothing here depends on which command it is.
//! What it deliberately does not do: touch the socket.

mod checks;
mod errors;
mod waits;

use self::checks::check;
use self::errors::{
    Beside, Failure, append_labels, append_write_concern_error, bare, failure, is_misunderstood, is_retryable,
    write_error,
};
use self::waits::{await_cluster_time, await_replication, unsatisfied_write_concern};
use crate::aftermath;
use crate::call::{Call, Reply, Standing};
use crate::crud::errors::ends_command;
use crate::envelope::Envelope;
use crate::fields::{Fields, number_as_i64};
use crate::mirroring;
use crate::server::failpoints::CommandFault;
use crate::server::{Begin, Client, Kind, Server};
use crate::table::{self, CommandSpec, Flags};
use crate::tail;
use baton_storage::take_usual_slices;
use baton_types::{Error, ErrorCode, Result};
use baton_wire::{ReplyBuilder, Request};
use bson::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use std::cell::{Cell, OnceCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// What the connection is to do next.
#[derive(Debug)]
pub enum Next {
    /// Send the reply and read the next request.
    Read,
    /// Send the reply, carry out this request, and send its reply, too.
    Stream(RawDocumentBuf),
    /// Send the reply, if there is one, and hang up.
    Close,
}

/// How a command ended.
enum Outcome {
    Replied(Next),
    HangUp,
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
    let outcome = answer(server, client, shortened(request), &mut builder);
    if matches!(outcome, Outcome::Replied(Next::Stream(_))) {
        builder.more_to_come();
    }
    builder.finish();
    if request.flags.more_to_come() || matches!(outcome, Outcome::HangUp) {
        out.truncate(start);
    }
    match outcome {
        Outcome::HangUp => Next::Close,
        Outcome::Replied(next) => next,
    }
}

/// The same request with the lifetime of its borrow: a small vector keeps its lifetime from shrinking by itself.
fn shortened<'s>(request: &'s Request<'_>) -> Request<'s> {
    Request {
        request_id: request.request_id,
        reply_id: request.reply_id,
        flags: request.flags,
        body: request.body,
        sequences: request.sequences.iter().map(|(name, sequence)| (*name, *sequence)).collect(),
        legacy_database: request.legacy_database,
        compressor: request.compressor,
    }
}

fn answer<'a>(
    server: &'a Arc<Server>,
    client: &'a Arc<Client>,
    request: Request<'a>,
    builder: &mut ReplyBuilder<'_>,
) -> Outcome {
    let Some((index, spec)) = table::find(request.command_name()).filter(|(_, spec)| is_available(server, spec)) else {
        server.counters.unknown_commands.fetch_add(1, Relaxed);
        let error = match Envelope::parse(&request, "") {
            Ok((envelope, _)) => {
                Error::new(ErrorCode::CommandNotFound, format!("no such command: '{}'", envelope.name))
            }
            Err(error) => error,
        };
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
    match result {
        Ok(outcome) => outcome,
        Err((error, beside)) => {
            server.counters.count_failure(index);
            write_error(server, builder, error, retryable, beside);
            Outcome::Replied(Next::Read)
        }
    }
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
    let retryable = envelope.txn_number.is_some() && spec.flags.has(Flags::RETRYABLE);
    if !envelope.read_concern.given && spec.flags.has(Flags::READ_CONCERN) && envelope.db != "local" {
        envelope.read_concern.level = server.defaults.read_level();
    }
    check(server, spec, &envelope).map_err(bare)?;
    if !spec.flags.has(Flags::ENDS_TASKS) {
        client.check_tasks().map_err(bare)?;
    }
    if serves_application(spec, &envelope) {
        client.note_served();
        if server.topology.is_stopping() {
            server.note_served_while_stopping();
        }
    }
    let collection = collection_of(spec, &envelope, &fields);
    let session = envelope.session.map(|id| server.sessions.touch(id)).transpose().map_err(bare)?;
    let fault = fault_of(server, client, spec, request.body, envelope.db, collection);
    let class = envelope.class.unwrap_or_else(|| client.class());
    let operation = server.operations.begin(
        client.slot(),
        &Begin {
            kind: spec.kind.name(),
            name: spec.name,
            db: envelope.db,
            collection,
            command: (!spec.flags.has(Flags::SECRET)).then_some(request.body),
            session: envelope.session,
            class,
            // On a getMore it says how long to wait for new documents; the deadline is the cursor's own.
            max_time: envelope.max_time.filter(|_| spec.kind != Kind::GetMore),
        },
    );
    if !matches!(spec.kind, Kind::Insert | Kind::Update | Kind::Delete) {
        server.counters.count_operations(spec.kind, 1);
    }
    let mut call = Call {
        server,
        client,
        spec,
        envelope,
        fields,
        request,
        operation,
        session,
        read_at: None,
        standing: Standing::now(server),
        author: Arc::default(),
        newest: None,
        hang_up: Cell::new(false),
        returned: Cell::new(None),
        used_disk: OnceCell::new(),
    };
    call.expire_on_demand();
    mirroring::mirror(&call);
    let result = run(&mut call, fault, retryable, builder);
    aftermath::record(&call, collection, &result, builder.body_size_bytes());
    result
}

/// Runs the command, and the fault that somebody asked for instead.
fn run(
    call: &mut Call<'_>,
    fault: Option<CommandFault>,
    retryable: bool,
    builder: &mut ReplyBuilder<'_>,
) -> Result<Outcome, Failure> {
    let fault = fault.unwrap_or_default();
    if let Some(time) = fault.block {
        block(call, time).map_err(bare)?;
    }
    if fault.close_connection {
        return Ok(Outcome::HangUp);
    }
    if let Some(error) = fault.error {
        return Err(failure(error, Beside { labels: fault.labels, ..Beside::default() }));
    }
    if !call.spec.flags.has(Flags::WHILE_STOPPING) {
        call.operation.check_interrupt().map_err(bare)?;
    }
    call.check_sequences(call.spec.sequences).map_err(bare)?;
    await_cluster_time(call).map_err(bare)?;
    let mut reply = Reply::new(builder.body());
    if call.spec.kind == Kind::Query {
        baton_storage::crash_point!("request-query");
    }
    let result = carry_out_unless_locked(call, &mut reply);
    if call.hang_up.get() {
        return Ok(Outcome::HangUp);
    }
    if let Err(error) = result {
        // What the failure is about is only certain once it is replicated as the client wants its writes to be.
        let waits = !is_misunderstood(error.code) && !ends_command(error.code);
        let write_concern_error =
            waits.then(|| unsatisfied_write_concern(call).or_else(|| await_replication(call))).flatten();
        return Err(failure(error, Beside { write_concern_error, ..Beside::default() }));
    }
    if call.envelope.is_mirrored {
        // What it read is in memory now, which is all that it was for.
        drop(reply);
        reply = Reply::new(builder.body());
        call.server.mirroring.note_processed();
    }
    let unreplicated = if reply.is_settled { None } else { await_replication(call) };
    reply.append(cstr!("ok"), 1.0);
    let write_concern_error = reply
        .write_concern_error
        .take()
        .or_else(|| unsatisfied_write_concern(call).filter(|_| !reply.is_settled))
        .or(unreplicated);
    if let Some(document) = &fault.write_concern_error {
        reply.append(cstr!("writeConcernError"), &**document);
        let code = document.get("code").ok().flatten().and_then(number_as_i64).unwrap_or_default();
        match &fault.labels {
            Some(labels) => append_labels(&mut reply, labels),
            None if retryable && is_retryable(ErrorCode(code as i32)) => {
                append_labels(&mut reply, &["RetryableWriteError"]);
            }
            None => {}
        }
    } else if let Some(error) = write_concern_error {
        append_write_concern_error(&mut reply, &error, retryable);
    }
    if call.envelope.oplog_query_data {
        tail::append_oplog_query_data(call.server, &mut reply);
    }
    tail::append(call.server, &mut reply);
    Ok(Outcome::Replied(match reply.stream.take() {
        _ if reply.close => Next::Close,
        Some(next) => Next::Stream(next),
        None => Next::Read,
    }))
}

/// Runs the command; one that writes waits while `fsync` holds the lock. It is not a writer any more while it waits for
/// others to have what it wrote.
fn carry_out_unless_locked(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let server = call.server;
    let _writing = match call.spec.flags.has(Flags::WRITES) {
        true => Some(server.write_lock.enter(&|| call.operation.check_interrupt())?),
        false => None,
    };
    (call.spec.run)(call, reply)
}

/// Whether a client asks this for itself, rather than a driver that looks after its connection or a member that follows.
fn serves_application(spec: &CommandSpec, envelope: &Envelope<'_>) -> bool {
    (spec.flags.has(Flags::ON_COLLECTION) || spec.flags.has(Flags::WRITES) || spec.kind == Kind::GetMore)
        && envelope.db != "local"
}

/// The collection a command is about, as far as its first fields tell; empty for none.
fn collection_of<'a>(spec: &CommandSpec, envelope: &Envelope<'a>, fields: &Fields<'a>) -> &'a str {
    if spec.flags.has(Flags::ON_COLLECTION) {
        envelope.value.as_str().unwrap_or("")
    } else if spec.kind == Kind::GetMore {
        fields.peek("collection").and_then(RawBsonRef::as_str).unwrap_or("")
    } else {
        ""
    }
}

fn fault_of(
    server: &Server,
    client: &Client,
    spec: &CommandSpec,
    body: &RawDocument,
    db: &str,
    collection: &str,
) -> Option<CommandFault> {
    if !server.fail_points.any() || spec.name == "configureFailPoint" {
        return None;
    }
    let mut names = vec![spec.name];
    names.extend(spec.aliases);
    // The first hello brings the name that later commands are known by.
    let app_name = match client.app_name() {
        "" => introduced_name(body).unwrap_or_default(),
        known => known,
    };
    server.fail_points.command_fault(&names, app_name, &format!("{db}.{collection}"))
}

/// The application's name in a handshake.
fn introduced_name(body: &RawDocument) -> Option<&str> {
    body.get_document("client").ok()?.get_document("application").ok()?.get_str("name").ok()
}

/// Sleeps, unless killed.
fn block(call: &Call<'_>, time: Duration) -> Result<()> {
    let until = Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(20)));
        call.operation.check_interrupt()?;
    }
}
