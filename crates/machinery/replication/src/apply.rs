//! Applies entries of another member's log, in their order.

use baton_storage::{Storage, Writer};
use baton_types::{Error, ErrorCode, Result};
use bson::RawDocument;

/// Whether the entry completes an index that this member has not built: nothing is wrong, and it is applied when the build is done.
/// Who waits for that holds nothing meanwhile, and may be told not to.
pub(crate) fn is_not_yet(error: &Error) -> bool {
    error.code == ErrorCode::IndexBuildAlreadyInProgress
}

/// Applies entries; `command` carries out those of kind `c`.
pub(crate) fn apply(
    storage: &Storage,
    command: &(dyn Fn(Writer<'_>, &RawDocument) -> Result<()> + Send + Sync),
    entries: &[&RawDocument],
) -> Result<()> {
    let is_command = |entry: &&RawDocument| matches!(entry.get_str("op"), Ok("c"));
    for run in entries.chunk_by(|a, b| !is_command(a) && !is_command(b)) {
        match run {
            [entry] if is_command(entry) => {
                storage.replay(entry, |writer| command(writer, entry))?;
            }
            run => {
                storage.follower().apply_entries(run)?;
            }
        }
    }
    Ok(())
}
