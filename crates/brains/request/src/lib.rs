//! What a request says, before anybody acts on it: its envelope, its fields, its concerns, and what the command's row in the table and the
//! member's standing make of them.
//!
//! Where to look: [`Envelope::parse`] splits a message into what every command has and what is the command's own ([`Fields`]);
//! [`CommandSpec`] is a row of a table of commands, whoever carries them out; [`check`] refuses what may not be carried out here and now.
//!
//! Invariants: nothing here reads a clock or waits; errors are MongoDB's; an argument that nobody knows is refused, not ignored.
//! What it deliberately does not do: carry out. It knows neither storage nor sockets, so that whoever passes requests on can use it too.

mod checks;
pub mod concerns;
pub mod envelope;
pub mod fields;
mod spec;

pub use checks::{Member, check};
pub use concerns::{Acknowledgement, Provenance, ReadConcern, ReadLevel, WriteConcern};
pub use envelope::{Envelope, SessionId, TransactionMark};
pub use fields::Fields;
pub use spec::{CommandSpec, Flags, Kind};
