//! The source's log while its collections are copied: kept here, so that a short log there does not outrun a long copy.
//!
//! ```text
//!  tail ──put──▶ │ memory, up to a bound │ then a file, up to another │ then the tail waits │ ──take──▶ applied
//! ```
//!
//! Invariants:
//! - Entries are taken in the order they were put.
//! - While there is anything in the file, new entries go there too.
//! - The file is nobody's after a crash: the copy it belongs to begins anew. It has no name that could stay behind.

use baton_types::{Error, ErrorCode, Result};
use bson::RawDocumentBuf;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How much may wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub memory_bytes: u64,
    pub file_bytes: u64,
}

#[derive(Default)]
struct State {
    memory: VecDeque<RawDocumentBuf>,
    memory_bytes: u64,
    file: Option<File>,
    /// The file holds entries from here
    read: u64,
    /// to here.
    written: u64,
    failed: Option<Error>,
    is_closed: bool,
}

/// See the file's header.
pub(super) struct LogBuffer {
    bounds: Bounds,
    directory: PathBuf,
    state: Mutex<State>,
    changed: Condvar,
}

impl LogBuffer {
    pub fn new(directory: &Path, bounds: Bounds) -> Self {
        Self { bounds, directory: directory.to_owned(), state: Mutex::default(), changed: Condvar::new() }
    }

    /// Nothing more is wanted: whoever waits goes on.
    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }

    pub fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// Nothing more will come, for this reason.
    pub fn fail(&self, error: Error) {
        self.state.lock().failed = Some(error);
        self.changed.notify_all();
    }

    /// Puts an entry at the end; waits while there is no room. Closed, it takes nothing.
    pub fn put(&self, entry: RawDocumentBuf) -> Result<()> {
        let mut state = self.state.lock();
        let bytes = entry.as_bytes().len() as u64;
        loop {
            if state.is_closed {
                return Ok(());
            }
            let in_file = state.written > state.read;
            if !in_file && (state.memory_bytes + bytes <= self.bounds.memory_bytes || state.memory.is_empty()) {
                state.memory_bytes += bytes;
                state.memory.push_back(entry);
                break;
            }
            if state.written + bytes <= self.bounds.file_bytes {
                self.append(&mut state, &entry)?;
                break;
            }
            self.changed.wait(&mut state);
        }
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    fn append(&self, state: &mut State, entry: &RawDocumentBuf) -> Result<()> {
        let failed = |error: std::io::Error| {
            Error::new(ErrorCode::InitialSyncFailure, format!("the source's log cannot be kept in a file: {error}"))
        };
        if state.file.is_none() {
            let path = self.directory.join("initial-sync-log");
            let options = File::options().read(true).write(true).create(true).truncate(true).open(&path);
            state.file = Some(options.map_err(failed)?);
            std::fs::remove_file(&path).map_err(failed)?;
        }
        let Some(file) = &state.file else { return Ok(()) };
        file.write_all_at(entry.as_bytes(), state.written).map_err(failed)?;
        state.written += entry.as_bytes().len() as u64;
        Ok(())
    }

    /// Takes entries of about so many bytes, at least one; none if none came in time.
    pub fn take(&self, bytes_max: u64, patience: Duration) -> Result<Vec<RawDocumentBuf>> {
        let mut state = self.state.lock();
        if state.memory.is_empty() && state.written == state.read && state.failed.is_none() && !state.is_closed {
            self.changed.wait_for(&mut state, patience);
        }
        let mut taken = Vec::new();
        let mut bytes = 0;
        while bytes < bytes_max {
            let entry = match state.memory.pop_front() {
                Some(entry) => {
                    state.memory_bytes -= entry.as_bytes().len() as u64;
                    entry
                }
                None => match Self::read(&mut state)? {
                    Some(entry) => entry,
                    None => break,
                },
            };
            bytes += entry.as_bytes().len() as u64;
            taken.push(entry);
        }
        if let (true, Some(error)) = (taken.is_empty(), &state.failed) {
            return Err(error.clone());
        }
        drop(state);
        self.changed.notify_all();
        Ok(taken)
    }

    fn read(state: &mut State) -> Result<Option<RawDocumentBuf>> {
        let (Some(file), true) = (&state.file, state.written > state.read) else { return Ok(None) };
        let failed = |error: std::io::Error| {
            Error::new(ErrorCode::InitialSyncFailure, format!("the source's log cannot be read from its file: {error}"))
        };
        let mut length = [0; 4];
        file.read_exact_at(&mut length, state.read).map_err(failed)?;
        let length = u64::from(u32::from_le_bytes(length)).min(state.written - state.read);
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, state.read).map_err(failed)?;
        let entry = RawDocumentBuf::from_bytes(bytes)?;
        state.read += length;
        if state.read == state.written {
            (state.read, state.written) = (0, 0);
            file.set_len(0).map_err(failed)?;
        }
        Ok(Some(entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::rawdoc;

    const SOON: Duration = Duration::from_millis(1);

    fn numbers(entries: &[RawDocumentBuf]) -> Vec<i32> {
        entries.iter().map(|entry| entry.get_i32("n").unwrap()).collect()
    }

    fn buffer(memory_bytes: u64, file_bytes: u64) -> LogBuffer {
        LogBuffer::new(&std::env::temp_dir(), Bounds { memory_bytes, file_bytes })
    }

    #[test]
    fn entries_come_out_in_the_order_they_went_in_however_many_went_to_the_file() {
        let buffer = buffer(40, 10_000);
        let (mut put, mut taken) = (0, Vec::new());
        for round in 1..20 {
            for _ in 0..round {
                buffer.put(rawdoc! { "n": put }).unwrap();
                put += 1;
            }
            taken.extend(numbers(&buffer.take(70, SOON).unwrap()));
        }
        taken.extend(numbers(&buffer.take(u64::MAX, SOON).unwrap()));
        assert_eq!(taken, (0..put).collect::<Vec<_>>());
        assert!(buffer.take(1, SOON).unwrap().is_empty());
    }

    #[test]
    fn who_puts_too_much_waits_until_somebody_takes() {
        let buffer = buffer(20, 30);
        std::thread::scope(|scope| {
            scope.spawn(|| (0..100).for_each(|n| buffer.put(rawdoc! { "n": n }).unwrap()));
            let mut taken = Vec::new();
            while taken.len() < 100 {
                taken.extend(numbers(&buffer.take(1, Duration::from_secs(10)).unwrap()));
                assert!(buffer.state.lock().written <= 30);
            }
            assert_eq!(taken, (0..100).collect::<Vec<_>>());
        });
    }

    #[test]
    fn closing_ends_all_waiting_and_a_failure_is_told_once_the_rest_is_taken() {
        let full = buffer(1, 0);
        full.put(rawdoc! { "n": 1 }).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| full.put(rawdoc! { "n": 2 }));
            full.close();
            assert!(waiting.join().unwrap().is_ok());
        });
        let buffer = buffer(100, 0);
        buffer.put(rawdoc! { "n": 1 }).unwrap();
        buffer.fail(Error::bad_value("gone"));
        assert_eq!(numbers(&buffer.take(100, SOON).unwrap()), [1]);
        assert_eq!(buffer.take(100, SOON).unwrap_err().message, "gone");
    }
}
