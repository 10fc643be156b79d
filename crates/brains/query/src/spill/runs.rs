//! Runs in a file: sorted entries, written block by block and read back the same way.
//!
//! ```text
//!  block:  key length (u32) │ value length (u32) │ key │ value │ key length │ …
//! ```

use super::merge::Merge;
use super::{Room, SpillFile, Spilled, damaged};
use crate::interruption::{BYTES_PER_STEP, Interruption};
use baton_types::Result;
use std::ops::Range;
use std::sync::Arc;

/// Bytes before an entry's key.
const ENTRY_HEADER_BYTES: usize = 8;

/// Where a run lies, and what a reader needs for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    from: u64,
    to: u64,
    entries: u64,
    /// The longest of its blocks, in bytes.
    block_bytes_max: usize,
}

/// The runs of one stage, in the order in which they came.
pub(crate) struct Runs {
    file: Box<dyn SpillFile>,
    runs: Vec<Run>,
    block: Vec<u8>,
    /// From so many bytes on a block is written.
    block_bytes: usize,
    interruption: Arc<Interruption>,
}

impl Runs {
    pub fn new(file: Box<dyn SpillFile>, block_bytes: usize, interruption: Arc<Interruption>) -> Self {
        Self { file, runs: Vec::new(), block: Vec::new(), block_bytes, interruption }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Entries in all of them.
    pub fn entries(&self) -> u64 {
        self.runs.iter().map(|run| run.entries).sum()
    }

    /// Writes a run behind the others: what `write` puts, which comes sorted.
    pub fn write(&mut self, room: &mut Room, write: impl FnOnce(&mut RunWriter<'_>) -> Result<()>) -> Result<()> {
        let draft = Draft::begin(&*self.file, std::mem::take(&mut self.block), self.block_bytes);
        let mut writer = RunWriter { draft, file: &mut *self.file, interruption: &self.interruption };
        write(&mut writer)?;
        let draft = writer.draft;
        let bytes = draft.bytes;
        let run = draft.finish(&mut *self.file, &mut self.block)?;
        room.count(Spilled { spills: 1, records: run.entries, bytes, stored_bytes: run.to - run.from });
        self.runs.push(run);
        Ok(())
    }

    /// Merges neighbours until one merge takes all that are left, and begins that. With a limit no merged run is longer.
    pub fn into_merge(mut self, room: &mut Room, limit: Option<u64>) -> Result<Merge> {
        loop {
            let at_once = self.at_once(room);
            if self.runs.len() <= at_once {
                break;
            }
            // The last pass merges no more than it must.
            self.merge_some(at_once.min(self.runs.len() - at_once + 1), limit)?;
        }
        let Self { file, runs, interruption, .. } = self;
        Merge::begin(file, &runs, interruption)
    }

    /// Makes one run of all, of at most `limit` entries; gives back the last key that is in it if it has as many.
    pub fn reduce(&mut self, room: &mut Room, limit: u64) -> Result<Option<Vec<u8>>> {
        let mut last = Vec::new();
        while self.runs.len() > 1 {
            let count = self.at_once(room).min(self.runs.len());
            last = self.merge_some(count, Some(limit))?;
        }
        Ok((self.entries() >= limit).then_some(last))
    }

    /// How many can be merged at once; the memory for that is taken.
    fn at_once(&self, room: &mut Room) -> usize {
        let block_bytes = self.runs.iter().map(|run| run.block_bytes_max).max().unwrap_or(0);
        room.hold_for_merge(self.runs.len(), block_bytes)
    }

    /// Makes one run of `count` neighbours, of those that are shortest together; tells its last key.
    fn merge_some(&mut self, count: usize, limit: Option<u64>) -> Result<Vec<u8>> {
        let limit = limit.unwrap_or(u64::MAX);
        let bytes = |runs: &[Run]| runs.iter().map(|run| run.to - run.from).sum::<u64>();
        let windows = self.runs.windows(count).enumerate();
        let at = windows.min_by_key(|(_, runs)| bytes(runs)).map_or(0, |(at, _)| at);
        let merged: Vec<Run> = self.runs[at..at + count].to_vec();
        let mut readers = Readers::begin(&mut *self.file, &merged)?;
        let mut draft = Draft::begin(&*self.file, std::mem::take(&mut self.block), self.block_bytes);
        let mut last = Vec::new();
        while draft.run.entries < limit
            && let Some((key, value)) = readers.next(&mut *self.file)?
        {
            self.interruption.steps(1 + (key.len() + value.len()) / BYTES_PER_STEP)?;
            draft.put(&mut *self.file, key, |out| out.extend_from_slice(value))?;
            last.clear();
            last.extend_from_slice(key);
        }
        let run = draft.finish(&mut *self.file, &mut self.block)?;
        self.runs.splice(at..at + count, [run]);
        for run in merged {
            self.file.release(run.from, run.to);
        }
        Ok(last)
    }
}

/// What writes one run.
pub(crate) struct RunWriter<'r> {
    draft: Draft,
    file: &'r mut dyn SpillFile,
    interruption: &'r Interruption,
}

impl RunWriter<'_> {
    /// Appends an entry, whose value `value` appends to what it is given.
    pub fn put(&mut self, key: &[u8], value: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let before = self.draft.bytes;
        self.draft.put(self.file, key, value)?;
        self.interruption.steps(1 + (self.draft.bytes - before) as usize / BYTES_PER_STEP)
    }
}

