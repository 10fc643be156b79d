//! What writers touch while a collection is copied, noted so that the copy can be brought up to date.
//!
//! ```text
//!   writer ─ Transaction::change ─▶ Copies::note ─▶ Noted ─ take ─▶ carry: reads each under its lock, brings it over
//! ```
//!
//! Invariants:
//! - Noted is every change that is prepared from the moment on that a copy is registered: by who holds the document's lock, or the
//!   lock on the end of a capped collection, and before that lock is given back. Whoever takes a note and then has the lock sees
//!   what the change made of the document, or that it was given up.
//! - A document is noted once, at the place of its last insert, else of its first change: in that order documents that are new
//!   came, and so they get into a capped copy.
//! - What is noted is bounded: beyond [`NOTED_MAX`] documents all is forgotten, and the copy has to begin anew.

use super::DocumentChange;
use crate::catalog::{Collection, CollectionKind};
use crate::documents::format::{RecordKey, record_key};
use crate::documents::write::id_of;
use ahash::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Documents that are noted for one copy, at the most: some 25 megabytes.
pub(super) const NOTED_MAX: usize = 1 << 18;
/// The longest pause of a writer, in milliseconds.
const PAUSE_MS_MAX: u64 = 128;

/// The copies of one collection that are under way.
#[derive(Default)]
pub(crate) struct Copies {
    /// How many, so that a writer of a collection that nobody copies pays one look.
    count: AtomicUsize,
    under_way: Mutex<Vec<Arc<Noted>>>,
}

/// What was touched since it was last taken.
#[derive(Default)]
pub(super) struct Noted {
    notes: Mutex<Notes>,
    pause_ms: AtomicU64,
}

#[derive(Default)]
struct Notes {
    /// By the encoded `_id`.
    touched: HashMap<RecordKey, Note, RandomState>,
    next_place: u64,
    is_too_much: bool,
}

struct Note {
    place: u64,
    /// The record key, where it is not the encoded `_id`.
    record: Option<RecordKey>,
    is_inserted: bool,
}

/// A document of the source that was touched.
pub(super) struct Touched {
    /// Its encoded `_id`.
    pub(super) id: RecordKey,
    record: Option<RecordKey>,
    /// Whether it was inserted then; else it was there, or is gone.
    pub(super) is_inserted: bool,
}

impl Touched {
    /// Its record key in the source.
    pub(super) fn record(&self) -> &RecordKey {
        self.record.as_ref().unwrap_or(&self.id)
    }
}

