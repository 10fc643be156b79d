//! One client, one connection, one request at a time: the five things a workload asks of a store.
//!
//! Invariant: a call that returns `Ok` was answered by the store and the answer says that the request took effect (a
//! read found its record, an update matched one). A client never retries: a failure is a figure, or ends the run. But for those that
//! follow leadership (`following`).

mod direct;
mod discovery;
#[cfg(feature = "driver")]
mod driver;
mod echo;
mod following;
mod message;
mod redis;
mod reply;
mod thin;
mod uri;

use std::time::Duration;

use bson::Document;

use crate::Failure;
use crate::record::{Key, VALUE_BYTES};

pub use direct::{AppendFactory, EngineFactory};
pub use discovery::Discovery;
#[cfg(feature = "driver")]
pub use driver::DriverFactory;
pub use echo::{EchoFactory, MessageSizes, serve as serve_echo};
pub use following::FollowingFactory;
use following::NO_PRIMARY;
pub use redis::RedisFactory;
pub use thin::{ThinFactory, Wire, initiate_alone, primary_of};

/// Whether a request was refused, or its write is not known to be a majority's, because that member is no primary (any more).
#[must_use]
pub fn is_of_no_primary(reply: &Document) -> bool {
    let is_one = |refusal: &Document| refusal.get_i32("code").is_ok_and(|code| NO_PRIMARY.contains(&code));
    is_one(reply) || reply.get_document("writeConcernError").is_ok_and(is_one)
}

/// How long a client waits for a reply before it gives the server up.
pub(crate) const READ_WAIT_MAX: Duration = Duration::from_secs(60);

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "lower")]
pub enum WriteConcern {
    /// `{w: 1, j: false}`: applied by the primary.
    W1,
    /// `{w: 1, j: true}`: synced by the primary.
    Journaled,
    /// `{w: "majority"}`.
    Majority,
}

impl WriteConcern {
    /// As a member of a command.
    pub fn document(self) -> Document {
        match self {
            Self::W1 => bson::doc! { "w": 1, "j": false },
            Self::Journaled => bson::doc! { "w": 1, "j": true },
            Self::Majority => bson::doc! { "w": "majority" },
        }
    }
}

/// A connection to the store under test.
pub trait Client: Send {
    /// Reads one record, all fields.
    ///
    /// # Errors
    /// If the store fails, or has no such record.
    fn read(&mut self, key: &Key) -> Result<(), Failure>;

    /// Sets one field of one record, as long as the table's layout makes it.
    ///
    /// # Errors
    /// If the store fails, or has no such record.
    fn update(&mut self, key: &Key, field: usize, value: &[u8]) -> Result<(), Failure>;

    /// Adds records, all in one request.
    ///
    /// # Errors
    /// If the store fails, or has one of the keys already.
    fn insert(&mut self, records: &[(Key, [u8; VALUE_BYTES])]) -> Result<(), Failure>;

    /// Reads up to `length` records in key order from `key` on; gives how many there were.
    ///
    /// # Errors
    /// If the store fails or does not know scans.
    fn scan(&mut self, key: &Key, length: u64) -> Result<u64, Failure>;
}

/// Makes the connections of a run, from any thread.
pub trait Factory: Send + Sync {
    /// A new connection.
    ///
    /// # Errors
    /// If the store cannot be reached.
    fn connect(&self) -> Result<Box<dyn Client>, Failure>;

    /// Drops the records of an earlier run.
    ///
    /// # Errors
    /// If the store cannot be reached or refuses.
    fn clear(&self) -> Result<(), Failure>;
}
