//! `replSetBeginTask` and `replSetEndTask`: a client announces heavy work of its own on this member (a backup, say), waits until this
//! member may be busy, and says when it is done. Not commands of MongoDB's.
//!
//! Invariants:
//! - The first is answered once the gate has let the task begin; on a primary the policy has then handed leadership over, or decided
//!   not to. Nothing has begun if it is answered with an error.
//! - A task ends with its connection, and so does the waiting for one.
//! - Who is to end before it is done is told so by the answer to its connection's next command (11602), and has no task from then on.
//!
//! What it deliberately does not do: decide (the gate of `baton_storage::tasks` does), or the work itself.

use crate::call::{Call, Reply};
use crate::server::Server;
use crate::server::client_tasks::Owner;
use crate::server::operations::interruption;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_consensus::MemberState;
use baton_storage::tasks::{Asked, TaskGuard, TaskKind};
use baton_types::{Error, ErrorCode, Result};
use baton_wire::DocumentWriter;
use bson::cstr;
use std::time::{Duration, Instant, SystemTime};

/// `replSetBeginTask`'s row in the table.
pub const BEGIN: CommandSpec = CommandSpec {
    name: "replSetBeginTask",
    flags: Flags::ADMIN_ONLY,
    help: "{ replSetBeginTask: 1, kind: 'backup', name: 'nightly', expectedBytes: 0, expectedSecs: 0, maxWaitSecs: 60 } waits until this member may do \
           that work. It ends with replSetEndTask, or with the connection.",
    run: begin,
    ..DEFAULT
};

/// `replSetEndTask`'s row in the table.
pub const END: CommandSpec = CommandSpec {
    name: "replSetEndTask",
    flags: Flags::ADMIN_ONLY.and(Flags::ENDS_TASKS),
    help: "{ replSetEndTask: 1, taskId: … } says that the work which replSetBeginTask announced is done.",
    run: end,
    ..DEFAULT
};

/// What a client may announce: work that it can do to a member from outside.
const KINDS: [TaskKind; 6] = [
    TaskKind::Backup,
    TaskKind::Checkpoint,
    TaskKind::Compaction,
    TaskKind::IndexBuild,
    TaskKind::InitialSyncSource,
    TaskKind::Validate,
];
/// The longest name of a task, in bytes.
const NAME_BYTES_MAX: usize = 128;
/// How long it waits before it asks the gate again.
const ASK_AGAIN: Duration = Duration::from_millis(50);

fn begin(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let kind = kind(call.fields.required::<&str>("kind")?)?;
    let name = call.fields.required::<&str>("name")?.to_owned();
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(Error::bad_value(format!("name must have 1 to {NAME_BYTES_MAX} bytes, but has {}", name.len())));
    }
    let expected_bytes = call.fields.non_negative("expectedBytes")?.unwrap_or_default();
    let expected_duration = secs(call, "expectedSecs")?;
    let wait_max = secs(call, "maxWaitSecs")?;
    call.fields.finish()?;
    let server = call.server;
    let (began, asked_at, was) = (Instant::now(), SystemTime::now(), role(server)?);
    let owner = owner(call);
    let place = server.client_tasks.reserve(kind, &name, owner)?;
    let asked = server.storage.tasks().admit_for(kind, name.as_str(), expected_bytes.unsigned_abs(), expected_duration);
    let guard = call.operation.idle(|| wait(call, asked, wait_max))?;
    let now = role(server)?;
    let id = guard.task().id;
    let waited = began.elapsed();
    tracing::info!(target: "REPL", taskId = id, kind = kind.name(), name, role = now, waitedMs = waited.as_millis() as u64, "A client's task begins");
    place.fill(guard);
    call.client.hold(place);
    reply.append(cstr!("taskId"), id as i64);
    reply.append(cstr!("host"), own_host(server).as_str());
    reply.append(cstr!("role"), now);
    reply.append(cstr!("waitedMs"), waited.as_millis() as i64);
    append_handoff(reply, server, asked_at, was == "primary" && now != "primary");
    Ok(())
}

fn end(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let id = call.fields.required::<i64>("taskId")?;
    call.fields.finish()?;
    // No task has a negative number, and 2^63 is a number that none gets to.
    let ran = call.server.client_tasks.end(u64::try_from(id).unwrap_or(u64::MAX), &owner(call))?;
    tracing::info!(target: "REPL", taskId = id, durationMs = ran.as_millis() as u64, "A client's task ends");
    reply.append(cstr!("durationMs"), ran.as_millis() as i64);
    Ok(())
}

