//! One version of a document in memory, shared by all who need it: the next writer, the record cache, readers.
//!
//! Key, document and count of owners are one allocation, so that a look-up touches one place in memory and a new version
//! is copied once, whoever keeps it.

use crate::documents::format::DocumentKey;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use triomphe::ThinArc;

struct Header {
    hash: u64,
    key: DocumentKey,
    is_recent: AtomicBool,
    /// Look-ups since the heat was last aged. Of two at once one may be lost.
    looked_up: AtomicU8,
    /// What look-ups before made of it.
    heat: AtomicU8,
}

/// See the file's header. Derefs to the document's bytes.
#[derive(Clone)]
pub struct Version(ThinArc<Header, u8>);

impl Version {
    /// A copy of these bytes, under a key in the family of documents and its hash.
    pub(crate) fn new(hash: u64, key: &[u8], document: &[u8]) -> Self {
        let header = Header {
            hash,
            key: DocumentKey::from_slice(key),
            is_recent: AtomicBool::new(false),
            looked_up: AtomicU8::new(0),
            heat: AtomicU8::new(0),
        };
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
        let looked_up = &self.0.header.header.looked_up;
        let before = looked_up.load(Ordering::Relaxed);
        if before < u8::MAX {
            looked_up.store(before + 1, Ordering::Relaxed);
        }
    }

    /// How often it was looked up lately: each time that it is aged, what was before counts half.
    pub(crate) fn heat(&self) -> u8 {
        let header = &self.0.header.header;
        header.heat.load(Ordering::Relaxed).saturating_add(header.looked_up.load(Ordering::Relaxed))
    }

    /// Takes over the heat of the version before it.
    pub(crate) fn set_heat(&self, heat: u8) {
        self.0.header.header.heat.store(heat, Ordering::Relaxed);
    }

    /// Lets its heat age; tells whether it was looked up since this was last done.
    pub(crate) fn age(&self) -> bool {
        let header = &self.0.header.header;
        let looked_up = header.looked_up.swap(0, Ordering::Relaxed);
        header.heat.store((header.heat.load(Ordering::Relaxed) / 2).saturating_add(looked_up), Ordering::Relaxed);
        looked_up > 0
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
