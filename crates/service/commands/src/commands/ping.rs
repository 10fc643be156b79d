//! `ping`: whether the member answers.

use crate::table::{CommandSpec, DEFAULT, Flags};

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "ping",
    flags: Flags::NO_AUTHENTICATION.and(Flags::API_V1),
    help: "Checks that the server is alive. Responds immediately even if the server is in a db lock.",
    run: |_, _| Ok(()),
    ..DEFAULT
};
