//! One connection: its thread's loop from the first byte to the last.
//!
//! Invariants: one `recv` for a small request and one `send` for its reply; a message that is begun is finished in time;
//! a request that wants no reply gets none. While a client is silent, its connection holds no large buffer and wakes up
//! once, not periodically. What large messages of all clients hold together is paced, never refused: a message waits for
//! memory only once much of it has come, for a second at the most, and then goes on; what a silent client claims and has not
//! sent it does not hold. So nobody's large messages keep out another's.
//! What it does not do: accept, register or limit connections (see [`crate::server`]).

use crate::buffer::{RETAINED_SIZE_BYTES, ReceiveBuffer};
use crate::counters::Counters;
use crate::service::{After, Handler};
use baton_types::MemoryAccount;
use baton_wire::frame::{HEADER_SIZE_BYTES, HTTP_NOTICE};
use baton_wire::{Failure, Frame, Request, decode, frame};
use socket2::Socket;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A connection thread's stack. Virtual memory: only what is touched is resident.
pub const STACK_SIZE_BYTES: usize = 1024 * 1024;

/// How long a client must be silent before its buffers are given back.
const REST_AFTER: Duration = Duration::from_secs(5);

/// How long a reply may make no progress at all before the client is given up.
pub(crate) const SEND_STALL_MAX: Duration = Duration::from_secs(300);

/// A message in parts may take a second longer for each so many bytes of it: a slow line is no attack.
const SLOW_LINE_BYTES_PER_SEC: usize = 64 * 1024;

/// A message is held of the memory for large ones once so much of it has come. While there is none it looks for it so
/// often, and then so long in all, that others may finish.
const LARGE_MESSAGE_BYTES: usize = 256 * 1024;
const MEMORY_WAIT: Duration = Duration::from_millis(10);
const MEMORY_WAIT_MAX: Duration = Duration::from_secs(1);

/// How long, and how many times, to read on after a last word.
const FAREWELL_WAIT: Duration = Duration::from_millis(200);
const FAREWELL_READ_COUNT_MAX: usize = 16;

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The client hung up between messages, or the server is stopping.
    Clean,
    /// The handler asked for it.
    Asked,
    /// An HTTP client was sent away.
    Http,
    /// A message was begun and not finished in time.
    TimedOut,
    /// The peer does not speak the protocol.
    Malformed(&'static str),
    /// Reading or writing failed, or the client hung up within a message.
    Broken(ErrorKind),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Broken(error.kind())
    }
}

/// The state of a connection's loop.
pub(crate) struct Connection<'s> {
    socket: &'s Socket,
    counters: &'s Counters,
    stopping: &'s AtomicBool,
    message_timeout: Duration,
    received: ReceiveBuffer,
    /// Whether the socket is set to wait for ever.
    resting: bool,
    last_reply_id: i32,
    /// What a large message holds of the memory for such.
    memory: MemoryAccount,
}

impl<'s> Connection<'s> {
    pub(crate) fn new(
        socket: &'s Socket,
        counters: &'s Counters,
        stopping: &'s AtomicBool,
        message_timeout: Duration,
        memory: MemoryAccount,
    ) -> Self {
        Self {
            socket,
            counters,
            stopping,
            message_timeout,
            received: ReceiveBuffer::new(),
            resting: true,
            last_reply_id: 0,
            memory,
        }
    }

    /// Serves the connection to its end.
    pub(crate) fn run(&mut self, handler: &mut impl Handler) -> End {
        let (mut out, mut scratch) = (Vec::new(), Vec::new());
        loop {
            let length_bytes = match self.receive(&mut out, &mut scratch) {
                Ok(length_bytes) => length_bytes,
                Err(end) => return end,
            };
            let served = self.serve(length_bytes, handler, &mut out, &mut scratch);
            self.received.consume(length_bytes);
            if self.memory.bytes() > 0 {
                // To hold less is always allowed.
                let _ = self.memory.set(0);
            }
            give_back(&mut out);
            give_back(&mut scratch);
            if let Err(end) = served {
                return end;
            }
            if self.stopping.load(Relaxed) {
                return End::Clean;
            }
        }
    }

