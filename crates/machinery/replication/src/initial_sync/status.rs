//! How far an initial sync is, for who asks and for the log.

use baton_types::{Namespace, OpTime};
use std::time::{Duration, Instant, SystemTime};

/// Attempts until a member gives up, as in MongoDB.
pub const ATTEMPTS_MAX: usize = baton_following::ATTEMPTS_MAX as usize;

/// An attempt that failed.
#[derive(Clone, Debug)]
pub struct FailedAttempt {
    /// From whom.
    pub source: String,
    /// How long it went well.
    pub duration: Duration,
    /// What ended it.
    pub reason: String,
    /// The source's count of rollbacks when it began.
    pub rollback_id: i32,
}

/// How far a collection is.
#[derive(Clone, Debug)]
pub struct CollectionProgress {
    /// Its name when it was listed.
    pub namespace: Namespace,
    /// Documents it had then.
    pub documents: u64,
    /// Documents copied.
    pub documents_done: u64,
    /// Bytes of documents it had when it was listed.
    pub bytes: u64,
    /// Bytes of documents copied.
    pub bytes_done: u64,
    /// Its indexes, that on `_id` included.
    pub indexes: u32,
    /// Batches that came.
    pub batches: u64,
    /// When its copying began.
    pub began: Option<SystemTime>,
    /// When it ended.
    pub ended: Option<SystemTime>,
}

impl CollectionProgress {
    pub(super) fn new(namespace: Namespace) -> Self {
        Self {
            namespace,
            documents: 0,
            documents_done: 0,
            bytes: 0,
            bytes_done: 0,
            indexes: 0,
            batches: 0,
            began: None,
            ended: None,
        }
    }
}

/// How far an initial sync is.
#[derive(Clone, Debug)]
pub struct InitialSyncStatus {
    /// How: `logical` or `fileCopyBased`.
    pub method: &'static str,
    /// From whom.
    pub source: String,
    /// When the first attempt began.
    pub began: SystemTime,
    /// The same on the clock that no one sets.
    pub began_instant: Instant,
    /// When this attempt began.
    pub attempt_began: Instant,
    /// When it was done.
    pub ended: Option<SystemTime>,
    /// Attempts that failed.
    pub failed_attempts: Vec<FailedAttempt>,
    /// The source's count of rollbacks.
    pub rollback_id: i32,
    /// What there is to copy.
    pub collections: Vec<CollectionProgress>,
    /// Bytes to copy that belong to no collection: whole files.
    pub file_bytes: u64,
    /// Those that were copied.
    pub file_bytes_done: u64,
    /// The log is applied from here on,
    pub from: OpTime,
    /// and the copy is whole here; zero while collections are copied.
    pub until: OpTime,
    /// Entries applied.
    pub entries_applied: u64,
    /// Requests that were sent again after a connection was lost.
    pub retried: u64,
}

impl InitialSyncStatus {
    pub(super) fn new(source: &str, before: Option<&Self>) -> Self {
        let now = Instant::now();
        // One that is done is another story.
        let before = before.filter(|before| before.ended.is_none());
        Self {
            method: "logical",
            source: source.to_owned(),
            began: before.map_or_else(SystemTime::now, |before| before.began),
            began_instant: before.map_or(now, |before| before.began_instant),
            attempt_began: now,
            ended: None,
            failed_attempts: before.map(|before| before.failed_attempts.clone()).unwrap_or_default(),
            rollback_id: 0,
            collections: Vec::new(),
            file_bytes: 0,
            file_bytes_done: 0,
            from: OpTime::ZERO,
            until: OpTime::ZERO,
            entries_applied: 0,
            retried: 0,
        }
    }

    /// Bytes to copy, as the source counted them when it was asked.
    pub fn bytes(&self) -> u64 {
        self.file_bytes + self.collections.iter().map(|collection| collection.bytes).sum::<u64>()
    }

    /// Bytes copied.
    pub fn bytes_done(&self) -> u64 {
        self.file_bytes_done + self.collections.iter().map(|collection| collection.bytes_done).sum::<u64>()
    }

    /// Collections copied.
    pub fn collections_done(&self) -> usize {
        self.collections.iter().filter(|collection| collection.ended.is_some()).count()
    }

    /// How long copying will take on, if it goes on as it went.
    pub fn remaining(&self) -> Option<Duration> {
        let (all, done) = (self.bytes(), self.bytes_done());
        let left = all.saturating_sub(done);
        (done > 0).then(|| self.attempt_began.elapsed().mul_f64(left as f64 / done as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_remains_follows_from_the_bytes_and_no_attempt_forgets_those_before() {
        let mut status = InitialSyncStatus::new("a:1", None);
        assert_eq!(status.remaining(), None);
        let mut progress = CollectionProgress::new(Namespace::new("db", "c").unwrap());
        (progress.bytes, progress.bytes_done) = (1000, 250);
        status.collections.push(progress);
        status.attempt_began -= Duration::from_secs(10);
        let remaining = status.remaining().unwrap();
        assert!((29.0..32.0).contains(&remaining.as_secs_f64()), "{remaining:?}");
        let duration = Duration::from_secs(10);
        status.failed_attempts.push(FailedAttempt {
            source: "a:1".into(),
            duration,
            reason: "lost".into(),
            rollback_id: 1,
        });
        let next = InitialSyncStatus::new("b:1", Some(&status));
        assert_eq!((next.failed_attempts.len(), next.bytes(), next.began), (1, 0, status.began));
        status.ended = Some(SystemTime::now());
        assert!(InitialSyncStatus::new("b:1", Some(&status)).failed_attempts.is_empty());
    }
}
