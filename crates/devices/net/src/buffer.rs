//! The receive buffer: grows with the bytes that come, not with the length that a header claims.
//!
//! Invariants: `start <= end <= bytes.len()`; the buffer is at most twice what was received, or its starting size. At first there
//! is none.
//! What it does not do: read; the connection does, into [`ReceiveBuffer::room`].

/// What an active connection has at least: several requests of an ordinary size.
const STARTING_SIZE_BYTES: usize = 4 * 1024;
/// What a connection may keep from one message to the next.
pub(crate) const RETAINED_SIZE_BYTES: usize = 64 * 1024;

#[derive(Debug, Default)]
pub(crate) struct ReceiveBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl ReceiveBuffer {
    /// Whether there is nothing of it.
    pub(crate) fn is_bare(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether what was received has filled it.
    pub(crate) fn is_full(&self) -> bool {
        self.end == self.bytes.len()
    }

    /// What was received and not yet consumed.
    pub(crate) fn received(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// How large the buffer will be when there is room for more of a message of `need` bytes.
    pub(crate) fn size_with_room(&self, need: usize) -> usize {
        let end = if self.bytes.len() - self.start < need { self.end - self.start } else { self.end };
        if end < self.bytes.len() { self.bytes.len() } else { self.grown(need) }
    }

    fn grown(&self, need: usize) -> usize {
        let doubled = self.bytes.len().saturating_mul(2).max(STARTING_SIZE_BYTES);
        doubled.min(need.max(STARTING_SIZE_BYTES))
    }

    /// Where to read to, when `need` bytes in all make the message at the start whole. Never empty if it is not whole.
    pub(crate) fn room(&mut self, need: usize) -> &mut [u8] {
        if self.bytes.len() - self.start < need && self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.bytes.len() {
            let size = self.grown(need);
            // Just so much: the vector would double by itself.
            self.bytes.reserve_exact(size - self.bytes.len());
            self.bytes.resize(size, 0);
        }
        &mut self.bytes[self.end..]
    }

    /// Says that `count` bytes were read into the room.
    pub(crate) fn filled(&mut self, count: usize) {
        self.end = (self.end + count).min(self.bytes.len());
    }

    /// Says that the first `count` bytes have been dealt with, and gives back the memory of a large message.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.bytes.len() > RETAINED_SIZE_BYTES && self.end - self.start <= RETAINED_SIZE_BYTES / 2 {
            self.resize_keeping_content(STARTING_SIZE_BYTES);
        }
    }

    /// Keeps what was received and no more, for a client that is silent.
    pub(crate) fn rest(&mut self) {
        self.resize_keeping_content(0);
    }

    /// How large it is.
    pub(crate) fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn resize_keeping_content(&mut self, size: usize) {
        let mut fresh = vec![0; size.max(self.end - self.start)];
        fresh[..self.end - self.start].copy_from_slice(&self.bytes[self.start..self.end]);
        (self.start, self.end) = (0, self.end - self.start);
        self.bytes = fresh;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(buffer: &mut ReceiveBuffer, mut bytes: &[u8], need: usize) {
        while !bytes.is_empty() {
            let room = buffer.room(need);
            let count = room.len().min(bytes.len());
            assert!(count > 0, "no room though the message is not whole");
            room[..count].copy_from_slice(&bytes[..count]);
            buffer.filled(count);
            bytes = &bytes[count..];
        }
    }

    #[test]
    fn it_grows_with_the_bytes_received_and_not_with_the_length_claimed() {
        let mut buffer = ReceiveBuffer::default();
        assert!(buffer.is_bare());
        feed(&mut buffer, &[1; 100], 48_000_000);
        assert_eq!(buffer.size_bytes(), STARTING_SIZE_BYTES);
        assert!(!buffer.is_bare() && !buffer.is_full());
        feed(&mut buffer, &[2; 10_000], 48_000_000);
        assert!(buffer.size_bytes() <= 2 * 10_100);
        assert_eq!(buffer.received().len(), 10_100);
    }

    #[test]
    fn a_large_message_leaves_no_large_buffer_behind() {
        let mut buffer = ReceiveBuffer::default();
        let large = vec![3; 1_000_000];
        feed(&mut buffer, &large, large.len());
        assert_eq!(buffer.size_bytes(), large.len());
        buffer.consume(large.len());
        assert_eq!(buffer.size_bytes(), STARTING_SIZE_BYTES);
        buffer.rest();
        assert_eq!(buffer.size_bytes(), 0);
        feed(&mut buffer, &[4; 100], 100);
        assert_eq!(buffer.received(), &[4; 100]);
        assert_eq!(buffer.size_bytes(), STARTING_SIZE_BYTES);
    }

    #[test]
    fn what_was_received_survives_every_move() {
        let mut buffer = ReceiveBuffer::default();
        let bytes: Vec<u8> = (0..200_000u32).map(|i| i as u8).collect();
        feed(&mut buffer, &bytes[..3000], 16);
        buffer.consume(2990);
        assert_eq!(buffer.received(), &bytes[2990..3000]);
        feed(&mut buffer, &bytes[3000..], 197_010);
        buffer.consume(190_000);
        assert_eq!(buffer.received(), &bytes[192_990..]);
        buffer.rest();
        assert_eq!(buffer.received(), &bytes[192_990..]);
    }
}
