//! What is refused before anything is done: by the table, by the member's role, by the set, and by the client's own words.
//!
//! What it deliberately does not do: take over the time that a client has heard of; whoever has asked does.

use crate::concerns::ReadLevel;
use crate::envelope::Envelope;
use crate::spec::{CommandSpec, Flags};
use baton_types::{Error, ErrorCode, Result, Timestamp};

/// How the member stands that is to carry a request out.
pub struct Member<'m> {
    /// Whether it is of a replica set.
    pub is_replicated: bool,
    /// Whether it takes writes.
    pub is_writable_primary: bool,
    /// Whether what it has may be read: not while it recovers.
    pub is_readable: bool,
    /// Whether every request must say its API version.
    pub requires_api_version: bool,
    /// The highest cluster time that it knows; few requests ask.
    pub cluster_time: &'m dyn Fn() -> Timestamp,
}

/// What the table, the set and the client's own words forbid, before anything is done.
///
/// # Errors
/// MongoDB's, by code and words.
pub fn check<R, M>(spec: &CommandSpec<R, M>, member: &Member<'_>, envelope: &Envelope<'_>) -> Result<()> {
    let (flags, name) = (spec.flags, spec.name);
    if flags.has(Flags::ADMIN_ONLY) && envelope.db != "admin" {
        return Err(Error::new(ErrorCode::Unauthorized, format!("{name} may only be run against the admin database.")));
    }
    if envelope.is_mirrored && (spec.mirrored_as.is_none() || flags.has(Flags::WRITES)) {
        return Err(Error::location(40415, format!("BSON field '{name}.mirrored' is an unknown field.")));
    }
    check_role(flags, member, envelope)?;
    check_api(flags, name, member, envelope)?;
    check_transaction(flags, name, member, envelope)?;
    if let Some(concern) = &envelope.write_concern {
        if !flags.has(Flags::WRITE_CONCERN) {
            return Err(Error::new(ErrorCode::InvalidOptions, "Command does not support writeConcern"));
        }
        concern.check_member(member.is_replicated)?;
    }
    check_read_concern(flags, name, member, envelope)
}

/// Whether a member in this role may carry the command out: writes are the primary's, and a secondary is read from by those who
/// say that they mean to. What is in `local` is every member's own.
fn check_role(flags: Flags, member: &Member<'_>, envelope: &Envelope<'_>) -> Result<()> {
    if member.is_writable_primary || envelope.db == "local" {
        return Ok(());
    }
    if flags.has(Flags::WRITES) {
        return Err(Error::new(ErrorCode::NotWritablePrimary, "not primary"));
    }
    if !flags.has(Flags::READ_CONCERN) && !flags.has(Flags::ON_COLLECTION) {
        return Ok(());
    }
    if !flags.has(Flags::ANY_ROLE)
        && envelope.read_preference.is_none_or(|preference| matches!(preference.get_str("mode"), Ok("primary")))
    {
        return Err(Error::new(ErrorCode::NotPrimaryNoSecondaryOk, "not primary and secondaryOk=false"));
    }
    if !member.is_readable {
        let message = "node is not in primary or recovering state";
        return Err(Error::new(ErrorCode::NotPrimaryOrSecondary, message));
    }
    Ok(())
}

fn check_api(flags: Flags, name: &str, member: &Member<'_>, envelope: &Envelope<'_>) -> Result<()> {
    if !envelope.api_version && member.requires_api_version && !flags.has(Flags::NO_AUTHENTICATION) {
        return Err(Error::location(
            498_870,
            "The apiVersion parameter is required, please configure your MongoClient's API version",
        ));
    }
    if envelope.api_strict && !flags.has(Flags::API_V1) {
        return Err(Error::new(
            ErrorCode::APIStrictError,
            format!(
                "Provided apiStrict:true, but the command {name} is not in API Version 1. Information on supported \
                 commands and migrations in API Version 1 can be found at \
                 https://dochub.mongodb.org/core/manual-versioned-api"
            ),
        ));
    }
    Ok(())
}

fn check_transaction(flags: Flags, name: &str, member: &Member<'_>, envelope: &Envelope<'_>) -> Result<()> {
    let Some(number) = envelope.txn_number else { return Ok(()) };
    if !member.is_replicated {
        return Err(Error::new(
            ErrorCode::IllegalOperation,
            "Transaction numbers are only allowed on a replica set member or mongos",
        ));
    }
    match envelope.transaction {
        Some(_) if flags.has(Flags::TRANSACTIONS) => Ok(()),
        Some(mark) if mark.start => Err(Error::not_implemented("A multi-document transaction")),
        Some(_) => Err(Error::new(
            ErrorCode::NoSuchTransaction,
            format!("Given transaction number {number} does not match any in-progress transactions."),
        )
        .with_label("TransientTransactionError")),
        None if flags.has(Flags::RETRYABLE) || flags.has(Flags::TRANSACTIONS) => Ok(()),
        None => Err(Error::location(
            50768,
            format!(
                "txnNumber may only be provided for multi-document transactions and retryable write commands. \
                 autocommit:false was not provided, and {name} is not a retryable write command."
            ),
        )),
    }
}

fn check_read_concern(flags: Flags, name: &str, member: &Member<'_>, envelope: &Envelope<'_>) -> Result<()> {
    let concern = &envelope.read_concern;
    let is_supported = match concern.level {
        ReadLevel::Local | ReadLevel::Available => true,
        ReadLevel::Majority | ReadLevel::Linearizable => flags.has(Flags::READ_CONCERN),
        ReadLevel::Snapshot => flags.has(Flags::SNAPSHOT),
    };
    if !is_supported {
        return Err(Error::new(
            ErrorCode::InvalidOptions,
            format!(
                "Command {name} does not support {{ readConcern: {{ level: \"{}\" }} }} :: caused by :: read concern not \
                 supported",
                concern.level.name()
            ),
        ));
    }
    let Some(time) = concern.after_cluster_time.or(concern.at_cluster_time) else { return Ok(()) };
    if !member.is_replicated {
        return Err(Error::new(
            ErrorCode::IllegalOperation,
            "Cannot specify afterClusterTime or atClusterTime readConcern without replication enabled",
        ));
    }
    let now = (member.cluster_time)().max(envelope.cluster_time.unwrap_or_default());
    if time > now {
        return Err(Error::new(
            ErrorCode::InvalidOptions,
            format!(
                "readConcern afterClusterTime value must not be greater than the current clusterTime. Requested \
                 clusterTime: {time}; current clusterTime: {now}"
            ),
        ));
    }
    Ok(())
}
