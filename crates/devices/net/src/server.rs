//! The server: accepting, the registry of connections, and stopping.
//!
//! Invariants: a connection is in the registry from when it is accepted until after its handler is dropped, also
//! if the handler panics; the number of connections never exceeds the limit; after
//! [`Server::stop`] returned true no thread of the server runs and no handler lives. Connections that wait for their clients are ended by
//! it at once: nobody is carrying anything out for them.
//! What it does not do: serve connections (see [`crate::served`]), or say which thread does (see [`crate::pool`]).

use crate::closing::drop_all;
use crate::connection::{SEND_STALL_MAX, Terms};
use crate::counters::Counters;
use crate::crowd::Crowd;
use crate::listen::{self, Listener, Options};
use crate::pool::{Pool, Seated};
use crate::precedence::{PATIENCE, Precedence};
use crate::served::{Registered, Served, peer_of};
use crate::service::{Peer, Service};
use crate::stragglers::Stragglers;
use crate::waker::poll_until;
use baton_types::{MemoryPool, must_not_unwind};
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags};
use socket2::{SockAddr, Socket};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// How long to leave off accepting when the process has no file descriptor or thread left.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(50);
/// How often the log says that connections cannot be accepted.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// What the server's threads and its connections share.
pub(crate) struct Shared {
    pub terms: Arc<Terms>,
    pub message_memory: Arc<MemoryPool>,
    pub stragglers: Arc<Stragglers>,
    pub pool: Arc<Pool>,
    pub connections: Mutex<HashMap<u64, Arc<Socket>>>,
    /// Signalled when the last connection is gone.
    pub drained: Condvar,
}

/// The threads that serve no connection.
#[derive(Default)]
struct Threads {
    acceptors: Vec<JoinHandle<()>>,
    watch: Option<JoinHandle<()>>,
    closing: Option<JoinHandle<()>>,
}

/// A server that listens and serves until it is stopped.
pub struct Server {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    listeners: Vec<Arc<Listener>>,
    threads: Mutex<Threads>,
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
        let terms = Terms {
            counters: Arc::clone(&counters),
            stopping: AtomicBool::new(false),
            message_timeout: options.message_timeout,
            // For the socket, no time at all is time without end.
            rest_after: options.rest_after.max(Duration::from_millis(1)),
            started: Instant::now(),
            crowd: Crowd::new(options.crowd_limits),
            precedence: Arc::new(Precedence::new(options.processor_count, PATIENCE)?),
        };
        let (closing, ended) = channel::<Box<dyn Seated>>();
        let catching_up = Arc::clone(&service);
        let catch_up = Box::new(move || catching_up.catch_up());
        let pool = Pool::new(
            options.worker_count,
            terms.rest_after,
            counters,
            Arc::clone(&terms.precedence),
            catch_up,
            closing,
        )?;
        let shared = Arc::new(Shared {
            terms: Arc::new(terms),
            message_memory: Arc::clone(&options.message_memory),
            stragglers: Arc::new(Stragglers::new()?),
            pool: Arc::new(pool),
            connections: Mutex::new(HashMap::new()),
            drained: Condvar::new(),
        });
        let server = Self { shared, addresses, listeners, threads: Mutex::default() };
        server.start_pool(ended)?;
        for listener in &server.listeners {
            info!(target: "NETWORK", id = 23015, address = %listener.name(), "Listening on");
            let (listener, shared, service) = (listener.clone(), server.shared.clone(), service.clone());
            let thread = start_thread("listener", move || accept_all(&listener, &shared, &service))?;
            server.threads.lock().acceptors.push(thread);
        }
        Ok(server)
    }

    /// Starts the threads that serve connections, that watch those, and that end connections.
    fn start_pool(&self, ended: Receiver<Box<dyn Seated>>) -> io::Result<()> {
        let mut threads = self.threads.lock();
        threads.closing = Some(start_thread("closing", move || drop_all(&ended))?);
        let pool = Arc::clone(&self.shared.pool);
        threads.watch = Some(start_thread("watch", move || pool.keep_watch())?);
        self.shared.pool.start()
    }

    /// The TCP addresses it listens on, with the ports the system chose.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What it counts.
    pub fn counters(&self) -> Arc<Counters> {
        self.shared.terms.counters.clone()
    }

    /// Stops accepting, ends connections for which nothing is carried out, lets requests that run finish for half of `patience`, then cuts
    /// every connection and waits for the threads for the other half. Returns whether all of them ended.
    pub fn stop(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        self.shared.terms.stopping.store(true, Relaxed);
        for listener in &self.listeners {
            // Wakes the thread that waits in accept.
            let _ = listener.socket.shutdown(Shutdown::Both);
        }
        let mut threads = self.threads.lock();
        // None of them waits for anybody, so neither does this.
        for thread in std::mem::take(&mut threads.acceptors) {
            let _ = thread.join();
        }
        self.shared.pool.stop();
        // Those that wait for a request end now; those that carry one out can still answer it.
        let are_gone =
            self.shut_all(Shutdown::Read, deadline - patience / 2) || self.shut_all(Shutdown::Both, deadline);
        if !self.shared.pool.end_workers(deadline) || !are_gone {
            return false;
        }
        // They have nothing to do any more.
        let rest = [threads.watch.take(), threads.closing.take()];
        rest.into_iter().flatten().all(|thread| thread.join().is_ok())
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

fn start_thread(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.into()).spawn(run)
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
    while !shared.terms.stopping.load(Relaxed) {
        match listener.socket.accept() {
            Ok((socket, address)) => admit(socket, &address, shared, service),
            Err(_) if shared.terms.stopping.load(Relaxed) => break,
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
                    shared.terms.counters.rejected.fetch_add(1, Relaxed);
                }
            }
        }
    }
}

/// Registers a connection and gives it a seat, or turns it away.
fn admit<S: Service>(socket: Socket, address: &SockAddr, shared: &Arc<Shared>, service: &Arc<S>) {
    let counters = &shared.terms.counters;
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
    let registered = Registered::new(id, peer, shared, service, socket);
    shared.pool.seat(Served::open(registered, current));
}
