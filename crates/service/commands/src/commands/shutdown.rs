//! `shutdown`: stops the member cleanly.
//!
//! A primary hands over first. Unless `force` is set it goes on serving, and says why, where nobody can take over in time.
//!
//! Invariant: without users, only a client on this machine may; mongod has the same rule.

use crate::call::{Call, Reply};
use crate::membership;
use crate::server::ShutdownRequest;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::{Error, ErrorCode, Result};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "shutdown",
    flags: Flags::ADMIN_ONLY,
    help: "{ shutdown: 1, force: false, timeoutSecs: 15 } stops the member; what was acknowledged is on disk then.",
    run,
    ..DEFAULT
};

/// How long a primary may take to hand over, and a member to end what it serves, unless the client says.
const TIMEOUT_DEFAULT_SECS: i64 = 15;

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let force = call.fields.truth("force")?;
    let timeout_secs = call.fields.non_negative("timeoutSecs")?.unwrap_or(TIMEOUT_DEFAULT_SECS);
    call.fields.finish()?;
    let peer = call.client.connection.peer.parse::<SocketAddr>();
    if peer.is_ok_and(|p| !is_loopback(p.ip())) {
        return Err(Error::new(
            ErrorCode::Unauthorized,
            "shutdown must run from localhost when running db without auth",
        ));
    }
    let began = Instant::now();
    let timeout = Duration::from_secs(timeout_secs.unsigned_abs());
    match membership::hand_over(call.server, timeout, force, &|| call.operation.check_interrupt()) {
        Err(error) if !force => return Err(error),
        _ => {}
    }
    call.server.request_shutdown(ShutdownRequest { quiesce: timeout.saturating_sub(began.elapsed()) });
    reply.close_connection();
    Ok(())
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}
