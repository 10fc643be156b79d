//! `buildInfo`: what this is, and which MongoDB it stands in for.
//!
//! `version` is the MongoDB whose language and wire version are spoken, because clients choose their behaviour by it;
//! `baton` is Baton's own.

use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::Result;
use baton_wire::DOCUMENT_SIZE_MAX_BYTES;
use bson::{cstr, rawdoc};

/// The version of MongoDB that clients are told.
pub const VERSION: &str = "7.0.14";
const VERSION_ARRAY: [i32; 4] = [7, 0, 14, 0];
/// Baton's own version.
pub const BATON_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "buildInfo",
    aliases: &["buildinfo"],
    flags: Flags::NO_AUTHENTICATION,
    help: "Gets the version, and which MongoDB it answers like.",
    run,
    ..DEFAULT
};

fn run(_: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    reply.append(cstr!("version"), VERSION);
    reply.append(cstr!("gitVersion"), "unknown");
    reply.append(cstr!("baton"), BATON_VERSION);
    reply.begin_array(cstr!("modules"));
    reply.end();
    reply.append(cstr!("allocator"), "jemalloc");
    reply.append(cstr!("javascriptEngine"), "none");
    reply.append(cstr!("sysInfo"), "deprecated");
    reply.begin_array(cstr!("versionArray"));
    for part in VERSION_ARRAY {
        reply.push(part);
    }
    reply.end();
    reply.append(cstr!("openssl"), &*rawdoc! { "running": "disabled", "compiled": "disabled" });
    let environment = rawdoc! {
        "distmod": "", "target_arch": std::env::consts::ARCH, "target_os": std::env::consts::OS,
    };
    reply.append(cstr!("buildEnvironment"), &*environment);
    reply.append(cstr!("bits"), usize::BITS as i32);
    reply.append(cstr!("debug"), cfg!(debug_assertions));
    reply.append(cstr!("maxBsonObjectSize"), DOCUMENT_SIZE_MAX_BYTES as i32);
    reply.begin_array(cstr!("storageEngines"));
    reply.push("rocksdb");
    reply.end();
    Ok(())
}
