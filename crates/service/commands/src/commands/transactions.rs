//! `commitTransaction` and `abortTransaction`: transactions are not implemented, so there is never one to end.

use crate::call::Call;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::{Error, ErrorCode};

const FLAGS: Flags =
    Flags::ADMIN_ONLY.and(Flags::TRANSACTIONS).and(Flags::WRITE_CONCERN).and(Flags::API_V1).and(Flags::RETRYABLE);

/// The row of `abortTransaction`.
pub const ABORT: CommandSpec = CommandSpec {
    name: "abortTransaction",
    flags: FLAGS,
    help: "Aborts a transaction; there are none yet.",
    run: |call, _| Err(no_such_transaction(call)),
    ..DEFAULT
};

/// The row of `commitTransaction`.
pub const COMMIT: CommandSpec = CommandSpec {
    name: "commitTransaction",
    flags: FLAGS,
    help: "Commits a transaction; there are none yet.",
    run: |call, _| Err(no_such_transaction(call)),
    ..DEFAULT
};

fn no_such_transaction(call: &Call<'_>) -> Error {
    match call.envelope.txn_number {
        Some(number) => Error::new(
            ErrorCode::NoSuchTransaction,
            format!("Given transaction number {number} does not match any in-progress transactions."),
        )
        .with_label("TransientTransactionError"),
        None => Error::new(ErrorCode::CommandFailed, format!("{} must be run within a transaction", call.spec.name)),
    }
}
