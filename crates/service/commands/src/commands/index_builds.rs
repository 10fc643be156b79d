//! What members of a set tell the primary of index builds, and what an operator may change of one: `voteCommitIndexBuild`,
//! `voteAbortIndexBuild`, `setIndexCommitQuorum`. Source: MongoDB manual, "setIndexCommitQuorum"; README of its index builds.

use crate::call::{Call, Reply};
use crate::ddl::held_collection;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_consensus::index_build::{BuildInput, CommitQuorum};
use baton_request::fields::wrong_type;
use baton_storage::IndexBuild;
use baton_types::{Error, ErrorCode, Result};
use bson::{RawArray, RawBsonRef};
use std::sync::Arc;

/// A member says that it has built.
pub const VOTE_COMMIT: CommandSpec = CommandSpec {
    name: "voteCommitIndexBuild",
    flags: Flags::ADMIN_ONLY.and(Flags::WRITES),
    help: "Told by a member of the set to the primary: it has built an index.",
    run: vote_commit,
    ..DEFAULT
};

/// A member says that it was asked to end a build.
pub const VOTE_ABORT: CommandSpec = CommandSpec {
    name: "voteAbortIndexBuild",
    flags: Flags::ADMIN_ONLY.and(Flags::WRITES),
    help: "Told by a member of the set to the primary: an index build is to end.",
    run: vote_abort,
    ..DEFAULT
};

/// Another quorum for a build that is under way.
pub const SET_COMMIT_QUORUM: CommandSpec = CommandSpec {
    name: "setIndexCommitQuorum",
    flags: Flags::WRITES.and(Flags::WRITE_CONCERN).and(Flags::ON_COLLECTION),
    help: "{ setIndexCommitQuorum: 'coll', indexNames: [ 'a_1' ], commitQuorum: 'majority' } changes how many members must have \
           built an index before it is complete on any.",
    run: set_commit_quorum,
    ..DEFAULT
};

/// The build that a member speaks of.
fn spoken_of(call: &Call<'_>) -> Result<Arc<crate::ddl::builds::Running>> {
    let uuid: [u8; 16] = match call.envelope.value {
        RawBsonRef::Binary(uuid) => uuid.bytes.try_into().ok(),
        _ => None,
    }
    .ok_or_else(|| wrong_type(call.spec.name, call.spec.name, call.envelope.value, &["binData"]))?;
    let unknown = || {
        let message = format!("Cannot find an index build with UUID: {}", bson::Uuid::from_bytes(uuid));
        Error::new(ErrorCode::NoSuchKey, message)
    };
    call.server.index_builds.find(uuid).ok_or_else(unknown)
}

fn vote_commit(call: &mut Call<'_>, _: &mut Reply<'_>) -> Result<()> {
    let host = call.fields.required::<&str>("hostAndPort")?;
    call.fields.finish()?;
    let build = spoken_of(call)?;
    let set = call.server.topology.set();
    let member = set.as_ref().and_then(|set| set.configuration()?.member_at(host));
    let Some(member) = member else {
        let message = format!("{host} is no member of this set");
        return Err(Error::new(ErrorCode::NodeNotFound, message));
    };
    tracing::info!(target: "STORAGE", member = host, "Index build: a member has built");
    build.tell(BuildInput::Vote(member.id));
    Ok(())
}

fn vote_abort(call: &mut Call<'_>, _: &mut Reply<'_>) -> Result<()> {
    let host = call.fields.required::<&str>("hostAndPort")?;
    let reason = call.fields.required::<&str>("reason")?;
    let code = call.fields.optional::<i32>("code")?.unwrap_or(ErrorCode::IndexBuildAborted.0);
    call.fields.finish()?;
    let build = spoken_of(call)?;
    tracing::info!(target: "STORAGE", member = host, reason, "Index build: a member asks for its end");
    build.tell(BuildInput::Objection(Error::new(ErrorCode(code), format!("{reason} (at {host})"))));
    Ok(())
}

fn set_commit_quorum(call: &mut Call<'_>, _: &mut Reply<'_>) -> Result<()> {
    let namespace = call.namespace()?;
    let names = call.fields.required::<&RawArray>("indexNames")?;
    let quorum = CommitQuorum::parse(call.fields.required::<RawBsonRef<'_>>("commitQuorum")?)?;
    call.fields.finish()?;
    let server = call.server;
    let set = server.topology.set();
    let Some(configuration) = set.as_ref().and_then(|set| set.configuration()) else {
        return Err(Error::bad_value("Standalones can't specify commitQuorum"));
    };
    configuration.check_commit_quorum(&quorum)?;
    let mut wanted = Vec::new();
    for name in names {
        match name? {
            RawBsonRef::String(name) => wanted.push(name.to_owned()),
            other => return Err(wrong_type("setIndexCommitQuorum", "indexNames", other, &["string"])),
        }
    }
    wanted.sort();
    let catalog = call.writer().lock_catalog();
    let held = held_collection(&catalog, &namespace)?;
    let build = wanted.first().and_then(|name| held.index(name)?.build().cloned());
    let made = build.as_ref().map(|build| {
        let mut made: Vec<String> =
            held.of_build(build.uuid).iter().map(|index| index.definition.name.clone()).collect();
        made.sort();
        made
    });
    let Some(build) = build.filter(|_| made.as_ref() == Some(&wanted)) else {
        let message = format!("Cannot find an index build on collection '{namespace}' with the provided index names");
        return Err(Error::new(ErrorCode::IndexNotFound, message));
    };
    held.set_commit_quorum(&IndexBuild { uuid: build.uuid, commit_quorum: quorum.to_bson() })?;
    // While it has the catalog: whoever completes the build looks under that lock whether its quorum has built.
    if let Some(build) = server.index_builds.find(build.uuid) {
        build.tell(BuildInput::Quorum(quorum));
    }
    drop(catalog);
    Ok(())
}
