//! Removing large files piece by piece, so that nobody's sync waits for the whole of one.
//!
//! Where a file system tells its disk what has become free (ext4 mounted with `discard`), it does so within a sync, and not always of
//! whoever removed the file. Of 64 MB that takes 10 to 15 ms, of a megabyte next to nothing: see docs/spikes/removing-files.md.
//!
//! RocksDB removes its tables by itself. So each is given a second name, in a folder of its own, while it still has its first; when
//! that is the only name it has, nobody reads it any more, and it is cut shorter from its end until it is gone.
//!
//! Invariants:
//! - A file that has another name is not touched: it may be of the database, or of a checkpoint that somebody copies.
//! - Nothing in the folder is needed, and nobody waits for it to go. What a crash leaves there goes after the next start.
//! - If there cannot be a second name, RocksDB removes the file whole, as it always has.

use crate::background::Chores;
use crate::documents::format::beside;
use crate::machine::check_room;
use crate::storage::Storage;
use rust_rocksdb::LiveFile;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What goes at once.
const PIECE_BYTES: u64 = 1 << 20;
/// How fast pieces go one after the other where the disk has room, in bytes a second: so that what waits is gone within
/// [`GONE_WITHIN`], but no slower and no faster than this.
const RATE_MIN: u64 = 128 << 20;
/// See [`RATE_MIN`]. Beside as much as this a sync's 99th percentile was not seen to grow.
const RATE_MAX: u64 = 400 << 20;
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// See the file's header.
#[derive(Debug)]
pub(crate) struct Removal {
    folder: PathBuf,
    bytes: AtomicU64,
}

impl Removal {
    /// For the database there, which need not be open.
    pub(crate) fn new(database: &Path) -> Arc<Self> {
        Arc::new(Self { folder: database.with_extension(beside::REMOVED), bytes: AtomicU64::new(0) })
    }

    /// To be called before somebody else removes this file.
    pub(crate) fn keep(&self, file: &Path) {
        let Some(name) = file.file_name() else { return };
        let second = self.folder.join(name);
        let mut kept = std::fs::hard_link(file, &second);
        if kept.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            kept = std::fs::create_dir_all(&self.folder).and_then(|()| std::fs::hard_link(file, &second));
        }
        match kept {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                tracing::debug!(component = "STORAGE", file = %file.display(), error = %error, "A file is removed whole");
            }
            // Or it has been kept before.
            _ => {}
        }
    }

    /// Bytes that wait to be removed, as seen last.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Removes what has no other name. After each piece `rest` waits that long, and says whether to go on.
    ///
    /// # Errors
    /// The last of those that single files gave; the others are gone.
    pub(crate) fn remove(&self, rest: &dyn Fn(Duration) -> bool) -> io::Result<()> {
        let alone = self.alone()?;
        let total: u64 = alone.iter().map(|(_, bytes)| bytes).sum();
        self.bytes.store(total, Ordering::Relaxed);
        let rate = (total / GONE_WITHIN.as_secs()).clamp(RATE_MIN, RATE_MAX);
        let rest_after = |piece: u64| {
            self.bytes.fetch_sub(piece, Ordering::Relaxed);
            // On a disk that is full all others wait for the room.
            let has_room = check_room(&self.folder).is_ok();
            rest(if has_room { Duration::from_secs_f64(piece as f64 / rate as f64) } else { Duration::ZERO })
        };
        let mut outcome = Ok(());
        for (path, bytes) in alone {
            match remove_in_pieces(&path, bytes, &rest_after) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => outcome = Err(error),
            }
        }
        outcome
    }

    /// The files that have no name but the one here, and their sizes.
    fn alone(&self) -> io::Result<Vec<(PathBuf, u64)>> {
        let mut alone = Vec::new();
        let entries = match std::fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(alone),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let facts = entry.metadata()?;
            if facts.is_file() && facts.nlink() == 1 {
                alone.push((entry.path(), facts.len()));
            }
        }
        Ok(alone)
    }
}

impl Chores<'_> {
    /// Removes files that nobody has any more, piece by piece. To be called about once a second by one thread; after each piece `rest`
    /// waits for so long, and says whether to go on.
    pub fn remove_files(&self, rest: &dyn Fn(Duration) -> bool) -> io::Result<()> {
        self.0.removal.remove(rest)
    }
}

