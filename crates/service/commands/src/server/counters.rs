//! What the service counts: operations by kind, commands by name, latencies, and the time each collection takes.
//!
//! Invariant: counting is a few relaxed additions to memory that no other core adds to; nothing here is locked on the way
//! of a request, and a collection that is seen for the first time copies the map of names.
//! What it deliberately does not do: publish. serverStatus, `top` and the metrics page read it.

use ahash::RandomState;
use arc_swap::ArcSwap;
use baton_request::Kind;
use baton_types::Striped;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A count and the time it took in all.
#[derive(Debug, Default)]
struct Usage {
    time_us: AtomicU64,
    count: AtomicU64,
}

impl Usage {
    fn add(&self, time: Duration) {
        self.time_us.fetch_add(time.as_micros() as u64, Relaxed);
        self.count.fetch_add(1, Relaxed);
    }

    fn sum<'u>(all: impl Iterator<Item = &'u Self>) -> UsageSum {
        all.fold(UsageSum::default(), |sum, usage| UsageSum {
            time_us: sum.time_us + usage.time_us.load(Relaxed),
            count: sum.count + usage.count.load(Relaxed),
        })
    }
}

/// A count and the time it took in all.
#[derive(Clone, Copy, Debug, Default)]
pub struct UsageSum {
    /// Microseconds.
    pub time_us: u64,
    /// How often.
    pub count: u64,
}

/// `top`'s figures for one collection.
#[derive(Debug)]
pub struct CollectionUsage {
    by_kind: Striped<[Usage; 6]>,
}

impl CollectionUsage {
    /// Of operations of a kind.
    pub fn of(&self, kind: Kind) -> UsageSum {
        Usage::sum(self.by_kind.all().map(|by_kind| &by_kind[kind as usize]))
    }
}

/// How often a command was asked for, and failed.
#[derive(Debug, Default)]
struct CommandCount {
    total: AtomicU64,
    failed: AtomicU64,
}

/// What requests add to.
struct Stripe {
    /// In the order of [`Kind`].
    operations: [AtomicU64; 6],
    /// By position in the table of commands.
    commands: Box<[CommandCount]>,
    latencies: [Usage; 3],
    documents: [AtomicU64; 4],
}

/// Everything the service counts.
pub struct Counters {
    stripes: Striped<Stripe>,
    /// Commands that are in no table.
    pub unknown_commands: AtomicU64,
    /// Requests that panicked.
    pub panics: AtomicU64,
    /// Writes that waited for a majority, and the microseconds they waited after they were applied here.
    pub majority_waits: [AtomicU64; 2],
    collections: ArcSwap<HashMap<Arc<str>, Arc<CollectionUsage>, RandomState>>,
}

impl Counters {
    /// For a table of that many commands.
    pub fn new(command_count: usize) -> Self {
        Self {
            stripes: Striped::new(|| Stripe {
                operations: Default::default(),
                commands: (0..command_count).map(|_| CommandCount::default()).collect(),
                latencies: Default::default(),
                documents: Default::default(),
            }),
            unknown_commands: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            majority_waits: Default::default(),
            collections: ArcSwap::default(),
        }
    }

    /// Counts `count` operations of a kind. A command of kind `Command` is counted by the dispatcher, others count what
    /// they carry.
    pub fn count_operations(&self, kind: Kind, count: u64) {
        self.stripes.mine().operations[kind as usize].fetch_add(count, Relaxed);
    }

    /// Operations of a kind so far: documents for inserts, statements for updates and deletes.
    pub fn operations(&self, kind: Kind) -> u64 {
        self.sum(|stripe| Some(&stripe.operations[kind as usize]))
    }

    fn sum(&self, count: impl Fn(&Stripe) -> Option<&AtomicU64>) -> u64 {
        self.stripes.all().filter_map(count).map(|count| count.load(Relaxed)).sum()
    }

    /// A command is asked for, by its position in the table.
    pub fn count_command(&self, index: usize) {
        if let Some(command) = self.stripes.mine().commands.get(index) {
            command.total.fetch_add(1, Relaxed);
        }
    }

    /// A command has failed, by its position in the table.
    pub fn count_failure(&self, index: usize) {
        if let Some(command) = self.stripes.mine().commands.get(index) {
            command.failed.fetch_add(1, Relaxed);
        }
    }

    /// How often a command was asked for, and how often it failed, by its position in the table.
    pub fn command(&self, index: usize) -> (u64, u64) {
        let total = self.sum(|stripe| stripe.commands.get(index).map(|command| &command.total));
        (total, self.sum(|stripe| stripe.commands.get(index).map(|command| &command.failed)))
    }

    /// Reads, writes and commands, and how long they took.
    pub fn latencies(&self) -> [UsageSum; 3] {
        std::array::from_fn(|class| Usage::sum(self.stripes.all().map(|stripe| &stripe.latencies[class])))
    }

    /// Documents inserted, updated, deleted, returned.
    pub fn documents(&self) -> [u64; 4] {
        std::array::from_fn(|what| self.sum(|stripe| Some(&stripe.documents[what])))
    }

    /// Counts documents inserted, updated, deleted and returned.
    pub fn count_documents(&self, inserted: u64, updated: u64, deleted: u64, returned: u64) {
        for (counter, n) in self.stripes.mine().documents.iter().zip([inserted, updated, deleted, returned]) {
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
        self.stripes.mine().latencies[class].add(time);
        if namespace.is_empty() {
            return;
        }
        let known = |usage: &CollectionUsage| usage.by_kind.mine()[kind as usize].add(time);
        if let Some(usage) = self.collections.load().get(namespace) {
            return known(usage);
        }
        let fresh = Arc::new(CollectionUsage { by_kind: Striped::new(Default::default) });
        self.collections.rcu(|collections| {
            let mut collections = HashMap::clone(collections);
            collections.entry(namespace.into()).or_insert_with(|| Arc::clone(&fresh));
            collections
        });
        if let Some(usage) = self.collections.load().get(namespace) {
            known(usage);
        }
    }

    /// Forgets a collection that is dropped.
    pub fn forget(&self, namespace: &str) {
        if self.collections.load().contains_key(namespace) {
            self.collections.rcu(|collections| {
                let mut collections = HashMap::clone(collections);
                collections.remove(namespace);
                collections
            });
        }
    }

    /// All collections' figures, by name.
    pub fn collections(&self) -> Vec<(Arc<str>, Arc<CollectionUsage>)> {
        let mut all: Vec<_> = self.collections.load().iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }
}
