//! `replSetGetConfig`: the set's configuration.

use crate::call::{Call, Reply};
use crate::commands::replication;
use crate::server::ReplicaSet;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::{Error, ErrorCode, Result};
use bson::{RawDocumentBuf, cstr};
use std::sync::Arc;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "replSetGetConfig",
    flags: Flags::ADMIN_ONLY,
    help: "Returns the replica set's configuration.",
    run,
    ..DEFAULT
};

/// The set, or `NoReplicationEnabled` (76).
pub fn set_of(call: &Call<'_>) -> Result<Arc<ReplicaSet>> {
    call.server.topology.set().ok_or_else(|| Error::new(ErrorCode::NoReplicationEnabled, "not running with --replSet"))
}

/// What a member without a configuration says: `NotYetInitialized` (94).
pub fn not_initiated() -> Error {
    Error::new(ErrorCode::NotYetInitialized, "no replset config has been received")
}

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let set = set_of(call)?;
    let commitment = call.fields.truth("commitmentStatus")?;
    call.fields.take("includeNewlyAdded");
    call.fields.finish()?;
    let configuration = set.configuration().ok_or_else(not_initiated)?;
    let document = RawDocumentBuf::try_from(&configuration.to_document())?;
    reply.append(cstr!("config"), &*document);
    if commitment {
        if !set.view.is_writable_primary {
            let message = "commitmentStatus is only supported on primary.";
            return Err(Error::new(ErrorCode::NotWritablePrimary, message));
        }
        reply.append(cstr!("commitmentStatus"), replication::of(call)?.view().configuration_is_committed);
    }
    Ok(())
}
