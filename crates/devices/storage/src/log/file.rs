//! The file that RocksDB's log is written to at present, and how it is synced.
//!
//! RocksDB's own sync closes the logs that were left before, and cuts off what such a file has beyond its end from when it was another
//! log. That is milliseconds, tens of them on a file system that tells the disk at once, and everybody who waits for a sync would wait
//! for it. So the log is synced here, by a descriptor of its own; what was left is closed in the background, by who flushes its memtables.
//!
//! Invariants:
//! - A log is synced with its name: the directory is synced at the first sync of each.
//! - A sync covers all that was written before it began, in whichever file: [`LogFile::change`] leaves none unsynced.

use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// See the file's header.
pub(crate) struct LogFile {
    directory: PathBuf,
    newest: Mutex<Newest>,
}

#[derive(Clone)]
struct Newest {
    number: u64,
    file: Arc<File>,
    is_name_synced: bool,
}

impl LogFile {
    /// The log of a database that is open.
    pub fn open(directory: &Path) -> io::Result<Self> {
        Ok(Self { directory: directory.to_owned(), newest: Mutex::new(newest(directory)?) })
    }

    /// Makes what was written before the call safe from a loss of power.
    pub fn sync(&self) -> io::Result<()> {
        let Newest { number, file, is_name_synced } = self.newest.lock().clone();
        file.sync_data()?;
        if !is_name_synced {
            File::open(&self.directory)?.sync_all()?;
            let mut newest = self.newest.lock();
            newest.is_name_synced |= newest.number == number;
        }
        Ok(())
    }

    /// RocksDB has another log now, to which nothing is written before this is back: syncs the one that was left.
    pub fn change(&self) -> io::Result<()> {
        self.sync()?;
        let found = newest(&self.directory)?;
        let mut newest = self.newest.lock();
        // A memtable may be left without its log, if nothing was written since.
        if newest.number != found.number {
            *newest = found;
        }
        Ok(())
    }
}

/// Files that wait to be written over have the numbers of logs that were left long ago.
fn newest(directory: &Path) -> io::Result<Newest> {
    let logs = logs(directory)?;
    let (number, path) = logs.last().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "there is no log"))?;
    Ok(Newest { number: *number, file: Arc::new(File::open(path)?), is_name_synced: false })
}

/// The log's files in a data directory with their numbers, in the order in which they were begun.
pub(crate) fn logs(directory: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut logs = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".log")).and_then(|number| number.parse().ok());
        logs.extend(number.map(|number| (number, entry.path())));
    }
    logs.sort_unstable();
    Ok(logs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_log_is_synced_whatever_waits_to_be_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let begin = |number: u64| drop(File::create(folder.path().join(format!("{number:06}.log"))).unwrap());
        begin(9);
        begin(999_999);
        File::create(folder.path().join("1000001.sst")).unwrap();
        let log = LogFile::open(folder.path()).unwrap();
        let newest = || log.newest.lock().clone();
        assert_eq!((newest().number, newest().is_name_synced), (999_999, false));
        log.sync().unwrap();
        assert!(newest().is_name_synced);
        log.change().unwrap();
        assert!(newest().is_name_synced, "it is the same");
        begin(1_000_000);
        log.change().unwrap();
        assert_eq!((newest().number, newest().is_name_synced), (1_000_000, false));
    }
}
