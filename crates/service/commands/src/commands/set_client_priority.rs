//! `setClientPriority`: the class of this connection's requests from now on. One of Baton's own commands.

use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::{Error, Result};
use bson::cstr;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "setClientPriority",
    flags: Flags::NONE,
    help: "{ setClientPriority: 1, priority: 'high' | 'normal' | 'low' } sets the class of this connection's requests.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.fields.finish()?;
    // Every command takes `priority`, so the envelope has read it.
    let Some(class) = call.envelope.class else {
        return Err(Error::location(40414, "BSON field 'setClientPriority.priority' is missing but a required field"));
    };
    reply.append(cstr!("was"), call.client.class().name());
    call.client.set_class(class);
    reply.append(cstr!("priority"), class.name());
    Ok(())
}
