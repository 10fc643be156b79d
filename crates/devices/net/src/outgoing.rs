//! A connection to another member, for one thread: commands out, replies in, one after the other or as a stream.
//!
//! ```text
//!  connect ──▶ call ──▶ ask ──▶ answer ──▶ begin_stream ──▶ next ──▶ next ──▶ (the end) ──▶ call …
//!                                      │
//!     a failure that leaves the two sides out of step: closed for good, every later use says Closed
//! ```
//!
//! Invariants: a reply is that of the request it is returned for, by its number; a message that claims an impossible length is
//! refused before memory is held for it; no call outlasts its timeout by more than the system's scheduling.
//! What it does not do: try again, decide when a silent peer is dead, compress, or interpret what is answered (an `ok: 0` is a
//! reply like any other).

use crate::buffer::ReceiveBuffer;
use crate::probe::ConnectionProbe;
use crate::waker::{Waker, poll_until};
use baton_wire::client::{decode_reply, encode_command};
use baton_wire::frame::{self, HEADER_SIZE_BYTES};
use baton_wire::{Failure, Flags, Frame, MESSAGE_SIZE_MAX_BYTES};
use bson::{RawDocument, RawDocumentBuf};
use rustix::event::{PollFd, PollFlags};
use rustix::net::RecvFlags;
use socket2::{Domain, Protocol, Socket, Type};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a send buffer may keep from one command to the next.
const RETAINED_SIZE_BYTES: usize = 64 * 1024;

/// What one `recv` of a stream has room for; as much as a buffer keeps.
const STREAM_READ_SIZE_BYTES: usize = crate::buffer::RETAINED_SIZE_BYTES;

/// The least that the system waits: a timeout of zero would mean without end.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);
/// More than anybody waits, and few enough seconds to be added to any time.
const TIMEOUT_MAX: Duration = Duration::from_secs(1 << 32);

/// Why a call has no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// Nobody listens there: the process is gone.
    Refused,
    /// The connection ended before the reply was whole, or was closed before the call.
    Closed,
    /// There was no whole reply in time.
    TimedOut,
    /// There is no way to the host, or the host is unknown.
    Unreachable(String),
    /// The peer does not speak the protocol, or the call itself cannot be put into it.
    Malformed(String),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused => f.write_str("connection refused"),
            Self::Closed => f.write_str("connection closed"),
            Self::TimedOut => f.write_str("timed out"),
            Self::Unreachable(reason) => write!(f, "unreachable: {reason}"),
            Self::Malformed(reason) => write!(f, "malformed: {reason}"),
        }
    }
}

impl std::error::Error for CallError {}

impl From<io::Error> for CallError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::ConnectionRefused => Self::Refused,
            ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::NotConnected
            | ErrorKind::WriteZero => Self::Closed,
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Self::TimedOut,
            _ => Self::Unreachable(error.to_string()),
        }
    }
}

/// What ended a [`Watch::idle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// The waker.
    Woken,
    /// There is something to read: an answer, or the connection's end. Where nothing was asked it cannot be used any more.
    Stirred,
    /// Nothing, in all that time.
    TimedOut,
}

/// A connection watched by one thread, while another one may use it.
#[derive(Clone, Debug)]
pub struct Watch {
    socket: Arc<Socket>,
}

impl Watch {
    /// Waits, without reading, until something comes from the peer, `waker` is woken, or the time is up.
    pub fn idle(&self, waker: &Waker, timeout: Duration) -> Idle {
        let stirred = PollFlags::IN | PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let mut fds = [PollFd::new(waker, PollFlags::IN), PollFd::new(&*self.socket, stirred)];
        poll_until(&mut fds, Some(timeout));
        if !fds[1].revents().is_empty() {
            return Idle::Stirred;
        }
        if fds[0].revents().is_empty() {
            return Idle::TimedOut;
        }
        waker.silence();
        Idle::Woken
    }
}

/// Shuts a connection down from another thread: whoever waits on it then gets [`CallError::Closed`].
#[derive(Clone, Debug)]
pub struct Closer {
    socket: Arc<Socket>,
}

