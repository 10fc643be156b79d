//! The lock on a data directory: two members on one directory would destroy it.
//!
//! Invariants: the lock is the kernel's, so it ends with the process however that ends; the file holds the owner's
//! process id for as long as the member runs, and nothing after a clean stop.
//! What it deliberately does not do: lock over a network file system that has no locks.

use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// The file's name, which is mongod's: a mongod on the same directory is refused as well.
pub(crate) const FILE_NAME: &str = "mongod.lock";

/// A data directory that is ours.
#[derive(Debug)]
pub struct DirectoryLock {
    file: File,
    path: PathBuf,
    /// Whether the member before us did not stop cleanly.
    pub was_unclean: bool,
}

impl DirectoryLock {
    /// Makes the directory if it is not there, and locks it.
    ///
    /// # Errors
    /// With a text for the operator: who holds it, what is there instead, or why it cannot be used.
    pub fn acquire(directory: &Path) -> Result<Self, String> {
        crate::contents::check(directory)?;
        std::fs::create_dir_all(directory)
            .map_err(|e| format!("Data directory {} cannot be made: {e}", directory.display()))?;
        let path = directory.join(FILE_NAME);
        let failed = |e: io::Error| {
            format!(
                "Unable to create/open the lock file: {} ({e}). Ensure the user executing baton is the owner of it and has the appropriate permissions",
                path.display()
            )
        };
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        let mut owner = String::new();
        file.read_to_string(&mut owner).map_err(failed)?;
        let owner = owner.trim();
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let by = if owner.is_empty() { String::new() } else { format!(" by process {owner}") };
            return Err(format!(
                "Unable to lock the lock file: {}: the data directory is in use{by}. Another baton or mongod instance \
                 is already running on the {} directory; stop it, or start this one with another --dbpath",
                path.display(),
                directory.display()
            ));
        }
        let was_unclean = !owner.is_empty();
        file.set_len(0).and_then(|()| file.rewind()).map_err(failed)?;
        writeln!(file, "{}", std::process::id()).and_then(|()| file.sync_all()).map_err(failed)?;
        Ok(Self { file, path, was_unclean })
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // Empty says that the stop was clean.
        if let Err(e) = self.file.set_len(0) {
            tracing::warn!(target: "CONTROL", path = %self.path.display(), error = %e, "The lock file cannot be emptied");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_owner_is_refused_with_the_first_ones_process_id() {
        let directory = tempfile::tempdir().unwrap();
        let lock = DirectoryLock::acquire(directory.path()).unwrap();
        assert!(!lock.was_unclean);
        let refusal = DirectoryLock::acquire(directory.path()).unwrap_err();
        assert!(refusal.contains(&format!("process {}", std::process::id())), "{refusal}");
        drop(lock);
        assert!(!DirectoryLock::acquire(directory.path()).unwrap().was_unclean);
    }

    #[test]
    fn a_process_id_left_behind_tells_of_an_unclean_stop() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(FILE_NAME), "12345\n").unwrap();
        assert!(DirectoryLock::acquire(directory.path()).unwrap().was_unclean);
    }
}
