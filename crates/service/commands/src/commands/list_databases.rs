//! `listDatabases`: which databases there are. Source: MongoDB manual, "listDatabases".
//!
//! `admin`, `config` and `local` are always there, as in a member of MongoDB's, even while they hold nothing.

use crate::call::{Call, Reply};
use crate::ddl::{statistics, stored_context};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_query::matcher::Matcher;
use baton_types::Result;
use bson::{RawDocument, RawDocumentBuf, cstr, rawdoc};
use std::collections::BTreeSet;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "listDatabases",
    flags: Flags::ADMIN_ONLY.and(Flags::API_V1),
    help: "Lists the databases with their sizes; filter and nameOnly narrow the answer.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let filter = call.fields.optional::<&RawDocument>("filter")?;
    let name_only = call.fields.truth("nameOnly")?;
    call.fields.optional::<bool>("authorizedDatabases")?;
    call.fields.finish()?;
    let filter = filter.map(|filter| Matcher::parse(filter, &stored_context())).transpose()?;
    let storage = &call.server.storage;
    let catalog = storage.catalog();
    let names: BTreeSet<String> =
        catalog.databases().into_iter().chain(["admin", "config", "local"].map(String::from)).collect();
    let mut total_bytes = 0;
    let mut listed: Vec<RawDocumentBuf> = Vec::new();
    for name in &names {
        let mut bytes = 0;
        let mut empty = true;
        for collection in catalog.database(name) {
            let figures = statistics::of(storage, collection);
            bytes += figures.storage_bytes + figures.index_bytes;
            empty &= figures.documents == 0;
        }
        let entry = rawdoc! { "name": name.as_str(), "sizeOnDisk": bytes, "empty": empty };
        if let Some(filter) = &filter
            && !filter.matches(&entry)?
        {
            continue;
        }
        total_bytes += bytes;
        listed.push(if name_only {
            rawdoc! { "name": name.as_str() }
        } else {
            entry
        });
    }
    reply.begin_array(cstr!("databases"));
    for entry in &listed {
        reply.push(&**entry);
    }
    reply.end();
    if !name_only {
        reply.append(cstr!("totalSize"), total_bytes);
        reply.append(cstr!("totalSizeMb"), total_bytes / (1024 * 1024));
    }
    Ok(())
}