    /// Holds the memory of a message of `length_bytes` when more of it has come than is held already. While there is too
    /// little it waits, as long as is left of the message's `patience`; then the message holds what there is. Returns how
    /// long it waited.
    fn admit(&mut self, length_bytes: usize, received_bytes: usize, patience: &mut Duration) -> Duration {
        if received_bytes <= LARGE_MESSAGE_BYTES.max(self.memory.bytes()) || self.memory.set(length_bytes) {
            return Duration::ZERO;
        }
        let begun = Instant::now();
        while begun.elapsed() < *patience && !self.stopping.load(Relaxed) {
            std::thread::sleep(MEMORY_WAIT);
            if self.memory.set(length_bytes) {
                break;
            }
        }
        self.memory.set_up_to(length_bytes);
        let waited = begun.elapsed();
        *patience = patience.saturating_sub(waited);
        waited
    }

    /// Waits until the buffer starts with a whole message; returns its length.
    fn receive(&mut self, out: &mut Vec<u8>, scratch: &mut Vec<u8>) -> Result<usize, End> {
        let mut begun: Option<Instant> = None;
        let mut patience = MEMORY_WAIT_MAX;
        let mut seen_bytes = 0;
        loop {
            let received = self.received.received();
            let need = match frame::inspect(received) {
                Frame::Message { length_bytes } if length_bytes <= received.len() => return Ok(length_bytes),
                Frame::Message { length_bytes } => length_bytes,
                Frame::Incomplete => HEADER_SIZE_BYTES,
                Frame::Http => {
                    self.send_farewell(HTTP_NOTICE)?;
                    return Err(End::Http);
                }
                Frame::Malformed { .. } => {
                    self.counters.malformed.fetch_add(1, Relaxed);
                    return Err(End::Malformed("an impossible message length"));
                }
            };
            let received_bytes = received.len();
            if received_bytes > 0 {
                let begun = begun.get_or_insert_with(Instant::now);
                if received_bytes > seen_bytes {
                    seen_bytes = received_bytes;
                    // The client's time does not run while it is kept waiting.
                    *begun += self.admit(need, received_bytes, &mut patience);
                } else {
                    // It is silent. What it claims and does not send others may hold.
                    let _ = self.memory.set(self.memory.bytes().min(received_bytes));
                }
                let since = begun.elapsed();
                let slow_line = Duration::from_secs((received_bytes / SLOW_LINE_BYTES_PER_SEC) as u64);
                if since >= self.message_timeout + slow_line {
                    self.counters.timed_out.fetch_add(1, Relaxed);
                    return Err(End::TimedOut);
                }
            }
            self.read_some(need, received_bytes > 0, out, scratch)?;
        }
    }

    /// One `recv`. Within a message it waits for a part of the timeout, so that the caller can look at the clock.
    fn read_some(
        &mut self,
        need: usize,
        within_message: bool,
        out: &mut Vec<u8>,
        scratch: &mut Vec<u8>,
    ) -> Result<(), End> {
        if self.resting && within_message {
            self.socket.set_read_timeout(Some(self.wait()))?;
            self.resting = false;
        }
        let mut socket = self.socket;
        match socket.read(self.received.room(need)) {
            Ok(0) if within_message => Err(End::Broken(ErrorKind::UnexpectedEof)),
            Ok(0) => Err(End::Clean),
            Ok(count) => {
                self.counters.traffic.mine().bytes_in.fetch_add(count as u64, Relaxed);
                self.received.filled(count);
                Ok(())
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => Ok(()),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if !within_message {
                    self.received.rest();
                    (*out, *scratch) = (Vec::new(), Vec::new());
                    self.socket.set_read_timeout(None)?;
                    self.resting = true;
                }
                Ok(())
            }
            Err(e) => Err(e.into()),
        }
    }

    fn wait(&self) -> Duration {
        REST_AFTER.min(self.message_timeout / 2).max(Duration::from_millis(1))
    }

