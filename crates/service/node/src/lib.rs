//! One member of Baton: storage, commands and network put together, started, and stopped.
//!
//! Entry points: [`Member::start`], [`Member::run`], [`Member::stop`].
//! What it deliberately does not do: parse flags (the command line), or know a command (the commands).

pub mod contents;
#[cfg(feature = "crash-points")]
mod crash_points;
mod descriptors;
mod latencies;
mod lock;
mod member;
mod metrics;
mod options;
mod service;
pub mod signals;
mod status_page;
mod timeline;
mod upkeep;

pub use lock::DirectoryLock;
pub use member::{Member, StartError};
pub use options::Options;
