//! The source's log while its collections are copied: kept here, so that a short log there does not outrun a long copy.
//!
//! ```text
//!  log's lane ──put──▶ │ memory, up to a bound │ then a file, up to another │ then what comes waits │ ──take──▶ applied
//! ```
//!
//! Invariants:
//! - Entries are taken in the order they were put.
//! - While there is anything in the file, new entries go there too.
//! - The file is nobody's after a crash: the copy it belongs to begins anew. It has no name that could stay behind.

use baton_types::{Error, ErrorCode, Result};
use bson::RawDocumentBuf;
use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// How much may wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub memory_bytes: u64,
    pub file_bytes: u64,
}

/// See the file's header.
pub(super) struct LogBuffer {
    bounds: Bounds,
    directory: PathBuf,
    memory: VecDeque<RawDocumentBuf>,
    memory_bytes: u64,
    file: Option<File>,
    /// The file holds entries from here
    read: u64,
    /// to here.
    written: u64,
}

fn failed(what: &str, error: &std::io::Error) -> Error {
    Error::new(ErrorCode::InitialSyncFailure, format!("the source's log cannot be {what}: {error}"))
}

impl LogBuffer {
    pub fn new(directory: &Path, bounds: Bounds) -> Self {
        let (memory, directory) = (VecDeque::new(), directory.to_owned());
        Self { bounds, directory, memory, memory_bytes: 0, file: None, read: 0, written: 0 }
    }

    /// Puts an entry at the end. Gives it back if there is no room.
    pub fn put(&mut self, entry: RawDocumentBuf) -> Result<Option<RawDocumentBuf>> {
        let bytes = entry.as_bytes().len() as u64;
        let in_file = self.written > self.read;
        if !in_file && (self.memory_bytes + bytes <= self.bounds.memory_bytes || self.memory.is_empty()) {
            self.memory_bytes += bytes;
            self.memory.push_back(entry);
            return Ok(None);
        }
        if self.written + bytes <= self.bounds.file_bytes {
            self.append(&entry)?;
            return Ok(None);
        }
        Ok(Some(entry))
    }

    fn append(&mut self, entry: &RawDocumentBuf) -> Result<()> {
        let failed = |error: std::io::Error| failed("kept in a file", &error);
        if self.file.is_none() {
            let path = self.directory.join("initial-sync-log");
            let options = File::options().read(true).write(true).create(true).truncate(true).open(&path);
            self.file = Some(options.map_err(failed)?);
            std::fs::remove_file(&path).map_err(failed)?;
        }
        let Some(file) = &self.file else { return Ok(()) };
        file.write_all_at(entry.as_bytes(), self.written).map_err(failed)?;
        self.written += entry.as_bytes().len() as u64;
        Ok(())
    }

    /// Takes entries of about so many bytes, at least one if there is one.
    pub fn take(&mut self, bytes_max: u64) -> Result<Vec<RawDocumentBuf>> {
        let mut taken = Vec::new();
        let mut bytes = 0;
        while bytes < bytes_max {
            let entry = match self.memory.pop_front() {
                Some(entry) => {
                    self.memory_bytes -= entry.as_bytes().len() as u64;
                    entry
                }
                None => match self.read()? {
                    Some(entry) => entry,
                    None => break,
                },
            };
            bytes += entry.as_bytes().len() as u64;
            taken.push(entry);
        }
        Ok(taken)
    }

    fn read(&mut self) -> Result<Option<RawDocumentBuf>> {
        let (Some(file), true) = (&self.file, self.written > self.read) else { return Ok(None) };
        let failed = |error: std::io::Error| failed("read from its file", &error);
        let mut length = [0; 4];
        file.read_exact_at(&mut length, self.read).map_err(failed)?;
        let length = u64::from(u32::from_le_bytes(length)).min(self.written - self.read);
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, self.read).map_err(failed)?;
        let entry = RawDocumentBuf::from_bytes(bytes)?;
        self.read += length;
        if self.read == self.written {
            (self.read, self.written) = (0, 0);
            file.set_len(0).map_err(failed)?;
        }
        Ok(Some(entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::rawdoc;

    fn numbers(entries: &[RawDocumentBuf]) -> Vec<i32> {
        entries.iter().map(|entry| entry.get_i32("n").unwrap()).collect()
    }

    fn buffer(memory_bytes: u64, file_bytes: u64) -> LogBuffer {
        LogBuffer::new(&std::env::temp_dir(), Bounds { memory_bytes, file_bytes })
    }

    #[test]
    fn entries_come_out_in_the_order_they_went_in_however_many_went_to_the_file() {
        let mut buffer = buffer(40, 10_000);
        let (mut put, mut taken) = (0, Vec::new());
        for round in 1..20 {
            for _ in 0..round {
                assert!(buffer.put(rawdoc! { "n": put }).unwrap().is_none());
                put += 1;
            }
            taken.extend(numbers(&buffer.take(70).unwrap()));
        }
        taken.extend(numbers(&buffer.take(u64::MAX).unwrap()));
        assert_eq!(taken, (0..put).collect::<Vec<_>>());
        assert!(buffer.take(1).unwrap().is_empty());
    }

    #[test]
    fn what_there_is_no_room_for_comes_back_and_goes_in_once_something_was_taken() {
        let mut buffer = buffer(20, 30);
        let (mut taken, mut came_back) = (Vec::new(), 0);
        for n in 0..100 {
            let mut entry = Some(rawdoc! { "n": n });
            while let Some(again) = entry.take().and_then(|entry| buffer.put(entry).unwrap()) {
                assert!(buffer.written <= 30);
                came_back += 1;
                taken.extend(numbers(&buffer.take(1).unwrap()));
                entry = Some(again);
            }
        }
        taken.extend(numbers(&buffer.take(u64::MAX).unwrap()));
        assert_eq!(taken, (0..100).collect::<Vec<_>>());
        assert!(came_back > 50, "{came_back}");
    }

    #[test]
    fn an_entry_larger_than_all_the_memory_there_is_goes_in_alone() {
        let mut buffer = buffer(1, 0);
        assert!(buffer.put(rawdoc! { "n": 1 }).unwrap().is_none());
        assert!(buffer.put(rawdoc! { "n": 2 }).unwrap().is_some());
        assert_eq!(numbers(&buffer.take(u64::MAX).unwrap()), [1]);
    }
}
