//! `batonYieldToClients`: what comes on this connection from now on is nobody's request who waits. A member that copies another
//! one says so first, and the clients of its source hardly notice it.

use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::{Class, Result};
use bson::cstr;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "batonYieldToClients",
    flags: Flags::ADMIN_ONLY,
    help: "Has the requests of this connection yield the processor to those of clients, until it ends. For members.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.fields.finish()?;
    call.client.set_class(Class::Background);
    baton_storage::yield_to_clients();
    reply.append(cstr!("class"), Class::Background.name());
    Ok(())
}