fn kind(name: &str) -> Result<TaskKind> {
    KINDS.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
        let known = KINDS.map(TaskKind::name).join(", ");
        Error::bad_value(format!("kind must be one of {known}, but is '{name}'"))
    })
}

/// A time in seconds, or parts of one; none if it is not stated.
fn secs(call: &mut Call<'_>, field: &str) -> Result<Option<Duration>> {
    /// A year: nobody waits or works longer.
    const SECS_MAX: f64 = 366.0 * 24.0 * 3600.0;
    let Some(secs) = call.fields.optional::<f64>(field)? else { return Ok(None) };
    if !(0.0..=SECS_MAX).contains(&secs) {
        return Err(Error::bad_value(format!("{field} must be 0 to {SECS_MAX}, but is {secs}")));
    }
    Ok(Some(Duration::from_secs_f64(secs)))
}

fn owner(call: &Call<'_>) -> Owner {
    Owner { connection: call.client.connection.id, session: call.session.as_ref().map(|session| session.id) }
}

/// What this member is; `NotPrimaryOrSecondary` (13436) if it has no data that a task could work on.
fn role(server: &Server) -> Result<&'static str> {
    if !server.topology.is_replicated() {
        return Ok("standalone");
    }
    match server.topology.member_state() {
        MemberState::Primary => Ok("primary"),
        MemberState::Secondary => Ok("secondary"),
        state => {
            let message = format!("a task begins on a primary or a secondary only, and this member is {state:?}");
            Err(Error::new(ErrorCode::NotPrimaryOrSecondary, message))
        }
    }
}

/// Waits until the gate lets the task begin, or the client has waited for as long as it wants to, or is gone.
fn wait(call: &Call<'_>, mut asked: Asked, wait_max: Option<Duration>) -> Result<TaskGuard> {
    let deadline = wait_max.map(|wait_max| Instant::now() + wait_max);
    loop {
        let waiting = match asked {
            Asked::Admitted(guard) => return Ok(guard),
            Asked::Waits(waiting) => waiting,
        };
        call.operation.check_interrupt()?;
        if !(call.client.connection.is_connected)() {
            return Err(interruption(ErrorCode::ClientDisconnect));
        }
        role(call.server)?;
        let left = deadline.map_or(ASK_AGAIN, |deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            let secs = wait_max.unwrap_or_default().as_secs_f64();
            let message = format!("the task could not begin within maxWaitSecs, {secs}: {}", waiting.why());
            return Err(Error::new(ErrorCode::ExceededTimeLimit, message));
        }
        std::thread::sleep(left.min(ASK_AGAIN));
        asked = waiting.ask_again();
    }
}

fn own_host(server: &Server) -> String {
    server.topology.set().map_or_else(|| server.identity.host.clone(), |set| set.me.clone())
}

/// How leadership moved while the task waited; null if it did not.
fn append_handoff(reply: &mut DocumentWriter<'_>, server: &Server, asked_at: SystemTime, has_moved: bool) {
    let handoffs = server.replication().filter(|_| has_moved).map(|replication| replication.handoffs());
    let Some(handoff) = handoffs.and_then(|mut all| all.pop()).filter(|handoff| handoff.asked >= asked_at) else {
        reply.append(cstr!("handoff"), bson::RawBsonRef::Null);
        return;
    };
    reply.begin_document(cstr!("handoff"));
    reply.append(cstr!("trigger"), handoff.trigger.name());
    if let Some(to) = &handoff.to {
        reply.append(cstr!("to"), to.as_str());
    }
    if let Some(decision) = &handoff.decision {
        reply.append(cstr!("rule"), decision.rule.name());
        reply.append(cstr!("why"), decision.rule.sentence());
        reply.append(cstr!("rankedBy"), decision.ranking.name());
    }
    reply.append(cstr!("waitedMs"), handoff.waited.as_secs_f64() * 1000.0);
    if let Some(gap) = handoff.write_gap {
        reply.append(cstr!("writeGapMs"), gap.as_secs_f64() * 1000.0);
    }
    reply.end();
}
