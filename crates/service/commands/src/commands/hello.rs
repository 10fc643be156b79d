//! `hello`: who this member is, and the wait for that to change.
//!
//! Invariants: a driver that names the topology version it has seen is answered when there is a newer one, or when its
//! time is up; one that allows it (exhaust) then gets the next answers unasked.
//! What it deliberately does not do: authenticate. `speculativeAuthenticate` is left unanswered, as mongod leaves one that fails,
//! and no mechanism is offered; the driver then authenticates in the ordinary way and is told why it cannot.

use crate::call::{Call, Reply};
use crate::server::ReplicaSet;
use crate::server::topology::TopologyVersion;
use crate::table::{CommandSpec, DEFAULT, Flags};
use crate::tail;
use baton_consensus::{Configuration, Member, MemberState};
use baton_request::Fields;
use baton_request::envelope::parse_max_time;
use baton_types::{Error, ErrorCode, Result};
use baton_wire::{Compressor, DOCUMENT_SIZE_MAX_BYTES, MESSAGE_SIZE_MAX_BYTES};
use bson::raw::{CStr, CString};
use bson::{Bson, DateTime, RawArray, RawBsonRef, RawDocument, RawDocumentBuf, cstr, doc, rawdoc};
use std::time::{Duration, Instant};

/// The newest wire version spoken: MongoDB 7.0's.
const WIRE_VERSION_MAX: i32 = 21;
/// The most statements of one write command.
pub const WRITE_BATCH_SIZE_MAX: usize = 100_000;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "hello",
    flags: Flags::NO_AUTHENTICATION.and(Flags::API_V1).and(Flags::WHILE_STOPPING),
    help: "Says who this member is, which replica set it is in, and what it can do.",
    run: |call, reply| answer(call, reply, false),
    ..DEFAULT
};

/// Writes the answer, in the words of `isMaster` if `legacy`.
pub fn answer(call: &mut Call<'_>, reply: &mut Reply<'_>, legacy: bool) -> Result<()> {
    if let Some(metadata) = call.fields.optional::<&RawDocument>("client")? {
        call.client.set_metadata(metadata)?;
        log_metadata(call, metadata);
    }
    let hello_ok = call.fields.truth("helloOk")?;
    let asked_user = call.fields.take("saslSupportedMechs").is_some();
    let compression = call.fields.optional::<&RawArray>("compression")?;
    let awaited = awaited(&mut call.fields)?;
    if let Some((seen, time)) = awaited {
        wait(call, seen, time)?;
    }
    refuse_while_stopping(call)?;
    if hello_ok {
        reply.append(cstr!("helloOk"), true);
    }
    // Before anything else is looked at: what changes while this is written is told by the next answer.
    let version = call.server.topology.version();
    tail::append_topology_version(version, reply);
    append_set(call, reply, legacy);
    reply.append(cstr!("maxBsonObjectSize"), DOCUMENT_SIZE_MAX_BYTES as i32);
    reply.append(cstr!("maxMessageSizeBytes"), MESSAGE_SIZE_MAX_BYTES as i32);
    reply.append(cstr!("maxWriteBatchSize"), WRITE_BATCH_SIZE_MAX as i32);
    reply.append(cstr!("localTime"), DateTime::now());
    reply.append(cstr!("logicalSessionTimeoutMinutes"), crate::server::sessions::TIMEOUT_MINUTES);
    reply.append(cstr!("connectionId"), i32::try_from(call.client.connection.id).unwrap_or(i32::MAX));
    reply.append(cstr!("minWireVersion"), 0);
    reply.append(cstr!("maxWireVersion"), WIRE_VERSION_MAX);
    reply.append(cstr!("readOnly"), false);
    append_compression(call, reply, compression)?;
    if asked_user {
        reply.begin_array(cstr!("saslSupportedMechs"));
        reply.end();
    }
    if call.server.operations.is_shutting_down() {
        // What there was to learn from this member has been told; a connection that waits would only delay the stop.
        reply.close_connection();
    } else if awaited.is_some() && call.request.flags.exhaust_allowed() {
        reply.stream(next_request(call, version)?);
    }
    Ok(())
}