    /// Decodes the message at the start of the buffer and has it handled.
    fn serve(
        &mut self,
        length_bytes: usize,
        handler: &mut impl Handler,
        out: &mut Vec<u8>,
        scratch: &mut Vec<u8>,
    ) -> Result<(), End> {
        self.counters.traffic.mine().requests.fetch_add(1, Relaxed);
        if self.resting {
            // After a rest the client is active again: rest again only after another silence.
            self.socket.set_read_timeout(Some(self.wait()))?;
            self.resting = false;
        }
        out.clear();
        self.last_reply_id = self.last_reply_id.wrapping_add(1);
        let message = &self.received.received()[..length_bytes];
        match decode(message, scratch) {
            Ok(request) => {
                let mut reply_id = self.last_reply_id;
                let served = self.answer(request, &mut reply_id, handler, out);
                self.last_reply_id = reply_id;
                served
            }
            Err(Failure::Close(reason)) => {
                self.counters.malformed.fetch_add(1, Relaxed);
                Err(End::Malformed(reason))
            }
            Err(Failure::Reject(rejection)) => {
                self.counters.malformed.fetch_add(1, Relaxed);
                rejection.write(self.last_reply_id, out);
                if rejection.close {
                    self.send_farewell(out)?;
                    return Err(End::Malformed("a message refused for good"));
                }
                Ok(self.send(out)?)
            }
        }
    }

    /// Has a request handled and sends the reply, or the stream of them. `reply_id` is the number of the first, and
    /// becomes that of the last.
    fn answer(
        &self,
        mut request: Request<'_>,
        reply_id: &mut i32,
        handler: &mut impl Handler,
        out: &mut Vec<u8>,
    ) -> Result<(), End> {
        let _active = Active::new(self.counters);
        let wants_reply = !request.flags.more_to_come();
        request.reply_id = *reply_id;
        let mut after = handler.handle(&request, out);
        loop {
            let sent = if wants_reply && after != After::NoReply && !out.is_empty() { self.send(out) } else { Ok(()) };
            give_back(out);
            handler.sent();
            sent?;
            match after {
                After::Reply | After::NoReply => return Ok(()),
                After::Close => return Err(End::Asked),
                After::Exhaust if !wants_reply || self.stopping.load(Relaxed) => return Err(End::Asked),
                After::Exhaust => {
                    request.request_id = *reply_id;
                    *reply_id = reply_id.wrapping_add(1);
                    request.reply_id = *reply_id;
                    out.clear();
                    after = handler.resume(&request, out);
                }
            }
        }
    }

    /// Sends a last word. What the client still sends is read for a moment, because closing a socket with unread bytes
    /// resets it, and a reset can overtake the last word.
    fn send_farewell(&self, bytes: &[u8]) -> io::Result<()> {
        self.send(bytes)?;
        self.socket.shutdown(Shutdown::Write)?;
        self.socket.set_read_timeout(Some(FAREWELL_WAIT))?;
        let (mut socket, mut sink) = (self.socket, [0; 4096]);
        for _ in 0..FAREWELL_READ_COUNT_MAX {
            if !matches!(socket.read(&mut sink), Ok(1..)) {
                break;
            }
        }
        Ok(())
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let mut socket = self.socket;
        socket.write_all(bytes)?;
        self.counters.traffic.mine().bytes_out.fetch_add(bytes.len() as u64, Relaxed);
        Ok(())
    }
}

/// Counts a connection as active while it lives, also through a panic.
struct Active<'c>(&'c Counters);

impl<'c> Active<'c> {
    fn new(counters: &'c Counters) -> Self {
        counters.traffic.mine().active.fetch_add(1, Relaxed);
        Self(counters)
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.traffic.mine().active.fetch_sub(1, Relaxed);
    }
}

fn give_back(buffer: &mut Vec<u8>) {
    if buffer.capacity() > RETAINED_SIZE_BYTES {
        *buffer = Vec::new();
    }
}
