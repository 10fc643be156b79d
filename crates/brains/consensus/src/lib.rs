//! Who is primary, what is committed, and from whom each member fetches: the control of a replica set as one step machine.
//!
//! Source: "Fault-Tolerant Replication with Pull-Based Consensus in MongoDB" (Zhou and Mu, NSDI 2021), with the corrections
//! that `spec/` checks; logless reconfiguration by Schultz, Dardik and Tripakis (2022).
//!
//! ```text
//!            Input (a message, an answer, time, the log's position)
//!                     │
//!                     ▼
//!   Consensus::step(now, input)  ──▶  Effects (send, persist, step up, resign, commit, fetch from)
//!   │
//!   ├─ election        stand, dry run, when to stand
//!   ├─ voting          for whom, and on disk before it is told
//!   ├─ leadership      catch up, begin the term, notice a lost majority, step down
//!   ├─ succession      who would follow a primary that hands over
//!   ├─ positions       who has what; the commit point
//!   ├─ plausible       terms that nobody can have reached
//!   ├─ protocol        members of other versions
//!   ├─ heartbeats      signs of life, gossip, configurations
//!   ├─ sync_source     from whom to fetch
//!   └─ reconfiguration one voter at a time
//! ```
//!
//! `tests/scripts` tells the protocol in stories, with these machines' own answers; `spec/README.md` lists them.
//!
//! Beside it stand [`judge`]: whether a batch of entries continues a member's log, which who fetches asks (`baton-following` does); and
//! [`index_build`]: how the members build an index together.
//!
//! Pull keeps this small: it sees the positions of logs ([`Position`]), never their entries.
//!
//! Invariants, each with a checker in the simulator:
//! - At most one member is primary of a term. A vote is on disk before it is answered.
//! - The commit point advances only on an entry of the primary's own term that a majority has, and never falls.
//! - No commit point lies beyond the member's own log.
//! - A higher term is adopted before anything else in the message is believed.
//!
//! What it deliberately does not do: fetch, apply or roll back (the machinery does, and reports positions); read a clock;
//! wait. The same code runs in the simulator and in a member.

mod acknowledgement;
pub mod configuration;
mod consensus;
mod election;
mod fetch;
mod heartbeats;
pub mod index_build;
mod leadership;
mod message;
mod mutant;
mod peer;
mod plausible;
mod positions;
mod protocol;
mod reconfiguration;
mod recorded;
mod step;
mod succession;
mod sync_source;
mod view;
mod voting;

pub use acknowledgement::Demand;
pub use configuration::{Configuration, ConfigurationVersion, Member, MemberId, Settings};
pub use consensus::{Consensus, Start};
pub use fetch::{SourceState, Verdict, judge, sound};
pub use message::{
    ElectionReason, Gossip, HeartbeatRequest, HeartbeatResponse, MemberState, Position, PositionUpdate, Request,
    Response, VoteRequest, VoteResponse,
};
pub use mutant::Mutant;
pub use protocol::{PROTOCOL_VERSION, UNSTATED_PROTOCOL_VERSION};
pub use step::{
    DataState, Effect, Input, LastVote, Moment, Occupation, RequestId, RequestKind, ResignReason, StepDownRequest,
};
pub use succession::{Candidate, Obstacle};
pub use view::{PeerView, Summary, View};
