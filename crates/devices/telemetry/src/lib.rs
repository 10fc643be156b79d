//! What a member tells about itself: its log, its metrics, and the HTTP pages that show them.
//!
//! Invariants: telling never stops a member (a full disk under the log, a hostile HTTP client, a page that panics cost
//! that line, that connection, that page); memory for it is bounded.
//! What it deliberately does not do: decide what is worth telling. The others log through `tracing`, register their own
//! metrics, and hand over closures for the pages.

pub mod http;
pub mod log;
pub mod metrics;

pub use http::{HttpServer, Pages};
pub use log::{Format, Log};
pub use metrics::Metrics;
