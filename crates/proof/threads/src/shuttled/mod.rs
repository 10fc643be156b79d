//! What threads meet at, as members have it, on shuttle: a scheduler chooses after each step whose turn it is.
//!
//! Two ways to wait for a time: as if it never came, so that who is to be told and is not waits for ever, which shuttle notices; or as
//! if it might come at any moment ([`time::hurry`]). The clock stands, but for that.

pub mod machine;
pub mod parking_lot;
pub mod thread;
pub mod time;

pub use shuttle::sync::atomic;
