//! What storage needs drawn: ids that nobody else has, and times that were not given before.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Draws what storage needs drawn: UUIDs of new collections and ids of documents without one.
pub trait Draw: Send + Sync {
    /// A random UUID (version 4).
    fn uuid(&self) -> [u8; 16];
    /// A new ObjectId.
    fn object_id(&self) -> bson::oid::ObjectId;
    /// A timestamp of now that was not given before.
    fn timestamp(&self) -> bson::Timestamp;
}

/// Draws from the operating system.
pub struct SystemDraw;

impl Draw for SystemDraw {
    fn uuid(&self) -> [u8; 16] {
        bson::Uuid::new().bytes()
    }

    fn object_id(&self) -> bson::oid::ObjectId {
        bson::oid::ObjectId::new()
    }

    fn timestamp(&self) -> bson::Timestamp {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let secs = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let now = (secs << 32) | 1;
        let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(now.max(last + 1)));
        baton_types::Timestamp::from_u64(now.max(last.unwrap_or(0) + 1)).into()
    }
}
