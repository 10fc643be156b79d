//! What operators tell a member to do about elections and sources: `replSetStepUp`, `replSetFreeze`, `replSetSyncFrom`,
//! `replSetMaintenance`, `replSetAbortPrimaryCatchUp`.

use crate::call::{Call, Reply};
use crate::commands::repl_set_get_config::{not_initiated, set_of};
use crate::commands::replication;
use crate::fields::{is_truthy, number_as_i64, wrong_type};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_consensus::{Input, MemberState};
use baton_replication::Order;
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
    replication.tell(Input::Freeze(Duration::from_secs(secs)));
    Ok(())
}

fn sync_from(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.fields.finish()?;
    let set = set_of(call)?;
    let configuration = set.configuration().ok_or_else(not_initiated)?;
    let RawBsonRef::String(host) = call.envelope.value else {
        return Err(wrong_type("replSetSyncFrom", "replSetSyncFrom", call.envelope.value, &["string"]));
    };
    let Some(member) = configuration.member_at(host) else {
        let message = format!("Could not find member \"{host}\" in replica set");
        return Err(Error::new(ErrorCode::NodeNotFound, message));
    };
    if host == set.me {
        return Err(Error::new(ErrorCode::InvalidOptions, "I cannot sync from myself"));
    }
    if set.view.state == MemberState::Primary {
        return Err(Error::new(ErrorCode::NotSecondary, "primaries don't sync"));
    }
    if !member.bears_data() {
        let message = format!("Cannot sync from \"{host}\" because it is an arbiter");
        return Err(Error::new(ErrorCode::InvalidOptions, message));
    }
    if let Some(before) = set.view.sync_source.and_then(|source| set.host_of(source)) {
        reply.append(cstr!("prevSyncTarget"), before);
    }
    reply.append(cstr!("syncFromRequested"), host);
    replication::of(call)?.tell(Input::SyncFrom(member.id));
    Ok(())
}

fn maintenance(call: &mut Call<'_>, _: &mut Reply<'_>) -> Result<()> {
    call.fields.finish()?;
    let replication = replication::of(call)?;
    if call.server.topology.member_state() == MemberState::Primary {
        return Err(Error::new(ErrorCode::NotSecondary, "primaries can't modify maintenance mode"));
    }
    replication.tell(Input::Maintenance(is_truthy(call.envelope.value)));
    Ok(())
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
