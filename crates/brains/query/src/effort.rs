//! What a request has turned out to take, for whoever counts requests and tells of them.

use std::sync::atomic::AtomicBool;

/// Shared by all that belongs to a request, and by the requests that go on with its cursor.
#[derive(Debug, Default)]
pub struct Effort {
    /// A stage has used the disk for what it may not hold in memory.
    pub used_disk: AtomicBool,
    /// It has looked at many documents, for several milliseconds: to others it is no small one.
    pub is_long: AtomicBool,
}
