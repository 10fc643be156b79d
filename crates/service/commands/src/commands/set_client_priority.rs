//! `setClientPriority`: the class of this connection's requests from now on. One of Baton's own commands.
//!
//! What it deliberately does not do yet: set another class than the one that everything has. Nothing distinguishes them, and
//! the envelope refuses the others.

use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::{Error, Result};
use bson::cstr;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "setClientPriority",
    flags: Flags::NONE,
    help: "{ setClientPriority: 1, priority: 'normal' } sets the class of this connection's requests; 'high' and 'low' are \
           not implemented yet.",
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
