//! What one request brings to the evaluation of its query, besides documents.

use baton_types::Timestamp;
use bson::{Bson, DateTime};

/// The surroundings of one request. Cheap to clone; the same for all documents of the request.
#[derive(Clone, Debug)]
pub struct Context {
    /// `$$NOW`: when the request began.
    pub now: DateTime,
    /// `$$CLUSTER_TIME`, where the member has one.
    pub cluster_time: Option<Timestamp>,
    /// The command's `let` variables, by name without `$$`, already evaluated.
    pub variables: Vec<(String, Bson)>,
    /// Seed of `$rand`, `$sample` and `$sampleRate`; the caller draws it, once a request.
    pub seed: u64,
    /// What a blocking stage (sort, group, …) may hold, in bytes, before the request fails.
    pub memory_bytes_max: usize,
}

impl Context {
    /// MongoDB's limit for one blocking stage: 100 MiB.
    pub const MEMORY_BYTES_MAX_DEFAULT: usize = 100 * 1024 * 1024;

    /// A context with a clock and a seed and nothing else.
    pub fn new(now: DateTime, seed: u64) -> Self {
        Self { now, cluster_time: None, variables: Vec::new(), seed, memory_bytes_max: Self::MEMORY_BYTES_MAX_DEFAULT }
    }
}