impl Closer {
    /// Shuts it down, both ways. It may be closed already.
    pub fn close(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// See the file's header.
#[derive(Debug)]
pub struct Outgoing {
    socket: Arc<Socket>,
    received: ReceiveBuffer,
    sent: Vec<u8>,
    last_request_id: i32,
    /// In a stream, the message that the next reply answers.
    stream: Option<i32>,
    /// The timeouts that the socket is set to: most calls have the same, and need not set it again.
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
    closed: bool,
}

impl Outgoing {
    /// Connects to `name:port`, `address:port` or `[address]:port`. Of several addresses each is tried in turn, with an equal
    /// share of the time that is left.
    ///
    /// # Errors
    /// `ConnectionRefused` only if every address refuses; otherwise what another address failed with, or why the name has
    /// none. To resolve a name takes what it takes: the system gives no way to bound it.
    pub fn connect(host: &str, timeout: Duration) -> io::Result<Self> {
        let addresses: Vec<SocketAddr> = host.to_socket_addrs()?.collect();
        let deadline = deadline_after(timeout);
        let mut failure: Option<io::Error> = None;
        for (tried, address) in addresses.iter().enumerate() {
            let left = deadline.saturating_duration_since(Instant::now()).max(TIMEOUT_MIN);
            let share = left / u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
            match Self::connect_to(*address, share.max(TIMEOUT_MIN)) {
                Ok(connection) => return Ok(connection),
                Err(e) if failure.is_none() || e.kind() != ErrorKind::ConnectionRefused => failure = Some(e),
                Err(_) => {}
            }
        }
        Err(failure.unwrap_or_else(|| io::Error::new(ErrorKind::NotFound, format!("{host} has no address"))))
    }

    fn connect_to(address: SocketAddr, timeout: Duration) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.connect_timeout(&address.into(), timeout)?;
        if is_connected_to_itself(&socket) {
            return Err(ErrorKind::ConnectionRefused.into());
        }
        socket.set_tcp_nodelay(true)?;
        socket.set_keepalive(true)?;
        Ok(Self {
            socket: Arc::new(socket),
            received: ReceiveBuffer::default(),
            sent: Vec::new(),
            last_request_id: 0,
            stream: None,
            read_timeout: None,
            write_timeout: None,
            closed: false,
        })
    }

    /// Sends a command and waits for its reply, `timeout` for both together.
    ///
    /// # Errors
    /// Never [`CallError::Refused`]. After any error but a command that is too large the connection is closed: a reply that
    /// came late would be taken for the next one.
    pub fn call(&mut self, command: &RawDocument, timeout: Duration) -> Result<RawDocumentBuf, CallError> {
        let deadline = deadline_after(timeout);
        self.send(command, Flags(0), deadline)?;
        self.answer_until(deadline)
    }

    /// Sends a command whose reply is to be had by [`Self::answer`], perhaps of another thread. `timeout` is for the sending.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub fn ask(&mut self, command: &RawDocument, timeout: Duration) -> Result<(), CallError> {
        self.send(command, Flags(0), deadline_after(timeout))
    }

