//! The table that is disturbed: documents of some 1 KB, with a field for each kind of index.

use std::sync::atomic::{AtomicU64, Ordering};

use bson::{DateTime, Document, doc};

use crate::Failure;
use crate::client::Wire;
use crate::distribution::{Random, fnv_hash64};
use crate::local_set::LocalSet;

/// Its database.
pub const DATABASE: &str = "disturbed";
/// Its name.
pub const TABLE: &str = "documents";
/// The name of another of its size, to be dropped.
pub const COPY: &str = "copy";

/// Documents in one insert.
const BATCH: u64 = 500;
/// Connections that load.
const LOADERS: u64 = 4;
/// Bytes of the text that fills a document up.
const TEXT_BYTES: usize = 850;

/// What it holds.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Documents.
    pub records: u64,
}

impl Table {
    /// How many of its documents have expired.
    pub fn expired(self) -> u64 {
        self.records / 3
    }

    /// Inserts all documents into a collection of this name; all members have them then.
    ///
    /// # Errors
    /// If an insert fails.
    pub fn load(self, set: &LocalSet, collection: &str) -> Result<(), Failure> {
        let address = set.addresses()[set.primary()?].clone();
        let next = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let (address, next) = (&address, &next);
            let loaders: Vec<_> =
                (0..LOADERS).map(|seed| scope.spawn(move || self.load_part(address, collection, next, seed))).collect();
            loaders.into_iter().try_for_each(|loader| loader.join().map_err(|_| "a loader panicked")?)
        })
    }

    fn load_part(self, address: &str, collection: &str, next: &AtomicU64, seed: u64) -> Result<(), Failure> {
        let (mut wire, mut random) = (Wire::connect(address)?, Random::new(seed));
        loop {
            let first = next.fetch_add(BATCH, Ordering::Relaxed);
            if first >= self.records {
                return Ok(());
            }
            let documents: Vec<Document> =
                (first..self.records.min(first + BATCH)).map(|id| document(id, &mut random)).collect();
            let count = documents.len() as i32;
            let insert = doc! {
                "insert": collection, "documents": documents, "writeConcern": { "w": "majority" }, "$db": DATABASE,
            };
            let reply = wire.command(&insert)?;
            if reply.get_i32("n").ok() != Some(count) {
                return Err(format!("loading: {reply}").into());
            }
        }
    }
}

fn document(id: u64, random: &mut Random) -> Document {
    let mut text = [0; TEXT_BYTES];
    random.fill_printable(&mut text);
    let tag = |n: u64| (fnv_hash64(3 * id + n) % 100_000) as i64;
    let mut document = doc! {
        "_id": id as i64, "serial": id as i64, "group": (id % 1000) as i64, "third": (id % 3) as i32,
        "tags": [tag(0), tag(1), tag(2)], "shuffled": fnv_hash64(id) as i64, "text": String::from_utf8_lossy(&text).into_owned(),
    };
    if id % 3 == 2 {
        document.insert("expires", DateTime::from_millis(1_000_000_000_000));
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_has_a_kilobyte_and_a_third_of_them_have_expired() {
        let mut random = Random::new(1);
        let documents: Vec<Document> = (0..300).map(|id| document(id, &mut random)).collect();
        for document in &documents {
            let bytes = document.to_vec().expect("encodes").len();
            assert!((950..1100).contains(&bytes), "{bytes}");
        }
        let expired = documents.iter().filter(|document| document.contains_key("expires")).count();
        assert_eq!(expired as u64, Table { records: 300 }.expired());
    }
}
