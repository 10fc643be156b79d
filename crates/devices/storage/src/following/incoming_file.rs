//! One of another member's files, written in order past the system's cache of files: copying a byte into that costs more than writing
//! it, and what others have there stays.
//!
//! Invariants: bytes reach the disk in whole blocks from memory that begins at a block's boundary, as `O_DIRECT` wants it, but for the
//! last ones; what [`IncomingFile::finish`] has returned for is whole and synced. Where the file system writes through its cache only,
//! so does this.

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// What disks and file systems have at most as the size of a block.
const BLOCK_BYTES: usize = 4096;
/// What is written at once. Larger writes are not faster, and fall out of the processor's cache before.
const GATHERED_BYTES: usize = 64 * BLOCK_BYTES;

/// See the file's header.
pub struct IncomingFile {
    file: File,
    /// As long as [`GATHERED_BYTES`] from `begin` on, which lies at a block's boundary.
    memory: Vec<u8>,
    begin: usize,
    gathered: usize,
}

impl IncomingFile {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let file = File::create(path)?;
        let memory = vec![0; GATHERED_BYTES + BLOCK_BYTES];
        let begin = memory.as_ptr().align_offset(BLOCK_BYTES).min(BLOCK_BYTES);
        let file = Self { file, memory, begin, gathered: 0 };
        // Refused by file systems that cannot.
        let _ = file.go_past_cache(true);
        Ok(file)
    }

    fn go_past_cache(&self, on: bool) -> io::Result<()> {
        let mut flags = fcntl_getfl(&self.file)?;
        flags.set(OFlags::DIRECT, on);
        Ok(fcntl_setfl(&self.file, flags)?)
    }

    /// Adds bytes at the end.
    pub fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let count = bytes.len().min(GATHERED_BYTES - self.gathered);
            let at = self.begin + self.gathered;
            let (now, later) = bytes.split_at(count);
            self.memory[at..at + count].copy_from_slice(now);
            self.gathered += count;
            bytes = later;
            if self.gathered == GATHERED_BYTES {
                self.write_gathered()?;
            }
        }
        Ok(())
    }

    fn write_gathered(&mut self) -> io::Result<()> {
        let mut gathered = &self.memory[self.begin..self.begin + self.gathered];
        while !gathered.is_empty() {
            match self.file.write(gathered) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                // If it was not all, what follows may not begin at a boundary.
                Ok(count) if count < gathered.len() => {
                    gathered = &gathered[count..];
                    self.go_past_cache(false)?;
                }
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The file system has taken the flag and does not take the write.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    self.go_past_cache(false)?;
                    self.file.write_all(gathered)?;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        self.gathered = 0;
        Ok(())
    }

    /// Writes what is left, and syncs all.
    pub fn finish(mut self) -> io::Result<()> {
        if !self.gathered.is_multiple_of(BLOCK_BYTES) {
            self.go_past_cache(false)?;
        }
        self.write_gathered()?;
        self.file.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_any_size_in_pieces_of_any_size_is_what_was_appended() {
        let directory = tempfile::tempdir().unwrap();
        let sizes =
            [0, 1, BLOCK_BYTES, GATHERED_BYTES - 1, GATHERED_BYTES, GATHERED_BYTES + 1, 3 * GATHERED_BYTES + 5000];
        for (number, size) in sizes.into_iter().enumerate() {
            for piece in [777, BLOCK_BYTES, GATHERED_BYTES, 2 * GATHERED_BYTES + 1] {
                let path = directory.path().join(format!("{number}-{piece}"));
                let bytes: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
                let mut file = IncomingFile::create(&path).unwrap();
                bytes.chunks(piece).for_each(|piece| file.append(piece).unwrap());
                file.finish().unwrap();
                assert!(std::fs::read(&path).unwrap() == bytes, "{size} in pieces of {piece}");
            }
        }
    }
}
