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

/// Which threads serve a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Threads {
    /// Those that serve others in turns, unless so few clients are at work that each has one ([`crate::CrowdLimits`]).
    #[default]
    Shared,
    /// One of its own, while its client speaks: it has none when that is silent for long, and another when it speaks again.
    Own,
    /// The same one until it ends, however silent its client is.
    Kept,
}

/// One connection's half of the service, from [`Service::opened`] until the connection ends.
///
/// One thread at a time serves a connection, each request perhaps another one, which serves others in between. So a handler keeps nothing
/// that is a thread's, unless it has [kept](Self::threads) that. It may wait, and compute for long; where it says that it is about to wait
/// ([`baton_machine::about_to_wait`]) others are served on at once, otherwise within milliseconds. It is dropped by the one thread that ends
/// connections, where others wait for it meanwhile, and a panic ends the process; if it keeps its thread, there.
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

    /// The calling thread has served others, and now serves this connection: for one request, if it serves them `in_turns`, or from now
    /// on. In turns the handler may leave undone what its promise needs ([`Service::catch_up`]).
    fn takes_thread(&mut self, in_turns: bool) {
        let _ = in_turns;
    }

    /// Which threads are to serve it from now on. Asked after each request, and when the client of one with a thread of its own is silent.
    /// Of those that have kept theirs nobody else's is asked for any more.
    fn threads(&self) -> Threads {
        Threads::Shared
    }

    /// Whether those who serve others in turns let this connection go before ([`crate::precedence`]). Asked after each request that was
    /// served by a thread of its own.
    fn precedes(&self) -> bool {
        false
    }

    /// Whether its client's requests have deadlines: then each is told how long it [has waited](Request::waited) to be read. Asked after each request.
    fn has_deadlines(&self) -> bool {
        false
    }

    /// The client has been silent for long, and its connection gives back what the next request does not need.
    fn rests(&mut self) {}
}

/// What the server serves.
pub trait Service: Send + Sync + 'static {
    /// What one connection gets.
    type Handler: Handler;

    /// A connection was accepted. Called by whoever accepts them all.
    fn opened(&self, connection: ConnectionInfo) -> Self::Handler;

    /// A thread that serves connections in turns has served those that were ready, or so many of them that the others are to wait, and does
    /// now for all of them what their handlers have left undone. Called if one of them promised its reply.
    fn catch_up(&self) {}

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
    /// Counted from 1; the log knows it as `conn<id>`.
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
