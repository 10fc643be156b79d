//! The one road from a request to its reply.
//!
//! In order: name, envelope, what the table says about the command, session, faults on demand, deadline, the command
//! itself, and then what every reply ends with. Afterwards the operation is counted and, if it was slow, logged.
//!
//! Invariants: every request gets exactly one reply, unless it wanted none; whatever fails is answered with MongoDB's
//! error document and leaves the connection usable, but for a panic, which closes it; nothing here depends on which command it is.
//! What it deliberately does not do: touch the socket.

use crate::aftermath;
use crate::call::{Call, Reply, Standing};
use crate::concerns::{Acknowledgement, ReadLevel};
use crate::crud;
use crate::crud::errors::{DETAILS_BYTES_MAX, ends_command};
use crate::envelope::Envelope;
use crate::fields::{Fields, number_as_i64};
use crate::mirroring;
use crate::mutant::{self, Mutant};
use crate::server::failpoints::CommandFault;
use crate::server::{Begin, Client, Kind, Server};
use crate::table::{self, CommandSpec, Flags};
use crate::tail;
use baton_types::{Error, ErrorCode, Namespace, Result, Timestamp};
use baton_wire::{DocumentWriter, ReplyBuilder, Request};
use bson::{RawBsonRef, RawDocument, RawDocumentBuf, cstr, rawdoc};
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
    match catch_unwind(AssertUnwindSafe(|| attempt(server, client, request, out))) {
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

/// An error, and what stands beside it in the reply.
type Failure = (Error, Option<Box<Beside>>);

/// See [`Failure`].
#[derive(Default)]
struct Beside {
    /// Labels that a fault on demand gives the error in place of its own.
    labels: Option<Vec<String>>,
    /// What the write concern asks for and cannot be had. Drivers tell of it first, even where the write failed.
    write_concern_error: Option<Error>,
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

fn bare(error: Error) -> Failure {
    (error, None)
}

/// What stands beside it is on the heap, since almost no reply has any of it.
fn failure(error: Error, beside: Beside) -> Failure {
    (error, Some(Box::new(beside)))
}

/// Whether the command was never begun: its words were not understood.
fn is_misunderstood(code: ErrorCode) -> bool {
    const MISSING_FIELD: ErrorCode = ErrorCode(40414);
    const UNKNOWN_FIELD: ErrorCode = ErrorCode(40415);
    matches!(
        code,
        ErrorCode::FailedToParse | ErrorCode::TypeMismatch | ErrorCode::BadValue | MISSING_FIELD | UNKNOWN_FIELD
    )
}

/// What the table, the set and the client's own words forbid, before anything is done.
fn check(server: &Server, spec: &CommandSpec, envelope: &Envelope<'_>) -> Result<()> {
    let invalid = |why: String| Err(Error::new(ErrorCode::InvalidOptions, why));
    let name = spec.name;
    if spec.flags.has(Flags::ADMIN_ONLY) && envelope.db != "admin" {
        return Err(Error::new(ErrorCode::Unauthorized, format!("{name} may only be run against the admin database.")));
    }
    if envelope.is_mirrored && (spec.mirrored_as.is_none() || spec.flags.has(Flags::WRITES)) {
        return Err(Error::location(40415, format!("BSON field '{name}.mirrored' is an unknown field.")));
    }
    check_role(server, spec, envelope)?;
    check_api(server, spec, envelope)?;
    check_transaction(server, spec, envelope)?;
    if let Some(concern) = &envelope.write_concern {
        if !spec.flags.has(Flags::WRITE_CONCERN) {
            return invalid("Command does not support writeConcern".into());
        }
        concern.check_member(&server.topology)?;
    }
    check_read_concern(server, spec, envelope)?;
    if let Some(time) = envelope.cluster_time
        && server.topology.is_replicated()
    {
        tail::observe(server, time)?;
    }
    Ok(())
}

/// Whether a client asks this for itself, rather than a driver that looks after its connection or a member that follows.
fn serves_application(spec: &CommandSpec, envelope: &Envelope<'_>) -> bool {
    (spec.flags.has(Flags::ON_COLLECTION) || spec.flags.has(Flags::WRITES) || spec.kind == Kind::GetMore)
        && envelope.db != "local"
}

/// Whether a member in this role may carry the command out: writes are the primary's, and a secondary is read from by those who
/// say that they mean to. What is in `local` is every member's own.
fn check_role(server: &Server, spec: &CommandSpec, envelope: &Envelope<'_>) -> Result<()> {
    let topology = &server.topology;
    if topology.is_writable_primary() || envelope.db == "local" {
        return Ok(());
    }
    if spec.flags.has(Flags::WRITES) {
        return Err(Error::new(ErrorCode::NotWritablePrimary, "not primary"));
    }
    if !spec.flags.has(Flags::READ_CONCERN) && !spec.flags.has(Flags::ON_COLLECTION) {
        return Ok(());
    }
    if !spec.flags.has(Flags::ANY_ROLE)
        && envelope.read_preference.is_none_or(|preference| matches!(preference.get_str("mode"), Ok("primary")))
    {
        return Err(Error::new(ErrorCode::NotPrimaryNoSecondaryOk, "not primary and secondaryOk=false"));
    }
    if !topology.is_readable() {
        let message = "node is not in primary or recovering state";
        return Err(Error::new(ErrorCode::NotPrimaryOrSecondary, message));
    }
    Ok(())
}

fn check_api(server: &Server, spec: &CommandSpec, envelope: &Envelope<'_>) -> Result<()> {
    if !envelope.api_version
        && server.parameters.require_api_version.load(Relaxed)
        && !spec.flags.has(Flags::NO_AUTHENTICATION)
    {
        return Err(Error::location(
            498_870,
            "The apiVersion parameter is required, please configure your MongoClient's API version",
        ));
    }
    if envelope.api_strict && !spec.flags.has(Flags::API_V1) {
        return Err(Error::new(
            ErrorCode::APIStrictError,
            format!(
                "Provided apiStrict:true, but the command {} is not in API Version 1. Information on supported \
                 commands and migrations in API Version 1 can be found at \
                 https://dochub.mongodb.org/core/manual-versioned-api",
                spec.name
            ),
        ));
    }
    Ok(())
}

fn check_transaction(server: &Server, spec: &CommandSpec, envelope: &Envelope<'_>) -> Result<()> {
    let Some(number) = envelope.txn_number else { return Ok(()) };
    if !server.topology.is_replicated() {
        return Err(Error::new(
            ErrorCode::IllegalOperation,
            "Transaction numbers are only allowed on a replica set member or mongos",
        ));
    }
    match envelope.transaction {
        Some(_) if spec.flags.has(Flags::TRANSACTIONS) => Ok(()),
        Some(mark) if mark.start => Err(Error::not_implemented("A multi-document transaction")),
        Some(_) => Err(Error::new(
            ErrorCode::NoSuchTransaction,
            format!("Given transaction number {number} does not match any in-progress transactions."),
        )
        .with_label("TransientTransactionError")),
        None if spec.flags.has(Flags::RETRYABLE) || spec.flags.has(Flags::TRANSACTIONS) => Ok(()),
        None => Err(Error::location(
            50768,
            format!(
                "txnNumber may only be provided for multi-document transactions and retryable write commands. \
                 autocommit:false was not provided, and {} is not a retryable write command.",
                spec.name
            ),
        )),
    }
}

fn check_read_concern(server: &Server, spec: &CommandSpec, envelope: &Envelope<'_>) -> Result<()> {
    let concern = &envelope.read_concern;
    let is_supported = match concern.level {
        ReadLevel::Local | ReadLevel::Available => true,
        ReadLevel::Majority | ReadLevel::Linearizable => spec.flags.has(Flags::READ_CONCERN),
        ReadLevel::Snapshot => spec.flags.has(Flags::SNAPSHOT),
    };
    if !is_supported {
        return Err(Error::new(
            ErrorCode::InvalidOptions,
            format!(
                "Command {} does not support {{ readConcern: {{ level: \"{}\" }} }} :: caused by :: read concern not \
                 supported",
                spec.name,
                concern.level.name()
            ),
        ));
    }
    let Some(time) = concern.after_cluster_time.or(concern.at_cluster_time) else { return Ok(()) };
    if !server.topology.is_replicated() {
        return Err(Error::new(
            ErrorCode::IllegalOperation,
            "Cannot specify afterClusterTime or atClusterTime readConcern without replication enabled",
        ));
    }
    let now = server.cluster_time().max(envelope.cluster_time.unwrap_or_default());
    if time > now {
        return Err(Error::new(
            ErrorCode::InvalidOptions,
            format!(
                "readConcern afterClusterTime value must not be greater than the current clusterTime. Requested \
                 clusterTime: {time}; current clusterTime: {now}"
            ),
        ));
    }
    Ok(())
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

/// Waits until this member has applied what the client has seen elsewhere, and settles the time that a snapshot is of. A primary
/// whose log is not as far as the cluster's time writes an entry that changes nothing; a secondary asks it to, if it must.
fn await_cluster_time(call: &mut Call<'_>) -> Result<()> {
    /// How long a secondary waits before it asks the primary to write something.
    const PATIENCE: Duration = Duration::from_millis(100);
    /// A killed operation notices within this time.
    const SLICE: Duration = Duration::from_millis(100);
    let server = call.server;
    let queue = server.storage.queue();
    let concern = call.envelope.read_concern;
    if let Some(time) = concern.after_cluster_time.or(concern.at_cluster_time) {
        let before = Timestamp::from_u64(time.as_u64().saturating_sub(1));
        let began = Instant::now();
        let mut has_asked = false;
        while queue.applied().timestamp < time {
            if server.topology.is_writable_primary() {
                call.operation.check_interrupt()?;
                // The queue knows the cluster's time, and gives out later ones.
                server.storage.note(&Namespace::new("admin", "$cmd")?, &rawdoc! { "msg": "noop write for reads" })?;
                continue;
            }
            if !has_asked
                && began.elapsed() >= PATIENCE
                && let Some(replication) = server.replication()
            {
                replication.ask_primary_for_entry(time);
                has_asked = true;
            }
            queue.wait_applied_beyond(before, SLICE);
            call.operation.check_interrupt()?;
        }
        if !server.topology.is_writable_primary() {
            server.storage.settle_catalog();
        }
    }
    if concern.level == ReadLevel::Snapshot {
        call.read_at = Some(concern.at_cluster_time.unwrap_or_else(|| queue.applied().timestamp));
    }
    Ok(())
}

/// Waits until as many members have what was written as the write concern asks for; says why they have not.
fn await_replication(call: &Call<'_>) -> Option<Error> {
    let server = call.server;
    if !call.spec.flags.has(Flags::WRITE_CONCERN) {
        return None;
    }
    let has_left_all = call.standing.commits == baton_storage::commits_of_this_thread();
    if has_left_all && !call.spec.flags.has(Flags::WRITES) {
        // It might have written (`$out`, `$merge`), and has only read.
        return None;
    }
    let replication = server.replication()?;
    let concern = call.write_concern();
    if mutant::is(Mutant::MajorityAtOnce) && concern.w == Acknowledgement::Majority {
        return None;
    }
    // What can never be had was reported already.
    let demand = concern.demand(&server.topology).ok()?;
    // What was written when there were others may not be on disk here, though there are none now.
    let is_own_majority = call.standing.is_own_majority && server.topology.is_own_majority();
    if demand.is_none() && (concern.w != Acknowledgement::Majority || is_own_majority) {
        return None;
    }
    let until = (concern.timeout_ms > 0).then(|| Instant::now() + Duration::from_millis(concern.timeout_ms));
    // A command that changed nothing has read what it left alone. That this was the set's newest is known only once an entry
    // that was written after the reading is committed: a deposed primary's last one may have been long ago.
    if has_left_all
        && concern.w == Acknowledgement::Majority
        && !mutant::is(Mutant::UnchangedUnproved)
        && let Err(error) = crud::note(server, "write that changed nothing")
    {
        return Some(error);
    }
    let written = call.standing.newest.unwrap_or_else(|| server.storage.queue().applied());
    let interrupted = || call.operation.check_interrupt();
    let (began, is_majority) = (Instant::now(), concern.w == Acknowledgement::Majority);
    let committed = if is_majority {
        replication.waiters().await_majority(call.standing.era, written, until, interrupted)
    } else {
        Ok(())
    };
    let waited = committed.and_then(|()| match demand {
        // Asked after `written` was: from here on the end of the era ends the wait.
        Some(_) if replication.waiters().era() != call.standing.era => {
            let message = "Primary stepped down while waiting for replication";
            Err(Error::new(ErrorCode::PrimarySteppedDown, message))
        }
        Some(demand) => replication.await_members(demand, written, concern.wants_sync(), until, interrupted),
        None => Ok(()),
    });
    if is_majority && waited.is_ok() {
        let [count, micros] = &server.counters.majority_waits;
        count.fetch_add(1, Relaxed);
        micros.fetch_add(began.elapsed().as_micros() as u64, Relaxed);
    }
    waited.err().map(|error| {
        let info = concern.error_info(error.code == ErrorCode::WriteConcernFailed);
        error.with_info(info)
    })
}

/// What the write concern asks for, if that can never be had.
fn unsatisfied_write_concern(call: &Call<'_>) -> Option<Error> {
    if !call.spec.flags.has(Flags::WRITE_CONCERN) {
        return None;
    }
    let concern = call.write_concern();
    concern.demand(&call.server.topology).err().map(|error| error.with_info(concern.error_info(false)))
}

fn append_labels<S: AsRef<str>>(writer: &mut DocumentWriter<'_>, labels: &[S]) {
    if labels.is_empty() {
        return;
    }
    writer.begin_array(cstr!("errorLabels"));
    for label in labels {
        writer.push(label.as_ref());
    }
    writer.end();
}

fn append_write_concern_error(reply: &mut DocumentWriter<'_>, error: &Error, retryable: bool) {
    reply.begin_document(cstr!("writeConcernError"));
    reply.append(cstr!("code"), error.code.0);
    reply.append(cstr!("codeName"), &*error.code.name());
    reply.append(cstr!("errmsg"), error.message.as_str());
    if let Some(info) = &error.info {
        reply.extend(info);
    }
    reply.end();
    if retryable && is_retryable(error.code) {
        append_labels(reply, &["RetryableWriteError"]);
    }
}

/// Writes the error reply: the error, its labels, and what every reply ends with.
fn write_error(
    server: &Server,
    builder: &mut ReplyBuilder<'_>,
    mut error: Error,
    retryable: bool,
    beside: Option<Box<Beside>>,
) {
    let beside = beside.map(|beside| *beside).unwrap_or_default();
    if beside.labels.is_some() {
        error.labels.clear();
    } else if retryable && is_retryable(error.code) && !error.labels.contains(&"RetryableWriteError") {
        error.labels.push("RetryableWriteError");
    }
    // The message tells the beginning of it.
    error.info = error.info.filter(|info| info.as_bytes().len() <= DETAILS_BYTES_MAX);
    builder.error(&error);
    let mut body = builder.resume_body();
    append_labels(&mut body, beside.labels.as_deref().unwrap_or_default());
    if let Some(error) = &beside.write_concern_error {
        append_write_concern_error(&mut body, error, false);
    }
    if changes_topology(error.code) || (tells_of_stop(error.code) && server.topology.is_stopping()) {
        tail::append_topology_version(server.topology.version(), &mut body);
    }
    tail::append(server, &mut body);
}

/// Whether a driver may send the same write again after this error.
fn is_retryable(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::HostUnreachable
            | ErrorCode::HostNotFound
            | ErrorCode::NetworkTimeout
            | ErrorCode::SocketException
            | ErrorCode::ShutdownInProgress
            | ErrorCode::InterruptedAtShutdown
            | ErrorCode::InterruptedDueToReplStateChange
            | ErrorCode::NotWritablePrimary
            | ErrorCode::NotPrimaryNoSecondaryOk
            | ErrorCode::NotPrimaryOrSecondary
            | ErrorCode::PrimarySteppedDown
            | ErrorCode::ReadConcernMajorityNotAvailableYet
            | ErrorCode::ExceededTimeLimit
    )
}

/// Whether a driver looks for another primary after this error, and so wants to know which topology it speaks of.
fn changes_topology(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::InterruptedDueToReplStateChange
            | ErrorCode::NotWritablePrimary
            | ErrorCode::NotPrimaryNoSecondaryOk
            | ErrorCode::NotPrimaryOrSecondary
            | ErrorCode::PrimarySteppedDown
            | ErrorCode::LegacyNotPrimary
    )
}

/// Whether the error says that the member stops. Told on demand by one that does not stop, it must name no topology
/// version: a driver that knows the version already would take it for old news and keep its connections.
fn tells_of_stop(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::ShutdownInProgress | ErrorCode::InterruptedAtShutdown)
}
