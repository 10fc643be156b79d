//! Where the server listens: addresses from `bind_ip`, and a Unix socket if asked.
//!
//! Invariants: all of them are bound or the start fails, naming the one that is not; a Unix socket left behind by a
//! crash is replaced, any other file in its place is not.
//! What it does not do: accept.

use crate::connection::REST_AFTER;
use crate::crowd::CrowdLimits;
use crate::service::Peer;
use baton_types::MemoryPool;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How many connections may wait to be accepted; the system cuts it to its own limit.
const BACKLOG: i32 = 4096;

/// So many clients are no crowd for each of the threads that are shared: where one had the choice, each was faster from here on
/// (docs/spikes/shared-threads.md).
const SPEAKERS_EACH: usize = 8;
const WRITERS_EACH: usize = 2;

/// How the server listens and what it puts up with.
#[derive(Clone, Debug)]
pub struct Options {
    /// Addresses or names, IPv4 or IPv6 (`127.0.0.1`, `::1`, `localhost`, `0.0.0.0`).
    pub hosts: Vec<String>,
    /// The TCP port; 0 for any free one.
    pub port: u16,
    /// A Unix socket to listen on as well.
    pub unix_socket: Option<PathBuf>,
    /// `maxIncomingConnections`: more are turned away.
    pub connection_count_max: usize,
    /// How long a message may take from its first byte to its last, on a line that is not slow.
    pub message_timeout: Duration,
    /// How long a client must be silent before its connection rests: gives back what its next request would find.
    pub rest_after: Duration,
    /// How many threads serve connections in turns: as many as there are processors, if nothing else is asked for.
    pub worker_count: usize,
    /// How many processors they share with those that have threads of their own.
    pub processor_count: usize,
    /// While no more clients than this are at work at a time, each has a thread of its own.
    pub crowd_limits: CrowdLimits,
    /// What messages may hold together while they arrive and are carried out; one at a time may hold more. Where it is used up,
    /// the others are slowed down, not refused.
    pub message_memory: Arc<MemoryPool>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            hosts: vec!["127.0.0.1".into()],
            port: 27017,
            unix_socket: None,
            connection_count_max: 65_536,
            message_timeout: Duration::from_secs(30),
            rest_after: REST_AFTER,
            worker_count: default_worker_count(),
            processor_count: processor_count(),
            crowd_limits: CrowdLimits {
                speakers: SPEAKERS_EACH * default_worker_count(),
                writers: WRITERS_EACH * default_worker_count(),
            },
            message_memory: MemoryPool::new(usize::MAX),
        }
    }
}

fn processor_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// One for each processor, and two at least: while one is served that takes long without a word, others are too.
fn default_worker_count() -> usize {
    processor_count().max(2)
}

/// A bound socket.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: Socket,
    /// For TCP, the address with the port the system chose.
    pub(crate) address: Peer,
    /// For Unix, the file to remove at the end.
    pub(crate) path: Option<PathBuf>,
}

impl Listener {
    /// The address as it is logged.
    pub(crate) fn name(&self) -> String {
        match &self.path {
            Some(path) => path.display().to_string(),
            None => self.address.to_string(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Binds everything the options name.
pub(crate) fn bind(options: &Options) -> io::Result<Vec<Listener>> {
    let mut listeners = Vec::new();
    let mut bound: Vec<SocketAddr> = Vec::new();
    for host in &options.hosts {
        let addresses = (host.trim_matches(['[', ']']), options.port)
            .to_socket_addrs()
            .map_err(|e| io::Error::new(e.kind(), format!("cannot resolve the address {host:?} to listen on: {e}")))?;
        for address in addresses {
            if bound.contains(&address) {
                continue;
            }
            bound.push(address);
            let named = |e: io::Error| io::Error::new(e.kind(), format!("cannot listen on {address}: {e}"));
            listeners.push(bind_tcp(address).map_err(named)?);
        }
    }
    if let Some(path) = &options.unix_socket {
        let named = |e: io::Error| io::Error::new(e.kind(), format!("cannot listen on {}: {e}", path.display()));
        listeners.push(bind_unix(path).map_err(named)?);
    }
    if listeners.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no address to listen on"));
    }
    Ok(listeners)
}

fn bind_tcp(address: SocketAddr) -> io::Result<Listener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    let address = socket.local_addr()?.as_socket().unwrap_or(address);
    Ok(Listener { socket, address: Peer::Tcp(address), path: None })
}

fn bind_unix(path: &Path) -> io::Result<Listener> {
    if let Ok(metadata) = std::fs::symlink_metadata(path) {
        if !metadata.file_type().is_socket() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "another file is in the socket's place"));
        }
        std::fs::remove_file(path)?;
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
    socket.listen(BACKLOG)?;
    Ok(Listener { socket, address: Peer::Unix, path: Some(path.to_owned()) })
}
