//! `drop`: removes a collection or view. Source: MongoDB manual, "drop". Of MongoDB 7.0 it has that dropping what is not
//! there succeeds, without `ns` in the reply.

use crate::call::{Call, Reply};
use crate::ddl;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::Result;
use bson::cstr;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "drop",
    flags: Flags::WRITE_CONCERN.and(Flags::API_V1).and(Flags::WRITES).and(Flags::ON_COLLECTION),
    help: "Removes a collection with its indexes, or a view.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = call.namespace()?;
    call.fields.finish()?;
    if let Some(dropped) = ddl::drop_namespace(call.writer(), &namespace)? {
        call.server.counters.forget(namespace.as_str());
        if let Some(count) = dropped.index_count {
            reply.append(cstr!("nIndexesWas"), count);
        }
        reply.append(cstr!("ns"), namespace.as_str());
    }
    Ok(())
}
