//! `setDefaultRWConcern`: the concerns of commands that name none, for the whole set. Source: MongoDB manual.
//!
//! Invariant: what it is answered with is in `config.settings`, from where every member takes it.

use crate::call::{Call, Reply};
use crate::commands::get_default_rw_concern::{append, check_replicated};
use crate::crud::{context, matcher};
use crate::server::defaults::{DOCUMENT_ID, Defaults, namespace};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_execution::SystemDraw;
use baton_execution::write::{self, UpdateStatement, Work};
use baton_query::update::Update;
use baton_request::{Acknowledgement, Provenance, ReadConcern, ReadLevel, WriteConcern};
use baton_storage::{Durability, Throttle};
use baton_types::{Error, ErrorCode, Result};
use bson::{DateTime, RawBsonRef, RawDocument, RawDocumentBuf, cstr, rawdoc};

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "setDefaultRWConcern",
    flags: Flags::ADMIN_ONLY.and(Flags::WRITE_CONCERN).and(Flags::WRITES),
    help: "{ setDefaultRWConcern: 1, defaultReadConcern: { … }, defaultWriteConcern: { … } } sets the concerns of commands that \
           name none.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let read = call.fields.optional::<&RawDocument>("defaultReadConcern")?;
    let write = call.fields.optional::<&RawDocument>("defaultWriteConcern")?;
    call.fields.finish()?;
    check_replicated(call)?;
    if read.is_none() && write.is_none() {
        return Err(Error::bad_value(
            "At least one of the \"defaultReadConcern\" or \"defaultWriteConcern\" fields must be present",
        ));
    }
    call.server.defaults.reload(&call.server.storage);
    let before = call.server.defaults.get();
    let after = Defaults {
        read: read.map_or(Ok(before.read), parse_read)?,
        write: write.map_or_else(|| Ok(before.write.clone()), |document| parse_write(call, document, &before))?,
        updated: Some(call.server.cluster_time()),
        updated_wall: Some(DateTime::now()),
        read_here: None,
    };
    keep(call, &after)?;
    call.server.defaults.reload(&call.server.storage);
    append(call, reply, &call.server.defaults.get());
    Ok(())
}

/// An empty document unsets it.
fn parse_read(document: &RawDocument) -> Result<Option<ReadLevel>> {
    if document.is_empty() {
        return Ok(None);
    }
    let concern = ReadConcern::parse(document)?;
    if concern.after_cluster_time.is_some() || concern.at_cluster_time.is_some() {
        return Err(Error::bad_value("a default read concern names a level and nothing else"));
    }
    match concern.level {
        ReadLevel::Local | ReadLevel::Available | ReadLevel::Majority => Ok(Some(concern.level)),
        level @ (ReadLevel::Linearizable | ReadLevel::Snapshot) => {
            Err(Error::bad_value(format!("level: \"{}\" is not suitable for the default read concern", level.name())))
        }
    }
}

fn parse_write(call: &Call<'_>, document: &RawDocument, before: &Defaults) -> Result<Option<WriteConcern>> {
    if document.is_empty() {
        if before.write.is_some() {
            let message = "The global default write concern cannot be unset once it is set.";
            return Err(Error::new(ErrorCode::IllegalOperation, message));
        }
        return Ok(None);
    }
    let concern = WriteConcern { provenance: Provenance::CustomDefault, ..WriteConcern::parse(document)? };
    if concern.w == Acknowledgement::Members(0) {
        return Err(Error::bad_value("Unacknowledged write concern is not suitable for the default write concern"));
    }
    // One that can never be met would let every write that names none fail.
    call.server.topology.demand(&concern)?;
    Ok(Some(concern))
}

fn keep(call: &Call<'_>, defaults: &Defaults) -> Result<()> {
    let mut document = RawDocumentBuf::new();
    document.append(cstr!("_id"), DOCUMENT_ID);
    if let Some(level) = defaults.read {
        document.append(cstr!("defaultReadConcern"), rawdoc! { "level": level.name() });
    }
    if let Some(concern) = &defaults.write {
        document.append(cstr!("defaultWriteConcern"), concern.to_document());
    }
    document.append(cstr!("updateOpTime"), bson::Timestamp::from(defaults.updated.unwrap_or_default()));
    document.append(cstr!("updateWallClockTime"), defaults.updated_wall.unwrap_or_else(DateTime::now));
    let context = context(call, None)?;
    let filter = matcher(Some(&rawdoc! { "_id": DOCUMENT_ID }), &context)?;
    let update = Update::parse::<&RawDocument>(RawBsonRef::Document(&document), &[], &context)?;
    let statement = UpdateStatement { upsert: true, ..UpdateStatement::one(filter, update) };
    let storage = &call.server.storage;
    let throttle = Throttle::default();
    let work = Work {
        storage,
        draw: &SystemDraw,
        interruption: &context.interruption,
        durability: Durability::Synced,
        throttle: &throttle,
        author: &call.author,
        left: None,
    };
    write::update(&work, &namespace()?, &statement, &context, None)?;
    Ok(())
}
