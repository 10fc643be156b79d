//! `replSetHeartbeat`, asked and answered.
//!
//! Beyond MongoDB's: the request names the set by `replicaSetId` too, and says of its sender what the response says of its own (`state`, `writtenOpTime`, `opTime`,
//! `durableOpTime`), and both say `protocolVersion` ([`baton_consensus::PROTOCOL_VERSION`]), `commitPoint`, and `syncSource` as a member's `_id`.
//!
//! `leadership` has what a member says of its heavy tasks ([`super::leadership`]).
//!
//! Invariants: a configuration that comes with a response has passed `Configuration::validate`; what `leadership` has is a document of
//! bounded size. What is in it is read where it is heard: a member whose tasks are not understood still gives a sign of life.
//! What it does not do: compare set names, terms or versions.

use super::fields::{self, NO_MEMBER};
use baton_consensus::configuration::HostAndPort;
use baton_consensus::{
    Configuration, ConfigurationVersion, Gossip, HeartbeatRequest, HeartbeatResponse, MemberId, MemberState, Position,
    UNSTATED_PROTOCOL_VERSION,
};
use baton_types::{Error, Result};
use bson::raw::CStr;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

/// `hbv`, which has had no other value since MongoDB 3.6.
const HEARTBEAT_VERSION: i64 = 1;
/// The term of a configuration that does not say.
const UNKNOWN_TERM: i64 = baton_consensus::configuration::UNKNOWN_TERM;
/// What a member says of its heavy tasks takes no more: several times the longest there is.
const LEADERSHIP_BYTES_MAX: usize = 16 << 10;

/// What the two halves call the configuration's version and term.
struct VersionNames {
    version: &'static CStr,
    term: &'static CStr,
}

const IN_REQUEST: VersionNames = VersionNames { version: cstr!("configVersion"), term: cstr!("configTerm") };
const IN_RESPONSE: VersionNames = VersionNames { version: cstr!("v"), term: cstr!("t") };

pub(super) fn encode_request(request: &HeartbeatRequest) -> RawDocumentBuf {
    let mut command = RawDocumentBuf::new();
    command.append(cstr!("replSetHeartbeat"), &*request.set_name);
    fields::append_integer(&mut command, cstr!("hbv"), HEARTBEAT_VERSION);
    if let Some(id) = request.set_id {
        command.append(cstr!("replicaSetId"), id);
    }
    command.append(cstr!("from"), &*request.from_host);
    fields::append_integer(&mut command, cstr!("fromId"), member_number(request.from));
    append_gossip(&mut command, &request.gossip, &IN_REQUEST);
    command
}

pub(super) fn decode_request(command: &RawDocument) -> Result<HeartbeatRequest> {
    if fields::truth(command, "checkEmpty")? {
        return Err(Error::not_implemented("replSetHeartbeat with checkEmpty"));
    }
    if let Some(version) = fields::integer_if_any(command, "hbv")?
        && version != HEARTBEAT_VERSION
    {
        return Err(Error::location(40666, format!("Found invalid value for field hbv: {version}")));
    }
    let from = fields::member_if_any(command, "fromId")?;
    let from_host = match fields::text(command, "from")? {
        "" => String::new(),
        host => HostAndPort::parse(host)?.to_string(),
    };
    let gossip = decode_gossip(command, &IN_REQUEST)?;
    let set_name = fields::text(command, "replSetHeartbeat")?.to_owned();
    let set_id = fields::object_id_if_any(command, "replicaSetId")?;
    Ok(HeartbeatRequest { set_name, set_id, from, from_host, gossip })
}

pub(super) fn encode_response(response: &HeartbeatResponse) -> RawDocumentBuf {
    let mut reply = RawDocumentBuf::new();
    append_gossip(&mut reply, &response.gossip, &IN_RESPONSE);
    // What cannot be written as BSON (a name with a zero byte) did not come from BSON; nobody gets it from here.
    let configuration = response.configuration.as_ref().map(|it| RawDocumentBuf::try_from(&it.to_document()));
    if let Some(Ok(configuration)) = configuration {
        reply.append(cstr!("config"), configuration);
    }
    reply
}

