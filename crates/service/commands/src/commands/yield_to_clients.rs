//! `batonYieldToClients`: what comes on this connection from now on is nobody's request who waits. A member that copies another
//! one says so first, and the clients of its source hardly notice it. With `task` it is a task of this member until the connection
//! ends: `{ batonYieldToClients: 1, task: "initialSyncSource", of: "all databases" }`. It does not wait: who may, asks by
//! `replSetBeginTask`, and says here that the work is done on this connection, so that it can be measured.

use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_storage::tasks::TaskKind;
use baton_types::{Class, Error, Result};
use bson::cstr;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "batonYieldToClients",
    flags: Flags::ADMIN_ONLY,
    help: "Has the requests of this connection yield the processor to those of clients, until it ends. For members and tools.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let kind = match call.fields.optional::<&str>("task")? {
        None => None,
        Some(name) => Some(announced(name)?),
    };
    let of = call.fields.optional::<&str>("of")?.unwrap_or_default().to_owned();
    call.fields.finish()?;
    if let Some(kind) = kind {
        call.client.announce(call.server.storage.tasks().admit_now(kind, of, 0));
    }
    call.server.client_tasks.work_here(call.client.connection.id);
    call.client.claimed.set(Class::Background);
    call.client.keep_thread();
    baton_machine::yield_to_clients();
    reply.append(cstr!("class"), Class::Background.name());
    Ok(())
}

/// What a connection may announce itself as.
fn announced(name: &str) -> Result<TaskKind> {
    Some(TaskKind::InitialSyncSource)
        .filter(|kind| kind.name() == name)
        .ok_or_else(|| Error::bad_value(format!("'{name}' is no task that a connection can be")))
}
