//! A connection with all that is its own: its place in the registry, its handler, and the state of its loop.
//!
//! ```text
//!   accepted ─▶ thread conn<id> ── silent for a while ──▶ rests, without a thread ── bytes ──▶ thread conn<id>, a fresh one
//!                     └── ends ──▶ dropped there                  └── the client hangs up ──▶ dropped by the thread "closing"
//! ```
//!
//! Invariants: whichever way it ends, also by a panic of the handler, first the handler is dropped, then the socket shut down and the
//! service told, and then it leaves the registry. At every moment one thread serves it, or it rests, or it is being dropped.
//! What it does not do: wait for the client's next bytes while it rests (see [`crate::resting`]), or read and write messages (see
//! [`crate::connection`]).

use crate::connection::{Connection, End, STACK_SIZE_BYTES};
use crate::outbox::Outbox;
use crate::probe::ConnectionProbe;
use crate::resting::Rests;
use crate::server::Shared;
use crate::service::{ConnectionInfo, Handler, Peer, Service};
use baton_wire::MESSAGE_SIZE_MAX_BYTES;
use socket2::{SockAddr, Socket};
use std::io;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::Builder;
use tracing::{debug, info, warn};

/// Starts a thread that serves a connection: its name is what the log knows the connection by.
pub(crate) fn spawn(id: u64, serve: impl FnOnce() + Send + 'static) -> io::Result<()> {
    Builder::new().name(name_of(id)).stack_size(STACK_SIZE_BYTES).spawn(serve).map(drop)
}

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
    registered: Registered<S>,
}

impl<S: Service> Served<S> {
    /// Opens it, on its first thread.
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
        let connection = Connection::new(Arc::clone(&shared.terms), memory, outbox);
        Box::new(Self { handler, connection, registered })
    }

    fn say_why(&self, end: End) {
        let remote = self.registered.peer;
        match end {
            End::Silent | End::Clean | End::Asked => {}
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

impl<S: Service> Rests for Served<S> {
    fn id(&self) -> u64 {
        self.registered.id
    }

    fn socket(&self) -> &Socket {
        &self.registered.socket
    }

    fn serve(mut self: Box<Self>) {
        let shared = Arc::clone(&self.registered.shared);
        self.handler.takes_thread();
        loop {
            let end = self.connection.run(&mut self.handler);
            if end != End::Silent {
                self.say_why(end);
                return;
            }
            self.handler.rests();
            if !self.handler.keeps_thread() {
                match shared.resting.take(self) {
                    Ok(()) => return,
                    Err(refused) => self = refused,
                }
            }
            self.connection.be_patient();
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
