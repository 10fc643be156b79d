//! What one request brings to the evaluation of its query, besides documents.

use crate::effort::Effort;
use crate::expression::value::size_bytes;
use crate::interruption::Interruption;
use crate::spill::{Room, SpillKind, SpillSpace, SpillTotals};
use baton_types::{Class, Error, ErrorCode, MemoryAccount, MemoryPool, Result, Timestamp};
use bson::{Bson, DateTime};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

/// The surroundings of one request. Cheap to clone; the same for all documents of the request.
#[derive(Clone, Debug)]
pub struct Context {
    /// `$$NOW`: when the request began.
    pub now: DateTime,
    /// `$$CLUSTER_TIME`, where the member has one.
    pub cluster_time: Option<Timestamp>,
    /// The time as of which documents are read; none is now.
    pub read_at: Option<Timestamp>,
    /// For whom they are read: those of low class leave the caches to others.
    pub class: Class,
    /// The command's `let` variables, by name without `$$`, already evaluated; the last of a name counts. Shared by the
    /// clones: every stage and every `$expr` has one.
    variables: Arc<HashMap<String, Arc<Variable>>>,
    /// Seed of `$rand`, `$sample` and `$sampleRate`; the caller draws it, once a request.
    pub seed: u64,
    /// What a blocking stage (sort, group, …) may hold, in bytes, before it spills or the request fails.
    pub memory_bytes_max: usize,
    /// The same for a `$group`.
    pub group_memory_bytes_max: usize,
    /// What an accumulator may hold of one group, which it cannot spill.
    pub accumulator_bytes_max: usize,
    /// Whether a query that no index serves fails (`notablescan`).
    pub refuses_collection_scans: bool,
    /// What all of them, of all requests, share.
    pub memory: Arc<MemoryPool>,
    /// Where blocking stages put what they may not hold in memory; none if the request must not use the disk.
    pub spill: Option<Arc<dyn SpillSpace>>,
    /// What the blocking stages of all requests have done.
    pub spill_totals: Arc<SpillTotals>,
    /// What the request has turned out to take; shared by the clones.
    pub effort: Arc<Effort>,
    /// What long evaluation asks whether to go on; shared by the clones.
    pub interruption: Arc<Interruption>,
    /// What comes up meanwhile.
    course: SharedCourse,
}

/// What the parsing and the evaluation of one request have come to.
#[derive(Debug, Default)]
struct Course {
    /// How many random numbers the request has drawn so far.
    draws: AtomicU64,
    /// What the first constant part of an expression failed with, when it was parsed. An evaluation fails only where that part is
    /// reached, but MongoDB's optimiser refuses the whole query.
    failed_constant: OnceLock<Error>,
    /// What the values hold that parsing has computed in advance, in bytes.
    folded_bytes: AtomicUsize,
}

/// The course of a context and of its clones. It is made when something comes up, or when there is a second context.
#[derive(Debug, Default)]
struct SharedCourse(OnceLock<Arc<Course>>);

impl SharedCourse {
    fn get(&self) -> &Arc<Course> {
        self.0.get_or_init(Arc::default)
    }
}

impl Clone for SharedCourse {
    fn clone(&self) -> Self {
        Self(OnceLock::from(Arc::clone(self.get())))
    }
}

/// The value of a variable, and what it holds of the pool.
#[derive(Debug)]
struct Variable {
    value: Bson,
    _memory: Option<MemoryAccount>,
}

/// Variables smaller than this are not charged to the pool.
const VARIABLE_BYTES_FREE: usize = 64 * 1024;

/// What all values that one request computes in advance may hold, in bytes.
const FOLDED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What requests share that nobody bounds.
static UNBOUNDED: LazyLock<Arc<MemoryPool>> = LazyLock::new(|| MemoryPool::new(usize::MAX));

/// What the stages have done of requests that nobody counts.
static UNCOUNTED: LazyLock<Arc<SpillTotals>> = LazyLock::new(Arc::default);

/// The variables of most requests.
static NO_VARIABLES: LazyLock<Arc<HashMap<String, Arc<Variable>>>> = LazyLock::new(Arc::default);

impl Context {
    /// MongoDB's limit for one blocking stage: 100 MiB.
    pub const MEMORY_BYTES_MAX_DEFAULT: usize = 100 * 1024 * 1024;

    /// What the values of one expression may hold at a time. Numbers take some ten times as much room in a value as in a
    /// document, so that this is the largest document and a little.
    pub const EVALUATION_BYTES_MAX: usize = 256 * 1024 * 1024;

