//! The server: accepting, the registry of connections, and stopping.
//!
//! Invariants: a connection is in the registry from before its thread starts until after its handler is dropped, also if
//! the handler panics; the number of connections never exceeds the limit; after [`Server::stop`] returned true no thread
//! of the server runs.
//! What it does not do: read or write messages (see [`crate::connection`]).

use crate::connection::{Connection, End, SEND_STALL_MAX, STACK_SIZE_BYTES};
use crate::counters::Counters;
use crate::listen::{self, Listener, Options};
use crate::outbox::Outbox;
use crate::probe::ConnectionProbe;
use crate::service::{ConnectionInfo, Peer, Service};
use crate::stragglers::Stragglers;
use crate::waker::poll_until;
use baton_types::{MemoryPool, must_not_unwind};
use baton_wire::MESSAGE_SIZE_MAX_BYTES;
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags};
use socket2::{SockAddr, Socket};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tracing::{debug, info, warn};

/// How long to leave off accepting when the process has no file descriptor or thread left.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(50);
/// How often the log says that connections cannot be accepted.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// What the accept threads and the connections share.
struct Shared {
    counters: Arc<Counters>,
    stopping: AtomicBool,
    message_timeout: Duration,
    message_memory: Arc<MemoryPool>,
    stragglers: Arc<Stragglers>,
    connections: Mutex<HashMap<u64, Arc<Socket>>>,
    /// Signalled when the last connection is gone.
    drained: Condvar,
}

/// A server that listens and serves until it is stopped.
pub struct Server {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    listeners: Vec<Arc<Listener>>,
    acceptors: Mutex<Vec<JoinHandle<()>>>,
}

impl Server {
    /// Binds all addresses and starts to accept.
    ///
    /// # Errors
    /// If an address cannot be resolved or bound, or a thread not be started.
    pub fn start<S: Service>(options: &Options, service: Arc<S>) -> io::Result<Self> {
        let listeners: Vec<Arc<Listener>> = listen::bind(options)?.into_iter().map(Arc::new).collect();
        let addresses = listeners
            .iter()
            .filter_map(|listener| match listener.address {
                Peer::Tcp(address) => Some(address),
                Peer::Unix => None,
            })
            .collect();
        let counters = Arc::new(Counters::default());
        counters.set_connection_count_max(options.connection_count_max);
        let shared = Arc::new(Shared {
            counters,
            stopping: AtomicBool::new(false),
            message_timeout: options.message_timeout,
            message_memory: Arc::clone(&options.message_memory),
            stragglers: Arc::new(Stragglers::new()?),
            connections: Mutex::new(HashMap::new()),
            drained: Condvar::new(),
        });
        let server = Self { shared, addresses, listeners, acceptors: Mutex::new(Vec::new()) };
        for listener in &server.listeners {
            info!(target: "NETWORK", id = 23015, address = %listener.name(), "Listening on");
            let (listener, shared, service) = (listener.clone(), server.shared.clone(), service.clone());
            let thread = std::thread::Builder::new()
                .name("listener".into())
                .spawn(move || accept_all(&listener, &shared, &service))?;
            server.acceptors.lock().push(thread);
        }
        Ok(server)
    }

    /// The TCP addresses it listens on, with the ports the system chose.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What it counts.
    pub fn counters(&self) -> Arc<Counters> {
        self.shared.counters.clone()
    }

    /// Stops accepting, lets requests that run finish for half of `patience`, then cuts every connection and waits for
    /// the threads for the other half. Returns whether all of them ended.
    pub fn stop(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        self.shared.stopping.store(true, Relaxed);
        for listener in &self.listeners {
            // Wakes the thread that waits in accept.
            let _ = listener.socket.shutdown(Shutdown::Both);
        }
        for acceptor in self.acceptors.lock().drain(..) {
            let _ = acceptor.join();
        }
        // Those that wait for a request end now; those that carry one out can still answer it.
        if self.shut_all(Shutdown::Read, deadline - patience / 2) {
            return true;
        }
        self.shut_all(Shutdown::Both, deadline)
    }

    fn shut_all(&self, how: Shutdown, until: Instant) -> bool {
        let mut connections = self.shared.connections.lock();
        for socket in connections.values() {
            let _ = socket.shutdown(how);
        }
        while !connections.is_empty() {
            if self.shared.drained.wait_until(&mut connections, until).timed_out() {
                return connections.is_empty();
            }
        }
        true
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop(Duration::from_millis(100));
    }
}

/// A descriptor kept back, so that whoever comes when there are no others can be accepted and closed. Otherwise they would
/// wait, each for its own timeout, and the listener would be told of them again and again.
struct Spare(Option<File>);

impl Spare {
    fn new() -> Self {
        Self(File::open("/dev/null").ok())
    }

    /// Waits a moment for somebody, accepts and closes the connection; tells whether somebody was there. (Without a
    /// descriptor, accepting fails at once, whether anybody is there or not.)
    fn turn_one_away(&mut self, listener: &Listener) -> bool {
        let mut waits = [PollFd::new(&listener.socket, PollFlags::IN)];
        poll_until(&mut waits, Some(EXHAUSTED_PAUSE));
        if waits[0].revents().is_empty() {
            return false;
        }
        self.0 = None;
        let turned_away = listener.socket.accept().is_ok();
        *self = Self::new();
        turned_away
    }
}

