//! The stages that describe the server instead of reading documents: `$collStats`, `$indexStats`, `$currentOp`,
//! `$listSessions`, `$listLocalSessions`, `$planCacheStats`. Here their arguments are checked; the figures come from
//! whoever carries the stage out.
//!
//! Source: MongoDB manual, the page of each stage.

use crate::show;
use baton_document::type_name;
use baton_types::{Error, ErrorCode, Result};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

/// The argument of `$collStats`.
#[derive(Clone, Debug, Default)]
pub struct CollStatsSpec {
    /// `latencyStats`, with histograms or without.
    pub latency: Option<LatencyStats>,
    /// `storageStats`: every size is divided by this.
    pub storage_scale: Option<i64>,
    /// `count`.
    pub count: bool,
    /// `queryExecStats`.
    pub query_exec: bool,
    /// The argument as the client wrote it.
    pub spec: RawDocumentBuf,
}

/// What `latencyStats` asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyStats {
    /// Whether histograms are wanted.
    pub histograms: bool,
}

impl CollStatsSpec {
    /// Parses the argument: 40166 unless it is an object, 40415 for what it may not hold.
    pub(crate) fn parse(value: RawBsonRef<'_>) -> Result<Self> {
        let Some(spec) = value.as_document() else {
            let message = format!("$collStats must take a nested object but found: $collStats: {}", show::value(value));
            return Err(Error::location(40166, message));
        };
        let mut parsed = Self { spec: spec.to_owned(), ..Self::default() };
        for element in spec.iter() {
            let (name, value) = element?;
            let options = document_argument("$collStats", name.as_str(), value)?;
            match name.as_str() {
                "latencyStats" => {
                    let histograms = options.get("histograms")?.and_then(RawBsonRef::as_bool).unwrap_or(false);
                    parsed.latency = Some(LatencyStats { histograms });
                }
                "storageStats" => parsed.storage_scale = Some(scale(options)?),
                "count" => parsed.count = true,
                "queryExecStats" => parsed.query_exec = true,
                other => return Err(unknown_field("$collStats", other)),
            }
        }
        Ok(parsed)
    }
}

fn scale(options: &RawDocument) -> Result<i64> {
    let scale = match options.get("scale")? {
        None => 1,
        Some(RawBsonRef::Int32(n)) => n.into(),
        Some(RawBsonRef::Int64(n)) => n,
        Some(RawBsonRef::Double(n)) => n as i64,
        Some(other) => {
            let message = format!(
                "BSON field '$collStats.storageStats.scale' is the wrong type '{}'",
                type_name(other.element_type())
            );
            return Err(Error::type_mismatch(message));
        }
    };
    if scale < 1 {
        let message = format!("BSON field 'scale' value must be >= 1, actual value '{scale}'");
        return Err(Error::location(51024, message));
    }
    Ok(scale)
}

/// Checks `$indexStats`, which takes an empty object: 28803.
pub(crate) fn parse_index_stats(value: RawBsonRef<'_>) -> Result<()> {
    match value.as_document() {
        Some(spec) if spec.is_empty() => Ok(()),
        _ => Err(Error::location(28803, "The $indexStats stage specification must be an empty object")),
    }
}

/// Checks `$planCacheStats`, which takes an object with at most `allHosts`.
pub(crate) fn parse_plan_cache_stats(value: RawBsonRef<'_>) -> Result<()> {
    let Some(spec) = value.as_document() else {
        let message = format!("$planCacheStats value must be an object. Found: {}", type_name(value.element_type()));
        return Err(Error::failed_to_parse(message));
    };
    for element in spec.iter() {
        let (name, value) = element?;
        match (name.as_str(), value) {
            ("allHosts", RawBsonRef::Boolean(false)) => {}
            ("allHosts", RawBsonRef::Boolean(true)) => {
                let message = "$planCacheStats stage supports allHosts parameter only for sharded clusters";
                return Err(Error::location(4503200, message));
            }
            (other, _) => {
                let message =
                    format!("$planCacheStats parameters object may contain only 'allHosts' field. Found: {other}");
                return Err(Error::failed_to_parse(message));
            }
        }
    }
    Ok(())
}

/// The argument of `$currentOp`.
#[derive(Clone, Debug)]
pub struct CurrentOpSpec {
    /// Operations of all users, not the caller's own alone.
    pub all_users: bool,
    /// Connections that do nothing at the moment, too.
    pub idle_connections: bool,
    /// Sessions that hold resources but run nothing, too.
    pub idle_sessions: bool,
    /// Cursors that wait for their client, too.
    pub idle_cursors: bool,
    /// On a router: its own operations.
    pub local_ops: bool,
    /// Whether commands too long to show are cut.
    pub truncate_ops: bool,
    /// The argument as the client wrote it.
    pub spec: RawDocumentBuf,
}

