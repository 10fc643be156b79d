//! `$out`: the result replaces a collection.
//!
//! Source: MongoDB manual, "$out (aggregation)". Here are its arguments; writing is the executor's.

use super::lookup::Target;
use super::stats::unknown_field;
use baton_document::type_name;
use baton_types::{Error, ErrorCode, Result};
use bson::raw::{RawBson, RawBsonRef};

/// The argument of `$out`.
#[derive(Clone, Debug)]
pub struct OutSpec {
    /// The collection to replace.
    pub target: Target,
    /// The argument as the client wrote it.
    pub spec: RawBson,
}

impl OutSpec {
    /// Parses either form, a collection's name or `{db, coll}`: 16990, 40414, 40415, `InvalidNamespace` (73).
    pub(crate) fn parse(value: RawBsonRef<'_>) -> Result<Self> {
        let target = match value {
            RawBsonRef::String(coll) => Target { db: None, coll: coll.to_owned() },
            RawBsonRef::Document(spec) => {
                let mut db = None;
                let mut coll = None;
                for element in spec.iter() {
                    let (name, value) = element?;
                    let text = || {
                        value.as_str().map(str::to_owned).ok_or_else(|| {
                            let message = format!(
                                "BSON field '$out.{name}' is the wrong type '{}', expected type 'string'",
                                type_name(value.element_type())
                            );
                            Error::type_mismatch(message)
                        })
                    };
                    match name.as_str() {
                        "db" => db = Some(text()?),
                        "coll" => coll = Some(text()?),
                        "timeseries" => return Err(Error::not_implemented("$out to a time-series collection")),
                        other => return Err(unknown_field("$out", other)),
                    }
                }
                let missing =
                    |name| Error::location(40414, format!("BSON field '$out.{name}' is missing but a required field"));
                Target { db: Some(db.ok_or_else(|| missing("db"))?), coll: coll.ok_or_else(|| missing("coll"))? }
            }
            other => {
                let message = format!(
                    "$out only supports a string or object argument, but found {}",
                    type_name(other.element_type())
                );
                return Err(Error::location(16990, message));
            }
        };
        check_target("$out", &target, 17385, 31321)?;
        Ok(Self { target, spec: value.into() })
    }
}

/// Refuses a target that no client may write: an invalid name, a system collection (`special`), a database of the
/// server's own (`internal`).
pub(super) fn check_target(stage: &str, target: &Target, special: i32, internal: i32) -> Result<()> {
    let Target { db, coll } = target;
    if coll.is_empty() || coll.contains('\0') || db.as_deref().is_some_and(str::is_empty) {
        let message = format!("Invalid {stage} target namespace, {}.{coll}", db.as_deref().unwrap_or_default());
        return Err(Error::new(ErrorCode::InvalidNamespace, message));
    }
    let verb = if stage == "$out" { "Can't $out" } else { "Cannot $merge" };
    if coll.starts_with("system.") {
        return Err(Error::location(special, format!("{verb} to special collection: {coll}")));
    }
    match db.as_deref() {
        Some(db @ ("admin" | "config" | "local")) => {
            Err(Error::location(internal, format!("{verb} to internal database: {db}")))
        }
        Some(_) | None => Ok(()),
    }
}
