//! What a rollback takes away, in files that an operator can read.

use crate::catalog::Collection;
use baton_types::{Error, ErrorCode, Result};
use bson::RawDocument;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// What was removed, one file of BSON documents for each collection: `<directory>/<uuid>/removed.<time>.bson`.
pub(super) struct Files<'a> {
    directory: &'a Path,
    open: HashMap<[u8; 16], BufWriter<File>>,
}

impl<'a> Files<'a> {
    pub(super) fn below(directory: &'a Path) -> Self {
        Self { directory, open: HashMap::new() }
    }

    pub(super) fn keep(&mut self, collection: &Collection, document: &RawDocument) -> Result<()> {
        let failed = |path: &Path, error: std::io::Error| {
            let message = format!("Rolled back documents cannot be kept in {}: {error}", path.display());
            Error::new(ErrorCode::OperationFailed, message)
        };
        let file = match self.open.entry(collection.uuid) {
            std::collections::hash_map::Entry::Occupied(open) => open.into_mut(),
            std::collections::hash_map::Entry::Vacant(place) => {
                let directory = self.directory.join(bson::Uuid::from_bytes(collection.uuid).to_string());
                std::fs::create_dir_all(&directory).map_err(|error| failed(&directory, error))?;
                let path = free_name(&directory);
                place.insert(BufWriter::new(File::create_new(&path).map_err(|error| failed(&path, error))?))
            }
        };
        file.write_all(document.as_bytes()).map_err(|error| failed(self.directory, error))
    }

    /// Has all of it on disk.
    pub(super) fn sync(&mut self) -> Result<()> {
        for file in self.open.values_mut() {
            file.flush().and_then(|()| file.get_ref().sync_all()).map_err(|error| {
                Error::new(ErrorCode::OperationFailed, format!("Rolled back documents cannot be kept: {error}"))
            })?;
        }
        Ok(())
    }
}

/// `removed.<time>.bson`, and a number behind the time if that was taken in the same second.
fn free_name(directory: &Path) -> PathBuf {
    let time = bson::DateTime::now().try_to_rfc3339_string().unwrap_or_default();
    let time = time.split('.').next().unwrap_or_default().trim_end_matches('Z').replace(':', "-");
    (0..)
        .map(|number| directory.join(format!("removed.{time}.{number}.bson")))
        .find(|path| !path.exists())
        .unwrap_or_else(|| unreachable!("numbers do not end"))
}
