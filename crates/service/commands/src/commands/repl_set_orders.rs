//! What operators tell a member to do about elections and sources: `replSetStepUp`, `replSetFreeze`, `replSetSyncFrom`,
//! `replSetMaintenance`, `replSetAbortPrimaryCatchUp`.

use crate::call::{Call, Reply};
use crate::commands::repl_set_get_config::not_initiated;
use crate::commands::replication;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_consensus::configuration::HostAndPort;
use baton_consensus::{Input, MemberState};
use baton_replication::Order;
use baton_request::fields::{is_truthy, number_as_i64, wrong_type};
use baton_types::{Error, ErrorCode, Result};
use bson::{RawBsonRef, cstr};
use std::time::Duration;

/// `replSetStepUp`'s row in the table.
pub const STEP_UP: CommandSpec = CommandSpec {
    name: "replSetStepUp",
    flags: Flags::ADMIN_ONLY,
    help: "{ replSetStepUp: 1, skipDryRun: false } makes this member stand for election.",
    run: step_up,
    ..DEFAULT
};

/// `replSetFreeze`'s row in the table.
pub const FREEZE: CommandSpec = CommandSpec {
    name: "replSetFreeze",
    flags: Flags::ADMIN_ONLY,
    help: "{ replSetFreeze: 60 } keeps this member from standing for election for so many seconds; 0 ends that.",
    run: freeze,
    ..DEFAULT
};

/// `replSetSyncFrom`'s row in the table.
pub const SYNC_FROM: CommandSpec = CommandSpec {
    name: "replSetSyncFrom",
    flags: Flags::ADMIN_ONLY,
    help: "{ replSetSyncFrom: 'host:port' } makes this member fetch from that one, as long as that works.",
    run: sync_from,
    ..DEFAULT
};

/// `replSetMaintenance`'s row in the table.
pub const MAINTENANCE: CommandSpec = CommandSpec {
    name: "replSetMaintenance",
    flags: Flags::ADMIN_ONLY,
    help: "{ replSetMaintenance: true } puts a secondary into RECOVERING: clients do not read from it.",
    run: maintenance,
    ..DEFAULT
};

/// `replSetAbortPrimaryCatchUp`'s row in the table.
pub const ABORT_CATCH_UP: CommandSpec = CommandSpec {
    name: "replSetAbortPrimaryCatchUp",
    flags: Flags::ADMIN_ONLY,
    help: "Makes a new primary take writes without fetching what others have and it has not.",
    run: abort_catch_up,
    ..DEFAULT
};

fn step_up(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    if call.fields.peek("term").is_some() {
        return replication::answer(call, reply);
    }
    let dry_run = !call.fields.truth("skipDryRun")?;
    call.fields.finish()?;
    replication::of(call)?.order(Order::Stand { dry_run })
}

fn freeze(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.fields.finish()?;
    let replication = replication::of(call)?;
    let secs = number_as_i64(call.envelope.value)
        .ok_or_else(|| wrong_type("replSetFreeze", "replSetFreeze", call.envelope.value, &["number"]))?;
    let secs = u64::try_from(secs)
        .map_err(|_| Error::bad_value("replSetFreeze needs a number of seconds that is not negative"))?;
    if call.server.topology.member_state() == MemberState::Primary {
        let message = "cannot freeze node when primary or running for election. state: Primary";
        return Err(Error::new(ErrorCode::NotSecondary, message));
    }
    reply.append(cstr!("info"), if secs == 0 { "unfreezing" } else { "freezing" });
    if secs == 1 {
        reply.append(cstr!("warning"), "you really want to freeze for only 1 second?");
    }
    replication.tell(Input::Freeze(Duration::from_secs(secs)));
    Ok(())
}

/// A source this far behind is worth a warning: seconds of the log's time.
const LAG_SECS_MAX: u32 = 10;

fn sync_from(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.fields.finish()?;
    let replication = replication::of(call)?;
    let view = replication.view();
    let configuration = view.configuration.as_ref().ok_or_else(not_initiated)?;
    let RawBsonRef::String(host) = call.envelope.value else {
        return Err(wrong_type("replSetSyncFrom", "replSetSyncFrom", call.envelope.value, &["string"]));
    };
    let host = HostAndPort::parse(host)?.to_string();
    let not_secondary = |why: &str| Err(Error::new(ErrorCode::NotSecondary, why));
    let invalid = |why: String| Err(Error::new(ErrorCode::InvalidOptions, why));
    let Some(me) = view.me.and_then(|me| configuration.member(me)) else {
        return not_secondary("Removed and uninitialized nodes do not sync");
    };
    if me.arbiter {
        return not_secondary("arbiters don't sync");
    }
    if view.state == MemberState::Primary {
        return not_secondary("primaries don't sync");
    }
    if host == me.host {
        return invalid("I cannot sync from myself".to_owned());
    }
    let Some((member, peer)) =
        configuration.member_at(&host).and_then(|member| Some((member, view.peers.get(&member.id)?)))
    else {
        let message = format!("Could not find member \"{host}\" in replica set");
        return Err(Error::new(ErrorCode::NodeNotFound, message));
    };
    if member.arbiter {
        return invalid(format!("Cannot sync from \"{host}\" because it is an arbiter"));
    }
    if me.builds_indexes && !member.builds_indexes {
        return invalid(format!("Cannot sync from \"{host}\" because it does not build indexes"));
    }
    if matches!(peer.state, MemberState::Down | MemberState::Unknown) {
        let message = format!("I cannot reach the requested member: {host}");
        return Err(Error::new(ErrorCode::HostUnreachable, message));
    }
    reply.append(cstr!("syncFromRequested"), host.as_str());
    let (theirs, mine) = (peer.position.applied.timestamp.seconds, view.position.applied.timestamp.seconds);
    if theirs.saturating_add(LAG_SECS_MAX) < mine {
        let warning = format!("requested member \"{host}\" is more than {LAG_SECS_MAX} seconds behind us");
        reply.append(cstr!("warning"), warning.as_str());
    }
    if let Some(before) = view.sync_source.and_then(|source| configuration.member(source)) {
        reply.append(cstr!("prevSyncTarget"), before.host.as_str());
    }
    replication.tell(Input::SyncFrom(member.id));
    Ok(())
}

fn maintenance(call: &mut Call<'_>, _: &mut Reply<'_>) -> Result<()> {
    call.fields.finish()?;
    let replication = replication::of(call)?;
    if call.server.topology.member_state() == MemberState::Primary {
        return Err(Error::new(ErrorCode::NotSecondary, "primaries can't modify maintenance mode"));
    }
    replication.maintain(is_truthy(call.envelope.value))
}

fn abort_catch_up(call: &mut Call<'_>, _: &mut Reply<'_>) -> Result<()> {
    call.fields.finish()?;
    let replication = replication::of(call)?;
    if !replication.view().is_catching_up {
        let message = "The node is not in catch-up mode.";
        return Err(Error::new(ErrorCode::IllegalOperation, message));
    }
    replication.tell(Input::AbortCatchUp);
    Ok(())
}