/// A set's member that is about to stop says so instead: drivers then look for another, and send nothing new here.
fn refuse_while_stopping(call: &Call<'_>) -> Result<()> {
    let topology = &call.server.topology;
    match topology.quiesce_left().filter(|_| topology.is_replicated()) {
        None => Ok(()),
        Some(left) => {
            let message = "The server is in quiesce mode and will shut down";
            let info = rawdoc! { "remainingQuiesceTimeMillis": left.as_millis() as i64 };
            Err(Error::new(ErrorCode::ShutdownInProgress, message).with_info(info))
        }
    }
}

/// The wait that is asked for: both fields or none.
fn awaited(fields: &mut Fields<'_>) -> Result<Option<(TopologyVersion, Duration)>> {
    let version = fields.optional::<&RawDocument>("topologyVersion")?;
    let time = fields.take("maxAwaitTimeMS");
    match (version, time) {
        (None, None) => Ok(None),
        (Some(_), None) => {
            Err(Error::location(31368, "A request with a 'topologyVersion' must include 'maxAwaitTimeMS'"))
        }
        (None, Some(_)) => {
            Err(Error::location(31368, "A request with 'maxAwaitTimeMS' must include a 'topologyVersion'"))
        }
        (Some(version), Some(time)) => {
            let time = parse_max_time("maxAwaitTimeMS", time)?.unwrap_or_default();
            let mut fields = Fields::of("topologyVersion", version)?;
            let process_id = fields.required::<bson::oid::ObjectId>("processId")?;
            let counter = fields.required::<i64>("counter")?;
            if counter < 0 {
                return Err(Error::location(31372, "topologyVersion must have a non-negative counter"));
            }
            Ok(Some((TopologyVersion { process_id, counter }, time)))
        }
    }
}

fn wait(call: &Call<'_>, seen: TopologyVersion, time: Duration) -> Result<()> {
    let now = call.server.topology.version();
    if seen.process_id == now.process_id && seen.counter > now.counter {
        return Err(Error::location(
            31382,
            format!(
                "Received a topology version with counter: {} which is greater than the server topology version \
                 counter: {}",
                seen.counter, now.counter
            ),
        ));
    }
    if call.server.topology.is_stopping() {
        return Ok(());
    }
    let may_wait = || {
        if (call.client.connection.is_connected)() {
            call.operation.check_interrupt()
        } else {
            Err(crate::server::operations::interruption(ErrorCode::ClientDisconnect))
        }
    };
    let topology = &call.server.topology;
    let waited = call.operation.idle(|| topology.wait_for_change(seen, Instant::now() + time, may_wait));
    match waited {
        // A stopping member still answers: its drivers are to learn of it.
        Err(error) if error.code == ErrorCode::InterruptedAtShutdown => Ok(()),
        // To stop, the member closes the way in of every connection; that is not the client's leaving.
        Err(error) if error.code == ErrorCode::ClientDisconnect && call.server.operations.is_shutting_down() => Ok(()),
        other => other,
    }
}

fn append_set(call: &Call<'_>, reply: &mut Reply<'_>, legacy: bool) {
    let topology = &call.server.topology;
    let writable = topology.is_writable_primary();
    let writable_key = if legacy { cstr!("ismaster") } else { cstr!("isWritablePrimary") };
    let Some(set) = topology.set() else {
        reply.append(writable_key, writable);
        return;
    };
    let (Some(configuration), Some(member)) = (set.configuration(), set.my_member()) else {
        append_outsider(reply, &set, writable_key);
        return;
    };
    append_hosts(reply, configuration);
    reply.append(cstr!("setName"), set.name.as_str());
    reply.append(cstr!("setVersion"), i32::try_from(configuration.version.version).unwrap_or(i32::MAX));
    let state = set.view.state;
    reply.append(writable_key, writable);
    reply.append(cstr!("secondary"), state == MemberState::Secondary);
    if let Some(primary) = set.view.primary.and_then(|id| set.host_of(id))
        && (writable || set.view.primary != set.view.me)
    {
        reply.append(cstr!("primary"), primary);
    }
    if member.arbiter {
        reply.append(cstr!("arbiterOnly"), true);
    }
    if member.priority == 0.0 && !member.arbiter {
        reply.append(cstr!("passive"), true);
    }
    if member.hidden {
        reply.append(cstr!("hidden"), true);
    }
    if !member.delay.is_zero() {
        reply.append(cstr!("secondaryDelaySecs"), member.delay.as_secs() as i64);
    }
    if !member.tags.is_empty() {
        reply.begin_document(cstr!("tags"));
        for (name, value) in &member.tags {
            if let Ok(name) = CString::try_from(name.clone()) {
                reply.append(&name, value.as_str());
            }
        }
        reply.end();
    }
    reply.append(cstr!("me"), set.me.as_str());
    if let Some(id) = topology.election_id().filter(|_| writable) {
        reply.append(cstr!("electionId"), id);
    }
    append_last_write(call, reply);
}