impl Storage {
    /// Of a table that RocksDB is about to be told to remove.
    pub(crate) fn keep_for_removal(&self, table: &LiveFile) {
        self.removal.keep(&Path::new(&table.directory).join(table.name.trim_start_matches('/')));
    }
}

/// Whether to go on with the next.
fn remove_in_pieces(path: &Path, bytes: u64, rest_after: &dyn Fn(u64) -> bool) -> io::Result<bool> {
    let file = OpenOptions::new().write(true).open(path)?;
    let mut left = bytes;
    loop {
        let piece = PIECE_BYTES.min(left);
        left -= piece;
        if left == 0 {
            std::fs::remove_file(path)?
        } else {
            file.set_len(left)?
        }
        crash_point!("removal-piece");
        let goes_on = rest_after(piece);
        if left == 0 || !goes_on {
            return Ok(goes_on);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::fs::File;

    const BYTES: u64 = 5 * PIECE_BYTES + 7;

    /// A database's folder with one file, and the removal for it.
    fn at_work() -> (tempfile::TempDir, PathBuf, Arc<Removal>) {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("rocksdb");
        std::fs::create_dir(&database).unwrap();
        let table = database.join("000007.sst");
        std::fs::write(&table, vec![7; BYTES as usize]).unwrap();
        let removal = Removal::new(&database);
        (folder, table, removal)
    }

    /// As RocksDB does.
    fn keep_and_remove(removal: &Removal, table: &Path) {
        removal.keep(table);
        std::fs::remove_file(table).unwrap();
    }

    fn sizes(removal: &Removal) -> Vec<u64> {
        let files = std::fs::read_dir(&removal.folder).unwrap();
        files.map(|file| file.unwrap().metadata().unwrap().len()).collect()
    }

    #[test]
    fn what_has_another_name_is_left_alone() {
        let (_folder, table, removal) = at_work();
        removal.keep(&table);
        removal.keep(&table);
        removal.remove(&|_| panic!("nothing is to be removed")).unwrap();
        assert_eq!(std::fs::metadata(&table).unwrap().len(), BYTES);
        assert_eq!(sizes(&removal), [BYTES]);
    }

    #[test]
    fn what_has_lost_its_first_name_goes_piece_by_piece() {
        let (_folder, table, removal) = at_work();
        keep_and_remove(&removal, &table);
        let seen = RefCell::new(Vec::new());
        let rest = |pause: Duration| {
            assert!(pause <= Duration::from_secs_f64(PIECE_BYTES as f64 / RATE_MIN as f64), "{pause:?}");
            seen.borrow_mut().push((sizes(&removal), removal.bytes()));
            true
        };
        removal.remove(&rest).unwrap();
        let left: Vec<u64> = (0..5).rev().map(|pieces| pieces * PIECE_BYTES + 7).collect();
        let mut expected: Vec<_> = left.into_iter().map(|bytes| (vec![bytes], bytes)).collect();
        expected.push((vec![], 0));
        assert_eq!(seen.into_inner(), expected);
    }

    #[test]
    fn it_goes_on_where_it_was_stopped_and_after_a_start() {
        let (folder, table, removal) = at_work();
        keep_and_remove(&removal, &table);
        removal.remove(&|_| false).unwrap();
        assert_eq!(sizes(&removal), [BYTES - PIECE_BYTES]);
        let next = Removal::new(&folder.path().join("rocksdb"));
        next.remove(&|_| true).unwrap();
        assert_eq!(sizes(&next), Vec::<u64>::new());
    }

    #[test]
    fn much_goes_faster_and_no_faster_than_others_bear() {
        let paused = |bytes: u64| {
            let (_folder, table, removal) = at_work();
            // A hole: it has no bytes on the disk.
            File::options().write(true).open(&table).unwrap().set_len(bytes).unwrap();
            keep_and_remove(&removal, &table);
            let pause = Cell::new(None);
            let rest = |asked| {
                pause.set(Some(asked));
                false
            };
            removal.remove(&rest).unwrap();
            pause.get().expect("a piece has gone")
        };
        let at_rate = |rate: u64| Duration::from_secs_f64(PIECE_BYTES as f64 / rate as f64);
        assert_eq!(paused(BYTES), at_rate(RATE_MIN));
        assert_eq!(paused(GONE_WITHIN.as_secs() * 2 * RATE_MIN), at_rate(2 * RATE_MIN));
        assert_eq!(paused(GONE_WITHIN.as_secs() * 9 * RATE_MAX), at_rate(RATE_MAX));
    }
}