/// Whether no descriptor is left, to the process or to the machine.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
    matches!(errno, Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE))
}

fn accept_all<S: Service>(listener: &Listener, shared: &Arc<Shared>, service: &Arc<S>) {
    // Without it nobody gets in any more.
    let _guard = must_not_unwind("accepting connections");
    let mut spare = Spare::new();
    let mut warned: Option<Instant> = None;
    while !shared.stopping.load(Relaxed) {
        match listener.socket.accept() {
            Ok((socket, address)) => admit(socket, &address, shared, service),
            Err(_) if shared.stopping.load(Relaxed) => break,
            // The client gave up before it was accepted.
            Err(e) if matches!(e.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => {}
            Err(e) => {
                if warned.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL) {
                    warned = Some(Instant::now());
                    warn!(target: "NETWORK", id = 23023, error = %e, "Error accepting new connection");
                }
                if !is_out_of_descriptors(&e) {
                    std::thread::sleep(EXHAUSTED_PAUSE);
                } else if spare.turn_one_away(listener) {
                    shared.counters.rejected.fetch_add(1, Relaxed);
                }
            }
        }
    }
}

/// Registers a connection and starts its thread, or turns it away.
fn admit<S: Service>(socket: Socket, address: &SockAddr, shared: &Arc<Shared>, service: &Arc<S>) {
    let counters = &shared.counters;
    let peer = peer_of(Some(address));
    let current = counters.current.fetch_add(1, Relaxed) + 1;
    if current > counters.connection_count_max.load(Relaxed) {
        counters.current.fetch_sub(1, Relaxed);
        counters.rejected.fetch_add(1, Relaxed);
        warn!(
            target: "NETWORK", id = 22942, remote = %peer, connectionCount = current - 1,
            "Connection refused because there are too many open connections"
        );
        return;
    }
    let id = counters.total_created.fetch_add(1, Relaxed) + 1;
    if matches!(peer, Peer::Tcp(_)) {
        let _ = socket.set_tcp_nodelay(true);
        let _ = socket.set_keepalive(true);
    }
    let _ = socket.set_write_timeout(Some(SEND_STALL_MAX));
    let socket = Arc::new(socket);
    let registered = Registered { id, shared: shared.clone(), service: service.clone(), socket: socket.clone(), peer };
    {
        let mut connections = shared.connections.lock();
        connections.insert(id, socket);
    }
    // On failure the closure is dropped, and with it the registration.
    let spawned = std::thread::Builder::new()
        .name(format!("conn{id}"))
        .stack_size(STACK_SIZE_BYTES)
        .spawn(move || registered.serve(current));
    if let Err(e) = spawned {
        warn!(target: "NETWORK", id = 22948, remote = %peer, error = %e, "Unable to start a thread for a connection");
        std::thread::sleep(EXHAUSTED_PAUSE);
    }
}

fn peer_of(address: Option<&SockAddr>) -> Peer {
    address.and_then(SockAddr::as_socket).map_or(Peer::Unix, Peer::Tcp)
}

/// A connection's place in the registry; leaves it when dropped.
struct Registered<S: Service> {
    id: u64,
    shared: Arc<Shared>,
    service: Arc<S>,
    socket: Arc<Socket>,
    peer: Peer,
}

impl<S: Service> Registered<S> {
    fn serve(self, connection_count: usize) {
        info!(
            target: "NETWORK", id = 22943, remote = %self.peer, connectionId = self.id,
            connectionCount = connection_count, "Connection accepted"
        );
        let stragglers = Arc::clone(&self.shared.stragglers);
        let outbox = Arc::new(Outbox::new(self.socket.clone(), self.shared.counters.clone(), stragglers));
        let mut handler = self.service.opened(ConnectionInfo {
            id: self.id,
            peer: self.peer,
            local: peer_of(self.socket.local_addr().ok().as_ref()),
            probe: ConnectionProbe::new(self.socket.clone()),
            outbox: Arc::clone(&outbox),
        });
        let mut connection = Connection::new(
            &self.socket,
            &self.shared.counters,
            &self.shared.stopping,
            self.shared.message_timeout,
            self.shared.message_memory.account(2 * MESSAGE_SIZE_MAX_BYTES),
            outbox,
        );
        match connection.run(&mut handler) {
            End::Clean | End::Asked => {}
            End::Http => debug!(target: "NETWORK", id = 22989, remote = %self.peer, "HTTP on the driver port"),
            End::TimedOut => warn!(
                target: "NETWORK", id = 22987, remote = %self.peer,
                "A message was begun and not finished in time. Ending connection from remote"
            ),
            End::Malformed(reason) => warn!(
                target: "NETWORK", id = 22988, remote = %self.peer, error = reason,
                "Error receiving request from client. Ending connection from remote"
            ),
            End::Broken(kind) => debug!(
                target: "NETWORK", id = 22986, remote = %self.peer, error = %kind,
                "The connection broke"
            ),
        }
    }
}

impl<S: Service> Drop for Registered<S> {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Both);
        self.service.closed(self.id);
        let remaining = self.shared.counters.current.fetch_sub(1, Relaxed) - 1;
        info!(
            target: "NETWORK", id = 22944, remote = %self.peer, connectionId = self.id,
            connectionCount = remaining, "Connection ended"
        );
        let mut connections = self.shared.connections.lock();
        connections.remove(&self.id);
        if connections.is_empty() {
            self.shared.drained.notify_all();
        }
    }
}
