//! The commands: what a member does with a request.
//!
//! Where to look: [`table`] lists every command and names the file that carries it out; [`dispatch`](mod@dispatch) is the
//! road every request takes; [`server`] is what all connections share. To add a command, write its file in `commands/`
//! and its row in [`table::COMMANDS`].
//!
//! Invariants: a command is one file and one row; its own fields are read by [`baton_request::Fields`], which refuses what the
//! command does not know; errors are MongoDB's.
//! What it deliberately does not do: sockets, files; and start threads, which it has done for it ([`server::Hooks`]).

mod aftermath;
pub mod call;
mod commands;
pub mod crud;
pub mod ddl;
pub mod dispatch;
pub mod duties;
mod excerpt;
#[cfg(test)]
mod gate_tests;
pub mod membership;
pub mod mirroring;
mod mutant;
mod priority;
pub mod server;
pub mod table;
pub mod tail;
#[cfg(test)]
mod testing;
pub mod ttl;

pub use call::{Call, Documents, Reply};
pub use commands::apply_ops::apply_command;
pub use dispatch::{Leaving, Next, dispatch};
pub use priority::ClassTimes;
pub use server::Server;
