//! What an index build has read, sorted in runs on the disk, which outlive a restart.
//!
//! ```text
//!  documents ─▶ Sorter ─ full, or a while ago ─▶ run 1, run 2, …   (level 0)
//!                                                  └ many of a level ─▶ one of the next
//!  runs ─▶ Merge ─▶ entries of all indexes of the build, in order of their keys
//! ```
//!
//! A run is a row of blocks as [`crate::spill`] stores them, each a row of entries: the lengths of key and value (u32 each), the key,
//! the value. Keys are whole ones of the index family, so that the entries of one index follow those of another.
//!
//! Invariants: a run is synced before anybody counts on it. What is held in memory is bounded, whatever the number of entries: a
//! block for each of at most so many runs.
//!
//! Not here: sorting in memory ([`super::sorter`]); what is read, and where it goes on ([`super::index_scan`]); which builds there
//! are.

use super::sorter::Sorter;
use crate::machine::check_room;
use crate::spill::{self, read_failure, write_failure};
use baton_query::spill::damaged;
use baton_types::Result;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Bytes of a block before it is compressed.
const BLOCK_BYTES: usize = 64 << 10;
/// Runs of one level that are merged into one of the next.
const FAN_IN: usize = 32;
/// The disk is asked how much it has left every so many bytes.
const CHECK_ROOM_EVERY_BYTES: u64 = 1 << 20;

/// A run, as it is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) number: u32,
    /// 0: written by the sorter; else merged from runs of the level below.
    pub(super) level: u8,
    pub(super) entries: u64,
}

/// The folder of one build, with its runs.
pub(super) struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// The folder, with nothing in it but these runs; `None` if one of them is not there.
    pub(super) fn open(path: PathBuf, runs: &[Run]) -> Result<Option<Self>> {
        std::fs::create_dir_all(&path).map_err(|error| write_failure(&path, &error))?;
        let folder = Self { path };
        let wanted: Vec<_> = runs.iter().map(|run| folder.run(run.number)).collect();
        let there = std::fs::read_dir(&folder.path).map_err(|error| read_failure(&folder.path, &error))?;
        for file in there.flatten().map(|file| file.path()).filter(|file| !wanted.contains(file)) {
            let _ = std::fs::remove_file(file);
        }
        Ok(wanted.iter().all(|run| run.exists()).then_some(folder))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn run(&self, number: u32) -> PathBuf {
        self.path.join(format!("run-{number}"))
    }

    /// Writes what the sorter has as a run, and syncs it.
    pub(super) fn write(&self, number: u32, sorter: &mut Sorter) -> Result<Run> {
        let mut writer = RunWriter::create(self.run(number))?;
        for (key, value) in sorter.sorted() {
            writer.add(key, value)?;
        }
        let entries = writer.finish(&self.path)?;
        sorter.clear();
        Ok(Run { number, level: 0, entries })
    }

    /// The runs that should be merged into one, if there are so many of a level.
    pub(super) fn crowded(runs: &[Run]) -> Option<Vec<Run>> {
        let level = runs.last()?.level;
        let alike: Vec<Run> = runs.iter().filter(|run| run.level == level).copied().collect();
        (alike.len() >= FAN_IN).then_some(alike)
    }

    /// Merges runs of one level into one of the next; `step` is asked now and then.
    pub(super) fn merge_into(&self, number: u32, runs: &[Run], step: &mut dyn FnMut() -> Result<()>) -> Result<Run> {
        let mut writer = RunWriter::create(self.run(number))?;
        let mut merge = self.merge(runs)?;
        let mut entries = 0_u64;
        while let Some((key, value)) = merge.next()? {
            writer.add(key, value)?;
            entries += 1;
            if entries.is_multiple_of(STEP_ENTRIES) {
                step()?;
            }
        }
        let entries = writer.finish(&self.path)?;
        Ok(Run { number, level: runs.first().map_or(0, |run| run.level) + 1, entries })
    }

    pub(super) fn merge(&self, runs: &[Run]) -> Result<Merge> {
        Merge::new(runs.iter().map(|run| self.run(run.number)).collect())
    }

    pub(super) fn remove(&self, runs: &[Run]) {
        for run in runs {
            let _ = std::fs::remove_file(self.run(run.number));
        }
    }
}

/// Entries between two questions whether to go on.
pub(super) const STEP_ENTRIES: u64 = 4096;

struct RunWriter {
    path: PathBuf,
    file: File,
    block: Vec<u8>,
    stored: Vec<u8>,
    encoder: snap::raw::Encoder,
    entries: u64,
    written: u64,
    checked_at: u64,
}

