//! What a member's replication keeps on disk, and begins with: its vote, the configuration, the commit point; and
//! the number of its process.
//!
//! Invariants: what is put is durable when the call returns; what is damaged is refused, never taken for absent.

use crate::replication::Parts;
use crate::self_host;
use baton_consensus::{Configuration, DataState, LastVote, MemberId, Position, Start};
use baton_storage::{Fact, Storage};
use baton_types::{Error, ErrorCode, OpTime, Result};
use bson::{RawDocument, RawDocumentBuf, cstr, rawdoc};
use std::time::SystemTime;

/// What the step machine begins with.
pub(super) fn start_of(parts: &Parts) -> Result<Start> {
    let storage = &parts.storage;
    storage.facts().show_configuration(rand::random())?;
    let configuration = match storage.facts().get(Fact::Configuration)? {
        Some(bytes) => Some(Configuration::parse(RawDocument::from_bytes(&bytes)?)?),
        None => None,
    };
    let vote = match storage.facts().get(Fact::LastVote)? {
        Some(bytes) => vote_from(RawDocument::from_bytes(&bytes)?)?,
        None => LastVote::default(),
    };
    let commit_point = match storage.facts().get(Fact::CommitPoint)? {
        Some(bytes) => optime_from(RawDocument::from_bytes(&bytes)?)?,
        None => OpTime::ZERO,
    };
    let last = storage.oplog().last_entry();
    let given_up = storage.follower().given_up()?;
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

/// Numbers this process, and keeps the number.
pub(super) fn next_incarnation(storage: &Storage) -> Result<u64> {
    let before = match storage.facts().get(Fact::Incarnation)? {
        Some(bytes) => {
            let damaged =
                |_| Error::new(ErrorCode::DataCorruptionDetected, "the number of the process before is damaged");
            u64::from_le_bytes(bytes.as_slice().try_into().map_err(damaged)?)
        }
        None => 0,
    };
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let incarnation = baton_leadership::Start::next_incarnation(before, clock);
    storage.facts().put(Fact::Incarnation, &incarnation.to_le_bytes());
    Ok(incarnation)
}

pub(super) fn put_vote(storage: &Storage, vote: LastVote) {
    let candidate = vote.candidate.map_or(-1, |candidate| candidate.0);
    let document = rawdoc! { "term": vote.term, "candidate": candidate };
    storage.facts().put(Fact::LastVote, document.as_bytes());
}

pub(super) fn put_configuration(storage: &Storage, configuration: &Configuration) {
    match RawDocumentBuf::try_from(&configuration.to_document()) {
        Ok(document) => {
            if let Err(error) = storage.facts().put_configuration(&document, rand::random()) {
                // What clients read of it is the lesser part.
                tracing::error!(target: "REPL", error = %error, "local.system.replset cannot be written");
                storage.facts().put(Fact::Configuration, document.as_bytes());
            }
        }
        Err(error) => unreachable!("a configuration is a document: {error}"),
    }
}

pub(super) fn put_commit_point(storage: &Storage, commit_point: OpTime) {
    let mut document = RawDocumentBuf::new();
    document.append(cstr!("ts"), bson::Timestamp::from(commit_point.timestamp));
    document.append(cstr!("t"), commit_point.term);
    storage.facts().put(Fact::CommitPoint, document.as_bytes());
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

#[cfg(test)]
mod tests {
    use super::*;
    use baton_storage::StorageOptions;

    #[test]
    fn processes_are_numbered_in_their_order_though_the_clock_be_set_back() {
        let directory = std::env::temp_dir().join(format!("baton-incarnation-{}", std::process::id()));
        let storage = Storage::open(&directory, StorageOptions { cache_bytes: 64 << 20, ..StorageOptions::default() });
        let storage = storage.unwrap();
        let first = next_incarnation(&storage).unwrap();
        assert!(first > 1 << 48, "the clock's, for a member that has lost its data: {first}");
        assert!(next_incarnation(&storage).unwrap() > first);
        storage.facts().put(Fact::Incarnation, &(first * 2).to_le_bytes());
        assert_eq!(next_incarnation(&storage).unwrap(), first * 2 + 1);
        storage.facts().put(Fact::Incarnation, b"torn");
        assert_eq!(next_incarnation(&storage).unwrap_err().code, ErrorCode::DataCorruptionDetected);
        drop(storage);
        std::fs::remove_dir_all(directory).unwrap();
    }
}
