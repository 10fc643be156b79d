//! The last merge of a stage's runs: what its results are made from, one entry at a time.
//!
//! It owns the file, so that what holds the merge (a stage, and so a cursor) holds the space on the disk, and gives it back when
//! it is dropped.

use super::SpillFile;
use super::runs::{Readers, Run};
use crate::interruption::{BYTES_PER_STEP, Interruption};
use baton_types::Result;
use std::sync::Arc;

/// See the file's header.
pub(crate) struct Merge {
    file: Box<dyn SpillFile>,
    readers: Readers,
    interruption: Arc<Interruption>,
}

impl Merge {
    pub(super) fn begin(mut file: Box<dyn SpillFile>, runs: &[Run], interruption: Arc<Interruption>) -> Result<Self> {
        let readers = Readers::begin(&mut *file, runs)?;
        Ok(Self { file, readers, interruption })
    }

    /// The next entry's key and value.
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let entry = self.readers.next(&mut *self.file)?;
        if let Some((key, value)) = entry {
            self.interruption.steps(1 + (key.len() + value.len()) / BYTES_PER_STEP)?;
        }
        Ok(entry)
    }
}