impl RunWriter {
    fn create(path: PathBuf) -> Result<Self> {
        check_room(path.parent().unwrap_or(&path))?;
        // What a merge that was interrupted has left of it goes.
        let file = File::create(&path).map_err(|error| write_failure(&path, &error))?;
        let (block, stored) = (Vec::with_capacity(BLOCK_BYTES), Vec::new());
        Ok(Self {
            path,
            file,
            block,
            stored,
            encoder: snap::raw::Encoder::new(),
            entries: 0,
            written: 0,
            checked_at: 0,
        })
    }

    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        for length in [key.len(), value.len()] {
            self.block.extend_from_slice(&(length as u32).to_le_bytes());
        }
        self.block.extend_from_slice(key);
        self.block.extend_from_slice(value);
        self.entries += 1;
        if self.block.len() >= BLOCK_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        if self.written >= self.checked_at + CHECK_ROOM_EVERY_BYTES {
            check_room(&self.path)?;
            self.checked_at = self.written;
        }
        spill::pack(&mut self.encoder, &self.block, &mut self.stored)?;
        self.file.write_all(&self.stored).map_err(|error| write_failure(&self.path, &error))?;
        self.written += self.stored.len() as u64;
        self.block.clear();
        Ok(())
    }

    /// Syncs the run and its name; gives how many entries it has.
    fn finish(mut self, folder: &Path) -> Result<u64> {
        self.flush()?;
        let synced = self.file.sync_all().and_then(|()| File::open(folder)?.sync_all());
        synced.map_err(|error| write_failure(&self.path, &error))?;
        Ok(self.entries)
    }
}

struct RunReader {
    path: PathBuf,
    file: File,
    block: Vec<u8>,
    stored: Vec<u8>,
    /// Where the current entry lies in the block: its key, its value, what follows.
    key: (usize, usize),
    end: usize,
}

impl RunReader {
    /// At its first entry; `None` if it has none.
    fn open(path: PathBuf) -> Result<Option<Self>> {
        let file = File::open(&path).map_err(|error| read_failure(&path, &error))?;
        let mut reader = Self { path, file, block: Vec::new(), stored: Vec::new(), key: (0, 0), end: 0 };
        Ok(reader.advance()?.then_some(reader))
    }

    fn key(&self) -> &[u8] {
        &self.block[self.key.0..self.key.1]
    }

    fn value(&self) -> &[u8] {
        &self.block[self.key.1..self.end]
    }

    fn advance(&mut self) -> Result<bool> {
        if self.end == self.block.len() && !self.read_block()? {
            return Ok(false);
        }
        let start = self.end + 8;
        if self.block.len() < start {
            return Err(damaged());
        }
        let (key, value) =
            (spill::word(&self.block, self.end) as usize, spill::word(&self.block, self.end + 4) as usize);
        self.key = (start, start + key);
        self.end = start + key + value;
        if self.end > self.block.len() { Err(damaged()) } else { Ok(true) }
    }

    /// Whether there was another.
    fn read_block(&mut self) -> Result<bool> {
        let mut header = [0; spill::HEADER_BYTES];
        let failed = |error: &io::Error| read_failure(&self.path, error);
        match self.file.read(&mut header[..1]).map_err(|error| failed(&error))? {
            0 => return Ok(false),
            _ => self.file.read_exact(&mut header[1..]).map_err(|error| failed(&error))?,
        }
        let length = spill::word(&header, 0) as usize;
        self.stored.clear();
        self.stored.extend_from_slice(&header);
        let read = (&self.file).take(length as u64).read_to_end(&mut self.stored).map_err(|error| failed(&error))?;
        if read < length {
            return Err(damaged());
        }
        self.end = 0;
        spill::unpack(&self.stored, &mut self.block)?;
        Ok(!self.block.is_empty())
    }
}

/// A run's place in the heap: by the key it is at.
struct Head(RunReader);

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.0.key() == other.0.key()
    }
}

impl Eq for Head {}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.key().cmp(other.0.key())
    }
}

/// Runs as one, in order.
pub(super) struct Merge {
    heads: BinaryHeap<Reverse<Head>>,
    is_begun: bool,
}

impl Merge {
    fn new(runs: Vec<PathBuf>) -> Result<Self> {
        let mut heads = BinaryHeap::with_capacity(runs.len());
        for run in runs {
            heads.extend(RunReader::open(run)?.map(|reader| Reverse(Head(reader))));
        }
        Ok(Self { heads, is_begun: false })
    }