pub(super) fn decode_response(reply: &RawDocument) -> Result<HeartbeatResponse> {
    let gossip = decode_gossip(reply, &IN_RESPONSE)?;
    let configuration = match reply.get("config")? {
        None => None,
        Some(_) => {
            let configuration = Configuration::parse(fields::object(reply, "config")?)?;
            configuration.validate()?;
            Some(Box::new(configuration))
        }
    };
    Ok(HeartbeatResponse { gossip, configuration })
}

fn append_gossip(document: &mut RawDocumentBuf, gossip: &Gossip, names: &VersionNames) {
    fields::append_integer(document, names.version, gossip.configuration_version.version);
    fields::append_integer(document, names.term, gossip.configuration_version.term);
    document.append(cstr!("state"), gossip.state as i32);
    document.append(cstr!("term"), gossip.term);
    fields::append_integer(document, cstr!("protocolVersion"), i64::from(gossip.protocol_version));
    document.append(cstr!("primaryId"), member_number(gossip.primary));
    fields::append_optime(document, cstr!("writtenOpTime"), gossip.position.written);
    fields::append_optime(document, cstr!("opTime"), gossip.position.applied);
    fields::append_optime(document, cstr!("durableOpTime"), gossip.position.durable);
    fields::append_optime(document, cstr!("commitPoint"), gossip.commit_point);
    if gossip.sync_source.is_some() {
        document.append(cstr!("syncSource"), member_number(gossip.sync_source));
    }
    if let Some(leadership) = &gossip.leadership {
        document.append(cstr!("leadership"), leadership.clone());
    }
}

fn decode_gossip(document: &RawDocument, names: &VersionNames) -> Result<Gossip> {
    let configuration_version = ConfigurationVersion {
        version: fields::integer(document, names.version.as_str())?,
        term: fields::term_if_any(document, names.term.as_str())?.unwrap_or(UNKNOWN_TERM),
    };
    Ok(Gossip {
        configuration_version,
        state: decode_state(document)?,
        term: fields::term(document, "term")?,
        protocol_version: fields::integer_if_any(document, "protocolVersion")?
            .map_or(UNSTATED_PROTOCOL_VERSION, |version| u32::try_from(version).unwrap_or(u32::MAX)),
        primary: fields::member_if_any(document, "primaryId")?,
        position: Position {
            written: fields::optime(document, "writtenOpTime")?,
            applied: fields::optime(document, "opTime")?,
            durable: fields::optime(document, "durableOpTime")?,
        },
        commit_point: fields::optime(document, "commitPoint")?,
        sync_source: fields::member_if_any(document, "syncSource")?,
        leadership: decode_leadership(document)?,
    })
}

fn decode_leadership(document: &RawDocument) -> Result<Option<RawDocumentBuf>> {
    if document.get("leadership")?.is_none() {
        return Ok(None);
    }
    let leadership = fields::object(document, "leadership")?;
    let bytes = leadership.as_bytes().len();
    if bytes > LEADERSHIP_BYTES_MAX {
        return Err(Error::bad_value(format!(
            "leadership field is {bytes} bytes long, at most {LEADERSHIP_BYTES_MAX}"
        )));
    }
    Ok(Some(leadership.to_owned()))
}

fn decode_state(document: &RawDocument) -> Result<MemberState> {
    let number = fields::integer(document, "state")?;
    if let Some(found @ (RawBsonRef::Double(_) | RawBsonRef::Decimal128(_))) = document.get("state")? {
        let found = baton_consensus::configuration::type_name(found);
        return Err(Error::type_mismatch(format!(
            "Expected \"state\" field in replSetHeartbeat to have type NumberInt or NumberLong, but found type {found}"
        )));
    }
    Ok(match number {
        0 => MemberState::Startup,
        1 => MemberState::Primary,
        2 => MemberState::Secondary,
        3 => MemberState::Recovering,
        5 => MemberState::Startup2,
        6 => MemberState::Unknown,
        7 => MemberState::Arbiter,
        8 => MemberState::Down,
        9 => MemberState::Rollback,
        10 => MemberState::Removed,
        _ => {
            return Err(Error::bad_value(format!(
                "Value for \"state\" in replSetHeartbeat is no member's state: {number}"
            )));
        }
    })
}

fn member_number(member: Option<MemberId>) -> i64 {
    member.map_or(NO_MEMBER, |member| i64::from(member.0))
}
