//! What members ask each other: `replSetHeartbeat`, `replSetRequestVotes`, `replSetUpdatePosition`.
//!
//! Invariant: what cannot be read changes nothing, and is answered with MongoDB's error.
//! What it deliberately does not do: decide. `baton-replication` hands the request to the step machine and brings the answer.

use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use crate::tail;
use baton_replication::Replication;
use baton_replication::messages::{decode_request, encode_response};
use baton_types::{Error, ErrorCode, Result};

/// `replSetHeartbeat`'s row in the table.
pub const HEARTBEAT: CommandSpec = CommandSpec {
    name: "replSetHeartbeat",
    flags: Flags::ADMIN_ONLY.and(Flags::WHILE_STOPPING).and(Flags::BETWEEN_MEMBERS),
    help: "A member's sign of life to another, and what it says of itself. For members.",
    run: answer,
    ..DEFAULT
};

/// `replSetRequestVotes`' row in the table.
pub const REQUEST_VOTES: CommandSpec = CommandSpec {
    name: "replSetRequestVotes",
    flags: Flags::ADMIN_ONLY.and(Flags::BETWEEN_MEMBERS),
    help: "A candidate asks for a vote. For members.",
    run: answer,
    ..DEFAULT
};

/// `replSetUpdatePosition`'s row in the table.
pub const UPDATE_POSITION: CommandSpec = CommandSpec {
    name: "replSetUpdatePosition",
    flags: Flags::ADMIN_ONLY.and(Flags::BETWEEN_MEMBERS),
    help: "A member tells how far its log, and those below it, reach. For members.",
    run: answer,
    ..DEFAULT
};

/// This member's replication, or `NoReplicationEnabled` (76).
pub fn of<'a>(call: &Call<'a>) -> Result<&'a Replication> {
    let server = call.server;
    server.replication().ok_or_else(|| Error::new(ErrorCode::NoReplicationEnabled, "not running with --replSet"))
}

/// Hands a member's request on and writes the answer.
pub fn answer(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let request = decode_request(call.request.body)?;
    // A log that ends in the far future would be waited for, and for ever taken for the longest.
    let answer = request
        .optimes()
        .into_iter()
        .try_for_each(|optime| tail::check_clock(optime.timestamp))
        .and_then(|()| of(call)?.ask(request));
    if let Err(error) = &answer
        && matches!(error.code, ErrorCode::BadValue | ErrorCode::ClusterTimeFailsRateLimiter)
    {
        tracing::warn!(target: "REPL", from = call.client.connection.peer, error = %error, "A member's message is not believed");
    }
    let response = answer?;
    reply.extend(&encode_response(&response));
    Ok(())
}
