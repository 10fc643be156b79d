//! `validateDBMetadata`: whether what is in the catalog would be refused under an API version. Source: MongoDB manual,
//! "validateDBMetadata".
//!
//! In API version 1 everything is that indexes and validators can hold here, but not every stage of a view's pipeline.

use crate::call::{Call, Reply};
use crate::commands::aggregate;
use crate::ddl::stored_context;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_query::pipeline::Pipeline;
use baton_request::Fields;
use baton_types::{Error, ErrorCode, Result};
use bson::{RawDocument, cstr};

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "validateDBMetadata",
    flags: Flags::API_V1,
    help: "Lists what in the catalog an API version does not have.",
    run,
    ..DEFAULT
};

/// Errors in one reply, at the most.
const ERRORS_MAX: usize = 1000;

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let parameters: &RawDocument = call.fields.required("apiParameters")?;
    let db: Option<&str> = call.fields.optional("db")?;
    let collection: Option<&str> = call.fields.optional("collection")?;
    call.fields.finish()?;
    let mut parameters = Fields::of("validateDBMetadata.apiParameters", parameters)?;
    let version: &str = parameters.required("version")?;
    let is_strict = parameters.optional::<bool>("strict")?.unwrap_or(false);
    parameters.optional::<bool>("deprecationErrors")?;
    parameters.finish()?;
    if version != "1" {
        return Err(Error::new(ErrorCode::APIVersionError, "API version must be \"1\""));
    }
    let catalog = call.server.storage.catalog();
    let mut errors = Vec::new();
    for view in catalog.iter() {
        let namespace = &view.namespace;
        let Some((_, stages)) = view.options.view.as_ref().filter(|_| is_strict) else { continue };
        if db.is_some_and(|db| db != namespace.db()) || collection.is_some_and(|name| name != namespace.coll()) {
            continue;
        }
        call.operation.check_interrupt()?;
        let stages: Vec<&RawDocument> = stages.iter().map(|stage| &**stage).collect();
        let found = Pipeline::parse(&stages, &stored_context()).and_then(|pipeline| aggregate::check_strict(&pipeline));
        if let Err(error) = found {
            errors.push((namespace.clone(), error));
        }
    }
    reply.begin_array(cstr!("apiVersionErrors"));
    for (namespace, error) in errors.iter().take(ERRORS_MAX) {
        reply.push_document();
        reply.append(cstr!("ns"), namespace.as_str());
        reply.append(cstr!("code"), error.code.0);
        reply.append(cstr!("codeName"), &*error.code.name());
        reply.append(cstr!("errmsg"), error.message.as_str());
        reply.end();
    }
    reply.end();
    if errors.len() > ERRORS_MAX {
        reply.append(cstr!("hasMoreErrors"), true);
    }
    Ok(())
}
