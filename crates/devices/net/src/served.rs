//! A connection with all that is its own: its place in the registry, its handler, and the state of its reading and writing.
//!
//! ```text
//!   accepted ─▶ seat in the pool ── ends ──▶ dropped by the thread "closing"
//!                   │    ▲ silent
//!                   ▼    │
//!       a thread of its own, conn<id> ── ends ──▶ dropped there
//! ```
//!
//! Invariants: whichever way it ends, also by a panic of the handler, first the handler is dropped, then the socket shut down and the
//! service told, and then it leaves the registry. At every moment one thread serves it, or it has its seat, or it is being dropped.
//! What it does not do: wait for the client's next bytes (see [`crate::pool`]), or read and write messages (see
//! [`crate::connection`]).

use crate::connection::{Connection, Desk, End};
use crate::outbox::Outbox;
use crate::pool::{Seated, Turn};
use crate::probe::ConnectionProbe;
use crate::server::Shared;
use crate::service::{ConnectionInfo, Handler, Peer, Service, Threads};
use baton_wire::MESSAGE_SIZE_MAX_BYTES;
use socket2::{SockAddr, Socket};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tracing::{debug, info, warn};

fn name_of(id: u64) -> String {
    format!("conn{id}")
}

pub(crate) fn peer_of(address: Option<&SockAddr>) -> Peer {
    address.and_then(SockAddr::as_socket).map_or(Peer::Unix, Peer::Tcp)
}

/// See the file's header. What is dropped first stands first.
pub(crate) struct Served<S: Service> {
    handler: S::Handler,
    connection: Connection,
    outbox: Arc<Outbox>,
    registered: Registered<S>,
}

impl<S: Service> Served<S> {
    /// Opens it.
    pub fn open(registered: Registered<S>, connection_count: usize) -> Box<Self> {
        let Registered { id, peer, shared, service, socket } = &registered;
        info!(
            target: "NETWORK", id = 22943, remote = %peer, connectionId = id, connectionCount = connection_count,
            "Connection accepted"
        );
        let (counters, stragglers) = (Arc::clone(&shared.terms.counters), Arc::clone(&shared.stragglers));
        let outbox = Arc::new(Outbox::new(Arc::clone(socket), counters, stragglers));
        let handler = service.opened(ConnectionInfo {
            id: *id,
            peer: *peer,
            local: peer_of(socket.local_addr().ok().as_ref()),
            probe: ConnectionProbe::new(Arc::clone(socket)),
            outbox: Arc::clone(&outbox),
        });
        let memory = shared.message_memory.account(2 * MESSAGE_SIZE_MAX_BYTES);
        let connection = Connection::new(Arc::clone(&shared.terms), memory, Arc::clone(&outbox));
        Box::new(Self { handler, connection, outbox, registered })
    }

    fn say_why(&self, end: End) {
        let remote = self.registered.peer;
        match end {
            End::Silent | End::Turns | End::Clean | End::Asked => {}
            End::Http => debug!(target: "NETWORK", id = 22989, remote = %remote, "HTTP on the driver port"),
            End::TimedOut => warn!(
                target: "NETWORK", id = 22987, remote = %remote,
                "A message was begun and not finished in time. Ending connection from remote"
            ),
            End::Malformed(reason) => warn!(
                target: "NETWORK", id = 22988, remote = %remote, error = reason,
                "Error receiving request from client. Ending connection from remote"
            ),
            End::Broken(kind) => debug!(
                target: "NETWORK", id = 22986, remote = %remote, error = %kind,
                "The connection broke"
            ),
        }
    }
}

impl<S: Service> Seated for Served<S> {
    fn id(&self) -> u64 {
        self.registered.id
    }

    fn socket(&self) -> &Socket {
        &self.registered.socket
    }

    fn turn(&mut self, desk: &mut Desk) -> Turn {
        self.handler.takes_thread(true);
        self.connection.turn(&mut self.handler, desk).unwrap_or_else(|end| {
            self.say_why(end);
            Turn::Ended
        })
    }

    fn rest(&mut self) -> bool {
        let rests = self.outbox.rest();
        if rests {
            self.handler.rests();
        }
        rests
    }

    fn is_promised(&self) -> bool {
        self.outbox.is_promised()
    }

    fn serve_alone(mut self: Box<Self>) {
        let pool = Arc::clone(&self.registered.shared.pool);
        self.handler.takes_thread(false);
        loop {
            match self.connection.run(&mut self.handler) {
                End::Turns => return pool.seat(self),
                End::Silent => match self.handler.threads() {
                    Threads::Shared => return pool.seat(self),
                    Threads::Own => return pool.seat_alone(self),
                    Threads::Kept => {
                        self.handler.rests();
                        self.connection.be_patient();
                    }
                },
                end => return self.say_why(end),
            }
        }
    }
}

/// A connection's place in the registry; leaves it when dropped.
pub(crate) struct Registered<S: Service> {
    id: u64,
    peer: Peer,
    shared: Arc<Shared>,
    service: Arc<S>,
    socket: Arc<Socket>,
}

impl<S: Service> Registered<S> {
    /// Enters it.
    pub fn new(id: u64, peer: Peer, shared: &Arc<Shared>, service: &Arc<S>, socket: Socket) -> Self {
        let socket = Arc::new(socket);
        shared.connections.lock().insert(id, Arc::clone(&socket));
        Self { id, peer, shared: Arc::clone(shared), service: Arc::clone(service), socket }
    }
}

impl<S: Service> Drop for Registered<S> {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Both);
        self.service.closed(self.id);
        let remaining = self.shared.terms.counters.current.fetch_sub(1, Relaxed) - 1;
        // The thread may be another's.
        info!(
            target: "NETWORK", id = 22944, ctx = name_of(self.id), remote = %self.peer, connectionId = self.id,
            connectionCount = remaining, "Connection ended"
        );
        let mut connections = self.shared.connections.lock();
        connections.remove(&self.id);
        if connections.is_empty() {
            self.shared.drained.notify_all();
        }
    }
}
