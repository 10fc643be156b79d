//! Whether RocksDB's log has lost something that was synced, looked at before RocksDB replays it.
//!
//! A crash may tear the end of the log off, as far as it was not synced. RocksDB ends its replay at the first record whose checksum
//! is wrong, since where log files are written over it cannot tell a torn end from damage in the middle; whatever follows, synced and
//! acknowledged as it may be, would be gone without a word. Here both are told apart: every batch carries a [`Mark`] in the log,
//! with its number and with the number up to which the log was synced when it was written. A mark that is found and says that more was
//! synced than is there whole is the proof.
//!
//! Invariants:
//! - What is reported was synced: a loss of power, whichever pages it took, is never taken for damage.
//! - Only records of the file's own number with the right checksum are believed; what a file held before it was written over is not.
//!
//! What it deliberately does not do: repair. The last synced batch is told by the marks after it in the same file; damage to the very
//! last ones looks like a torn end. Nor does it compare a file with the one before: that may be gone by right while an older one,
//! which is needed no more either, waits to be written over.

use super::file::logs;
use crate::machine::REMEDY;
use baton_types::{Error, ErrorCode, Result};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

// The format of RocksDB's log: fragments with a header within blocks; no fragment crosses into the next block.
const BLOCK_BYTES: usize = 32 * 1024;
/// Checksum, length, type, and the low half of the file's number.
const HEADER_BYTES: usize = 4 + 2 + 1 + 4;
const WHOLE: u8 = 5;
const FIRST: u8 = 6;
const MIDDLE: u8 = 7;
const LAST: u8 = 8;
/// Sizes of the keys' timestamps, which is no batch.
const TIMESTAMP_SIZES: u8 = 11;
/// A batch begins with its sequence number and its count; then comes the mark, as data for the log alone.
const BATCH_HEADER_BYTES: usize = 8 + 4;
const LOG_DATA: u8 = 3;

const MAGIC: [u8; 4] = *b"mark";
const MARK_BYTES: usize = 4 + 3 * 8;

/// What a batch says of itself in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The process that wrote it.
    pub boot: u64,
    /// Its number among that process's batches, from 1 on.
    pub number: u64,
    /// Up to which number the log was synced by then.
    pub synced: u64,
}

impl Mark {
    pub fn encode(self) -> [u8; MARK_BYTES] {
        let mut bytes = [0; MARK_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        for (place, part) in bytes[4..].chunks_exact_mut(8).zip([self.boot, self.number, self.synced]) {
            place.copy_from_slice(&part.to_le_bytes());
        }
        bytes
    }

    /// The mark at the beginning of a batch.
    fn of_batch(batch: &[u8]) -> Option<Self> {
        let rest =
            batch.get(BATCH_HEADER_BYTES..)?.strip_prefix(&[LOG_DATA, MARK_BYTES as u8])?.strip_prefix(&MAGIC)?;
        let part = |at: usize| Some(u64::from_le_bytes(rest.get(at * 8..at * 8 + 8)?.try_into().ok()?));
        Some(Self { boot: part(0)?, number: part(1)?, synced: part(2)? })
    }
}

/// Looks through the logs of a data directory.
///
/// # Errors
/// `DataCorruptionDetected` (310) if something that was synced is not there any more.
pub(crate) fn check(directory: &Path) -> Result<()> {
    let logs = match logs(directory) {
        Ok(logs) => logs,
        // There is no database yet.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            return Err(Error::new(
                ErrorCode(310),
                format!("Cannot list the logs in {}: {error}", directory.display()),
            ));
        }
    };
    for (number, path) in logs {
        let unreadable = |error| Error::new(ErrorCode(310), format!("Cannot read the log {}: {error}", path.display()));
        let file = File::open(&path).map_err(unreadable)?;
        if let Some(damage) = Chain::default().read(file, number).map_err(unreadable)? {
            let message = format!(
                "Data corruption detected: the log {} is damaged in its middle: batches {} to {} were synced, and at least the \
                 first of them is not there any more. Going on would lose what was acknowledged. {REMEDY}",
                path.display(),
                damage.missing,
                damage.synced
            );
            return Err(Error::new(ErrorCode(310), message));
        }
    }
    Ok(())
}

struct Damage {
    missing: u64,
    synced: u64,
}

