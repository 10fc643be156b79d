//! `setParameter`: changes parameters until the member stops.
//!
//! Invariant: an unknown parameter, or one that cannot be changed now, is refused, and says so by name.

use crate::call::{Call, Reply};
use crate::server::parameters;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::{Error, ErrorCode, Result};
use bson::{RawBson, cstr};

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "setParameter",
    flags: Flags::ADMIN_ONLY,
    help: "{ setParameter: 1, notablescan: true } changes a parameter until the member stops.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let mut first = None;
    for (name, value) in call.fields.rest() {
        let was = parameters::set(call.server, name, value, false)?;
        tracing::info!(target: "COMMAND", id = 23435, parameter = name, oldValue = %was, "Successfully set parameter");
        first.get_or_insert(was);
    }
    let Some(was) = first else {
        return Err(Error::new(ErrorCode::InvalidOptions, "no option found to set, use help:true to see options "));
    };
    let was = RawBson::try_from(was)?;
    reply.append(cstr!("was"), was.as_raw_bson_ref());
    Ok(())
}
