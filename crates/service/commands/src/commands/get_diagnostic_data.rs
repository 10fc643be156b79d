//! `getDiagnosticData`: what support tools look at, in one document. Source: MongoDB's full-time diagnostic data capture
//! (FTDC), whose newest sample this command gives.
//!
//! Invariant: the sample is taken for the asker; nothing is captured in between.

use crate::call::{Call, Reply};
use crate::commands::server_status;
use crate::ddl::statistics;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::{Namespace, Result};
use bson::{DateTime, cstr};

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "getDiagnosticData",
    flags: Flags::ADMIN_ONLY,
    help: "Returns serverStatus and the oplog's figures as one sample of diagnostic data.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.fields.finish()?;
    let server = call.server;
    reply.begin_document(cstr!("data"));
    reply.append(cstr!("start"), DateTime::now());
    reply.begin_document(cstr!("serverStatus"));
    reply.append(cstr!("start"), DateTime::now());
    server_status::append_all(server, reply);
    reply.append(cstr!("end"), DateTime::now());
    reply.end();
    if let Some(oplog) = server.storage.collection(&Namespace::new("local", "oplog.rs")?) {
        let figures =
            statistics::storage_fields(&server.storage, &oplog.namespace, statistics::of(&server.storage, &oplog), 1)?;
        reply.begin_document(cstr!("local.oplog.rs.stats"));
        reply.append(cstr!("start"), DateTime::now());
        reply.append(cstr!("ns"), "local.oplog.rs");
        reply.extend(&figures);
        reply.append(cstr!("end"), DateTime::now());
        reply.end();
    }
    reply.append(cstr!("end"), DateTime::now());
    reply.end();
    Ok(())
}
