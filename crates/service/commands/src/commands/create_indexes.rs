//! `createIndexes`: builds indexes while writers go on. Source: MongoDB manual, "createIndexes".

use crate::call::{Call, Reply};
use crate::ddl::{indexes, specification};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_consensus::index_build::CommitQuorum;
use baton_request::fields::wrong_type;
use baton_types::{Error, Result};
use bson::{RawArray, RawBsonRef, RawDocumentBuf, cstr};
use std::sync::atomic::Ordering::Relaxed;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "createIndexes",
    flags: Flags::WRITE_CONCERN.and(Flags::API_V1).and(Flags::WRITES).and(Flags::ON_COLLECTION),
    help: "Builds indexes: { createIndexes: 'coll', indexes: [ { key: { a: 1 }, name: 'a_1' } ] }.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = call.namespace()?;
    let specs = call.fields.required::<&RawArray>("indexes")?;
    let ignore_unknown = call.fields.truth("ignoreUnknownIndexOptions")?;
    let quorum = call.fields.take("commitQuorum").map(CommitQuorum::parse).transpose()?;
    call.fields.finish()?;
    let mut wanted: Vec<RawDocumentBuf> = Vec::new();
    for (at, spec) in specs.into_iter().enumerate() {
        match spec? {
            RawBsonRef::Document(spec) => wanted.push(specification::normalise(spec, ignore_unknown)?),
            other => return Err(wrong_type("createIndexes", &format!("indexes.{at}"), other, &["object"])),
        }
    }
    if wanted.is_empty() {
        return Err(Error::bad_value("Must specify at least one index to create"));
    }
    super::create::check_name(&namespace)?;
    let server = call.server;
    let operation = &call.operation;
    let set = server.topology.set();
    if let Some(quorum) = &quorum {
        match set.as_ref().map(|set| set.configuration()) {
            None => return Err(Error::bad_value("Standalones can't specify commitQuorum")),
            Some(configuration) => configuration.map_or(Ok(()), |now| now.check_commit_quorum(quorum))?,
        }
    }
    let quorum = quorum.unwrap_or(CommitQuorum::VotingMembers);
    // What is a member's own it builds alone.
    let built = if set.is_some() && !namespace.is_local() && namespace.coll() != "system.profile" {
        indexes::build_with_set(server, call.writer(), operation, &namespace, &wanted, &quorum)?
    } else {
        indexes::build(call.writer(), &namespace, &wanted, &operation.interruption(), &mut |name, done, total| {
            operation.set_progress(format!("Index Build: {name}"), done, total);
            operation.check_interrupt()
        })?
    };
    call.effort().used_disk.fetch_or(built.used_disk, Relaxed);
    reply.append(cstr!("numIndexesBefore"), built.before);
    reply.append(cstr!("numIndexesAfter"), built.after);
    reply.append(cstr!("createdCollectionAutomatically"), built.created_collection);
    if built.before == built.after {
        reply.append(cstr!("note"), "all indexes already exist");
    } else if call.server.topology.is_replicated() {
        reply.append(cstr!("commitQuorum"), quorum.to_bson().as_raw_bson_ref());
    }
    Ok(())
}
