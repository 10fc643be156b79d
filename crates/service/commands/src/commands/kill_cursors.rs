//! `killCursors`: closes cursors by their numbers. Source: MongoDB manual, "killCursors".

use crate::call::{Call, Reply};
use crate::server::cursors::Killed;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_request::fields::number_as_i64;
use baton_types::{Error, Result};
use bson::raw::CStr;
use bson::{RawArray, cstr};

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "killCursors",
    flags: Flags::API_V1.and(Flags::ON_COLLECTION).and(Flags::ANY_ROLE),
    help: "kill a list of cursor ids",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    // As in MongoDB, a cursor is known by its number: clients name whatever collection they like.
    if call.envelope.value.as_str().is_none() {
        return Err(Error::type_mismatch(
            "BSON field 'killCursors.killCursors' is the wrong type, expected type 'string'",
        ));
    }
    let cursors: &RawArray = call.fields.required("cursors")?;
    call.fields.finish()?;
    let (mut killed, mut unknown) = (Vec::new(), Vec::new());
    for cursor in cursors {
        let Some(id) = number_as_i64(cursor?) else {
            return Err(Error::type_mismatch("BSON field 'killCursors.cursors' holds something that is no cursor id"));
        };
        match call.server.cursors.kill(id) {
            Killed::Killed => killed.push(id),
            Killed::NotFound => unknown.push(id),
        }
    }
    let mut list = |name: &CStr, ids: &[i64]| {
        reply.begin_array(name);
        for id in ids {
            reply.push(*id);
        }
        reply.end();
    };
    list(cstr!("cursorsKilled"), &killed);
    list(cstr!("cursorsNotFound"), &unknown);
    list(cstr!("cursorsAlive"), &[]);
    list(cstr!("cursorsUnknown"), &[]);
    Ok(())
}