/// A member of no set yet, or of none any more.
fn append_outsider(reply: &mut Reply<'_>, set: &ReplicaSet, writable_key: &CStr) {
    reply.append(writable_key, false);
    reply.append(cstr!("secondary"), false);
    let info = set.foreign_configuration().unwrap_or_else(|| match set.configuration() {
        Some(_) => "This node is not in the replica set's configuration".to_owned(),
        None => "Does not have a valid replica set config".to_owned(),
    });
    reply.append(cstr!("info"), info.as_str());
    reply.append(cstr!("isreplicaset"), true);
}

fn append_hosts(reply: &mut Reply<'_>, configuration: &Configuration) {
    let visible = || configuration.members.iter().filter(|member| !member.hidden);
    let mut list = |key: &CStr, members: &mut dyn Iterator<Item = &Member>| {
        let mut members = members.peekable();
        if members.peek().is_some() {
            reply.begin_array(key);
            for member in members {
                reply.push(member.host.as_str());
            }
            reply.end();
        }
    };
    list(cstr!("hosts"), &mut visible().filter(|member| !member.arbiter && member.priority > 0.0));
    list(cstr!("passives"), &mut visible().filter(|member| !member.arbiter && member.priority == 0.0));
    list(cstr!("arbiters"), &mut visible().filter(|member| member.arbiter));
}

fn append_last_write(call: &Call<'_>, reply: &mut Reply<'_>) {
    reply.begin_document(cstr!("lastWrite"));
    for (key, date_key, position) in [
        (cstr!("opTime"), cstr!("lastWriteDate"), call.server.storage.queue().applied()),
        (cstr!("majorityOpTime"), cstr!("majorityWriteDate"), call.server.commit_point()),
    ] {
        reply.begin_document(key);
        reply.append(cstr!("ts"), bson::Timestamp::from(position.timestamp));
        reply.append(cstr!("t"), position.term);
        reply.end();
        reply.append(date_key, DateTime::from_millis(i64::from(position.timestamp.seconds) * 1000));
    }
    reply.end();
}

/// Of the client's compressors, those that this member speaks, in the client's order.
fn append_compression(call: &Call<'_>, reply: &mut Reply<'_>, wanted: Option<&RawArray>) -> Result<()> {
    let Some(wanted) = wanted else { return Ok(()) };
    let mut common: Vec<Compressor> = Vec::new();
    for name in wanted {
        if let RawBsonRef::String(name) = name?
            && let Some(compressor) = call.server.identity.compressors.iter().find(|c| c.name() == name)
        {
            common.push(*compressor);
        }
    }
    if !common.is_empty() {
        reply.begin_array(cstr!("compression"));
        for compressor in common {
            reply.push(compressor.name());
        }
        reply.end();
    }
    Ok(())
}

/// What an exhaust stream goes on with: the same request, from the version that was just reported.
fn next_request(call: &Call<'_>, version: TopologyVersion) -> Result<RawDocumentBuf> {
    let mut next = RawDocumentBuf::new();
    for element in call.request.body.iter() {
        let (key, value) = element?;
        match key.as_str() {
            "topologyVersion" => {
                let version = doc! { "processId": version.process_id, "counter": version.counter };
                next.append(cstr!("topologyVersion"), bson::RawBson::try_from(Bson::Document(version))?);
            }
            "client" => {}
            _ => next.append(key, value),
        }
    }
    Ok(next)
}

fn log_metadata(call: &Call<'_>, metadata: &RawDocument) {
    let text = bson::Document::try_from(metadata).map(|d| d.to_string()).unwrap_or_default();
    tracing::info!(
        target: "NETWORK",
        id = 51800,
        remote = call.client.connection.peer,
        client = call.client.slot().description,
        doc = text,
        "client metadata"
    );
}
