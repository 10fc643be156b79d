//! What a member's replication keeps on disk, and begins with: its vote, the configuration, the commit point.
//!
//! Invariants: what is put is durable when the call returns; what is damaged is refused, never taken for absent.

use crate::replication::Parts;
use crate::self_host;
use baton_consensus::{Configuration, DataState, LastVote, MemberId, Position, Start};
use baton_storage::{Fact, Storage};
use baton_types::{Error, ErrorCode, OpTime, Result};
use bson::{RawDocument, RawDocumentBuf, cstr, rawdoc};

/// What the step machine begins with.
pub(super) fn start_of(parts: &Parts) -> Result<Start> {
    let storage = &parts.storage;
    storage.show_configuration(rand::random())?;
    let configuration = match storage.fact(Fact::Configuration)? {
        Some(bytes) => Some(Configuration::parse(RawDocument::from_bytes(&bytes)?)?),
        None => None,
    };
    let vote = match storage.fact(Fact::LastVote)? {
        Some(bytes) => vote_from(RawDocument::from_bytes(&bytes)?)?,
        None => LastVote::default(),
    };
    let commit_point = match storage.fact(Fact::CommitPoint)? {
        Some(bytes) => optime_from(RawDocument::from_bytes(&bytes)?)?,
        None => OpTime::ZERO,
    };
    let last = storage.last_entry();
    let given_up = storage.given_up()?;
    let is_whole = last != OpTime::ZERO && given_up.is_none();
    let data = if is_whole { DataState::Ready } else { DataState::InitialSync };
    if let Some(theirs) =
        configuration.as_ref().map(|configuration| &configuration.set_name).filter(|name| **name != parts.set_name)
    {
        tracing::warn!(
            target: "REPL", id = 21406, startupWarning = true, localConfigSetName = theirs, commandLineSetName = parts.set_name,
            "Local replica set configuration document reports a set name, but the command line reports another; this member takes \
             no part in either and no writes. Start it with the name that its configuration has"
        );
    }
    Ok(Start {
        set_name: parts.set_name.clone(),
        protocol_version: parts.protocol_version,
        host: configuration
            .as_ref()
            .and_then(|configuration| self_host::find(configuration, &parts.host, parts.process_id))
            .unwrap_or_else(|| parts.host.clone()),
        configuration,
        vote,
        position: Position { written: last, applied: last, durable: last },
        commit_point,
        data,
        given_up: given_up.unwrap_or(OpTime::ZERO),
        seed: rand::random(),
    })
}

pub(super) fn put_vote(storage: &Storage, vote: LastVote) {
    let candidate = vote.candidate.map_or(-1, |candidate| candidate.0);
    let document = rawdoc! { "term": vote.term, "candidate": candidate };
    storage.put_fact(Fact::LastVote, document.as_bytes());
}

pub(super) fn put_configuration(storage: &Storage, configuration: &Configuration) {
    match RawDocumentBuf::try_from(&configuration.to_document()) {
        Ok(document) => {
            if let Err(error) = storage.put_configuration(&document, rand::random()) {
                // What clients read of it is the lesser part.
                tracing::error!(target: "REPL", error = %error, "local.system.replset cannot be written");
                storage.put_fact(Fact::Configuration, document.as_bytes());
            }
        }
        Err(error) => unreachable!("a configuration is a document: {error}"),
    }
}

pub(super) fn put_commit_point(storage: &Storage, commit_point: OpTime) {
    let mut document = RawDocumentBuf::new();
    document.append(cstr!("ts"), bson::Timestamp::from(commit_point.timestamp));
    document.append(cstr!("t"), commit_point.term);
    storage.put_fact(Fact::CommitPoint, document.as_bytes());
}

fn vote_from(document: &RawDocument) -> Result<LastVote> {
    let damaged =
        |error| Error::new(ErrorCode::DataCorruptionDetected, format!("the vote on disk is damaged: {error}"));
    let candidate = document.get_i32("candidate").map_err(damaged)?;
    let term = document.get_i64("term").map_err(damaged)?;
    Ok(LastVote { term, candidate: (candidate >= 0).then_some(MemberId(candidate)) })
}

fn optime_from(document: &RawDocument) -> Result<OpTime> {
    let damaged =
        |error| Error::new(ErrorCode::DataCorruptionDetected, format!("the commit point on disk is damaged: {error}"));
    let timestamp = document.get_timestamp("ts").map_err(damaged)?.into();
    Ok(OpTime { timestamp, term: document.get_i64("t").map_err(damaged)? })
}
