//! What the network counts, for serverStatus and the metrics.
//!
//! What it does not do: sample or keep history.

use baton_types::Striped;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// What every request adds to.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub active: AtomicI64,
    pub bytes_in: AtomicU64,
    pub bytes_out: AtomicU64,
    pub requests: AtomicU64,
}

/// Live counters, shared by all connections.
#[derive(Debug)]
pub struct Counters {
    pub(crate) traffic: Striped<Traffic>,
    pub(crate) current: AtomicUsize,
    pub(crate) resting: AtomicUsize,
    pub(crate) connection_count_max: AtomicUsize,
    pub(crate) total_created: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) malformed: AtomicU64,
    pub(crate) timed_out: AtomicU64,
}

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountersSnapshot {
    /// Connections open.
    pub current: usize,
    /// Those of them that rest: their clients are silent, and no thread is theirs.
    pub resting: usize,
    /// Connections that could still be opened.
    pub available: usize,
    /// Connections with a request being carried out.
    pub active: usize,
    /// Connections ever accepted.
    pub total_created: u64,
    /// Connections turned away because there were too many.
    pub rejected: u64,
    /// Bytes received, as they came (compressed).
    pub bytes_in: u64,
    /// Bytes sent, as they went (compressed).
    pub bytes_out: u64,
    /// Messages decoded.
    pub requests: u64,
    /// Messages that were none, or were refused by the decoder.
    pub malformed: u64,
    /// Connections closed because a message was begun and not finished in time.
    pub timed_out: u64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            traffic: Striped::new(Traffic::default),
            current: AtomicUsize::default(),
            resting: AtomicUsize::default(),
            connection_count_max: AtomicUsize::default(),
            total_created: AtomicU64::default(),
            rejected: AtomicU64::default(),
            malformed: AtomicU64::default(),
            timed_out: AtomicU64::default(),
        }
    }
}

impl Counters {
    /// The counters now.
    pub fn snapshot(&self) -> CountersSnapshot {
        let current = self.current.load(Relaxed);
        let sum = |count: fn(&Traffic) -> &AtomicU64| self.traffic.all().map(|t| count(t).load(Relaxed)).sum();
        let active: i64 = self.traffic.all().map(|t| t.active.load(Relaxed)).sum();
        CountersSnapshot {
            current,
            resting: self.resting.load(Relaxed),
            available: self.connection_count_max.load(Relaxed).saturating_sub(current),
            active: usize::try_from(active).unwrap_or(0),
            total_created: self.total_created.load(Relaxed),
            rejected: self.rejected.load(Relaxed),
            bytes_in: sum(|t| &t.bytes_in),
            bytes_out: sum(|t| &t.bytes_out),
            requests: sum(|t| &t.requests),
            malformed: self.malformed.load(Relaxed),
            timed_out: self.timed_out.load(Relaxed),
        }
    }

    /// Changes the connection limit (`maxIncomingConnections`) from now on.
    pub fn set_connection_count_max(&self, max: usize) {
        self.connection_count_max.store(max, Relaxed);
    }
}
