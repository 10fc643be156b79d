//! `startSession`: a new session of the server's making. Drivers make their own.

use crate::call::{Call, Reply};
use crate::server::sessions::TIMEOUT_MINUTES;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_request::SessionId;
use baton_types::Result;
use bson::spec::BinarySubtype;
use bson::{Binary, cstr, rawdoc};

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "startSession",
    flags: Flags::NO_AUTHENTICATION.and(Flags::API_V1),
    help: "Starts a session.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.fields.finish()?;
    let id = uuid::Uuid::new_v4().into_bytes();
    call.server.sessions.touch(SessionId(id))?;
    let id = Binary { subtype: BinarySubtype::Uuid, bytes: id.to_vec() };
    reply.append(cstr!("id"), &*rawdoc! { "id": id });
    reply.append(cstr!("timeoutMinutes"), TIMEOUT_MINUTES);
    Ok(())
}
