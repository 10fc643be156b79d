//! The runtime of a replica set's member: what carries out the decisions of [`baton_consensus`] and [`baton_following`] between real members.
//!
//! ```text
//!   driver: Consensus ──Effect::Send──▶ lanes ──▶ messages ──▶ TCP ──▶ another member
//!      ▲  ▲                               │
//!      │  └──Input::Response, Input::Unreachable
//!      ├──progress of storage, orders and requests of commands
//!      └──following: the sync source's oplog, applied and synced, as `baton-following` decides
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
mod figures;
mod following;
mod handoffs;
mod initial_sync;
mod lane;
mod lanes;
mod leadership;
mod log_stream;
mod mailbox;
pub mod messages;
mod mirrors;
mod probe;
mod replication;
mod self_host;
mod steps;
mod waiters;
pub mod warming;

pub use figures::{ElectionCounts, ElectionWon, Figures, VoteCast};
pub use following::RefusedEntry;
pub use handoffs::{Handoff, Trigger};
pub use initial_sync::{
    ATTEMPTS_MAX, CollectionProgress, FailedAttempt, InitialSyncHooks, InitialSyncMethod, InitialSyncOptions,
    InitialSyncStatus,
};
pub use lanes::Lanes;
pub use leadership::{LeadershipCounts, LeadershipStatus};
pub use mirrors::MirrorFigures;
pub use probe::{Probe, probe};
pub use replication::{Order, Parts, Replication};
pub use steps::{IndexBuildRings, StepsFile};
pub use waiters::{Left, Waiters, Waits};
