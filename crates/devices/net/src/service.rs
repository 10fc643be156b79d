//! The contract between the network and what it serves.
//!
//! What it does not do: anything; it is traits and the values they exchange.

use crate::outbox::Outbox;
use crate::probe::ConnectionProbe;
use baton_wire::Request;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// What to do after a request has been handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// Send what is in the buffer, then read the next request. To a request with `moreToCome` nothing is sent.
    Reply,
    /// Send nothing, read the next request.
    NoReply,
    /// Send what is in the buffer, if anything, then hang up.
    Close,
    /// The reply was promised ([`Outbox::promise`]): read the next request. The buffer is the reply's now.
    Later,
    /// Send what is in the buffer (a reply with `moreToCome`), then ask [`Handler::resume`] for the next one.
    Exhaust,
}

/// One connection's half of the service, from [`Service::opened`] until the connection ends.
///
/// One thread at a time serves a connection, as long as its client is not silent for long; after such a silence it is another,
/// which has done nothing yet. So a handler keeps nothing that is a thread's, unless it [keeps](Self::keeps_thread) that. It is
/// dropped by the thread that serves the connection when that ends; if it rests then, by the one thread that ends all connections
/// that rest: there others wait for it meanwhile, and a panic ends the process.
pub trait Handler: Send + 'static {
    /// Carries out a request and appends the reply to `out`, which is empty.
    fn handle(&mut self, request: &Request<'_>, out: &mut Vec<u8>) -> After;

    /// Appends the next reply of the stream that the request began. It is the same request, with the numbers moved on:
    /// `request_id` is the reply before, which this one answers.
    fn resume(&mut self, request: &Request<'_>, out: &mut Vec<u8>) -> After {
        let _ = (request, out);
        After::Close
    }

    /// The client does not take what was appended at once: the rest is sent as it makes room.
    fn sends_slowly(&mut self) {}

    /// What was appended has been sent, or never will be.
    fn sent(&mut self) {}

    /// The calling thread serves the connection from now on: its first one, or a fresh one after a rest.
    fn takes_thread(&mut self) {}

    /// Whether the thread is to stay the connection's until that ends, however silent the client is. Asked when it is silent.
    fn keeps_thread(&self) -> bool {
        false
    }

    /// The client is silent, and its connection gives back what the next request does not need.
    fn rests(&mut self) {}
}

/// What the server serves.
pub trait Service: Send + Sync + 'static {
    /// What one connection gets.
    type Handler: Handler;

    /// A connection was accepted. Called on its first thread.
    fn opened(&self, connection: ConnectionInfo) -> Self::Handler;

    /// The connection is gone and its handler dropped. Also called if the handler panicked.
    fn closed(&self, connection_id: u64) {
        let _ = connection_id;
    }
}

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Over TCP, from there.
    Tcp(SocketAddr),
    /// Over the Unix socket, so from this machine.
    Unix,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix => f.write_str("anonymous unix socket"),
        }
    }
}

/// A connection, as its handler is told of it.
#[derive(Clone)]
pub struct ConnectionInfo {
    /// Counted from 1; a thread that serves it is named `conn<id>`.
    pub id: u64,
    /// The client.
    pub peer: Peer,
    /// The address it connected to, for `whatsmyuri` and the log.
    pub local: Peer,
    /// Tells whether the client is still there, while a request waits.
    pub probe: ConnectionProbe,
    /// Where replies leave from that are finished elsewhere.
    pub outbox: Arc<Outbox>,
}
