//! Applies entries of another member's log, in their order.

use baton_storage::Storage;
use baton_types::Result;
use bson::RawDocument;

/// Applies entries; `command` carries out those of kind `c`.
pub(crate) fn apply(
    storage: &Storage,
    command: &(dyn Fn(&RawDocument) -> Result<()> + Send + Sync),
    entries: &[&RawDocument],
) -> Result<()> {
    let is_command = |entry: &&RawDocument| matches!(entry.get_str("op"), Ok("c"));
    for run in entries.chunk_by(|a, b| !is_command(a) && !is_command(b)) {
        match run {
            [entry] if is_command(entry) => {
                storage.replay(entry, || command(entry))?;
            }
            run => {
                storage.apply_entries(run)?;
            }
        }
    }
    Ok(())
}
