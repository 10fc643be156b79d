//! `replSetRequestVotes`, asked and answered.
//!
//! Beyond MongoDB's: the request names its candidate by `candidateId`, the member's `_id` (an index would mean another member
//! where the configurations differ), says the set's `replicaSetId`, and the `reason` of the election in the words of `electionReason`; the response
//! says `dryRun`, and where the voter's log ends (`lastWrittenOpTime`).
//!
//! What it does not do: vote.

use super::fields;
use baton_consensus::configuration::UNKNOWN_TERM;
use baton_consensus::{ConfigurationVersion, ElectionReason, VoteRequest, VoteResponse};
use baton_types::{Error, OpTime, Result};
use bson::{RawDocument, RawDocumentBuf, cstr};

const REASONS: [ElectionReason; 6] = [
    ElectionReason::ElectionTimeout,
    ElectionReason::PriorityTakeover,
    ElectionReason::CatchUpTakeover,
    ElectionReason::Handoff,
    ElectionReason::StepUpRequest,
    ElectionReason::SingleMember,
];

pub(super) fn encode_request(request: &VoteRequest) -> RawDocumentBuf {
    let mut command = RawDocumentBuf::new();
    command.append(cstr!("replSetRequestVotes"), 1);
    command.append(cstr!("setName"), &*request.set_name);
    if let Some(id) = request.set_id {
        command.append(cstr!("replicaSetId"), id);
    }
    command.append(cstr!("dryRun"), request.dry_run);
    command.append(cstr!("term"), request.term);
    fields::append_integer(&mut command, cstr!("candidateId"), i64::from(request.candidate.0));
    fields::append_integer(&mut command, cstr!("configVersion"), request.configuration_version.version);
    fields::append_integer(&mut command, cstr!("configTerm"), request.configuration_version.term);
    fields::append_optime(&mut command, cstr!("lastWrittenOpTime"), request.last_written);
    command.append(cstr!("reason"), request.reason.name());
    command
}

pub(super) fn decode_request(command: &RawDocument) -> Result<VoteRequest> {
    Ok(VoteRequest {
        term: fields::term(command, "term")?,
        candidate: fields::member(command, "candidateId")?,
        configuration_version: ConfigurationVersion {
            version: fields::integer(command, "configVersion")?,
            term: fields::term_if_any(command, "configTerm")?.unwrap_or(UNKNOWN_TERM),
        },
        set_name: fields::text(command, "setName")?.to_owned(),
        set_id: fields::object_id_if_any(command, "replicaSetId")?,
        dry_run: fields::boolean(command, "dryRun")?,
        last_written: fields::optime(command, "lastWrittenOpTime")?,
        reason: decode_reason(fields::text(command, "reason")?)?,
    })
}

pub(super) fn encode_response(vote: &VoteResponse) -> RawDocumentBuf {
    let mut reply = fields::term_alone(vote.term);
    reply.append(cstr!("voteGranted"), vote.granted);
    reply.append(cstr!("reason"), &*vote.reason);
    reply.append(cstr!("dryRun"), vote.dry_run);
    fields::append_optime(&mut reply, cstr!("lastWrittenOpTime"), vote.last_written);
    reply
}

pub(super) fn decode_response(reply: &RawDocument) -> Result<VoteResponse> {
    Ok(VoteResponse {
        term: fields::term(reply, "term")?,
        granted: fields::boolean(reply, "voteGranted")?,
        reason: fields::text(reply, "reason")?.to_owned(),
        dry_run: fields::boolean(reply, "dryRun")?,
        // Voters of older versions do not tell.
        last_written: fields::optime_if_any(reply, "lastWrittenOpTime")?.unwrap_or(OpTime::ZERO),
    })
}

fn decode_reason(name: &str) -> Result<ElectionReason> {
    let known = REASONS.into_iter().find(|reason| reason.name() == name);
    known.ok_or_else(|| Error::bad_value(format!("\"{name}\" is no reason of an election")))
}
