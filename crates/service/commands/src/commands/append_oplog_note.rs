//! `appendOplogNote`: an entry in the oplog that changes nothing.

use super::repl_set_get_config::set_of;
use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::{Namespace, Result};
use bson::RawDocument;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "appendOplogNote",
    flags: Flags::ADMIN_ONLY.and(Flags::WRITE_CONCERN),
    help: "{ appendOplogNote: 1, data: { … } } writes an entry that changes nothing.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, _: &mut Reply<'_>) -> Result<()> {
    set_of(call)?;
    let data = call.fields.required::<&RawDocument>("data")?;
    call.fields.finish()?;
    call.server.storage.note(&Namespace::new("admin", "$cmd")?, &data.to_owned())?;
    if call.write_concern().wants_sync() {
        call.server.storage.sync();
    }
    Ok(())
}
