//! What the service counts: operations by kind, commands by name, latencies, and the time each collection takes.
//!
//! Invariant: counting is a few relaxed additions; nothing here is locked on the way of a request but the entry of a
//! collection that is seen for the first time.
//! What it deliberately does not do: publish. serverStatus, `top` and the metrics page read it.

use ahash::RandomState;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What kind of operation a command is, for `opcounters`, latencies and `currentOp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Inserts documents.
    Insert,
    /// Reads documents by a query.
    Query,
    /// Changes documents.
    Update,
    /// Removes documents.
    Delete,
    /// Continues a cursor.
    GetMore,
    /// Everything else.
    Command,
}

impl Kind {
    /// `currentOp`'s word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Query => "query",
            Self::Update => "update",
            Self::Delete => "remove",
            Self::GetMore => "getmore",
            Self::Command => "command",
        }
    }
}

/// A count and the time it took in all.
#[derive(Debug, Default)]
pub struct Usage {
    /// Microseconds.
    pub time_us: AtomicU64,
    /// How often.
    pub count: AtomicU64,
}

impl Usage {
    fn add(&self, time: Duration) {
        self.time_us.fetch_add(time.as_micros() as u64, Relaxed);
        self.count.fetch_add(1, Relaxed);
    }

    /// Microseconds and count now.
    pub fn load(&self) -> (u64, u64) {
        (self.time_us.load(Relaxed), self.count.load(Relaxed))
    }
}

/// `top`'s figures for one collection.
#[derive(Debug, Default)]
pub struct CollectionUsage {
    /// By kind, in the order of [`Kind`].
    pub by_kind: [Usage; 6],
}

/// One command's figures.
#[derive(Debug, Default)]
pub struct CommandCount {
    /// How often it was asked for.
    pub total: AtomicU64,
    /// How often it failed.
    pub failed: AtomicU64,
}

/// Everything the service counts.
pub struct Counters {
    /// Operations, in the order of [`Kind`]: documents for inserts, statements for updates and deletes.
    operations: [AtomicU64; 6],
    /// By position in the table of commands.
    commands: Box<[CommandCount]>,
    /// Commands that are in no table.
    pub unknown_commands: AtomicU64,
    /// Latencies of reads, writes and commands.
    pub latencies: [Usage; 3],
    collections: RwLock<HashMap<Box<str>, Arc<CollectionUsage>, RandomState>>,
    /// Documents inserted, updated, deleted, returned.
    pub documents: [AtomicU64; 4],
}

impl Counters {
    /// For a table of that many commands.
    pub fn new(command_count: usize) -> Self {
        Self {
            operations: Default::default(),
            commands: (0..command_count).map(|_| CommandCount::default()).collect(),
            unknown_commands: AtomicU64::new(0),
            latencies: Default::default(),
            collections: RwLock::default(),
            documents: Default::default(),
        }
    }

    /// Counts `count` operations of a kind. A command of kind `Command` is counted by the dispatcher, others count what
    /// they carry.
    pub fn count_operations(&self, kind: Kind, count: u64) {
        self.operations[kind as usize].fetch_add(count, Relaxed);
    }

    /// Operations of a kind so far.
    pub fn operations(&self, kind: Kind) -> u64 {
        self.operations[kind as usize].load(Relaxed)
    }

    /// One command's figures, by its position in the table.
    pub fn command(&self, index: usize) -> Option<&CommandCount> {
        self.commands.get(index)
    }

    /// Counts documents inserted, updated, deleted and returned.
    pub fn count_documents(&self, inserted: u64, updated: u64, deleted: u64, returned: u64) {
        for (counter, n) in self.documents.iter().zip([inserted, updated, deleted, returned]) {
            if n > 0 {
                counter.fetch_add(n, Relaxed);
            }
        }
    }

    /// A command on `namespace` (empty: on none) is done.
    pub fn finish(&self, kind: Kind, namespace: &str, time: Duration) {
        let class = match kind {
            Kind::Query | Kind::GetMore => 0,
            Kind::Insert | Kind::Update | Kind::Delete => 1,
            Kind::Command => 2,
        };
        self.latencies[class].add(time);
        if namespace.is_empty() {
            return;
        }
        if let Some(usage) = self.collections.read().get(namespace) {
            usage.by_kind[kind as usize].add(time);
            return;
        }
        self.collections.write().entry(namespace.into()).or_default().by_kind[kind as usize].add(time);
    }

    /// Forgets a collection that is dropped.
    pub fn forget(&self, namespace: &str) {
        self.collections.write().remove(namespace);
    }

    /// All collections' figures, by name.
    pub fn collections(&self) -> Vec<(Box<str>, Arc<CollectionUsage>)> {
        let mut all: Vec<_> = self.collections.read().iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }
}
