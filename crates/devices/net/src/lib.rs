//! The network: listeners, the threads that serve connections, and what turns bytes into requests and back.
//!
//! A [`Service`] makes a [`Handler`] for each connection; the handler sees decoded [`baton_wire::Request`]s and writes
//! replies into the send buffer. While few clients are at work each connection has a thread of its own ([`crowd`]); otherwise few threads serve all
//! of them in turns, one request each, and a turn that takes long has its thread for itself, and another takes over the others ([`pool`]). So a handler may block. A request costs one `recv` and one `send`, and
//! no hand-over between threads; a reply that somebody else can finish is promised ([`Outbox`]), and sent by whoever does. In the
//! other direction, [`Outgoing`] is a connection by which a member asks another one.
//!
//! Invariants:
//! - a peer cannot make a connection hold more memory than the bytes it has really sent, nor an idle one a
//!   thread or a buffer; all of them together hold no more than the pool for messages and one message;
//! - a message once begun is finished in time or the connection is closed; between messages a client may be silent for
//!   ever;
//! - a malformed message ends its own connection and nothing else.
//!
//! What it deliberately does not do: know commands, or authenticate. TLS will be another kind of stream below
//! [`connection`].

mod arrivals;
mod buffer;
mod closing;
mod connection;
mod counters;
mod crowd;
mod listen;
mod outbox;
mod outgoing;
mod pool;
mod precedence;
mod probe;
mod room;
mod seat;
mod served;
mod server;
mod service;
mod staff;
mod stragglers;
mod waker;

pub use connection::STACK_SIZE_BYTES;
pub use counters::{Counters, CountersSnapshot};
pub use crowd::CrowdLimits;
pub use listen::Options;
pub use outbox::{Outbox, Promise};
pub use outgoing::{CallError, Closer, Idle, Outgoing, Watch};
pub use probe::ConnectionProbe;
pub use server::Server;
pub use service::{After, ConnectionInfo, Handler, Peer, Service, Threads};
pub use waker::Waker;
