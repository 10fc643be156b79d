//! `batonWorkInBackground`: what comes on this connection from now on is nobody's request who waits. A member that copies another
//! one says so first, and the clients of its source hardly notice it.

use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::{Class, Result};
use bson::cstr;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "batonWorkInBackground",
    flags: Flags::ADMIN_ONLY,
    help: "Gives the requests of this connection a tenth of a client's share of the processor, until it ends. For members.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.fields.finish()?;
    call.client.set_class(Class::Background);
    baton_storage::work_in_background();
    reply.append(cstr!("class"), Class::Background.name());
    Ok(())
}