/// The batches of one file, one after another, by one process as a rule.
#[derive(Default)]
struct Chain {
    boot: u64,
    /// Every batch up to this one is there whole, or was in a file before.
    whole: u64,
    /// The beginning of a batch whose last fragment has not come yet; of each of its fragments, which is enough.
    open: Option<Vec<u8>>,
}

impl Chain {
    fn read(&mut self, mut file: impl Read, number: u64) -> std::io::Result<Option<Damage>> {
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        self.open = None;
        // Something was there that is no fragment of this log.
        let mut is_broken = false;
        loop {
            block.clear();
            (&mut file).take(BLOCK_BYTES as u64).read_to_end(&mut block)?;
            if block.is_empty() {
                return Ok(None);
            }
            let mut at = 0;
            while at + HEADER_BYTES <= block.len() {
                let Some((kind, payload)) = fragment(&block[at..], number as u32) else {
                    // A block whose beginning is nothing has nothing to be found by. Within one, the next may follow anywhere.
                    if at == 0 && is_broken {
                        break;
                    }
                    is_broken = true;
                    self.open = None;
                    at += 1;
                    continue;
                };
                at += HEADER_BYTES + payload.len();
                if let Some(damage) = self.take(kind, payload, is_broken) {
                    return Ok(Some(damage));
                }
            }
        }
    }

    fn take(&mut self, kind: u8, payload: &[u8], is_broken: bool) -> Option<Damage> {
        let beginning = &payload[..payload.len().min(BATCH_HEADER_BYTES + 2 + MARK_BYTES)];
        match kind {
            WHOLE => {
                self.open = None;
                self.end(Mark::of_batch(payload)?, is_broken)
            }
            // A first fragment may be as short as the rest of its block, and end within the mark.
            FIRST => {
                self.open = Some(beginning.to_vec());
                None
            }
            MIDDLE => {
                self.open.as_mut()?.extend(beginning);
                None
            }
            LAST => {
                let mut batch = self.open.take()?;
                batch.extend(beginning);
                self.end(Mark::of_batch(&batch)?, is_broken)
            }
            _ => None,
        }
    }

    /// A batch is there whole.
    fn end(&mut self, mark: Mark, is_broken: bool) -> Option<Damage> {
        if mark.boot != self.boot {
            self.boot = mark.boot;
            // What came before is in another file, unless this one has lost it.
            self.whole = mark.number.saturating_sub(if is_broken { 2 } else { 1 });
        }
        if mark.synced > self.whole {
            return Some(Damage { missing: self.whole + 1, synced: mark.synced });
        }
        if mark.number == self.whole + 1 {
            self.whole = mark.number;
        }
        None
    }
}

