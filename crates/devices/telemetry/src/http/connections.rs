//! The connections that are open, so that there are never too many.
//!
//! Invariants: at most so many are open; where one more comes, the oldest of those whose request is not whole makes room,
//! so that clients that begin requests and do not finish them keep out nobody but each other; a connection leaves when it
//! is dropped, also through a panic.
//! What it does not do: time limits.

use parking_lot::Mutex;
use std::net::TcpStream;
use std::sync::Arc;

/// See the file's header.
pub(super) struct Connections {
    count_max: usize,
    open: Mutex<Vec<Arc<Entry>>>,
}

struct Entry {
    stream: TcpStream,
    state: Mutex<State>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Its request is still coming.
    Incomplete,
    /// Its request is whole: it is answered, whoever else comes.
    Answered,
    /// It was closed to make room.
    Evicted,
}

/// One connection's place.
pub(super) struct Place {
    connections: Arc<Connections>,
    entry: Arc<Entry>,
}

impl Connections {
    pub(super) fn new(count_max: usize) -> Arc<Self> {
        Arc::new(Self { count_max, open: Mutex::new(Vec::new()) })
    }

    /// A place for this connection; `None` if all are taken by requests that are being answered.
    pub(super) fn admit(self: &Arc<Self>, stream: TcpStream) -> Option<Place> {
        let mut open = self.open.lock();
        if open.len() >= self.count_max {
            // In the order they came: the first is the oldest.
            let oldest = open.iter().position(|entry| *entry.state.lock() == State::Incomplete)?;
            open.remove(oldest).evict();
        }
        let entry = Arc::new(Entry { stream, state: Mutex::new(State::Incomplete) });
        open.push(Arc::clone(&entry));
        Some(Place { connections: Arc::clone(self), entry })
    }
}

impl Entry {
    fn evict(&self) {
        *self.state.lock() = State::Evicted;
        // Its thread, which waits for more, sees the end of the stream.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

impl Place {
    pub(super) fn stream(&self) -> &TcpStream {
        &self.entry.stream
    }

    /// The request is whole. `false` if the connection was closed before that.
    pub(super) fn complete(&self) -> bool {
        let mut state = self.entry.state.lock();
        if *state == State::Incomplete {
            *state = State::Answered;
        }
        *state == State::Answered
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.open.lock().retain(|entry| !Arc::ptr_eq(entry, &self.entry));
    }
}
