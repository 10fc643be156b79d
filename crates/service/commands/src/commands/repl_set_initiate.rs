//! `replSetInitiate`: makes a replica set of members that are in none.
//!
//! Invariant: a set is initiated only if every member of its configuration answers, belongs to no set, and was started with the
//! same set's name.

use crate::call::{Call, Reply};
use crate::commands::repl_set_get_config::set_of;
use crate::commands::replication;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_consensus::Configuration;
use baton_replication::{Order, Probe, probe};
use baton_types::{Error, ErrorCode, Result};
use bson::oid::ObjectId;
use bson::{RawBsonRef, cstr};

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "replSetInitiate",
    flags: Flags::ADMIN_ONLY,
    help: "{ replSetInitiate: { _id: 'rs0', members: [ { _id: 0, host: 'a:27017' }, … ] } } makes a replica set. Without a \
           configuration, of this member alone.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let set = call.server.topology.set().ok_or_else(|| {
        Error::new(ErrorCode::NoReplicationEnabled, "This node was not started with replication enabled.")
    })?;
    call.fields.finish()?;
    if set.configuration().is_some() {
        return Err(Error::new(ErrorCode::AlreadyInitialized, "already initialized"));
    }
    let configuration = match call.envelope.value {
        RawBsonRef::Document(document) if !document.is_empty() => {
            let mut configuration = Configuration::parse_first(document).map_err(invalid)?;
            configuration.validate().map_err(invalid)?;
            if configuration.settings.set_id.is_some() {
                return Err(invalid(Error::bad_value("replSetInitiate: settings.replicaSetId must not be given")));
            }
            if configuration.version.version != 1 {
                let version = configuration.version.version;
                return Err(invalid(Error::bad_value(format!(
                    "Configuration used to initiate a replica set must  have version 1, but found {version}"
                ))));
            }
            configuration.settings.set_id = Some(ObjectId::new());
            configuration
        }
        RawBsonRef::Document(_)
        | RawBsonRef::Null
        | RawBsonRef::Undefined
        | RawBsonRef::Int32(_)
        | RawBsonRef::Double(_) => Configuration::initial(&set.name, &set.me, ObjectId::new())?,
        other => {
            return Err(baton_request::fields::wrong_type("replSetInitiate", "replSetInitiate", other, &["object"]));
        }
    };
    let replication = replication::of(call)?;
    let me = replication.own_host(&configuration).unwrap_or_else(|| set.me.clone());
    check(&configuration, &set.name, &me)?;
    replication.order(Order::Initiate(Box::new(configuration)))?;
    let set = set_of(call)?;
    reply.append(cstr!("info"), format!("replica set {} initiated", set.name).as_str());
    Ok(())
}

fn invalid(error: Error) -> Error {
    Error::new(ErrorCode::InvalidReplicaSetConfig, error.message)
}

fn check(configuration: &Configuration, name: &str, me: &str) -> Result<()> {
    if configuration.set_name != name {
        return Err(invalid(Error::bad_value(format!(
            "Attempting to initiate a replica set with name {}, but command line reports {name}; rejecting",
            configuration.set_name
        ))));
    }
    let Some(mine) = configuration.member_at(me) else {
        return Err(invalid(Error::bad_value(format!(
            "No host described in new configuration for replica set {name} maps to this node, which is {me}"
        ))));
    };
    if !mine.is_electable() {
        return Err(invalid(Error::bad_value(format!(
            "This node, {me}, with _id {} is not electable under the new configuration",
            mine.id
        ))));
    }
    let mut failures = Vec::new();
    for member in configuration.members.iter().filter(|member| member.host != me) {
        match probe(&member.host, name) {
            Ok(Probe::Uninitiated) => {}
            Ok(Probe::Initiated(_)) => {
                return Err(Error::new(
                    ErrorCode::AlreadyInitialized,
                    format!("'{}' has data already, cannot initiate set.", member.host),
                ));
            }
            Err(error) => failures.push(format!("{} failed with {}", member.host, error.message)),
        }
    }
    if failures.is_empty() {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::NodeNotFound,
        format!(
            "replSetInitiate quorum check failed because not all proposed set members responded affirmatively: {}",
            failures.join(", ")
        ),
    ))
}
