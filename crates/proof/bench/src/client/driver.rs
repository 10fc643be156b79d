//! The official Rust driver as the client, for a figure of what applications get.
//!
//! One driver `Client` (and its pool) serves all clients of a run, as in an application.

use mongodb::bson::{Document, doc};
use mongodb::options::{Acknowledgment, ClientOptions, WriteConcern as DriverConcern};
use mongodb::sync::{Client as Driver, Collection};

use super::{Client, Factory, WriteConcern};
use crate::Failure;
use crate::record::{DATABASE, Key, Layout, VALUE_BYTES};

/// Hands out clients that share one driver.
pub struct DriverFactory {
    collection: Collection<Document>,
    layout: Layout,
}

impl DriverFactory {
    /// Parses `uri`, everything of it, and makes room for `clients` connections.
    ///
    /// # Errors
    /// If the driver refuses the connection string.
    pub fn new(uri: &str, write_concern: WriteConcern, clients: usize, layout: Layout) -> Result<Self, Failure> {
        let mut options = ClientOptions::parse(uri).run()?;
        options.max_pool_size = Some(clients as u32);
        options.write_concern = Some(match write_concern {
            WriteConcern::W1 => DriverConcern::builder().w(Acknowledgment::Nodes(1)).journal(false).build(),
            WriteConcern::Journaled => DriverConcern::builder().w(Acknowledgment::Nodes(1)).journal(true).build(),
            WriteConcern::Majority => DriverConcern::majority(),
        });
        // A figure of the server: a retry would hide a failure in a latency.
        options.retry_reads = Some(false);
        options.retry_writes = Some(false);
        let database = Driver::with_options(options)?.database(DATABASE);
        Ok(Self { collection: database.collection(layout.collection()), layout })
    }
}

impl Factory for DriverFactory {
    fn connect(&self) -> Result<Box<dyn Client>, Failure> {
        Ok(Box::new(DriverClient { collection: self.collection.clone(), layout: self.layout }))
    }

    fn clear(&self) -> Result<(), Failure> {
        Ok(self.collection.drop().run()?)
    }
}

struct DriverClient {
    collection: Collection<Document>,
    layout: Layout,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Client for DriverClient {
    fn read(&mut self, key: &Key) -> Result<(), Failure> {
        let found = self.collection.find_one(doc! { "_id": text(key) }).run()?;
        found.map(|_| ()).ok_or_else(|| "find: no such record".into())
    }

    fn update(&mut self, key: &Key, field: usize, value: &[u8]) -> Result<(), Failure> {
        let change = doc! { "$set": { format!("field{field}"): text(value) } };
        let done = self.collection.update_one(doc! { "_id": text(key) }, change).run()?;
        if done.matched_count == 1 { Ok(()) } else { Err("update: no such record".into()) }
    }

    fn insert(&mut self, records: &[(Key, [u8; VALUE_BYTES])]) -> Result<(), Failure> {
        let field_bytes = self.layout.field_bytes();
        let documents = records.iter().map(|(key, value)| {
            let mut document = doc! { "_id": text(key) };
            for (field, bytes) in value.chunks_exact(field_bytes).enumerate() {
                document.insert(format!("field{field}"), text(bytes));
            }
            document
        });
        self.collection.insert_many(documents).run()?;
        Ok(())
    }

    fn scan(&mut self, key: &Key, length: u64) -> Result<u64, Failure> {
        let from = doc! { "_id": { "$gte": text(key) } };
        let found = self.collection.find(from).sort(doc! { "_id": 1 }).limit(length as i64).run()?;
        let mut count = 0;
        for document in found {
            document?;
            count += 1;
        }
        Ok(count)
    }
}