    /// Waits for the reply to what was asked last.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub fn answer(&mut self, timeout: Duration) -> Result<RawDocumentBuf, CallError> {
        self.answer_until(deadline_after(timeout))
    }

    fn answer_until(&mut self, deadline: Instant) -> Result<RawDocumentBuf, CallError> {
        let request_id = self.last_request_id;
        let reply = self.receive(request_id, deadline).inspect_err(|_| self.close())?;
        if reply.more_to_come {
            self.close();
            return Err(CallError::Malformed("a stream of replies to a command that asked for one".into()));
        }
        Ok(reply.body)
    }

    /// Sends a command whose replies may come as a stream, to be read by [`Self::next`]. `timeout` is for the sending.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub fn begin_stream(&mut self, command: &RawDocument, timeout: Duration) -> Result<(), CallError> {
        self.send(command, Flags(Flags::EXHAUST_ALLOWED), deadline_after(timeout))?;
        self.stream = Some(self.last_request_id);
        Ok(())
    }

    /// Waits for the stream's next reply; `None` if the one before was the last (or there is no stream).
    ///
    /// # Errors
    /// After [`CallError::TimedOut`] the stream goes on: what has come of a reply is kept for the next call of `next`. After any
    /// other error the connection is closed.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<RawDocumentBuf>, CallError> {
        let Some(answered) = self.stream else { return Ok(None) };
        match self.receive(answered, deadline_after(timeout)) {
            Ok(reply) => {
                self.stream = reply.more_to_come.then_some(reply.id);
                Ok(Some(reply.body))
            }
            Err(CallError::TimedOut) => Err(CallError::TimedOut),
            Err(e) => {
                self.close();
                Err(e)
            }
        }
    }

    /// As [`Self::next`], if a whole reply can be had without waiting.
    ///
    /// # Errors
    /// As [`Self::next`], but for `TimedOut`: what has not come yet is no error.
    pub fn next_if_there(&mut self) -> Result<Option<RawDocumentBuf>, CallError> {
        let Some(answered) = self.stream else { return Ok(None) };
        match self.receive_what_is_there(answered) {
            Ok(None) => Ok(None),
            Ok(Some(reply)) => {
                self.stream = reply.more_to_come.then_some(reply.id);
                Ok(Some(reply.body))
            }
            Err(e) => {
                self.close();
                Err(e)
            }
        }
    }

    /// How many bytes have come that were not taken yet. Asks the system, without reading.
    pub fn waiting_bytes(&self) -> usize {
        let unread = rustix::io::ioctl_fionread(&*self.socket).unwrap_or(0);
        self.received.received().len() + usize::try_from(unread).unwrap_or(usize::MAX)
    }

    /// For a thread that waits for what may come, whoever asks.
    pub fn watch(&self) -> Watch {
        Watch { socket: Arc::clone(&self.socket) }
    }

    /// Whether the peer has closed the connection, or a [`Closer`] has. Asks the system, without reading.
    pub fn is_closed_by_peer(&self) -> bool {
        self.closed || ConnectionProbe::new(Arc::clone(&self.socket)).gone()
    }

    /// A handle that shuts the connection down from another thread.
    pub fn closer(&self) -> Closer {
        Closer { socket: Arc::clone(&self.socket) }
    }

    fn close(&mut self) {
        self.closed = true;
        self.stream = None;
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    fn send(&mut self, command: &RawDocument, flags: Flags, deadline: Instant) -> Result<(), CallError> {
        if self.closed {
            return Err(CallError::Closed);
        }
        if self.stream.is_some() {
            // Its replies would be taken for this command's.
            self.close();
            return Err(CallError::Malformed("a command within a stream of replies".into()));
        }
        self.last_request_id = self.last_request_id.wrapping_add(1);
        let mut message = std::mem::take(&mut self.sent);
        message.clear();
        encode_command(&mut message, self.last_request_id, flags, command, None);
        let length_bytes = message.len();
        if length_bytes > MESSAGE_SIZE_MAX_BYTES {
            return Err(CallError::Malformed(format!("a command of {length_bytes} bytes")));
        }
        let written = self.write(&message, deadline);
        if message.capacity() <= RETAINED_SIZE_BYTES {
            self.sent = message;
        }
        written.map_err(|e| {
            self.close();
            e.into()
        })
    }

    fn write(&mut self, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            let left = time_left(deadline)?;
            if self.write_timeout.is_none_or(|set| !is_about(set, left)) {
                self.socket.set_write_timeout(Some(left))?;
                self.write_timeout = Some(left);
            }
            match (&*self.socket).write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// The next whole message, which must answer `answered`.
    fn receive(&mut self, answered: i32, deadline: Instant) -> Result<Reply, CallError> {
        loop {
            match self.first_message()? {
                FirstMessage::Whole { length_bytes } => return self.take(length_bytes, answered),
                FirstMessage::Partial { needed_bytes } => self.read_some(needed_bytes, deadline)?,
            }
        }
    }

    /// The same, if it can be had without waiting.
    fn receive_what_is_there(&mut self, answered: i32) -> Result<Option<Reply>, CallError> {
        loop {
            match self.first_message()? {
                FirstMessage::Whole { length_bytes } => return self.take(length_bytes, answered).map(Some),
                FirstMessage::Partial { needed_bytes } => {
                    if self.read_what_is_there(needed_bytes)? == 0 {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// How much there is of the message at the start.
    fn first_message(&self) -> Result<FirstMessage, CallError> {
        let received = self.received.received();
        match frame::inspect(received) {
            Frame::Message { length_bytes } if length_bytes <= received.len() => {
                Ok(FirstMessage::Whole { length_bytes })
            }
            Frame::Message { length_bytes } => Ok(FirstMessage::Partial { needed_bytes: length_bytes }),
            Frame::Incomplete => Ok(FirstMessage::Partial { needed_bytes: HEADER_SIZE_BYTES }),
            Frame::Http => Err(CallError::Malformed("HTTP".into())),
            Frame::Malformed { claimed_length } => {
                Err(CallError::Malformed(format!("a message of {claimed_length} bytes")))
            }
        }
    }

    /// Takes the message at the start, which has come whole and must answer `answered`.
    fn take(&mut self, length_bytes: usize, answered: i32) -> Result<Reply, CallError> {
        let message = self.received.received().get(..length_bytes).unwrap_or_default();
        let reply = match decode_reply(message) {
            Ok(reply) if reply.response_to == answered => {
                Ok(Reply { id: reply.reply_id, more_to_come: reply.flags.more_to_come(), body: reply.body.to_owned() })
            }
            Ok(reply) => {
                let found = reply.response_to;
                Err(CallError::Malformed(format!("a reply to message {found}, where {answered} was asked")))
            }
            Err(Failure::Close(reason)) => Err(CallError::Malformed(reason.into())),
            Err(Failure::Reject(rejection)) => Err(CallError::Malformed(rejection.error.to_string())),
        };
        self.received.consume(length_bytes);
        reply
    }

    /// One `recv` that does not wait, of as much as a busy stream has, or of the rest of a large message; how much came.
    fn read_what_is_there(&mut self, need: usize) -> io::Result<usize> {
        if self.closed {
            return Err(ErrorKind::NotConnected.into());
        }
        let need = STREAM_READ_SIZE_BYTES.max(need);
        match rustix::net::recv(&*self.socket, self.received.room(need), RecvFlags::DONTWAIT) {
            Ok((0, _)) => Err(ErrorKind::UnexpectedEof.into()),
            Ok((count, _)) => {
                self.received.filled(count);
                Ok(count)
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(0),
            Err(e) => Err(e.into()),
        }
    }

    /// One `recv`.
    fn read_some(&mut self, need: usize, deadline: Instant) -> io::Result<()> {
        if self.closed {
            return Err(ErrorKind::NotConnected.into());
        }
        let left = time_left(deadline)?;
        if self.read_timeout.is_none_or(|set| !is_about(set, left)) {
            self.socket.set_read_timeout(Some(left))?;
            self.read_timeout = Some(left);
        }
        match (&*self.socket).read(self.received.room(need)) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.received.filled(count);
                Ok(())
            }
            // Whether time is up the caller finds out when it asks again.
            Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => Ok(()),
            Err(e) => Err(e),
        }
    }
}

/// The peer hears of the end, whoever holds a [`Closer`] or a [`Watch`] still.
impl Drop for Outgoing {
    fn drop(&mut self) {
        self.close();
    }
}

/// The message at the start of the receive buffer.
enum FirstMessage {
    /// It has come whole.
    Whole { length_bytes: usize },
    /// So many bytes of it must be there before there is more to say: all of it, or its header.
    Partial { needed_bytes: usize },
}

/// A reply out of the receive buffer.
struct Reply {
    id: i32,
    more_to_come: bool,
    body: RawDocumentBuf,
}

/// Where nobody listens at a port that the system gives to outgoing connections, a connection to it may be given that very
/// port and so meet itself. The peer is gone all the same.
fn is_connected_to_itself(socket: &Socket) -> bool {
    let ends = (socket.local_addr().ok(), socket.peer_addr().ok());
    matches!(ends, (Some(local), Some(peer)) if local.as_socket() == peer.as_socket())
}

fn deadline_after(timeout: Duration) -> Instant {
    Instant::now() + timeout.min(TIMEOUT_MAX)
}

fn time_left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left.max(TIMEOUT_MIN)) }
}

/// Whether a socket set to `set` need not be set anew to wait for `left`: it wakes up no later than a hundredth (or a
/// millisecond) after, and if it wakes up before, it is asked to wait again.
fn is_about(set: Duration, left: Duration) -> bool {
    set >= left / 2 && set <= left + (left / 100).max(TIMEOUT_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Fails if the buffer grows by the byte, and each byte is fetched for itself.
    #[test]
    fn a_large_message_of_a_stream_takes_few_reads() {
        const SIZE_BYTES: usize = 4 * STREAM_READ_SIZE_BYTES;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let mut connection = Outgoing::connect(&host, Duration::from_secs(20)).unwrap();
        let peer = std::thread::spawn(move || listener.accept().unwrap().0.write_all(&vec![1; SIZE_BYTES]));
        let mut reads = 0;
        while connection.received.received().len() < SIZE_BYTES {
            match connection.read_what_is_there(SIZE_BYTES).unwrap() {
                0 => std::thread::yield_now(),
                _ => reads += 1,
            }
        }
        peer.join().unwrap().unwrap();
        assert!(reads < SIZE_BYTES / 1024, "{reads} reads");
    }
}
