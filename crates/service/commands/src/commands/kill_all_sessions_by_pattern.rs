//! `killAllSessionsByPattern`: ends the sessions that match any of the patterns; an empty list means all.

use super::sessions_common::{array_of, documents_of};
use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_request::Fields;
use baton_request::envelope::parse_session;
use baton_types::Result;
use bson::{RawArray, RawDocument};

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "killAllSessionsByPattern",
    flags: Flags::NONE,
    help: "{ killAllSessionsByPattern: [ { lsid: … } ] } ends the sessions that match.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, _: &mut Reply<'_>) -> Result<()> {
    call.fields.finish()?;
    let name = "killAllSessionsByPattern";
    let patterns = documents_of(name, array_of(name, call.envelope.value)?)?;
    let mut all = patterns.is_empty();
    let mut sessions = Vec::new();
    for pattern in patterns {
        let mut fields = Fields::of(name, pattern)?;
        let lsid = fields.optional::<&RawDocument>("lsid")?;
        // Patterns of users match nobody while there are none.
        let of_users = fields.take("uid").is_some() | fields.optional::<&RawArray>("users")?.is_some();
        fields.take("roles");
        fields.finish()?;
        match lsid {
            Some(lsid) => sessions.push(parse_session(lsid)?),
            None => all |= !of_users,
        }
    }
    call.server.end_sessions(call.operation.id, &|session| all || sessions.contains(&session));
    Ok(())
}
