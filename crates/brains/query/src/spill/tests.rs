//! Runs and merges over a file in memory, which the tests of stages use too.

use super::*;
use crate::interruption::{Check, Interruption};
use baton_types::{Error, ErrorCode, MemoryAccount};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// A space that counts what is in it.
#[derive(Debug, Default)]
pub(crate) struct MemorySpace {
    /// Files that are there.
    pub files: AtomicUsize,
    /// Bytes that are read no more.
    pub released: Mutex<u64>,
}

struct MemoryFile {
    space: Arc<MemorySpace>,
    bytes: Vec<u8>,
}

impl Spillable for u32 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_be_bytes());
    }

    fn take(bytes: &[u8]) -> Result<Self> {
        Ok(word(bytes))
    }
}

/// The space as stages get it, and as the test sees it.
pub(crate) fn space() -> (Arc<MemorySpace>, Arc<dyn SpillSpace>) {
    let space = Arc::new(MemorySpace::default());
    (Arc::clone(&space), Arc::new(SharedSpace(space)))
}

#[derive(Debug)]
struct SharedSpace(Arc<MemorySpace>);

impl SpillSpace for SharedSpace {
    fn create(&self) -> Result<Box<dyn SpillFile>> {
        self.0.files.fetch_add(1, Relaxed);
        Ok(Box::new(MemoryFile { space: Arc::clone(&self.0), bytes: Vec::new() }))
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        self.space.files.fetch_sub(1, Relaxed);
    }
}

impl SpillFile for MemoryFile {
    fn append(&mut self, block: &[u8]) -> Result<()> {
        self.bytes.extend_from_slice(&(block.len() as u64).to_le_bytes());
        self.bytes.extend_from_slice(block);
        Ok(())
    }

    fn end(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&mut self, at: u64, block: &mut Vec<u8>) -> Result<u64> {
        let rest = &self.bytes[at as usize..];
        let (length, rest) = rest.split_first_chunk().ok_or_else(damaged)?;
        let length = u64::from_le_bytes(*length) as usize;
        block.clear();
        block.extend_from_slice(&rest[..length]);
        Ok(at + 8 + length as u64)
    }

    fn release(&mut self, from: u64, to: u64) {
        self.bytes[from as usize..to as usize].fill(0xff);
        *self.space.released.lock().unwrap() += to - from;
    }
}

fn room(bytes: usize, space: Arc<dyn SpillSpace>, interruption: &Arc<Interruption>) -> Room {
    Room::new(MemoryAccount::alone(bytes), Some(space), Arc::clone(interruption))
}

/// Writes so many runs of `length` entries each; entry `n` of run `r` has the key `n` and the value `r`.
fn runs(count: u32, length: u32, room: &mut Room) -> Runs {
    let mut runs = room.runs().unwrap().unwrap();
    for run in 0..count {
        let write = |writer: &mut runs::RunWriter<'_>| {
            (0..length).try_for_each(|n| writer.put(&n.to_be_bytes(), |out| out.extend_from_slice(&run.to_be_bytes())))
        };
        runs.write(room, write).unwrap();
    }
    runs
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().unwrap())
}

#[test]
fn a_merge_of_more_runs_than_memory_has_blocks_for_is_done_in_passes_and_keeps_the_order_of_equals() {
    // With room for two or three blocks of 512 bytes, and for all.
    for bytes in [1024, 1600, 1 << 20] {
        let (seen, space) = space();
        let mut room = room(bytes, space, &Arc::default());
        let all = runs(23, 100, &mut room);
        let mut merge = all.into_merge(&mut room, None).unwrap();
        for key in 0..100 {
            for run in 0..23 {
                let (found, value) = merge.next().unwrap().unwrap();
                assert_eq!((word(found), word(value)), (key, run), "with {bytes} bytes");
            }
        }
        assert!(merge.next().unwrap().is_none());
        assert_eq!(*seen.released.lock().unwrap() > 0, bytes < 1 << 20, "what was merged is given back");
        assert_eq!(room.spilled().spills, 23);
        drop(merge);
        assert_eq!(seen.files.load(Relaxed), 0);
    }
}

