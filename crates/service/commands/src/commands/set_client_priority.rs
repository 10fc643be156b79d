//! `setClientPriority`: the class of this session's requests from now on, or of this connection's. One of Baton's own commands.
//!
//! A driver that sends a session's number with the command means that session, whichever of its connections carries what follows;
//! without one it can only mean the connection.

use crate::call::{Call, Reply};
use crate::priority;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::{Error, Result};
use bson::cstr;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "setClientPriority",
    flags: Flags::NONE,
    help: "{ setClientPriority: 1, priority: 'high' | 'normal' | 'low' } sets the class of this session's requests, or of this \
           connection's if it has none.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.fields.finish()?;
    // Every command takes `priority`, so the envelope has read it.
    let Some(class) = call.envelope.class else {
        return Err(Error::location(40414, "BSON field 'setClientPriority.priority' is missing but a required field"));
    };
    priority::check_privilege(call.client, class)?;
    let (claimed, of) = match &call.session {
        Some(session) => (&session.claimed, "session"),
        None => (&call.client.claimed, "connection"),
    };
    reply.append(cstr!("was"), claimed.get().unwrap_or_default().name());
    claimed.set(class);
    reply.append(cstr!("priority"), class.name());
    reply.append(cstr!("of"), of);
    Ok(())
}