/// The fragment at the beginning of `bytes`, if there is one of this log: its type and what it carries.
fn fragment(bytes: &[u8], number: u32) -> Option<(u8, &[u8])> {
    let header = bytes.get(..HEADER_BYTES)?;
    let kind = header[6];
    if header[7..] != number.to_le_bytes() || !matches!(kind, WHOLE | FIRST | MIDDLE | LAST | TIMESTAMP_SIZES) {
        return None;
    }
    let length = usize::from(u16::from_le_bytes([header[4], header[5]]));
    let summed = bytes.get(6..HEADER_BYTES + length)?;
    let sum = crc32c::crc32c(summed);
    // RocksDB's masking, so that sums of what contains sums are sound.
    let masked = sum.rotate_right(15).wrapping_add(0xa282_ead8);
    (header[..4] == masked.to_le_bytes()).then(|| (kind, &summed[HEADER_BYTES - 6..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBER: u32 = 7;

    /// A log of batches with these numbers, each of which says that all before it are synced, or only those up to `synced`.
    fn log(numbers: std::ops::RangeInclusive<u64>, synced: Option<u64>, bytes: usize) -> (Vec<u8>, Vec<usize>) {
        log_of(NUMBER, numbers, synced, bytes)
    }

    /// The same, in the file with this number.
    fn log_of(
        file: u32,
        numbers: std::ops::RangeInclusive<u64>,
        synced: Option<u64>,
        bytes: usize,
    ) -> (Vec<u8>, Vec<usize>) {
        let (mut log, mut places) = (Vec::new(), Vec::new());
        for number in numbers {
            let mark = Mark { boot: 99, number, synced: synced.unwrap_or(number - 1) };
            let mut batch = vec![0; BATCH_HEADER_BYTES];
            batch.extend([LOG_DATA, MARK_BYTES as u8]);
            batch.extend(mark.encode());
            batch.resize(batch.len() + bytes, number as u8);
            let mut rest = &batch[..];
            let mut is_first = true;
            while is_first || !rest.is_empty() {
                let left = BLOCK_BYTES - log.len() % BLOCK_BYTES;
                if left < HEADER_BYTES {
                    log.resize(log.len() + left, 0);
                    continue;
                }
                let (now, later) = rest.split_at(rest.len().min(left - HEADER_BYTES));
                let kind = match (is_first, later.is_empty()) {
                    (true, true) => WHOLE,
                    (true, false) => FIRST,
                    (false, false) => MIDDLE,
                    (false, true) => LAST,
                };
                let mut summed = vec![kind];
                summed.extend(file.to_le_bytes());
                summed.extend(now);
                let sum = crc32c::crc32c(&summed).rotate_right(15).wrapping_add(0xa282_ead8);
                places.push(log.len());
                log.extend(sum.to_le_bytes());
                log.extend((now.len() as u16).to_le_bytes());
                log.extend(summed);
                (rest, is_first) = (later, false);
            }
        }
        (log, places)
    }

    fn is_damaged(log: &[u8]) -> bool {
        Chain::default().read(log, u64::from(NUMBER)).unwrap().is_some()
    }

    #[test]
    fn a_flipped_bit_anywhere_but_at_the_end_is_told() {
        for bytes in [10, 5_000, 100_000] {
            let (log, places) = log(1..=40, None, bytes);
            assert!(!is_damaged(&log));
            // The last two batches have nobody to vouch for them.
            let vouched = log.len() - 2 * (bytes + 200);
            let step = (log.len() / 97).max(1);
            for at in (0..vouched.min(log.len())).step_by(step).chain(places.into_iter().filter(|at| *at < vouched)) {
                let mut flipped = log.clone();
                flipped[at] ^= 4;
                // The rest of a block that is shorter than a header is nothing.
                let is_filling = log[at] == 0 && BLOCK_BYTES - at % BLOCK_BYTES < HEADER_BYTES;
                assert!(is_filling || is_damaged(&flipped), "{bytes} bytes each, flipped at {at}");
            }
        }
    }

    #[test]
    fn a_batch_that_begins_at_the_end_of_a_block_is_found() {
        for bytes in (30_000..33_000).step_by(7).chain(32_600..32_760) {
            assert!(!is_damaged(&log(1..=6, None, bytes).0), "{bytes} bytes each");
        }
    }

    #[test]
    fn a_short_log_is_told_too() {
        let (log, places) = log(1..=5, None, 40);
        for place in &places[..3] {
            let mut flipped = log.clone();
            flipped[place + 20] ^= 1;
            assert!(is_damaged(&flipped));
        }
    }

    #[test]
    fn whatever_a_loss_of_power_leaves_of_what_was_not_synced_is_no_damage() {
        let (log, places) = log(1..=20, Some(0), 5_000);
        for place in places {
            let mut torn = log.clone();
            let end = (place + 4096).min(torn.len());
            torn[place..end].fill(0);
            assert!(!is_damaged(&torn));
            assert!(!is_damaged(&log[..place + 5]));
        }
    }

    #[test]
    fn a_file_that_is_gone_between_two_is_no_damage() {
        let directory = tempfile::tempdir().unwrap();
        let write = |number: u32, log: &[u8]| {
            std::fs::write(directory.path().join(format!("{number:06}.log")), log).unwrap();
        };
        write(50, &log_of(50, 1..=303, None, 100).0);
        write(53, &log_of(53, 348..=360, None, 100).0);
        check(directory.path()).unwrap();
        let mut flipped = log_of(53, 348..=360, None, 100).0;
        flipped[30] ^= 1;
        write(53, &flipped);
        assert_eq!(check(directory.path()).unwrap_err().code, ErrorCode(310));
    }

    #[test]
    fn what_the_file_held_before_is_no_part_of_it() {
        let (old, _) = log(1..=20, None, 5_000);
        let mut chain = Chain::default();
        assert!(chain.read(&old[..], u64::from(NUMBER) + 1).unwrap().is_none());
        assert_eq!(chain.whole, 0);
    }
}
