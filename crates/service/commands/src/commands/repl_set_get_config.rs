//! `replSetGetConfig`: the set's configuration.

use crate::call::{Call, Reply};
use crate::server::ReplicaSet;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::{Error, ErrorCode, Result};
use bson::{cstr, rawdoc};

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "replSetGetConfig",
    flags: Flags::ADMIN_ONLY,
    help: "Returns the replica set's configuration.",
    run,
    ..DEFAULT
};

/// The set, or `NoReplicationEnabled` (76).
pub fn set_of<'a>(call: &Call<'a>) -> Result<&'a ReplicaSet> {
    let server = call.server;
    server.topology.set().ok_or_else(|| Error::new(ErrorCode::NoReplicationEnabled, "not running with --replSet"))
}

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let set = set_of(call)?;
    let commitment = call.fields.truth("commitmentStatus")?;
    call.fields.take("includeNewlyAdded");
    call.fields.finish()?;
    let member = rawdoc! {
        "_id": 0, "host": set.me.as_str(), "arbiterOnly": false, "buildIndexes": true, "hidden": false,
        "priority": 1, "tags": {}, "secondaryDelaySecs": 0_i64, "votes": 1,
    };
    let config = rawdoc! {
        "_id": set.name.as_str(),
        "version": i32::try_from(set.config_version).unwrap_or(i32::MAX),
        "term": set.term,
        "members": [member],
        "protocolVersion": 1_i64,
        "writeConcernMajorityJournalDefault": true,
        "settings": {
            "chainingAllowed": true,
            "heartbeatIntervalMillis": 2000,
            "heartbeatTimeoutSecs": 10,
            "electionTimeoutMillis": 10000,
            "catchUpTimeoutMillis": -1,
            "getLastErrorModes": {},
            "getLastErrorDefaults": { "w": 1, "wtimeout": 0 },
            "replicaSetId": set.id,
        },
    };
    reply.append(cstr!("config"), &*config);
    if commitment {
        reply.append(cstr!("commitmentStatus"), true);
    }
    Ok(())
}
