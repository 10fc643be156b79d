//! Files for what blocking stages of queries may not hold in memory (`baton_query::spill`), in a folder beside the database.
//!
//! ```text
//!  block:  bytes stored (u32) │ bytes of the block (u32) │ CRC-32C of these and of what follows (u32) │ what is stored
//! ```
//!
//! A block is stored compressed (Snappy) where that makes it smaller.
//!
//! Invariants: a file is removed when it is dropped, and what a crash left when the database is opened next; nothing in one is
//! ever needed after a restart, so nothing is synced. A file is not written to when so little is left of the disk that the member
//! needs it for itself ([`crate::machine`]): what must end then is the query. A block that is not read as it was written is
//! an error. At most so many files are open at once, however many there are.
//!
//! Not here: what is in a block.

use crate::documents::format::beside;
use crate::machine::check_room;
use baton_query::spill::{SpillFile, SpillSpace, damaged};
use baton_types::{Error, ErrorCode, Result};
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

pub(crate) const HEADER_BYTES: usize = 12;
/// The disk is asked how much it has left every so many bytes.
const CHECK_ROOM_EVERY_BYTES: u64 = 1 << 20;

/// The folder, and what is in it.
#[derive(Debug)]
struct SpillFolder {
    path: PathBuf,
    next_number: AtomicU64,
    files: AtomicU64,
    bytes: AtomicU64,
    /// How many files may stay open from one access to the next, and how many do.
    open_max: usize,
    open: AtomicUsize,
    /// The turn of a file that may not.
    turn: Mutex<()>,
}

impl SpillFolder {
    fn new(database: &Path, open_max: usize) -> Arc<Self> {
        let path = database.with_extension(beside::SPILL);
        if path.exists()
            && let Err(error) = std::fs::remove_dir_all(&path)
        {
            tracing::warn!(component = "STORAGE", folder = %path.display(), error = %error, "What was spilled before cannot be removed");
        }
        Arc::new(Self {
            path,
            next_number: AtomicU64::new(1),
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            open_max,
            open: AtomicUsize::new(0),
            turn: Mutex::default(),
        })
    }
}

/// The folder as stages use it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Spills(Arc<SpillFolder>);

impl Spills {
    /// The folder of a database, emptied. At most `open_max` files in it, and one more, are open at once.
    pub(crate) fn new(database: &Path, open_max: usize) -> Self {
        Self(SpillFolder::new(database, open_max))
    }

    /// How many files there are, and their bytes.
    pub fn figures(&self) -> (u64, u64) {
        (self.0.files.load(Relaxed), self.0.bytes.load(Relaxed))
    }
}

impl SpillSpace for Spills {
    fn create(&self) -> Result<Box<dyn SpillFile>> {
        let folder = Arc::clone(&self.0);
        std::fs::create_dir_all(&folder.path).map_err(|error| write_failure(&folder.path, &error))?;
        check_room(&folder.path)?;
        let path = folder.path.join(folder.next_number.fetch_add(1, Relaxed).to_string());
        folder.files.fetch_add(1, Relaxed);
        let mut spilled = Spilled {
            folder,
            path,
            open: None,
            is_made: false,
            end: 0,
            checked_at: 0,
            block: Vec::new(),
            encoder: snap::raw::Encoder::new(),
        };
        spilled.access(|_| Ok(())).map_err(|error| write_failure(&spilled.path, &error))?;
        Ok(Box::new(spilled))
    }
}

/// One file.
struct Spilled {
    folder: Arc<SpillFolder>,
    path: PathBuf,
    /// There if it is one of those that stay open.
    open: Option<File>,
    is_made: bool,
    end: u64,
    /// How long it was when the disk was last asked for room.
    checked_at: u64,
    /// What is written next, or was read last.
    block: Vec<u8>,
    encoder: snap::raw::Encoder,
}

impl Spilled {
    /// Does something with the file, which is opened for that if it is not open.
    fn access<R>(&mut self, work: impl FnOnce(&File) -> io::Result<R>) -> io::Result<R> {
        if let Some(file) = &self.open {
            return work(file);
        }
        let folder = Arc::clone(&self.folder);
        let stays = folder.open.fetch_update(Relaxed, Relaxed, |open| (open < folder.open_max).then_some(open + 1));
        let _turn = stays.is_err().then(|| folder.turn.lock());
        let opened = File::options().read(true).write(true).create_new(!self.is_made).open(&self.path);
        if opened.is_err() && stays.is_ok() {
            folder.open.fetch_sub(1, Relaxed);
        }
        let file = opened?;
        self.is_made = true;
        let done = work(&file);
        if stays.is_ok() {
            self.open = Some(file);
        }
        done
    }
}

