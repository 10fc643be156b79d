//! `create`: a collection or a view. Source: MongoDB manual, "create".

use crate::call::{Call, Reply};
use crate::ddl::{self, draw_uuid, options, views};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::{Error, ErrorCode, Namespace, Result};

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "create",
    flags: Flags::WRITE_CONCERN.and(Flags::API_V1).and(Flags::WRITES).and(Flags::ON_COLLECTION),
    help: "Creates a collection, plain or capped, or a view (viewOn, pipeline).",
    run,
    ..DEFAULT
};

/// Names below `system.` that a client may create.
const SYSTEM_NAMES: [&str; 5] = ["system.js", "system.profile", "system.roles", "system.users", "system.version"];

/// Refuses the names that are the member's own.
pub fn check_name(namespace: &Namespace) -> Result<()> {
    let allowed = !namespace.is_system() || SYSTEM_NAMES.contains(&namespace.coll());
    if !allowed || namespace.coll() == views::SYSTEM_VIEWS || namespace.coll().starts_with("$cmd") {
        return Err(Error::new(ErrorCode::InvalidNamespace, format!("Invalid system namespace: {namespace}")));
    }
    Ok(())
}

/// Refuses to write documents to what is the member's own.
///
/// # Errors
/// `InvalidNamespace` (73).
pub fn check_writable(namespace: &Namespace) -> Result<()> {
    if !namespace.is_system() {
        return Ok(());
    }
    let refuse = |why: String| Err(Error::new(ErrorCode::InvalidNamespace, why));
    match (namespace.db(), namespace.coll()) {
        (_, views::SYSTEM_VIEWS | "system.profile") => refuse(format!("cannot write to {namespace}")),
        ("config" | "local", _) | (_, "system.js" | "system.users") => Ok(()),
        ("admin", "system.roles" | "system.version" | "system.backup_users") => Ok(()),
        _ => refuse(format!("Invalid system namespace: {namespace}")),
    }
}

fn run(call: &mut Call<'_>, _: &mut Reply<'_>) -> Result<()> {
    let namespace = call.namespace()?;
    let document = options::read(&mut call.fields, &namespace)?;
    // Flags that old tools send with what they found; they have had no effect for many versions.
    call.fields.take("flags");
    call.fields.finish()?;
    check_name(&namespace)?;
    ddl::create(call.writer(), &namespace, document, draw_uuid())
}
