//! Initial sync: carries out what the machine asks for that makes a copy of the source (`baton_following`), by cloning or by file.
//!
//! ```text
//!  machine ──task──▶ main lane    (the follower's worker)   questions, the beginning, catching up, the end
//!          ──task──▶ log lane     (a thread)                the source's log ──▶ buffer
//!          ──task──▶ copier lanes (a thread each)           collections or files
//!          ◀─answer─
//! ```
//!
//! Invariants:
//! - Until the member has applied everything that was written while it copied, a fact on its disk says that its data are not whole: they
//!   are neither read nor counted, and a start begins anew. Of a copy by file it keeps nothing until the last file is here and synced.
//! - The entries that are applied are idempotent: it is no matter which of them a document of the copy had seen.
//! - Every part of a file was compared with its checksum of the source.
//!
//! What it deliberately does not do: decide what comes next, what is tried again, or when the copy is whole; take what has come by file
//! into use (`storage::incoming`, when the process starts).

mod by_file;
mod catching_up;
mod cloning;
mod lane;
mod log_buffer;
mod log_lane;
mod options;
mod session;
mod source;
mod status;

pub(crate) use catching_up::collection_of;
pub(crate) use lane::{Context, LaneWorker};
pub use options::{InitialSyncHooks, InitialSyncMethod, InitialSyncOptions};
pub(crate) use session::Session;
pub use status::{ATTEMPTS_MAX, CollectionProgress, FailedAttempt, InitialSyncStatus};
