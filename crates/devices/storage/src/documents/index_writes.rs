//! The one way in which entries of an index change: for clients' writers, for what applies another's log, for a rollback.
//!
//! Invariant: while an index is read together by a build ([`crate::ddl`]), nothing but the build writes below its id. What is changed
//! is set aside meanwhile, below the id that the index has for that: that there was a change of this entry, not what it was, because
//! whoever brings it into the index asks the document. So whichever of two changes of an entry is set aside last, the same comes of it.

use crate::catalog::Index;
use crate::documents::format::{family, prefix};
use crate::documents::index::{Entry, entry_key};
use crate::documents::transaction::Transaction;
use smallvec::SmallVec;

/// The key under which a change of an entry is set aside; its value is the length of the fields, in two little-endian bytes.
fn aside_key(side: u32, fields: &[u8], record: &[u8]) -> SmallVec<[u8; 96]> {
    let mut key = SmallVec::with_capacity(4 + fields.len() + record.len());
    key.extend_from_slice(&prefix(side));
    key.extend_from_slice(fields);
    key.extend_from_slice(record);
    key
}

impl Transaction {
    /// Puts a document's entry into an index, or in the place of the one with its key.
    pub(crate) fn put_index_entry(&mut self, index: &Index, entry: &Entry, record: &[u8]) {
        match index.aside() {
            None => self.put(family::INDEXES, &entry_key(index, &entry.fields, record), &entry.value),
            Some(side) => self.set_aside(side, &entry.fields, record),
        }
    }

    /// Takes a document's entry out of an index.
    pub(crate) fn delete_index_entry(&mut self, index: &Index, fields: &[u8], record: &[u8]) {
        match index.aside() {
            None => self.delete(family::INDEXES, &entry_key(index, fields, record)),
            Some(side) => self.set_aside(side, fields, record),
        }
    }

    fn set_aside(&mut self, side: u32, fields: &[u8], record: &[u8]) {
        // No longer than two bytes count: see `index::encode_entry`.
        self.put(family::INDEXES, &aside_key(side, fields, record), &(fields.len() as u16).to_le_bytes());
    }
}
