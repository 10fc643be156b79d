//! `appendOplogNote`: an entry in the oplog that changes nothing.

use super::repl_set_get_config::set_of;
use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::{Error, ErrorCode, Namespace, Result, Timestamp};
use bson::RawDocument;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "appendOplogNote",
    flags: Flags::ADMIN_ONLY.and(Flags::WRITE_CONCERN),
    help: "{ appendOplogNote: 1, data: { … }, maxClusterTime: Timestamp } writes an entry that changes nothing, unless the log \
           has reached that time.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, _: &mut Reply<'_>) -> Result<()> {
    set_of(call)?;
    let data = call.fields.required::<&RawDocument>("data")?;
    let wanted = call.fields.optional::<bson::Timestamp>("maxClusterTime")?.map(Timestamp::from);
    call.fields.finish()?;
    let applied = call.server.storage.queue().applied().timestamp;
    if let Some(time) = wanted.filter(|time| *time <= applied) {
        let message = format!("Requested maxClusterTime {time} is less or equal to the last primary OpTime: {applied}");
        return Err(Error::new(ErrorCode::StaleClusterTime, message));
    }
    call.writer().note(&Namespace::new("admin", "$cmd")?, &data.to_owned())?;
    if call.write_concern().wants_sync() {
        call.server.storage.sync();
    }
    Ok(())
}