impl CurrentOpSpec {
    /// Parses the argument: `TypeMismatch` (14) for what is of another type, `FailedToParse` (9) for an unknown option.
    pub(crate) fn parse(value: RawBsonRef<'_>) -> Result<Self> {
        let Some(spec) = value.as_document() else {
            let message = format!(
                "$currentOp options must be specified in an object, but found: {}",
                type_name(value.element_type())
            );
            return Err(Error::type_mismatch(message));
        };
        let mut parsed = Self {
            all_users: false,
            idle_connections: false,
            idle_sessions: true,
            idle_cursors: false,
            local_ops: false,
            truncate_ops: true,
            spec: spec.to_owned(),
        };
        for element in spec.iter() {
            let (name, value) = element?;
            let option = match name.as_str() {
                "allUsers" => &mut parsed.all_users,
                "idleConnections" => &mut parsed.idle_connections,
                "idleSessions" => &mut parsed.idle_sessions,
                "idleCursors" => &mut parsed.idle_cursors,
                "localOps" => &mut parsed.local_ops,
                "truncateOps" => &mut parsed.truncate_ops,
                other => {
                    let message = format!("Unrecognized option '{other}' in $currentOp stage.");
                    return Err(Error::failed_to_parse(message));
                }
            };
            *option = value.as_bool().ok_or_else(|| {
                let message = format!(
                    "The '{name}' parameter of the $currentOp stage must be a boolean value, but found: {}",
                    type_name(value.element_type())
                );
                Error::type_mismatch(message)
            })?;
        }
        Ok(parsed)
    }
}

/// The argument of `$listSessions` and `$listLocalSessions`.
#[derive(Clone, Debug, Default)]
pub struct ListSessionsSpec {
    /// Sessions of all users.
    pub all_users: bool,
    /// Sessions of these users, as (user, database); empty without the option.
    pub users: Vec<(String, String)>,
    /// The argument as the client wrote it.
    pub spec: RawDocumentBuf,
}

impl ListSessionsSpec {
    /// Parses the argument of the stage `name`.
    pub(crate) fn parse(stage: &str, value: RawBsonRef<'_>) -> Result<Self> {
        let Some(spec) = value.as_document() else {
            let message = format!(
                "{stage} options must be specified in an object, but found: {}",
                type_name(value.element_type())
            );
            return Err(Error::type_mismatch(message));
        };
        let mut parsed = Self { spec: spec.to_owned(), ..Self::default() };
        for element in spec.iter() {
            let (name, value) = element?;
            match (name.as_str(), value) {
                ("allUsers", RawBsonRef::Boolean(all)) => parsed.all_users = all,
                ("users", RawBsonRef::Array(users)) => {
                    for user in users {
                        let user = document_argument(stage, "users", user?)?;
                        let (Some(name), Some(db)) = (string_field(user, "user")?, string_field(user, "db")?) else {
                            let message = format!("BSON field '{stage}.users.user' is missing but a required field");
                            return Err(Error::location(40414, message));
                        };
                        parsed.users.push((name, db));
                    }
                }
                ("allUsers" | "users", other) => {
                    let message =
                        format!("BSON field '{stage}.{name}' is the wrong type '{}'", type_name(other.element_type()));
                    return Err(Error::type_mismatch(message));
                }
                (other, _) => return Err(unknown_field(stage, other)),
            }
        }
        if parsed.all_users && !parsed.users.is_empty() {
            let message = format!("{stage} may not specify both allUsers:true and a list of users");
            return Err(Error::new(ErrorCode::UnsupportedFormat, message));
        }
        Ok(parsed)
    }
}

fn string_field(doc: &RawDocument, name: &str) -> Result<Option<String>> {
    Ok(doc.get(name)?.and_then(RawBsonRef::as_str).map(str::to_owned))
}

fn document_argument<'v>(stage: &str, name: &str, value: RawBsonRef<'v>) -> Result<&'v RawDocument> {
    value.as_document().ok_or_else(|| {
        let message = format!(
            "BSON field '{stage}.{name}' is the wrong type '{}', expected type 'object'",
            type_name(value.element_type())
        );
        Error::type_mismatch(message)
    })
}

/// `40415` for a field that a stage's argument may not have.
pub(super) fn unknown_field(stage: &str, name: &str) -> Error {
    Error::location(40415, format!("BSON field '{stage}.{name}' is an unknown field."))
}
