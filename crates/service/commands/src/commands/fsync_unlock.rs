//! `fsyncUnlock`: there is no lock to give back, because `fsync` takes none.

use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::{Error, ErrorCode};

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "fsyncUnlock",
    flags: Flags::ADMIN_ONLY,
    help: "Gives back the lock of fsync with lock: true.",
    run: |_, _| Err(Error::new(ErrorCode::IllegalOperation, "fsyncUnlock called when not locked")),
    ..DEFAULT
};
