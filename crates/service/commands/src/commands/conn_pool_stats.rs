//! `connPoolStats`: the connections to other servers that a router or a shard keeps for later. Source: MongoDB manual,
//! "connPoolStats". A member has a connection to each other member and one to whom it fetches from, each for its one use;
//! none is kept in a pool, so that there being none is the whole truth.

use crate::table::{CommandSpec, DEFAULT, Flags};
use bson::{cstr, rawdoc};

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "connPoolStats",
    flags: Flags::NONE,
    help: "Describes the pools of connections to other servers, of which there are none.",
    run: |call, reply| {
        call.fields.finish()?;
        for key in [
            cstr!("numClientConnections"),
            cstr!("numAScopedConnections"),
            cstr!("totalInUse"),
            cstr!("totalAvailable"),
            cstr!("totalLeased"),
            cstr!("totalCreated"),
            cstr!("totalRefreshing"),
            cstr!("totalRefreshed"),
        ] {
            reply.append(key, 0);
        }
        for key in [cstr!("pools"), cstr!("hosts"), cstr!("replicaSets")] {
            reply.append(key, &*rawdoc! {});
        }
        Ok(())
    },
    ..DEFAULT
};