#[test]
fn runs_made_one_keep_the_first_and_tell_the_last_of_them() {
    let mut room = room(1600, space().1, &Arc::default());
    let mut all = runs(7, 10, &mut room);
    assert_eq!(all.reduce(&mut room, 25).unwrap().map(|key| word(&key)), Some(3));
    assert_eq!((all.len(), all.entries()), (1, 25));
    let mut all = runs(2, 10, &mut room);
    assert_eq!(all.reduce(&mut room, 25).unwrap(), None, "there are not so many");
}

#[test]
fn an_entry_longer_than_a_block_has_one_of_its_own() {
    let mut room = room(1024, space().1, &Arc::default());
    let mut all = room.runs().unwrap().unwrap();
    for run in 0..3_u8 {
        all.write(&mut room, |writer| {
            writer.put(&[0], |out| out.extend_from_slice(&[run; 10]))?;
            writer.put(&[1], |out| out.extend_from_slice(&[run; 100_000]))?;
            writer.put(&[2], |_| ())
        })
        .unwrap();
    }
    let mut merge = all.into_merge(&mut room, None).unwrap();
    let mut lengths = Vec::new();
    while let Some((_, value)) = merge.next().unwrap() {
        lengths.push(value.len());
    }
    assert_eq!(lengths, [10, 10, 10, 100_000, 100_000, 100_000, 0, 0, 0]);
}

#[test]
fn writing_and_merging_can_be_stopped() {
    let interruption = Arc::new(Interruption::default());
    let killed: Check = Arc::new(|| Err(Error::new(ErrorCode::Interrupted, "killed")));
    let go_on: Check = Arc::new(|| Ok(()));
    let mut room = room(1024, space().1, &interruption);
    interruption.set(&go_on);
    let all = runs(9, 3000, &mut room);
    interruption.set(&killed);
    assert_eq!(all.into_merge(&mut room, None).err().unwrap().code, ErrorCode::Interrupted, "in a pass");
    let mut all = room.runs().unwrap().unwrap();
    let write = |writer: &mut runs::RunWriter<'_>| (0..3000_u32).try_for_each(|n| writer.put(&n.to_be_bytes(), |_| ()));
    assert_eq!(all.write(&mut room, write).unwrap_err().code, ErrorCode::Interrupted, "in a spill");
    interruption.set(&go_on);
    let mut merge = runs(2, 3000, &mut room).into_merge(&mut room, None).unwrap();
    interruption.set(&killed);
    let mut given = 0;
    let error = loop {
        match merge.next() {
            Ok(entry) => given += usize::from(entry.is_some()),
            Err(error) => break error,
        }
        assert!(given < 6000, "the end was reached");
    };
    assert_eq!(error.code, ErrorCode::Interrupted, "in the last merge");
}

#[test]
fn a_stage_that_can_spill_leaves_the_pool_to_others_and_has_a_floor() {
    let pool = baton_types::MemoryPool::new(4 << 20);
    let mut first = Room::new(pool.account(64 << 20), Some(space().1), Arc::default());
    assert!(first.hold(2 << 20) && !first.hold((2 << 20) + 1));
    let mut all = pool.account(64 << 20);
    assert!(all.set(2 << 20));
    let mut second = Room::new(pool.account(64 << 20), Some(space().1), Arc::default());
    assert!(second.hold(256 << 10) && !second.hold((256 << 10) + 1), "a floor");
    assert!(!Room::new(pool.account(64 << 20), None, Arc::default()).hold(1), "who cannot spill has none");
    let mut little = Room::new(pool.account(1000), Some(space().1), Arc::default());
    assert!(little.hold(1000) && !little.hold(1001), "its own limit");
}