/// A run that is being written.
struct Draft {
    run: Run,
    block: Vec<u8>,
    block_bytes: usize,
    bytes: u64,
}

impl Draft {
    fn begin(file: &dyn SpillFile, mut block: Vec<u8>, block_bytes: usize) -> Self {
        block.clear();
        let from = file.end();
        Self { run: Run { from, to: from, entries: 0, block_bytes_max: 0 }, block, block_bytes, bytes: 0 }
    }

    fn put(&mut self, file: &mut dyn SpillFile, key: &[u8], value: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let start = self.block.len();
        self.block.extend_from_slice(&length(key.len())?);
        self.block.extend_from_slice(&[0; 4]);
        self.block.extend_from_slice(key);
        let before = self.block.len();
        value(&mut self.block);
        let value_length = length(self.block.len() - before)?;
        self.block[start + 4..start + ENTRY_HEADER_BYTES].copy_from_slice(&value_length);
        self.bytes += (self.block.len() - start) as u64;
        self.run.entries += 1;
        if self.block.len() >= self.block_bytes { self.write_block(file) } else { Ok(()) }
    }

    fn write_block(&mut self, file: &mut dyn SpillFile) -> Result<()> {
        if !self.block.is_empty() {
            file.append(&self.block)?;
            self.run.block_bytes_max = self.run.block_bytes_max.max(self.block.len());
            self.block.clear();
        }
        Ok(())
    }

    /// The run; the buffer goes back.
    fn finish(mut self, file: &mut dyn SpillFile, block: &mut Vec<u8>) -> Result<Run> {
        self.write_block(file)?;
        self.run.to = file.end();
        *block = self.block;
        // What one long entry took is not kept.
        block.shrink_to(self.block_bytes);
        Ok(self.run)
    }
}

fn length(bytes: usize) -> Result<[u8; 4]> {
    u32::try_from(bytes).map(u32::to_le_bytes).map_err(|_| damaged())
}

/// Reads one run from its beginning to its end.
pub(crate) struct RunReader {
    at: u64,
    to: u64,
    block: Vec<u8>,
    key: Range<usize>,
    value: Range<usize>,
}

impl RunReader {
    fn new(run: &Run) -> Self {
        Self { at: run.from, to: run.to, block: Vec::new(), key: 0..0, value: 0..0 }
    }

    /// Goes to the next entry; `false` if there is none.
    pub fn advance(&mut self, file: &mut dyn SpillFile) -> Result<bool> {
        let mut start = self.value.end;
        if start == self.block.len() {
            if self.at == self.to {
                return Ok(false);
            }
            self.at = file.read(self.at, &mut self.block)?;
            start = 0;
        }
        let word = |at: usize| -> Result<usize> {
            let bytes = self.block.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).ok_or_else(damaged)?;
            Ok(u32::from_le_bytes(bytes) as usize)
        };
        let key = start + ENTRY_HEADER_BYTES;
        let value = key + word(start)?;
        let end = value + word(start + 4)?;
        if end > self.block.len() || self.at > self.to {
            return Err(damaged());
        }
        (self.key, self.value) = (key..value, value..end);
        Ok(true)
    }

    /// The key of the entry it is at.
    pub fn key(&self) -> &[u8] {
        &self.block[self.key.clone()]
    }

    /// The value of that.
    pub fn value(&self) -> &[u8] {
        &self.block[self.value.clone()]
    }
}

/// The readers of several runs, as one that gives their entries in order.
pub(crate) struct Readers {
    /// In the order of their runs.
    readers: Vec<RunReader>,
    /// Places in `readers` of those that are not at their end, as a heap: the one whose entry comes next is first.
    heap: Vec<usize>,
    /// Whether the first one's entry was given already.
    is_given: bool,
}

impl Readers {
    pub fn begin(file: &mut dyn SpillFile, runs: &[Run]) -> Result<Self> {
        let mut all = Self { readers: runs.iter().map(RunReader::new).collect(), heap: Vec::new(), is_given: false };
        for at in 0..all.readers.len() {
            if all.readers[at].advance(file)? {
                all.heap.push(at);
            }
        }
        for place in (0..all.heap.len() / 2).rev() {
            all.sink(place);
        }
        Ok(all)
    }

    /// The next entry's key and value.
    pub fn next(&mut self, file: &mut dyn SpillFile) -> Result<Option<(&[u8], &[u8])>> {
        if std::mem::take(&mut self.is_given)
            && let Some(first) = self.heap.first()
        {
            if !self.readers[*first].advance(file)? {
                let ended = self.heap.swap_remove(0);
                self.readers[ended].block = Vec::new();
            }
            self.sink(0);
        }
        let Some(first) = self.heap.first() else { return Ok(None) };
        self.is_given = true;
        let reader = &self.readers[*first];
        Ok(Some((reader.key(), reader.value())))
    }

    /// Whether one reader's entry comes before another's: by key, of equals the earlier run's.
    fn is_before(&self, a: usize, b: usize) -> bool {
        self.readers[a].key().cmp(self.readers[b].key()).then(a.cmp(&b)).is_lt()
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let mut first = place;
            for child in [2 * place + 1, 2 * place + 2] {
                if child < self.heap.len() && self.is_before(self.heap[child], self.heap[first]) {
                    first = child;
                }
            }
            if first == place {
                return;
            }
            self.heap.swap(place, first);
            place = first;
        }
    }
}