impl SpillFile for Spilled {
    fn append(&mut self, block: &[u8]) -> Result<()> {
        if self.end >= self.checked_at + CHECK_ROOM_EVERY_BYTES {
            check_room(&self.folder.path)?;
            self.checked_at = self.end;
        }
        let mut out = std::mem::take(&mut self.block);
        pack(&mut self.encoder, block, &mut out)?;
        let end = self.end;
        let written = self.access(|file| file.write_all_at(&out, end));
        let bytes = out.len() as u64;
        self.block = out;
        written.map_err(|error| write_failure(&self.path, &error))?;
        self.end += bytes;
        self.folder.bytes.fetch_add(bytes, Relaxed);
        Ok(())
    }

    fn end(&self) -> u64 {
        self.end
    }

    fn read(&mut self, at: u64, block: &mut Vec<u8>) -> Result<u64> {
        let mut stored = std::mem::take(&mut self.block);
        let end = self.end;
        let read = self.access(|file| {
            let mut header = [0; HEADER_BYTES];
            file.read_exact_at(&mut header, at)?;
            let length = u64::from(word(&header, 0));
            stored.clear();
            stored.extend_from_slice(&header);
            // What is not whole is damaged, whatever its header says.
            if at + HEADER_BYTES as u64 + length <= end {
                stored.resize(HEADER_BYTES + length as usize, 0);
                file.read_exact_at(&mut stored[HEADER_BYTES..], at + HEADER_BYTES as u64)?;
            }
            Ok(())
        });
        let unpacked = read.map_err(|error| read_failure(&self.path, &error)).and_then(|()| unpack(&stored, block));
        let next = at + stored.len() as u64;
        self.block = stored;
        unpacked.map(|()| next)
    }

    fn release(&mut self, from: u64, to: u64) {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // Where a file system cannot, the space goes with the file.
        let _ = self.access(|file| Ok(fallocate(file, punch, from, to - from)?));
    }
}

impl Drop for Spilled {
    fn drop(&mut self) {
        if self.is_made
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(component = "STORAGE", file = %self.path.display(), error = %error, "What was spilled cannot be removed");
        }
        self.folder.files.fetch_sub(1, Relaxed);
        self.folder.bytes.fetch_sub(self.end, Relaxed);
        if self.open.take().is_some() {
            self.folder.open.fetch_sub(1, Relaxed);
        }
    }
}

pub(crate) fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// Of all but itself.
fn checksum(block: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&block[..8]), &block[HEADER_BYTES..])
}

/// Puts a block as it is stored into `out`.
pub(crate) fn pack(encoder: &mut snap::raw::Encoder, block: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let too_long = || Error::new(ErrorCode::ExceededMemoryLimit, "what is spilled is too long for a block");
    out.clear();
    out.resize(HEADER_BYTES + snap::raw::max_compress_len(block.len()), 0);
    // A block that is too long to be compressed is stored as it is.
    let stored = match encoder.compress(block, &mut out[HEADER_BYTES..]) {
        Ok(stored) if stored < block.len() => stored,
        _ => {
            out.truncate(HEADER_BYTES);
            out.extend_from_slice(block);
            block.len()
        }
    };
    out.truncate(HEADER_BYTES + stored);
    for (place, length) in [(0, stored), (4, block.len())] {
        let length = u32::try_from(length).map_err(|_| too_long())?;
        out[place..place + 4].copy_from_slice(&length.to_le_bytes());
    }
    let checksum = checksum(out);
    out[8..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
    Ok(())
}

/// Puts what was stored into `block`.
pub(crate) fn unpack(stored: &[u8], block: &mut Vec<u8>) -> Result<()> {
    if checksum(stored) != word(stored, 8) {
        return Err(damaged());
    }
    let length = word(stored, 4) as usize;
    let stored = &stored[HEADER_BYTES..];
    block.clear();
    if stored.len() == length {
        block.extend_from_slice(stored);
        return Ok(());
    }
    block.resize(length, 0);
    match snap::raw::Decoder::new().decompress(stored, block) {
        Ok(unpacked) if unpacked == length => Ok(()),
        _ => Err(damaged()),
    }
}

pub(crate) fn write_failure(path: &Path, error: &io::Error) -> Error {
    let code = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorCode::OutOfDiskSpace,
        _ => ErrorCode(16821),
    };
    Error::new(code, format!("error writing to file \"{}\": {error}", path.display()))
}