    /// The next key with its value.
    pub(super) fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if std::mem::replace(&mut self.is_begun, true)
            && let Some(mut head) = self.heads.peek_mut()
            && !head.0.0.advance()?
        {
            std::collections::binary_heap::PeekMut::pop(head);
        }
        Ok(self.heads.peek().map(|Reverse(Head(reader))| (reader.key(), reader.value())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_types::MemoryPool;
    use std::collections::BTreeMap;

    fn folder(runs: &[Run]) -> (tempfile::TempDir, RunFolder) {
        let directory = tempfile::tempdir().unwrap();
        let folder = RunFolder::open(directory.path().join("7"), runs).unwrap().unwrap();
        (directory, folder)
    }

    fn sorter(bytes: usize) -> Sorter {
        Sorter::new(&MemoryPool::new(1 << 30), bytes)
    }

    fn entry(number: u32) -> (Vec<u8>, Vec<u8>) {
        let draw = number.wrapping_mul(2_654_435_761);
        let key =
            [&[0, 0, 0, 9][..], &draw.to_be_bytes(), &vec![7; (draw % 40) as usize], &number.to_be_bytes()].concat();
        (key, vec![number as u8; (draw % 5) as usize])
    }

    fn all(folder: &RunFolder, runs: &[Run]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut merge = folder.merge(runs).unwrap();
        let mut all = Vec::new();
        while let Some((key, value)) = merge.next().unwrap() {
            all.push((key.to_vec(), value.to_vec()));
        }
        all
    }

    /// Fails if an entry is lost, comes twice or out of order, however many runs there are and whatever was merged before.
    #[test]
    fn what_was_sorted_in_runs_comes_once_and_in_order() {
        let (_directory, folder) = folder(&[]);
        let (mut runs, mut expected, mut number) = (Vec::new(), BTreeMap::new(), 0);
        let mut sorter = sorter(1 << 16);
        for entry_number in 0..30_000 {
            let (key, value) = entry(entry_number);
            sorter.add(&key, &value);
            expected.insert(key, value);
            if sorter.size().0 == 400 {
                number += 1;
                runs.push(folder.write(number, &mut sorter).unwrap());
                if let Some(crowded) = RunFolder::crowded(&runs) {
                    number += 1;
                    let merged = folder.merge_into(number, &crowded, &mut || Ok(())).unwrap();
                    folder.remove(&crowded);
                    runs.retain(|run| !crowded.contains(run));
                    runs.push(merged);
                }
            }
        }
        assert!(sorter.is_empty() && runs.iter().any(|run| run.level == 1) && runs.len() < 20, "{runs:?}");
        assert_eq!(runs.iter().map(|run| run.entries).sum::<u64>(), 30_000);
        assert_eq!(all(&folder, &runs), expected.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn a_folder_keeps_the_runs_that_are_counted_on_and_says_if_one_is_missing() {
        let (directory, folder) = folder(&[]);
        let mut sorter = sorter(1 << 16);
        sorter.add(b"key", b"value");
        let run = folder.write(1, &mut sorter).unwrap();
        sorter.add(b"other", b"");
        folder.write(2, &mut sorter).unwrap();
        let again = RunFolder::open(directory.path().join("7"), &[run]).unwrap().unwrap();
        assert!(!directory.path().join("7/run-2").exists());
        assert_eq!(all(&again, &[run]), [(b"key".to_vec(), b"value".to_vec())]);
        let lost = Run { number: 9, ..run };
        assert!(RunFolder::open(directory.path().join("7"), &[run, lost]).unwrap().is_none());
    }

    /// Fails if a damaged run is taken for a shorter or another one.
    #[test]
    fn a_run_that_is_not_as_it_was_written_is_told() {
        let (directory, folder) = folder(&[]);
        let mut sorter = sorter(1 << 16);
        for number in 0..50 {
            let (key, value) = entry(number);
            sorter.add(&key, &value);
        }
        let run = folder.write(1, &mut sorter).unwrap();
        let path = directory.path().join("7/run-1");
        let whole = std::fs::read(&path).unwrap();
        for at in [0, 5, 9, 100, whole.len() - 1] {
            let mut changed = whole.clone();
            changed[at] ^= 0x10;
            std::fs::write(&path, &changed).unwrap();
            assert!(folder.merge(&[run]).is_err(), "byte {at}");
        }
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        assert!(folder.merge(&[run]).is_err());
    }
}
