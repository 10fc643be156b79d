//! `isMaster`: [`super::hello`] in its old words.

use crate::table::{CommandSpec, DEFAULT, Flags};

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "isMaster",
    aliases: &["ismaster"],
    flags: Flags::NO_AUTHENTICATION.and(Flags::API_V1).and(Flags::WHILE_STOPPING),
    help: "Says who this member is; superseded by hello.",
    run: |call, reply| super::hello::answer(call, reply, true),
    ..DEFAULT
};