pub(crate) fn read_failure(path: &Path, error: &io::Error) -> Error {
    tracing::error!(component = "STORAGE", file = %path.display(), error = %error, "What was spilled cannot be read");
    Error::new(ErrorCode(16817), format!("error reading file \"{}\": {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(open_max: usize) -> (tempfile::TempDir, Spills) {
        let directory = tempfile::tempdir().unwrap();
        let spills = Spills::new(&directory.path().join("rocksdb"), open_max);
        (directory, spills)
    }

    fn block(seed: u32, length: usize) -> Vec<u8> {
        (0..length as u32).map(|n| (n.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 24) as u8).collect()
    }

    #[test]
    fn blocks_are_read_as_they_were_written_in_whatever_order() {
        let (_directory, spills) = folder(1);
        let mut files: Vec<_> = (0..3).map(|_| spills.create().unwrap()).collect();
        let blocks = [block(1, 1), vec![7; 100_000], block(2, 70_000), Vec::new(), block(3, 500)];
        let mut places = Vec::new();
        for written in &blocks {
            places.push(files[0].end());
            for file in &mut files {
                file.append(written).unwrap();
            }
        }
        assert!(files[0].end() < 100_000, "what repeats is stored short");
        let mut read = b"before".to_vec();
        for file in &mut files {
            for at in [4, 0, 2, 1, 3] {
                let next = file.read(places[at], &mut read).unwrap();
                assert_eq!(read, blocks[at], "block {at}");
                assert_eq!(Some(next), places.get(at + 1).copied().or(Some(file.end())));
            }
        }
        assert_eq!(spills.figures(), (3, 3 * files[0].end()));
    }

    /// Fails if a file, its figures or its place among the open ones outlives it.
    #[test]
    fn a_file_goes_when_it_is_dropped_and_no_more_are_open_than_may_be() {
        let (directory, spills) = folder(2);
        let mut files: Vec<_> = (0..5).map(|_| spills.create().unwrap()).collect();
        files.iter_mut().for_each(|file| file.append(b"something").unwrap());
        let there = || std::fs::read_dir(directory.path().join("rocksdb.spill")).unwrap().count();
        assert_eq!((there(), spills.0.open.load(Relaxed)), (5, 2));
        drop(files.drain(..2));
        assert_eq!((there(), spills.0.open.load(Relaxed)), (3, 0));
        files.iter_mut().for_each(|file| file.append(b"more").unwrap());
        assert_eq!(spills.0.open.load(Relaxed), 2);
        drop(files);
        assert_eq!((there(), spills.figures(), spills.0.open.load(Relaxed)), (0, (0, 0), 0));
    }

    #[test]
    fn what_a_crash_left_is_removed_at_the_start() {
        let (directory, spills) = folder(2);
        let mut file = spills.create().unwrap();
        file.append(b"something").unwrap();
        std::mem::forget(file);
        assert!(directory.path().join("rocksdb.spill/1").exists());
        Spills::new(&directory.path().join("rocksdb"), 2);
        assert!(!directory.path().join("rocksdb.spill").exists());
    }

    /// Fails if a byte that the disk has changed is taken for what was written.
    #[test]
    fn a_byte_changed_anywhere_is_told() {
        let (directory, spills) = folder(0);
        for written in [block(1, 300), vec![7; 300]] {
            let mut file = spills.create().unwrap();
            file.append(&written).unwrap();
            let path = directory.path().join(format!("rocksdb.spill/{}", spills.0.next_number.load(Relaxed) - 1));
            let whole = std::fs::read(&path).unwrap();
            let mut read = Vec::new();
            for at in 0..whole.len() {
                let mut changed = whole.clone();
                changed[at] ^= 0x10;
                std::fs::write(&path, &changed).unwrap();
                assert_eq!(file.read(0, &mut read).unwrap_err().code.0, 31182, "byte {at}");
            }
            std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
            assert_eq!(file.read(0, &mut read).unwrap_err().code.0, 16817, "cut short");
            std::fs::write(&path, &whole).unwrap();
            file.read(0, &mut read).unwrap();
            assert_eq!(read, written);
        }
    }

    /// Fails if what was merged away keeps its space while the rest is in use.
    #[test]
    fn what_is_released_takes_no_space_and_the_rest_can_be_read() {
        use std::os::unix::fs::MetadataExt;
        let (directory, spills) = folder(1);
        let mut file = spills.create().unwrap();
        let written = block(1, 1 << 20);
        file.append(&written).unwrap();
        let second = file.end();
        file.append(&written).unwrap();
        let blocks = || std::fs::metadata(directory.path().join("rocksdb.spill/1")).unwrap().blocks();
        let before = blocks();
        file.release(0, second);
        assert!(blocks() < before || before == 0, "{} of {before} blocks", blocks());
        let mut read = Vec::new();
        file.read(second, &mut read).unwrap();
        assert_eq!(read, written);
    }
}
