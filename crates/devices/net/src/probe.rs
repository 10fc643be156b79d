//! Finding out, while a request waits, that nobody waits for its answer any more.
//!
//! What it does not do: read. Bytes the client has already sent stay where they are.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::Socket;
use std::sync::Arc;

/// Asks the socket, without reading from it, whether the client is still connected. Cheap enough for once in a few
/// hundred documents or some ten times a second: one system call.
#[derive(Clone, Debug)]
pub struct ConnectionProbe {
    socket: Option<Arc<Socket>>,
}

impl ConnectionProbe {
    pub(crate) fn new(socket: Arc<Socket>) -> Self {
        Self { socket: Some(socket) }
    }

    /// A probe for work without a connection (internal requests, tests): never gone.
    pub fn never() -> Self {
        Self { socket: None }
    }

    /// Whether the client has hung up (or the server is shutting the connection down).
    pub fn gone(&self) -> bool {
        let Some(socket) = &self.socket else { return false };
        let asked = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let mut fds = [PollFd::new(&**socket, asked)];
        match poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            Ok(_) => fds[0].revents().intersects(asked | PollFlags::NVAL),
            // Interrupted by a signal: ask again next time.
            Err(_) => false,
        }
    }
}
