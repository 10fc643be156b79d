//! The runtime of a replica set's member: what carries out the decisions of [`baton_consensus`] between real members.
//!
//! ```text
//!   Consensus ──Effect::Send──▶ lanes ──▶ messages ──▶ TCP ──▶ another member
//!       ▲                         │
//!       └──Input::Response, Input::Unreachable
//! ```
//!
//! Invariants:
//! - whatever is sent comes back as an answer or as a failure, unless a newer request of the same kind takes its place;
//! - no member's silence, and no slow name service, keeps a message from another member;
//! - nothing that a member says is believed before it has been read whole and strictly.
//!
//! What it deliberately does not do: decide. Terms, votes, the commit point and sync sources are consensus's.

mod lane;
pub mod lanes;
pub mod messages;

pub use lanes::Lanes;
