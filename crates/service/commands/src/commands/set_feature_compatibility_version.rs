//! `setFeatureCompatibilityVersion`. Source: MongoDB manual, "setFeatureCompatibilityVersion".
//!
//! There is one version, that of `getParameter`'s `featureCompatibilityVersion`: to set it changes nothing, and to set
//! another is refused.

use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::{Error, Result};
use bson::RawBsonRef;

/// The version of MongoDB whose features are there.
pub const VERSION: &str = "7.0";
/// The one before, to which MongoDB could be set back.
const VERSION_BEFORE: &str = "6.0";

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "setFeatureCompatibilityVersion",
    flags: Flags::ADMIN_ONLY.and(Flags::WRITE_CONCERN).and(Flags::WRITES),
    help: "Sets the version of MongoDB whose features are there; it is 7.0 and cannot be another.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, _: &mut Reply<'_>) -> Result<()> {
    let RawBsonRef::String(version) = call.envelope.value else {
        let value = call.envelope.value;
        return Err(baton_request::fields::wrong_type(call.spec.name, call.spec.name, value, &["string"]));
    };
    let is_confirmed = call.fields.truth("confirm")?;
    for ignored in ["downgradeOnDiskChanges", "fromConfigServer", "phase", "timestamp", "changeTimestamp"] {
        call.fields.take(ignored);
    }
    call.fields.finish()?;
    match version {
        VERSION | VERSION_BEFORE if !is_confirmed => Err(Error::location(
            7_369_100,
            format!(
                "Once you have changed the featureCompatibilityVersion to {version}, you may not be able to change it \
                 back without support assistance. Please re-run this command with 'confirm: true' to acknowledge this."
            ),
        )),
        VERSION => Ok(()),
        VERSION_BEFORE => Err(Error::not_implemented(format!("featureCompatibilityVersion {VERSION_BEFORE}"))),
        other => Err(Error::bad_value(format!(
            "Invalid feature compatibility version value, expected '{VERSION_BEFORE}' or '{VERSION}', found {other}."
        ))),
    }
}
