//! `shutdown`: stops the member cleanly.
//!
//! Invariant: without users, only a client on this machine may; mongod has the same rule.

use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::{Error, ErrorCode, Result};
use std::net::{IpAddr, SocketAddr};

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "shutdown",
    flags: Flags::ADMIN_ONLY,
    help: "Stops the member; what was acknowledged is on disk then.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.fields.truth("force")?;
    call.fields.non_negative("timeoutSecs")?;
    call.fields.finish()?;
    let peer = call.client.connection.peer.parse::<SocketAddr>();
    if peer.is_ok_and(|p| !is_loopback(p.ip())) {
        return Err(Error::new(
            ErrorCode::Unauthorized,
            "shutdown must run from localhost when running db without auth",
        ));
    }
    call.server.request_shutdown();
    reply.close_connection();
    Ok(())
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}
