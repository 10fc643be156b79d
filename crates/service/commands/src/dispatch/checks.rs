//! What is refused before anything is done: by the table, by the member's role, by the set, and by the client's own words.

use crate::concerns::ReadLevel;
use crate::envelope::Envelope;
use crate::server::Server;
use crate::table::{CommandSpec, Flags};
use crate::tail;
use baton_types::{Error, ErrorCode, Result};
use std::sync::atomic::Ordering::Relaxed;

/// What the table, the set and the client's own words forbid, before anything is done.
pub(super) fn check(server: &Server, spec: &CommandSpec, envelope: &Envelope<'_>) -> Result<()> {
    let invalid = |why: String| Err(Error::new(ErrorCode::InvalidOptions, why));
    let name = spec.name;
    if spec.flags.has(Flags::ADMIN_ONLY) && envelope.db != "admin" {
        return Err(Error::new(ErrorCode::Unauthorized, format!("{name} may only be run against the admin database.")));
    }
    if envelope.is_mirrored && (spec.mirrored_as.is_none() || spec.flags.has(Flags::WRITES)) {
        return Err(Error::location(40415, format!("BSON field '{name}.mirrored' is an unknown field.")));
    }
    check_role(server, spec, envelope)?;
    check_api(server, spec, envelope)?;
    check_transaction(server, spec, envelope)?;
    if let Some(concern) = &envelope.write_concern {
        if !spec.flags.has(Flags::WRITE_CONCERN) {
            return invalid("Command does not support writeConcern".into());
        }
        concern.check_member(&server.topology)?;
    }
    check_read_concern(server, spec, envelope)?;
    if let Some(time) = envelope.cluster_time
        && server.topology.is_replicated()
    {
        tail::observe(server, time)?;
    }
    Ok(())
}

/// Whether a member in this role may carry the command out: writes are the primary's, and a secondary is read from by those who
/// say that they mean to. What is in `local` is every member's own.
fn check_role(server: &Server, spec: &CommandSpec, envelope: &Envelope<'_>) -> Result<()> {
    let topology = &server.topology;
    if topology.is_writable_primary() || envelope.db == "local" {
        return Ok(());
    }
    if spec.flags.has(Flags::WRITES) {
        return Err(Error::new(ErrorCode::NotWritablePrimary, "not primary"));
    }
    if !spec.flags.has(Flags::READ_CONCERN) && !spec.flags.has(Flags::ON_COLLECTION) {
        return Ok(());
    }
    if !spec.flags.has(Flags::ANY_ROLE)
        && envelope.read_preference.is_none_or(|preference| matches!(preference.get_str("mode"), Ok("primary")))
    {
        return Err(Error::new(ErrorCode::NotPrimaryNoSecondaryOk, "not primary and secondaryOk=false"));
    }
    if !topology.is_readable() {
        let message = "node is not in primary or recovering state";
        return Err(Error::new(ErrorCode::NotPrimaryOrSecondary, message));
    }
    Ok(())
}

fn check_api(server: &Server, spec: &CommandSpec, envelope: &Envelope<'_>) -> Result<()> {
    if !envelope.api_version
        && server.parameters.require_api_version.load(Relaxed)
        && !spec.flags.has(Flags::NO_AUTHENTICATION)
    {
        return Err(Error::location(
            498_870,
            "The apiVersion parameter is required, please configure your MongoClient's API version",
        ));
    }
    if envelope.api_strict && !spec.flags.has(Flags::API_V1) {
        return Err(Error::new(
            ErrorCode::APIStrictError,
            format!(
                "Provided apiStrict:true, but the command {} is not in API Version 1. Information on supported \
                 commands and migrations in API Version 1 can be found at \
                 https://dochub.mongodb.org/core/manual-versioned-api",
                spec.name
            ),
        ));
    }
    Ok(())
}

fn check_transaction(server: &Server, spec: &CommandSpec, envelope: &Envelope<'_>) -> Result<()> {
    let Some(number) = envelope.txn_number else { return Ok(()) };
    if !server.topology.is_replicated() {
        return Err(Error::new(
            ErrorCode::IllegalOperation,
            "Transaction numbers are only allowed on a replica set member or mongos",
        ));
    }
    match envelope.transaction {
        Some(_) if spec.flags.has(Flags::TRANSACTIONS) => Ok(()),
        Some(mark) if mark.start => Err(Error::not_implemented("A multi-document transaction")),
        Some(_) => Err(Error::new(
            ErrorCode::NoSuchTransaction,
            format!("Given transaction number {number} does not match any in-progress transactions."),
        )
        .with_label("TransientTransactionError")),
        None if spec.flags.has(Flags::RETRYABLE) || spec.flags.has(Flags::TRANSACTIONS) => Ok(()),
        None => Err(Error::location(
            50768,
            format!(
                "txnNumber may only be provided for multi-document transactions and retryable write commands. \
                 autocommit:false was not provided, and {} is not a retryable write command.",
                spec.name
            ),
        )),
    }
}

fn check_read_concern(server: &Server, spec: &CommandSpec, envelope: &Envelope<'_>) -> Result<()> {
    let concern = &envelope.read_concern;
    let is_supported = match concern.level {
        ReadLevel::Local | ReadLevel::Available => true,
        ReadLevel::Majority | ReadLevel::Linearizable => spec.flags.has(Flags::READ_CONCERN),
        ReadLevel::Snapshot => spec.flags.has(Flags::SNAPSHOT),
    };
    if !is_supported {
        return Err(Error::new(
            ErrorCode::InvalidOptions,
            format!(
                "Command {} does not support {{ readConcern: {{ level: \"{}\" }} }} :: caused by :: read concern not \
                 supported",
                spec.name,
                concern.level.name()
            ),
        ));
    }
    let Some(time) = concern.after_cluster_time.or(concern.at_cluster_time) else { return Ok(()) };
    if !server.topology.is_replicated() {
        return Err(Error::new(
            ErrorCode::IllegalOperation,
            "Cannot specify afterClusterTime or atClusterTime readConcern without replication enabled",
        ));
    }
    let now = server.cluster_time().max(envelope.cluster_time.unwrap_or_default());
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
