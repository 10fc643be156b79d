//! `replSetInitiate`: a member started with a set's name has initiated it already.

use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::{Error, ErrorCode};

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "replSetInitiate",
    flags: Flags::ADMIN_ONLY,
    help: "Initiates a replica set; a member started with --replSet has done so by itself.",
    run: |call, _| {
        Err(match call.server.topology.set() {
            Some(_) => Error::new(ErrorCode::AlreadyInitialized, "already initialized"),
            None => Error::new(ErrorCode::NoReplicationEnabled, "This node was not started with replication enabled."),
        })
    },
    ..DEFAULT
};
