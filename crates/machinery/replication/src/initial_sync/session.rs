//! What the lanes of one attempt share: what the source has, by its place, and the buffer for its log; and how far the attempt is.

use super::InitialSyncOptions;
use super::log_buffer::{Bounds, LogBuffer};
use super::options::InitialSyncMethod;
use super::source::Listed;
use super::status::{CollectionProgress, FailedAttempt, InitialSyncStatus};
use baton_following::{ATTEMPTS_MAX, Copying, Progress};
use baton_storage::Incoming;
use baton_types::{Error, ErrorCode, Result};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// How often the log tells of the progress.
const TELL_INTERVAL: Duration = Duration::from_secs(10);

/// A file of the source's checkpoint.
#[derive(Clone)]
pub(super) struct ListedFile {
    pub name: String,
    pub bytes: u64,
}

/// What the source has.
#[derive(Default)]
pub(super) struct There {
    pub collections: Vec<Arc<Listed>>,
    pub views: Vec<Listed>,
    /// How large the collections are.
    pub progress: Vec<CollectionProgress>,
    pub files: Vec<ListedFile>,
    /// Its name for the checkpoint.
    pub checkpoint: i64,
    /// Where its files are gathered here.
    pub incoming: Option<Arc<Incoming>>,
}

/// See the file's header.
pub(crate) struct Session {
    pub host: String,
    pub options: InitialSyncOptions,
    status: Arc<Mutex<Option<InitialSyncStatus>>>,
    pub(super) there: Mutex<There>,
    pub(super) buffer: Mutex<LogBuffer>,
    told: Mutex<Instant>,
}

impl Session {
    /// Begins an attempt.
    pub fn new(
        host: &str,
        what: Copying,
        options: InitialSyncOptions,
        directory: &Path,
        status: &Arc<Mutex<Option<InitialSyncStatus>>>,
    ) -> Arc<Self> {
        {
            let mut status = status.lock();
            *status = Some(InitialSyncStatus::new(host, status.as_ref()));
        }
        match what {
            Copying::Everything => {
                tracing::info!(target: "INITSYNC", id = 21164, source = host, "Starting initial sync attempt");
            }
            Copying::CollectionOf(optime) => {
                tracing::info!(target: "INITSYNC", source = host, optime = %optime, "Fetching a collection anew");
            }
        }
        let bounds = Bounds { memory_bytes: options.log_memory_bytes, file_bytes: options.log_file_bytes };
        Arc::new(Self {
            host: host.to_owned(),
            options,
            status: Arc::clone(status),
            there: Mutex::default(),
            buffer: Mutex::new(LogBuffer::new(directory, bounds)),
            told: Mutex::new(Instant::now()),
        })
    }

    pub(super) fn collection(&self, place: usize) -> Result<Arc<Listed>> {
        let gone = || Error::new(ErrorCode::InitialSyncFailure, format!("no collection has the place {place}"));
        self.there.lock().collections.get(place).cloned().ok_or_else(gone)
    }

    pub(super) fn note(&self, change: impl FnOnce(&mut InitialSyncStatus)) {
        let mut status = self.status.lock();
        let Some(status) = status.as_mut() else { return };
        change(status);
        let mut told = self.told.lock();
        if told.elapsed() >= TELL_INTERVAL {
            *told = Instant::now();
            tracing::info!(
                target: "INITSYNC",
                source = status.source,
                method = status.method,
                collections = status.collections.len(),
                collectionsDone = status.collections_done(),
                bytes = status.bytes(),
                bytesDone = status.bytes_done(),
                entriesApplied = status.entries_applied,
                remainingSecs = status.remaining().map(|left| left.as_secs()),
                "Initial sync progress"
            );
        }
    }

    fn note_collection(&self, place: usize, change: impl FnOnce(&mut CollectionProgress)) {
        self.note(|status| {
            if let Some(collection) = status.collections.get_mut(place) {
                change(collection);
            }
        });
    }

    pub(super) fn note_documents(&self, place: usize, documents: usize, bytes: usize) {
        self.note_collection(place, |collection| {
            collection.documents_done += documents as u64;
            collection.bytes_done += bytes as u64;
            collection.batches += 1;
        });
    }

    /// Notes how far the attempt is, as the machine tells it.
    pub fn progressed(&self, progress: Progress) {
        match progress {
            Progress::Begun { .. } => {}
            Progress::RollbackId(id) => self.note(|status| status.rollback_id = id),
            Progress::From(from) => self.note(|status| status.from = from),
            Progress::Until(until) => self.note(|status| status.until = until),
            Progress::Files { bytes } => self.note(|status| {
                status.method = InitialSyncMethod::FileCopyBased.name();
                status.file_bytes = bytes;
            }),
            Progress::Ordered(order) => {
                let collections = {
                    let mut there = self.there.lock();
                    there.collections = in_order(&there.collections, &order);
                    there.files = in_order(&there.files, &order);
                    in_order(&there.progress, &order)
                };
                self.note(|status| status.collections = collections);
            }
            Progress::CollectionBegun(place) => {
                self.note_collection(place, |collection| collection.began = Some(SystemTime::now()));
            }
            Progress::CollectionEmptied(place) => self.note_collection(place, |collection| {
                (collection.documents_done, collection.bytes_done) = (0, 0);
            }),
            Progress::CollectionInterrupted { place, reason } => {
                let namespace = self.namespace(place);
                tracing::info!(target: "INITSYNC", namespace, error = reason, "The copying of a collection was interrupted");
            }
            Progress::CollectionGone(place) => {
                let namespace = self.namespace(place);
                tracing::info!(target: "INITSYNC", namespace, "A collection is gone from the source");
            }
            Progress::CollectionEnded(place) => {
                self.note_collection(place, |collection| collection.ended = Some(SystemTime::now()));
            }
            Progress::Applied(entries) => self.note(|status| status.entries_applied += entries as u64),
            Progress::Retried => self.note(|status| status.retried += 1),
            Progress::Whole(until) => {
                self.note(|status| status.ended = Some(SystemTime::now()));
                tracing::info!(target: "INITSYNC", id = 21163, until = ?until, "Initial sync done");
            }
            Progress::Failed { reason, attempts, gives_up } => {
                self.note(|status| {
                    status.failed_attempts.push(FailedAttempt {
                        source: self.host.clone(),
                        duration: status.attempt_began.elapsed(),
                        reason: reason.clone(),
                        rollback_id: status.rollback_id,
                    });
                });
                tracing::error!(target: "INITSYNC", id = 21200, attempt = attempts, attemptsMax = ATTEMPTS_MAX, source = self.host, error = reason, "Initial sync attempt failed");
                if gives_up {
                    tracing::error!(target: "INITSYNC", id = 21202, "The maximum number of retries have been exhausted for initial sync");
                }
            }
        }
    }

    fn namespace(&self, place: usize) -> String {
        self.there.lock().collections.get(place).map(|listed| listed.namespace.to_string()).unwrap_or_default()
    }
}

/// The same, each at the place that the order has for it; nothing, where it is of something else.
fn in_order<T: Clone>(listed: &[T], order: &[usize]) -> Vec<T> {
    order.iter().filter_map(|place| listed.get(*place).cloned()).collect()
}
