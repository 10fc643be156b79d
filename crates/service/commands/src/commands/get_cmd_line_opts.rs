//! `getCmdLineOpts`: how this member was started.

use crate::table::{CommandSpec, DEFAULT, Flags};
use bson::{RawDocumentBuf, cstr};

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "getCmdLineOpts",
    flags: Flags::ADMIN_ONLY,
    help: "Returns the command line, and what it and the configuration file say.",
    run: |call, reply| {
        reply.begin_array(cstr!("argv"));
        for argument in &call.server.identity.argv {
            reply.push(argument.as_str());
        }
        reply.end();
        let parsed = RawDocumentBuf::try_from(&call.server.identity.parsed_options)?;
        reply.append(cstr!("parsed"), &*parsed);
        Ok(())
    },
    ..DEFAULT
};
