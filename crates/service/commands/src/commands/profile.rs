//! `profile`: what a database's profiler keeps, and the keeping.
//!
//! Invariant: a profile is a capped collection that is made with its first entry, as large as mongod's.
//! What it deliberately does not do: decide what is slow; [`crate::server::profiler`] does.

use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_storage::{CollectionOptions, CreateOutcome, Durability, Inserted, Storage, Transaction};
use baton_types::{Error, Namespace, Result};
use bson::oid::ObjectId;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf, cstr, rawdoc};
use std::sync::Arc;

/// The collection of every database's profile.
pub const COLLECTION: &str = "system.profile";
/// A profile's size in bytes.
const SIZE_BYTES: i32 = 1024 * 1024;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "profile",
    flags: Flags::NONE,
    help: "Controls the performance profiler. { profile: -1 } asks, 0 is off, 1 keeps slow operations, 2 all; slowms \
           and sampleRate are the log's, too.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let Some(level) = baton_request::fields::number_as_i64(call.envelope.value) else {
        return Err(baton_request::fields::wrong_type("profile", "profile", call.envelope.value, &["int"]));
    };
    let slow_ms = call.fields.optional::<i64>("slowms")?;
    let sample_rate = call.fields.optional::<f64>("sampleRate")?;
    if call.fields.take("filter").is_some_and(|f| !matches!(f, RawBsonRef::String("unset"))) {
        return Err(Error::not_implemented("profile with a filter"));
    }
    call.fields.finish()?;
    if sample_rate.is_some_and(|rate| !(0.0..=1.0).contains(&rate)) {
        return Err(Error::bad_value("'sampleRate' must be between 0.0 and 1.0 inclusive"));
    }
    let profiler = &call.server.profiler;
    let db = call.envelope.db;
    let (was, slow_ms_was, sample_rate_was) = profiler.settings(db);
    if (0..=2).contains(&level) {
        if db == "local" && level > 0 {
            return Err(Error::bad_value("the local database cannot be profiled"));
        }
        profiler.set_level(db, level as i32);
    }
    if let Some(ms) = slow_ms {
        profiler.set_slow_ms(ms);
    }
    if let Some(rate) = sample_rate {
        profiler.set_sample_rate(rate);
    }
    reply.append(cstr!("was"), was);
    reply.append(cstr!("slowms"), i32::try_from(slow_ms_was).unwrap_or(i32::MAX));
    reply.append(cstr!("sampleRate"), sample_rate_was);
    Ok(())
}

/// Keeps an entry in the profile of `db`.
pub fn keep(storage: &Arc<Storage>, db: &str, entry: &RawDocument) -> Result<()> {
    let namespace = Namespace::new(db, COLLECTION)?;
    if storage.collection(&namespace).is_none() {
        let options = CollectionOptions::parse(&rawdoc! { "capped": true, "size": SIZE_BYTES })?;
        match storage.by_member().create_collection(&namespace, options, uuid::Uuid::new_v4().into_bytes())? {
            CreateOutcome::Created(_) | CreateOutcome::Exists(_) => {}
        }
    }
    let mut document = RawDocumentBuf::new();
    document.append(cstr!("_id"), ObjectId::new());
    for element in entry.iter() {
        let (key, value) = element?;
        document.append(key, value);
    }
    storage.with_collection(&namespace, |collection| {
        let Some(collection) = collection else { return Ok(()) };
        let mut transaction = Transaction::empty();
        match storage.insert(&mut transaction, collection, &document, None) {
            Ok(Inserted::Added) => {
                storage.by_member().commit(transaction, Durability::Applied)?;
                Ok(())
            }
            // Another entry is being written to the same place; a profile may miss one.
            Ok(Inserted::CommitFirst) => {
                storage.abandon(transaction);
                Ok(())
            }
            Err(error) => {
                storage.abandon(transaction);
                Err(error)
            }
        }
    })
}
