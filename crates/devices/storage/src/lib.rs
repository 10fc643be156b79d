//! Baton's storage on RocksDB: collections clustered by `_id`, indexes, the oplog, and the one queue every write
//! goes through.
//!
//! Entry points: [`Storage::open`]; [`Storage::view`] for reads; [`Storage::by`], [`Transaction`] and [`Writer::commit`] for writes;
//! [`Catalog`] for what exists; [`Storage::oplog`] and [`Storage::facts`] for the log and what outlives a crash beside it;
//! [`Storage::follower`] for what another member logged; [`Storage::chores`] for what is to be done now and then. The format on disk is drawn in `docs/storage-format.md`.
//!
//! Invariants:
//! - One write path. Documents, index entries, oplog entry, counters and session record of one operation reach RocksDB
//!   in one `WriteBatch`, in OpTime order; no crash shows a part of it.
//! - OpTimes strictly increase, and the oplog has no hole: an entry becomes readable together with all before it.
//! - What a durable commit acknowledged was synced before the acknowledgement. A failed write or sync stops the
//!   process, with exit code 14; it is never tried again.
//! - A panic under a lock of storage, in the commit queue or in applying ends the process: see [`baton_types::must_not_unwind`].
//!
//! Not here: what a document means (`baton-query`), who may write, when a task may begin ([`tasks::Gate`] is asked).

#[macro_use]
mod crash_point;

mod background;
mod catalog;
mod critical;
mod ddl;
mod documents;
mod following;
mod log;
mod machine;
mod options;
mod spill;
mod statistics;
mod storage;
mod upgrade;

pub use background::Chores;
pub use background::checkpoints::CheckpointInfo;
pub use background::tasks;
pub use background::vitals::Vitals;
pub use background::warming::{HotRecords, Warmed, WarmingLimits};
pub use catalog::{
    BuildPhase, Catalog, Collection, CollectionKind, CollectionOptions, ID_INDEX, Index, IndexBuild, IndexDefinition,
    IndexFieldKind, IndexState, replaced,
};
pub use ddl::copy::{Copied, CopyRequest};
pub use ddl::{
    BuildOfSet, CatalogGuard, CreateOutcome, FillPosition, Held, IndexBuildProgress, IndexModification, LoggedCommand,
    Modification, Pass, Started,
};
pub use documents::counters::Counts;
pub use documents::format::{CollectionId, IndexId, RecordKey, record_key};
pub use documents::index_demands::is_text_language;
pub use documents::locks::{LockSet, LockTable};
pub use documents::sessions::{SessionHandle, SessionRecord, SessionTable};
pub use documents::transaction::Transaction;
pub use documents::validate::{ValidateProgress, ValidateReport};
pub use documents::view::{Bounds, DocumentCursor, IndexCursor, IndexEntry, Order, View, stored_document};
pub use documents::write::{Inserted, Statement, id_of};
pub use following::Follower;
pub use following::entry_change::{CarriedOut, EntryChange, updated};
pub use following::incoming::{Incoming, take_over};
pub use following::incoming_file::IncomingFile;
pub use following::rollback::{RolledBack, UNRECOVERABLE_ROLLBACK};
pub use log::author::{Author, Committed, Writer};
pub use log::commit::{CommitQueue, Durability, Placed, ProgressListener, SharedEntry, Then, Urgency, WriteGate};
pub use log::ends::LogFollower;
pub use log::facts::Fact;
pub use log::flow::{Begun, CREDIT_BYTES, FlowFigures, Throttle};
pub use log::oplog::{OplogKind, RetryImage, class_of, optime_document, optime_of};
pub use log::{Facts, Oplog};
pub use options::StorageOptions;
pub use spill::Spills;
pub use statistics::StorageStatistics;
pub use storage::Storage;

// For `crash_point!` in the crates above.
#[cfg(feature = "crash-points")]
#[doc(hidden)]
pub use fail;
