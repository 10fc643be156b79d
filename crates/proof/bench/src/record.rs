//! What the records look like: YCSB's `usertable`, ten fields of 100 bytes under a hashed key.
//!
//! Invariant: every key has the same length (YCSB's `zeropadding=19`), so that a request can be patched in place.

use crate::distribution::{Random, fnv_hash64};

/// Database of the records.
pub const DATABASE: &str = "ycsb";
/// Fields of a record, named `field0` …
pub const FIELD_COUNT: usize = 10;
/// Bytes of one field.
pub const FIELD_BYTES: usize = 100;
/// Bytes of all fields of a record, without names and key.
pub const VALUE_BYTES: usize = FIELD_COUNT * FIELD_BYTES;
/// Bytes of a key: `user` and 19 digits.
pub const KEY_BYTES: usize = 23;

/// How a record of `VALUE_BYTES` lies in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// YCSB's ten fields of 100 bytes.
    Fields,
    /// One field, `field0`, that holds all: what a key-value store's SET writes.
    Whole,
}

impl Layout {
    /// Collection of the records; `usertable` is YCSB's name for it.
    pub fn collection(self) -> &'static str {
        match self {
            Self::Fields => "usertable",
            Self::Whole => "wholetable",
        }
    }

    /// Bytes of one field.
    pub fn field_bytes(self) -> usize {
        match self {
            Self::Fields => FIELD_BYTES,
            Self::Whole => VALUE_BYTES,
        }
    }

    /// How many fields there are.
    pub fn field_count(self) -> usize {
        VALUE_BYTES / self.field_bytes()
    }
}

/// A record's key as text, `user0123456789012345678`.
pub type Key = [u8; KEY_BYTES];

/// The key of record number `record`; hashed, as YCSB's `insertorder=hashed`, so that loading is not sequential.
pub fn key_of(record: u64) -> Key {
    let mut key = *b"user0000000000000000000";
    let mut rest = fnv_hash64(record);
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// The ten fields of a record, one after the other.
pub fn fill_value(random: &mut Random, value: &mut [u8; VALUE_BYTES]) {
    random.fill_printable(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_distinct_and_carry_the_whole_hash() {
        let keys: std::collections::HashSet<Key> = (0..10_000).map(key_of).collect();
        assert_eq!(keys.len(), 10_000);
        let text = String::from_utf8(key_of(42).to_vec()).expect("ascii");
        assert_eq!(text[4..].parse::<u64>().expect("digits"), fnv_hash64(42));
    }
}
