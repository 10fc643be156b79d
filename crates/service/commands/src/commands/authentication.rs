//! The commands by which clients authenticate. There are no users, so nobody can.
//!
//! Invariant: whoever tries is told that there are no users (334), and not that a name or a password is wrong (18): no other
//! name or password would do.

use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::{Error, ErrorCode, Result};
use bson::RawBsonRef;

const FLAGS: Flags = Flags::NO_AUTHENTICATION.and(Flags::SECRET).and(Flags::API_V1);

/// The row of `authenticate`.
pub const AUTHENTICATE: CommandSpec = CommandSpec {
    name: "authenticate",
    flags: FLAGS,
    help: "Authenticates by X.509; there are no users yet.",
    run: |call, _| {
        let mechanism = call.fields.optional::<&str>("mechanism")?.unwrap_or("MONGODB-CR");
        Err(unknown_mechanism(mechanism))
    },
    ..DEFAULT
};

/// The row of `logout`.
pub const LOGOUT: CommandSpec = CommandSpec {
    name: "logout",
    flags: Flags::NO_AUTHENTICATION,
    help: "Forgets who this connection has authenticated as.",
    run: |_, _| Ok(()),
    ..DEFAULT
};

/// The row of `saslContinue`.
pub const SASL_CONTINUE: CommandSpec = CommandSpec {
    name: "saslContinue",
    flags: FLAGS,
    help: "Goes on with an authentication.",
    run: |_, _| Err(Error::new(ErrorCode::ProtocolError, "No SASL session state found")),
    ..DEFAULT
};

/// The row of `saslStart`.
pub const SASL_START: CommandSpec =
    CommandSpec { name: "saslStart", flags: FLAGS, help: "Begins an authentication.", run: sasl_start, ..DEFAULT };

fn sasl_start(call: &mut Call<'_>, _: &mut Reply<'_>) -> Result<()> {
    let mechanism = call.fields.required::<&str>("mechanism")?;
    match call.fields.take("payload") {
        Some(RawBsonRef::Binary(_) | RawBsonRef::String(_)) => {}
        Some(other) => {
            return Err(baton_request::fields::wrong_type("saslStart", "payload", other, &["string", "binData"]));
        }
        None => return Err(Error::location(40414, "BSON field 'saslStart.payload' is missing but a required field")),
    }
    Err(unknown_mechanism(mechanism))
}

fn unknown_mechanism(mechanism: &str) -> Error {
    Error::new(
        ErrorCode::MechanismUnavailable,
        format!(
            "Received authentication for mechanism {mechanism} which is unknown or not enabled: users are not implemented \
             yet, connect without user and password"
        ),
    )
}
