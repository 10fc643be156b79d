//! `dropDatabase`: removes everything in a database. Source: MongoDB manual, "dropDatabase".

use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_request::fields::number_as_i64;
use baton_types::{Error, ErrorCode, Result};
use bson::cstr;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "dropDatabase",
    flags: Flags::WRITE_CONCERN.and(Flags::API_V1).and(Flags::WRITES),
    help: "Removes a database with all its collections.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    if number_as_i64(call.envelope.value) != Some(1) {
        return Err(Error::location(5_255_100, "Have to pass 1 as 'dropDatabase' parameter"));
    }
    call.fields.finish()?;
    let db = call.envelope.db;
    if db == "local" {
        return Err(Error::new(
            ErrorCode::IllegalOperation,
            "Cannot drop 'local' database while replication is active",
        ));
    }
    let dropped = call.writer().drop_database(db)?;
    for collection in &dropped {
        call.server.counters.forget(collection.namespace.as_str());
    }
    if !dropped.is_empty() {
        reply.append(cstr!("dropped"), db);
    }
    Ok(())
}
