//! What a member measures of itself once a second, for its own decisions and for the others'.
//!
//! What storage does not know is taken for what troubles nobody, but for a cache that nothing was read from: it is cold.

use baton_leadership::Figures;
use baton_storage::Storage;
use std::sync::Arc;
use std::time::Duration;

/// See the file's header.
pub(crate) struct Meter(Arc<Storage>);

impl Meter {
    pub fn new(storage: Arc<Storage>) -> Self {
        Self(storage)
    }

    /// The figures of now. To be asked for by nobody else: what storage smooths it smooths from call to call.
    pub fn measure(&self) -> Figures {
        let vitals = self.0.vitals();
        let otherwise = Figures::default();
        Figures {
            debt_bytes: vitals.debt_bytes,
            debt_levels: vitals.debt_levels,
            stall_nearness: vitals.stall_nearness,
            cache_hit_ratio: vitals.cache_hit_ratio.unwrap_or(0.0),
            cache_hot_bytes: vitals.cache_hot_bytes,
            sync_latency: vitals.sync_latency.unwrap_or(Duration::ZERO),
            disk_free: vitals.disk_free.unwrap_or(otherwise.disk_free),
            load: vitals.load.unwrap_or(otherwise.load),
            cpus: vitals.cpus,
            disk_bytes_per_sec: vitals.disk_bytes_per_sec.unwrap_or(otherwise.disk_bytes_per_sec),
            undone_secs: vitals.under_way_secs,
        }
        .bounded()
    }
}