impl Copies {
    /// Notes what a writer is about to do to a document.
    pub(crate) fn note(&self, collection: &Collection, record: &[u8], change: DocumentChange<'_>) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        for noted in self.under_way.lock().iter() {
            noted.add(collection, record, change);
        }
    }

    /// Has a writer wait that would else be faster than a copy. Before it holds anything.
    pub(crate) fn pace(&self) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let pause_ms = self.under_way.lock().iter().map(|noted| noted.pause_ms.load(Ordering::Relaxed)).max();
        if let Some(pause_ms @ 1..) = pause_ms {
            std::thread::sleep(Duration::from_millis(pause_ms));
        }
    }

    /// Begins to note for one more copy, until [`Self::end`]. While no writer is under way.
    pub(super) fn begin(&self) -> Arc<Noted> {
        let noted = Arc::new(Noted::default());
        self.under_way.lock().push(Arc::clone(&noted));
        self.count.fetch_add(1, Ordering::Relaxed);
        noted
    }

    pub(super) fn end(&self, noted: &Arc<Noted>) {
        self.under_way.lock().retain(|other| !Arc::ptr_eq(other, noted));
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Noted {
    fn add(&self, collection: &Collection, record: &[u8], change: DocumentChange<'_>) {
        let mut notes = self.notes.lock();
        let (id, record) = match collection.kind {
            CollectionKind::Capped => match id_of(change.document()).and_then(record_key) {
                Ok(id) => (id, Some(RecordKey::from_slice(record))),
                // It has none by which the copy could know it.
                Err(_) => {
                    notes.is_too_much = true;
                    return;
                }
            },
            CollectionKind::Clustered | CollectionKind::View | CollectionKind::Oplog => {
                (RecordKey::from_slice(record), None)
            }
        };
        let place = notes.next_place;
        notes.next_place += 1;
        let is_inserted = matches!(change, DocumentChange::Insert(_));
        match notes.touched.get_mut(&id) {
            Some(note) if is_inserted => *note = Note { place, record, is_inserted },
            Some(_) => {}
            None => {
                notes.touched.insert(id, Note { place, record, is_inserted });
            }
        }
        if notes.is_too_much || notes.touched.len() > NOTED_MAX {
            notes.is_too_much = true;
            notes.touched = HashMap::default();
        }
    }

    /// How many documents are noted.
    pub(super) fn len(&self) -> usize {
        self.notes.lock().touched.len()
    }

    /// What was noted, in the order of places; `None` if it was too much.
    pub(super) fn take(&self) -> Option<Vec<Touched>> {
        let touched = {
            let mut notes = self.notes.lock();
            if notes.is_too_much {
                return None;
            }
            std::mem::take(&mut notes.touched)
        };
        let mut touched: Vec<_> = touched.into_iter().collect();
        touched.sort_unstable_by_key(|(_, note)| note.place);
        let touched = touched.into_iter();
        Some(touched.map(|(id, Note { record, is_inserted, .. })| Touched { id, record, is_inserted }).collect())
    }

    /// Has writers pause for longer than so far, or no more.
    pub(super) fn slow_writers(&self, is_behind: bool) {
        let pause_ms = match self.pause_ms.load(Ordering::Relaxed) {
            _ if !is_behind => 0,
            0 => 1,
            pause_ms => (2 * pause_ms).min(PAUSE_MS_MAX),
        };
        self.pause_ms.store(pause_ms, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::CollectionOptions;
    use baton_types::Namespace;
    use bson::{RawDocumentBuf, rawdoc};

    fn plain() -> Collection {
        let namespace = Namespace::new("test", "plain").unwrap();
        Collection::new(7, namespace, [1; 16], CollectionOptions::default()).unwrap()
    }

    fn document(id: i32) -> RawDocumentBuf {
        rawdoc! { "_id": id }
    }

    fn note(collection: &Collection, id: i32, change: impl for<'a> Fn(&'a RawDocumentBuf) -> DocumentChange<'a>) {
        let document = document(id);
        let record = record_key(id_of(&document).unwrap()).unwrap();
        collection.shared.copies.note(collection, &record, change(&document));
    }

    fn taken(noted: &Noted) -> Vec<(RecordKey, bool)> {
        noted.take().unwrap().into_iter().map(|touched| (touched.id, touched.is_inserted)).collect()
    }

    fn key(id: i32) -> RecordKey {
        record_key(id_of(&document(id)).unwrap()).unwrap()
    }

    #[test]
    fn a_document_is_noted_once_where_it_was_last_inserted_and_only_while_somebody_copies() {
        let collection = plain();
        note(&collection, 1, |document| DocumentChange::Update(document));
        let noted = collection.shared.copies.begin();
        for id in [2, 1, 3] {
            note(&collection, id, |document| DocumentChange::Update(document));
        }
        note(&collection, 2, |document| DocumentChange::Delete(document));
        note(&collection, 9, |document| DocumentChange::Insert(document));
        note(&collection, 2, |document| DocumentChange::Insert(document));
        note(&collection, 9, |document| DocumentChange::Update(document));
        assert_eq!(noted.len(), 4);
        assert_eq!(taken(&noted), [(key(1), false), (key(3), false), (key(9), true), (key(2), true)]);
        assert!(taken(&noted).is_empty());
        collection.shared.copies.end(&noted);
        note(&collection, 1, |document| DocumentChange::Update(document));
        assert!(taken(&noted).is_empty());
    }

    #[test]
    fn what_is_too_much_is_forgotten_and_said_so() {
        let collection = plain();
        let noted = collection.shared.copies.begin();
        for id in 0..=NOTED_MAX as i32 {
            note(&collection, id, |document| DocumentChange::Update(document));
        }
        assert!(noted.take().is_none() && noted.len() == 0);
        note(&collection, 1, |document| DocumentChange::Update(document));
        assert!(noted.take().is_none());
    }
}
