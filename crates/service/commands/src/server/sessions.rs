//! Logical sessions: who they are, and when they were last used.
//!
//! Invariant: a session not used for thirty minutes is gone, with its cursors.
//! What it deliberately does not do: keep what must survive a restart. The record of a session's retryable writes is the
//! storage's (`Storage::session`).

use crate::priority::ClaimedClass;
use ahash::RandomState;
use baton_request::SessionId;
use baton_types::{Error, ErrorCode, Result};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a session lives without being used (`logicalSessionTimeoutMinutes`).
pub const TIMEOUT_MINUTES: i32 = 30;
/// More sessions than this are refused with `TooManyLogicalSessions` (261).
const SESSION_COUNT_MAX: usize = 1_000_000;
/// Sessions are spread over this many maps, so that connections seldom meet at one lock.
const SHARD_COUNT: usize = 16;

/// One logical session.
pub struct Session {
    /// The client's number for it.
    pub id: SessionId,
    /// What was said of the class of its requests.
    pub(crate) claimed: ClaimedClass,
    /// In milliseconds since the registry was made.
    last_use_ms: AtomicU64,
}

/// All sessions.
pub struct Sessions {
    began: Instant,
    shards: [Mutex<HashMap<SessionId, Arc<Session>, RandomState>>; SHARD_COUNT],
    timeout_ms: AtomicU64,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            shards: std::array::from_fn(|_| Mutex::default()),
            timeout_ms: AtomicU64::new(TIMEOUT_MINUTES as u64 * 60_000),
        }
    }
}

impl Sessions {
    fn shard(&self, id: SessionId) -> &Mutex<HashMap<SessionId, Arc<Session>, RandomState>> {
        // The client drew the bytes at random; the last one spreads as well as any hash.
        &self.shards[usize::from(id.0[15]) % SHARD_COUNT]
    }

    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// The session, now in use; made if it is new.
    pub fn touch(&self, id: SessionId) -> Result<Arc<Session>> {
        let now_ms = self.now_ms();
        let mut shard = self.shard(id).lock();
        if let Some(session) = shard.get(&id) {
            session.last_use_ms.store(now_ms, Ordering::Relaxed);
            return Ok(session.clone());
        }
        if shard.len() >= SESSION_COUNT_MAX / SHARD_COUNT {
            return Err(Error::new(
                ErrorCode::TooManyLogicalSessions,
                "Unable to add session into the cache because the number of active sessions is too high",
            ));
        }
        let session = Arc::new(Session { id, claimed: ClaimedClass::default(), last_use_ms: AtomicU64::new(now_ms) });
        shard.insert(id, session.clone());
        Ok(session)
    }

    /// Forgets a session; says whether it was known.
    pub fn end(&self, id: SessionId) -> bool {
        self.shard(id).lock().remove(&id).is_some()
    }

    /// Forgets the sessions that were not used for too long, and returns them.
    pub fn expire(&self) -> Vec<SessionId> {
        let oldest = self.now_ms().saturating_sub(self.timeout_ms.load(Ordering::Relaxed));
        let mut expired = Vec::new();
        for shard in &self.shards {
            shard.lock().retain(|id, session| {
                let alive = session.last_use_ms.load(Ordering::Relaxed) >= oldest;
                if !alive {
                    expired.push(*id);
                }
                alive
            });
        }
        expired
    }

    /// Changes how long a session lives without being used.
    pub fn set_timeout(&self, timeout: Duration) {
        self.timeout_ms.store(timeout.as_millis() as u64, Ordering::Relaxed);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.shards.iter().map(|s| s.lock().len()).sum()
    }

    /// All of them.
    pub fn all(&self) -> Vec<Arc<Session>> {
        self.shards.iter().flat_map(|s| s.lock().values().cloned().collect::<Vec<_>>()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: SessionId = SessionId([3; 16]);

    #[test]
    fn an_unused_session_expires() {
        let sessions = Sessions::default();
        sessions.touch(ID).unwrap();
        assert!(sessions.expire().is_empty());
        sessions.set_timeout(Duration::ZERO);
        std::thread::sleep(Duration::from_millis(3));
        assert_eq!(sessions.expire(), [ID]);
        assert_eq!(sessions.count(), 0);
    }
}