    /// A context with a clock and a seed and nothing else.
    pub fn new(now: DateTime, seed: u64) -> Self {
        Self::of_request(now, seed, Arc::default(), Arc::default())
    }

    /// The same with what the request has already: whom it asks whether to go on, and what it has taken so far.
    pub fn of_request(now: DateTime, seed: u64, interruption: Arc<Interruption>, effort: Arc<Effort>) -> Self {
        Self {
            now,
            cluster_time: None,
            read_at: None,
            class: Class::Normal,
            variables: Arc::clone(&NO_VARIABLES),
            seed,
            memory_bytes_max: Self::MEMORY_BYTES_MAX_DEFAULT,
            group_memory_bytes_max: Self::MEMORY_BYTES_MAX_DEFAULT,
            accumulator_bytes_max: Self::MEMORY_BYTES_MAX_DEFAULT,
            refuses_collection_scans: false,
            memory: Arc::clone(&UNBOUNDED),
            spill: None,
            spill_totals: Arc::clone(&UNCOUNTED),
            effort,
            interruption,
            course: SharedCourse::default(),
        }
    }

    /// Notes the failure of a constant part, the first of which counts.
    pub(crate) fn constant_failed(&self, error: Error) {
        let _ = self.course.get().failed_constant.set(error);
    }

    /// The failure of a constant part of what was parsed, if there was one.
    pub fn check_constants(&self) -> Result<()> {
        let failed = self.course.0.get().and_then(|course| course.failed_constant.get());
        failed.map_or(Ok(()), |error| Err(error.clone()))
    }

    /// The variable of that name, without `$$`.
    pub fn variable(&self, name: &str) -> Option<&Bson> {
        self.variables.get(name).map(|variable| &variable.value)
    }

    /// Gives a variable its value, in this context and those cloned from it later. `ExceededMemoryLimit` (146) if the
    /// pool has no room for it.
    pub fn set_variable(&mut self, name: &str, value: Bson) -> Result<()> {
        let bytes = size_bytes(&value);
        let mut memory = (bytes > VARIABLE_BYTES_FREE).then(|| self.memory.account(Self::EVALUATION_BYTES_MAX));
        if memory.as_mut().is_some_and(|memory| !memory.set(bytes)) {
            let message = format!("the value of variable $${name} takes {bytes} bytes, more than there is room for");
            return Err(Error::new(ErrorCode::ExceededMemoryLimit, message));
        }
        let variable = Arc::new(Variable { value, _memory: memory });
        Arc::make_mut(&mut self.variables).insert(name.to_owned(), variable);
        Ok(())
    }

    /// Whether a value that parsing has computed may be kept: together they are few, however many stages a request has.
    pub(crate) fn may_keep(&self, value: Option<&Bson>) -> bool {
        let bytes = value.map_or(0, size_bytes);
        let folded_bytes = &self.course.get().folded_bytes;
        let before = folded_bytes.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.saturating_add(bytes) <= FOLDED_BYTES_MAX;
        if !fits {
            folded_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }

    /// The account of one blocking stage that cannot spill.
    pub fn stage_memory(&self) -> MemoryAccount {
        self.memory.account(self.memory_bytes_max)
    }

    /// The room of one blocking stage that can.
    pub fn stage_room(&self, kind: SpillKind) -> Room {
        let bytes_max = match kind {
            SpillKind::Group => self.group_memory_bytes_max,
            SpillKind::Sort | SpillKind::BucketAuto => self.memory_bytes_max,
        };
        Room::new(self.memory.account(bytes_max), self.spill.clone(), Arc::clone(&self.interruption)).counted(
            kind,
            &self.spill_totals,
            &self.effort,
        )
    }

    /// The next of the request's random numbers, at least 0 and less than 1. The same seed gives the same sequence.
    pub fn random(&self) -> f64 {
        let draw = self.course.get().draws.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        // SplitMix64 (Steele, Lea, Flood 2014): a counter times the golden ratio, scrambled.
        let mut bits = self.seed.wrapping_add(draw.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        // A double has 53 digits.
        (bits >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_up_is_shared_with_clones_made_before_and_after() {
        let alone = Context::new(DateTime::from_millis(0), 7);
        let drawn: Vec<f64> = (0..4).map(|_| alone.random()).collect();

        let context = Context::new(DateTime::from_millis(0), 7);
        let before = context.clone();
        let first = context.random();
        let after = before.clone();
        assert_eq!(drawn, [first, before.random(), after.random(), context.random()]);

        assert!(after.check_constants().is_ok());
        before.constant_failed(Error::bad_value("no number"));
        assert!(context.check_constants().is_err() && after.check_constants().is_err());
    }
}
