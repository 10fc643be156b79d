//! The runtime of a replica set's member: what carries out the decisions of [`baton_consensus`] between real members.
//!
//! ```text
//!   driver: Consensus ──Effect::Send──▶ lanes ──▶ messages ──▶ TCP ──▶ another member
//!      ▲  ▲                               │
//!      │  └──Input::Response, Input::Unreachable
//!      ├──progress of storage, orders and requests of commands
//!      └──fetcher: the sync source's oplog, judged, applied and synced
//! ```
//!
//! [`Replication`] is what the member around it sees; [`Waiters`] are told when a write is committed.
//!
//! Invariants:
//! - whatever is sent comes back as an answer or as a failure, unless a newer request of the same kind takes its place;
//! - no member's silence, and no slow name service, keeps a message from another member;
//! - nothing that a member says is believed before it has been read whole and strictly.
//!
//! What it deliberately does not do: decide. Terms, votes, the commit point and sync sources are consensus's.

mod acknowledgements;
mod apply;
mod driver;
mod entry_request;
mod fetcher;
mod figures;
mod handoffs;
mod initial_sync;
mod lane;
mod lanes;
mod log_stream;
mod mailbox;
pub mod messages;
mod probe;
mod refusal;
mod replication;
mod rollback;
mod self_host;
mod waiters;

pub use figures::{ElectionCounts, ElectionWon, Figures, VoteCast};
pub use handoffs::{Handoff, Trigger};
pub use initial_sync::{
    ATTEMPTS_MAX, CollectionProgress, FailedAttempt, InitialSyncHooks, InitialSyncMethod, InitialSyncOptions,
    InitialSyncStatus,
};
pub use lanes::Lanes;
pub use probe::{Probe, probe};
pub use refusal::RefusedEntry;
pub use replication::{Order, Parts, Replication};
pub use waiters::Waiters;
