//! One version of a document in memory, shared by all who need it: the next writer, the record cache, readers.
//!
//! Key, document and count of owners are one allocation, so that a look-up touches one place in memory and a new version
//! is copied once, whoever keeps it.

use crate::format::DocumentKey;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use triomphe::ThinArc;

struct Header {
    hash: u64,
    key: DocumentKey,
    is_recent: AtomicBool,
}

/// See the file's header. Derefs to the document's bytes.
#[derive(Clone)]
pub struct Version(ThinArc<Header, u8>);

impl Version {
    /// A copy of these bytes, under a key in the family of documents and its hash.
    pub(crate) fn new(hash: u64, key: &[u8], document: &[u8]) -> Self {
        let header = Header { hash, key: DocumentKey::from_slice(key), is_recent: AtomicBool::new(false) };
        Self(ThinArc::from_header_and_slice(header, document))
    }

    pub(crate) fn hash(&self) -> u64 {
        self.0.header.header.hash
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.0.header.header.key
    }

    /// Remembers that it was looked up.
    pub(crate) fn mark_recent(&self) {
        let recent = &self.0.header.header.is_recent;
        if !recent.load(Ordering::Relaxed) {
            recent.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it was looked up since this was last asked.
    pub(crate) fn take_recent(&self) -> bool {
        let recent = &self.0.header.header.is_recent;
        recent.load(Ordering::Relaxed) && recent.swap(false, Ordering::Relaxed)
    }
}

impl Deref for Version {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.slice
    }
}
