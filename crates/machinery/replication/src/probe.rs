//! Asking a host that is in no configuration known here what it is: before a set is initiated, and when a member hears of a newer
//! configuration from somebody it does not know.

use crate::messages::{decode_response, encode_request};
use baton_consensus::configuration::UNKNOWN_TERM;
use baton_consensus::{
    Configuration, ConfigurationVersion, Gossip, HeartbeatRequest, HeartbeatResponse, MemberState, PROTOCOL_VERSION,
    Position, Request, RequestKind, Response,
};
use baton_net::Outgoing;
use baton_types::{Error, ErrorCode, OpTime, Result};
use bson::oid::ObjectId;
use std::time::Duration;

/// How long a host may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Started with the set's name, and in no set yet.
    Uninitiated,
    /// A member of a set, with that identity.
    Initiated(Option<ObjectId>),
}

/// Asks a host whether it can be made a member of the set of that name.
///
/// # Errors
/// `HostUnreachable` (6), or what the host refuses with.
pub fn probe(host: &str, set_name: &str) -> Result<Probe> {
    let response = heartbeat(host, set_name)?;
    let has_none = response.gossip.configuration_version.version == 0;
    let set_id = response.configuration.and_then(|configuration| configuration.settings.set_id);
    Ok(if has_none { Probe::Uninitiated } else { Probe::Initiated(set_id) })
}

/// The configuration that a host has.
pub(crate) fn configuration_of(host: &str, set_name: &str) -> Result<Option<Configuration>> {
    Ok(heartbeat(host, set_name)?.configuration.map(|configuration| *configuration))
}

fn heartbeat(host: &str, set_name: &str) -> Result<HeartbeatResponse> {
    let unreachable = |why: String| Error::new(ErrorCode::HostUnreachable, format!("{host} does not answer: {why}"));
    let request = Request::Heartbeat(HeartbeatRequest {
        set_name: set_name.to_owned(),
        set_id: None,
        from: None,
        from_host: String::new(),
        gossip: Gossip {
            term: 0,
            protocol_version: PROTOCOL_VERSION,
            primary: None,
            state: MemberState::Startup,
            position: Position::default(),
            commit_point: OpTime::ZERO,
            sync_source: None,
            configuration_version: ConfigurationVersion { term: UNKNOWN_TERM, version: 0 },
            leadership: None,
        },
    });
    let mut connection = Outgoing::connect(host, TIMEOUT).map_err(|error| unreachable(error.to_string()))?;
    let reply = connection.call(&encode_request(&request), TIMEOUT).map_err(|error| unreachable(error.to_string()))?;
    match decode_response(RequestKind::Heartbeat, &reply)? {
        Response::Heartbeat(response) => Ok(response),
        Response::RequestVotes(_) | Response::UpdatePosition { .. } | Response::StepUp { .. } => {
            Err(unreachable("it answered something else".to_owned()))
        }
    }
}
