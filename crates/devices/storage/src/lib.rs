//! Baton's storage on RocksDB: collections clustered by `_id`, indexes, the oplog, and the one queue every write
//! goes through.
//!
//! Entry points: [`Storage::open`]; [`Storage::view`] for reads; [`Storage::by`], [`Transaction`] and [`Writer::commit`] for writes;
//! [`Catalog`] for what exists. The format on disk is drawn in `docs/storage-format.md`.
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

mod apply;
mod author;
mod capped;
mod catalog;
mod checkpoints;
mod cloning;
mod commit;
mod copy;
mod counters;
mod critical;
mod ddl;
mod entry_change;
mod facts;
mod flow;
mod flushing;
mod format;
mod governor;
mod in_flight;
mod incoming;
mod incoming_file;
mod index;
mod index_demands;
mod index_writes;
mod lately;
mod locks;
mod log_check;
mod log_ends;
mod log_switch;
mod machine;
mod maintenance;
mod oplog;
mod options;
mod record_cache;
mod removal;
mod replay;
mod retention;
mod rollback;
mod sessions;
mod spill;
mod statistics;
mod storage;
pub mod tasks;
mod transaction;
mod upgrade;
mod validate;
mod version;
mod view;
mod vitals;
mod warming;
mod write;

pub use author::{Author, Committed, Writer};
pub use catalog::{
    BuildPhase, Catalog, Collection, CollectionKind, CollectionOptions, ID_INDEX, Index, IndexBuild, IndexDefinition,
    IndexFieldKind, IndexState, replaced,
};
pub use checkpoints::CheckpointInfo;
pub use commit::{CommitQueue, Durability, Placed, ProgressListener, SharedEntry, Then, Urgency, WriteGate};
pub use copy::{Copied, CopyRequest};
pub use counters::Counts;
pub use ddl::{
    BuildOfSet, CatalogGuard, CreateOutcome, FillPosition, Held, IndexBuildProgress, IndexModification, LoggedCommand,
    Modification, Pass, Started,
};
pub use entry_change::{CarriedOut, EntryChange, updated};
pub use facts::Fact;
pub use flow::{Begun, CREDIT_BYTES, FlowFigures, Throttle};
pub use format::{CollectionId, IndexId, RecordKey, record_key};
pub use incoming::{Incoming, take_over};
pub use incoming_file::IncomingFile;
pub use index_demands::is_text_language;
pub use locks::{LockSet, LockTable};
pub use log_ends::LogFollower;
pub use oplog::{OplogKind, RetryImage, class_of, optime_document, optime_of};
pub use options::StorageOptions;
pub use rollback::{RolledBack, UNRECOVERABLE_ROLLBACK};
pub use sessions::{SessionHandle, SessionRecord, SessionTable};
pub use spill::Spills;
pub use statistics::StorageStatistics;
pub use storage::Storage;
pub use transaction::Transaction;
pub use validate::{ValidateProgress, ValidateReport};
pub use view::{Bounds, DocumentCursor, IndexCursor, IndexEntry, Order, View, stored_document};
pub use vitals::Vitals;
pub use warming::{HotRecords, Warmed, WarmingLimits};
pub use write::{Inserted, Statement, id_of};

// For `crash_point!` in the crates above.
#[cfg(feature = "crash-points")]
#[doc(hidden)]
pub use fail;
