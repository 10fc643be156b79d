//! Replies that are sent by whoever finishes them, while the thread that served the request is at another.
//!
//! ```text
//!   who serves it      ── promise ──▶ Promise ── keep, on any thread ──▶ socket
//!            │                                         └─ what the socket does not take at once ─▶ stragglers
//!            └─ next request: waits until the reply before it is on its way
//! ```
//!
//! Invariants:
//! - A connection has one reply promised at the most, and what it sends itself comes after that.
//! - Who keeps a promise waits for nobody: what the socket does not take at once is sent by one thread that is there for that.
//! - A promise that is given up without a reply ends the connection.

use crate::counters::Counters;
use crate::stragglers::Stragglers;
use baton_machine::about_to_wait;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use socket2::Socket;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A buffer up to this size is kept for the connection's next reply.
const SPARE_BYTES_MAX: usize = 64 * 1024;

/// How often to look again before waiting for a reply that is being sent.
const SETTLE_YIELDS: usize = 4;

#[derive(Default)]
struct State {
    is_promised: bool,
    /// The buffer of the reply before.
    spare: Vec<u8>,
}

/// Where one connection's replies leave from.
pub struct Outbox {
    pub(crate) socket: Arc<Socket>,
    pub(crate) counters: Arc<Counters>,
    stragglers: Arc<Stragglers>,
    state: Mutex<State>,
    /// Signalled when a promise is kept.
    kept: Condvar,
}

impl Outbox {
    pub(crate) fn new(socket: Arc<Socket>, counters: Arc<Counters>, stragglers: Arc<Stragglers>) -> Self {
        Self { socket, counters, stragglers, state: Mutex::default(), kept: Condvar::new() }
    }

    /// Promises the reply to the request that is being handled. By the thread that handles it, which then answers
    /// [`After::Later`](crate::After::Later).
    pub fn promise(self: &Arc<Self>) -> Promise {
        let mut state = self.state.lock();
        assert!(!state.is_promised, "a connection's requests are handled one after the other");
        state.is_promised = true;
        Promise { outbox: Some(Arc::clone(self)) }
    }

    /// Waits until the reply before is on its way; gives its buffer back, if it is needed.
    pub(crate) fn settle(&self, out: &mut Vec<u8>) {
        let mut state = self.state.lock();
        // Whoever sends it may have sent it already, and be about to say so.
        for _ in 0..SETTLE_YIELDS {
            if !state.is_promised {
                break;
            }
            MutexGuard::unlocked(&mut state, std::thread::yield_now);
        }
        while state.is_promised {
            let _waiting = MutexGuard::unlocked(&mut state, about_to_wait);
            if state.is_promised {
                self.kept.wait(&mut state);
            }
        }
        if out.capacity() == 0 {
            *out = std::mem::take(&mut state.spare);
        }
    }

    /// The client is silent: nothing is kept for it. Tells whether nothing is promised to it either.
    pub(crate) fn rest(&self) -> bool {
        let mut state = self.state.lock();
        state.spare = Vec::new();
        !state.is_promised
    }

    /// Whether a reply is promised that is not on its way yet.
    pub(crate) fn is_promised(&self) -> bool {
        self.state.lock().is_promised
    }

    /// The reply is on its way, or never will be. The connection counts as active until then.
    pub(crate) fn settled(&self, mut buffer: Vec<u8>) {
        self.counters.traffic.mine().active.fetch_sub(1, Relaxed);
        buffer.clear();
        let mut state = self.state.lock();
        state.is_promised = false;
        if buffer.capacity() <= SPARE_BYTES_MAX {
            state.spare = buffer;
        }
        drop(state);
        self.kept.notify_one();
    }

    /// Sends what the socket takes at once; how much that was, unless the connection is broken.
    pub(crate) fn send_at_once(&self, bytes: &[u8]) -> Option<usize> {
        loop {
            match send(&*self.socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => {
                    self.counters.traffic.mine().bytes_out.fetch_add(count as u64, Relaxed);
                    return Some(count);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Some(0),
                Err(_) => return None,
            }
        }
    }
}

/// A reply that somebody has promised to send.
#[must_use = "a promise that is dropped ends its connection"]
pub struct Promise {
    outbox: Option<Arc<Outbox>>,
}

impl Promise {
    /// Sends the reply, which is a whole message; what the socket does not take at once later.
    pub fn keep(mut self, reply: Vec<u8>) {
        let Some(outbox) = self.outbox.take() else { return };
        match outbox.send_at_once(&reply) {
            Some(count) if count == reply.len() => outbox.settled(reply),
            Some(count) => Arc::clone(&outbox.stragglers).take(outbox, reply, count),
            None => {
                let _ = outbox.socket.shutdown(Shutdown::Both);
                outbox.settled(reply);
            }
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if let Some(outbox) = self.outbox.take() {
            let _ = outbox.socket.shutdown(Shutdown::Both);
            outbox.settled(Vec::new());
        }
    }
}
