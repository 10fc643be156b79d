//! One connection: a turn of it, which is one request, or the loop that a thread of its own runs for it.
//!
//! Invariants: one `recv` for a small request and one `send` for its reply; a message that is begun is finished in time;
//! a request that wants no reply gets none; replies leave in the order of their requests, whoever sends them. A turn waits
//! for nothing without having said so ([`about_to_wait`]), and for no first byte at all: where none has come it is over. The
//! next one may be another thread's. Between turns a connection holds no memory, and no buffer but for what has come of the
//! next message; the buffers are the [desk](Desk) of whoever serves it. A thread that is one connection's wakes up once when
//! its client is silent, not periodically. What messages of all clients hold together, as they arrive and until they
//! are dealt with, is bounded by the pool and one message more; who needs more than is left waits, and is not read from
//! meanwhile. A client that holds memory for which others wait and sends next to nothing is given up. So nobody's messages
//! keep out another's for long.
//! What it does not do: accept, register or limit connections (see [`crate::server`]), or say whose turn it is (see
//! [`crate::pool`]).

use crate::arrivals::Arrivals;
use crate::buffer::{RETAINED_SIZE_BYTES, ReceiveBuffer};
use crate::counters::Counters;
use crate::crowd::{Crowd, Spoken};
use crate::outbox::Outbox;
use crate::pool::Turn;
use crate::precedence::{Precedence, Standing};
use crate::service::{After, Handler, Threads};
use baton_machine::{about_to_wait, be_relieved_by, lend_to_sharers, share};
use baton_types::MemoryAccount;
use baton_wire::frame::{HEADER_SIZE_BYTES, HTTP_NOTICE};
use baton_wire::{Failure, Frame, Request, decode, frame};
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The stack of a thread that serves connections. Virtual memory: only what is touched is resident. An expression may nest as deep as a
/// document, and without optimisation its frames take some ten kilobytes a level.
pub const STACK_SIZE_BYTES: usize = if cfg!(debug_assertions) { 4 * 1024 * 1024 } else { 1024 * 1024 };

/// How long a client must be silent before its connection rests, if nothing else is asked for.
pub(crate) const REST_AFTER: Duration = Duration::from_secs(5);

/// How long a reply may make no progress at all before the client is given up.
pub(crate) const SEND_STALL_MAX: Duration = Duration::from_secs(300);

/// A message in parts may take a second longer for each so many bytes of it: a slow line is no attack.
const SLOW_LINE_BYTES_PER_SEC: usize = 64 * 1024;

/// A buffer is held of the memory for messages once it is larger than this.
const SMALL_BUFFER_BYTES: usize = 16 * 1024;
/// A buffer up to this size waits for memory for a moment only: it is not worth keeping a client waiting.
const LARGE_BUFFER_BYTES: usize = 256 * 1024;
/// While there is no memory it is looked for so often, more often by those who are to have it next; and for a small buffer so long
/// in all.
const MEMORY_WAIT: Duration = Duration::from_millis(50);
const MEMORY_WAIT_NEAR: Duration = Duration::from_millis(2);
const MEMORY_WAIT_MAX: Duration = Duration::from_secs(1);
/// Who holds memory that others wait for sends at least so much in each such time; and who has more than there was, in each such
/// shorter time.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
const PROGRESS_INTERVAL_IN_TURN: Duration = Duration::from_millis(250);
const PROGRESS_BYTES_MIN: usize = 16 * 1024;

/// How long, and how many times, to read on after a last word.
const FAREWELL_WAIT: Duration = Duration::from_millis(200);
const FAREWELL_READ_COUNT_MAX: usize = 16;

/// Why a connection is served no more; but for the first two, it ends with that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The client is silent between two messages: it can be served again.
    Silent,
    /// It is to be served in turns again.
    Turns,
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

/// What holds for all connections of a server.
pub(crate) struct Terms {
    pub counters: Arc<Counters>,
    pub stopping: AtomicBool,
    pub message_timeout: Duration,
    pub rest_after: Duration,
    pub started: Instant,
    pub crowd: Crowd,
    pub precedence: Arc<Precedence>,
}

/// What whoever serves connections has for them: buffers, which each takes up as it finds them.
#[derive(Default)]
pub(crate) struct Desk {
    received: ReceiveBuffer,
    out: Vec<u8>,
    scratch: Vec<u8>,
    /// Replies have been promised, and what that takes may have been left undone.
    pub owes: bool,
}

/// The state of a connection.
pub(crate) struct Connection {
    terms: Arc<Terms>,
    received: ReceiveBuffer,
    /// Its thread serves others besides: it does not wait for a first byte.
    takes_turns: bool,
    /// There may be something to read: nothing was read in this turn, or as much as there was room for.
    may_have_more: bool,
    /// The last reply was promised.
    has_promised: bool,
    /// What the socket is set to; at first it waits for ever.
    timeout: Option<Duration>,
    /// How long to wait for the next message before the client is called silent.
    patience: Option<Duration>,
    last_reply_id: i32,
    spoken: Spoken,
    /// What a large message holds of the memory for such.
    memory: MemoryAccount,
    outbox: Arc<Outbox>,
    arrivals: Arrivals,
}

impl Connection {
    pub(crate) fn new(terms: Arc<Terms>, memory: MemoryAccount, outbox: Arc<Outbox>) -> Self {
        let patience = Some(terms.rest_after);
        Self {
            terms,
            received: ReceiveBuffer::default(),
            takes_turns: true,
            may_have_more: false,
            has_promised: false,
            timeout: None,
            patience,
            last_reply_id: 0,
            spoken: Spoken::default(),
            memory,
            outbox,
            arrivals: Arrivals::default(),
        }
    }

    /// Serves one request, if one has come; whether there may be more then, unless it ends.
    pub(crate) fn turn(&mut self, handler: &mut impl Handler, desk: &mut Desk) -> Result<Turn, End> {
        if self.received.is_bare() {
            std::mem::swap(&mut self.received, &mut desk.received);
        }
        (self.takes_turns, self.may_have_more, self.has_promised) = (true, true, false);
        let served = self.serve_next(handler, &mut desk.out, &mut desk.scratch, None);
        let is_empty = self.received.received().is_empty();
        if is_empty {
            desk.received = std::mem::take(&mut self.received);
        }
        desk.owes |= self.has_promised;
        match served {
            Ok(()) if self.threads(handler) != Threads::Shared => Ok(Turn::Own),
            Ok(()) if is_empty && !self.may_have_more => Ok(Turn::Done),
            Ok(()) => Ok(Turn::More),
            Err(End::Silent) => Ok(Turn::Done),
            Err(end) => Err(self.end(end)),
        }
    }

    /// Serves it until its client is silent, or to its end, or until it is to be served in turns: on a thread of its own.
    pub(crate) fn run(&mut self, handler: &mut impl Handler) -> End {
        self.takes_turns = false;
        let standing = Standing::new(&self.terms.precedence, &self.outbox.socket);
        be_relieved_by(standing.clone());
        let end = self.run_as(&standing, handler);
        standing.leave();
        end
    }

    fn run_as(&mut self, standing: &Standing, handler: &mut impl Handler) -> End {
        let mut desk = Desk::default();
        loop {
            let served = self.serve_next(handler, &mut desk.out, &mut desk.scratch, Some(standing));
            standing.end(served.is_ok() && handler.precedes());
            match served {
                Ok(()) if self.threads(handler) == Threads::Shared => return End::Turns,
                Ok(()) => {}
                Err(End::Silent) => {
                    self.received.rest();
                    desk = Desk::default();
                    if self.outbox.rest() {
                        return End::Silent;
                    }
                }
                Err(end) => return self.end(end),
            }
        }
    }

    /// Which threads are to serve it, now that it has spoken.
    fn threads(&mut self, handler: &impl Handler) -> Threads {
        let Terms { started, crowd, precedence, .. } = &*self.terms;
        match handler.threads() {
            Threads::Shared => {
                let shares = crowd.shares(started.elapsed(), self.has_promised, &mut self.spoken);
                // Others are let go before by those who serve in turns.
                if shares || precedence.is_there() { Threads::Shared } else { Threads::Own }
            }
            threads => threads,
        }
    }

    /// The next silence is not spoken of: whoever runs the loop waits, however long it lasts.
    pub(crate) fn be_patient(&mut self) {
        self.patience = None;
    }

    /// Whoever has promised a reply keeps that, while there is a socket.
    fn end(&self, end: End) -> End {
        self.outbox.settle(&mut Vec::new());
        end
    }

    /// Serves the next request, once it is there. `standing`: of its thread, if that is its own.
    fn serve_next(
        &mut self,
        handler: &mut impl Handler,
        out: &mut Vec<u8>,
        scratch: &mut Vec<u8>,
        standing: Option<&Standing>,
    ) -> Result<(), End> {
        let length_bytes = self.receive()?;
        if let Some(standing) = standing {
            standing.begin();
        }
        self.outbox.settle(out);
        let sharing = self.memory.is_used().then(|| share(&**self.memory.pool()));
        let served = self.serve(length_bytes, handler, out, scratch);
        drop(sharing);
        if handler.has_deadlines() {
            self.arrivals.ask(&self.outbox.socket);
        }
        self.received.consume(length_bytes);
        self.memory.clear();
        give_back(out);
        give_back(scratch);
        served?;
        if self.terms.stopping.load(Relaxed) { Err(End::Clean) } else { Ok(()) }
    }

    /// Holds memory for so many bytes in all, and waits for it if there is too little: those whose requests hold it are as urgent as this
    /// thread then. Returns how long it waited.
    fn hold(&mut self, bytes: usize) -> Duration {
        if bytes <= SMALL_BUFFER_BYTES.max(self.memory.bytes()) || self.memory.set_in_turn(bytes) {
            return Duration::ZERO;
        }
        let begun = Instant::now();
        let _waiting = about_to_wait();
        let waiting = self.memory.wait(bytes);
        while !self.terms.stopping.load(Relaxed) && !self.memory.set_waited_for(&waiting) {
            if bytes <= LARGE_BUFFER_BYTES && begun.elapsed() >= MEMORY_WAIT_MAX {
                self.memory.set_up_to(bytes);
                break;
            }
            // One or two look for all: there may be very many.
            let is_near = waiting.is_near();
            let _loans = is_near.then(|| lend_to_sharers(&**self.memory.pool()));
            std::thread::sleep(if is_near { MEMORY_WAIT_NEAR } else { MEMORY_WAIT });
        }
        begun.elapsed()
    }

    /// Waits until the buffer starts with a whole message; returns its length.
    fn receive(&mut self) -> Result<usize, End> {
        let mut progress: Option<Progress> = None;
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
                    self.terms.counters.malformed.fetch_add(1, Relaxed);
                    return Err(End::Malformed("an impossible message length"));
                }
            };
            let received_bytes = received.len();
            if received_bytes > 0 {
                let progress = progress.get_or_insert_with(|| Progress::begun(received_bytes));
                // The client's time does not run while it is kept waiting.
                progress.pause(self.hold(self.received.size_with_room(need)));
                let is_in_the_way = self.memory.is_used() && self.memory.pool().is_waited_for();
                let within = is_in_the_way.then(|| self.progress_interval());
                if progress.is_too_slow(received_bytes, self.terms.message_timeout, within) {
                    self.terms.counters.timed_out.fetch_add(1, Relaxed);
                    return Err(End::TimedOut);
                }
            }
            self.read_some(need, received_bytes > 0)?;
        }
    }

    /// One `recv`, or two: who takes turns first looks what is there. Within a message it waits for a part of the timeout, so that the
    /// caller can look at the clock.
    fn read_some(&mut self, need: usize, within_message: bool) -> Result<(), End> {
        let mut _waiting = None;
        if self.takes_turns {
            match self.arrivals.receive(&self.outbox.socket, self.received.room(need), true) {
                Err(e) if e.kind() == ErrorKind::WouldBlock && within_message => _waiting = Some(about_to_wait()),
                received => return self.is_read(received, within_message),
            }
        }
        let wait = match within_message {
            false => self.patience,
            // Who holds memory is looked at more often.
            true if self.memory.is_used() => Some(self.wait().min(self.progress_interval())),
            true => Some(self.wait()),
        };
        self.wait_at_most(wait)?;
        let received = self.arrivals.receive(&self.outbox.socket, self.received.room(need), false);
        self.is_read(received, within_message)
    }

    fn is_read(&mut self, received: io::Result<usize>, within_message: bool) -> Result<(), End> {
        match received {
            Ok(0) if within_message => Err(End::Broken(ErrorKind::UnexpectedEof)),
            Ok(0) => Err(End::Clean),
            Ok(count) => {
                self.terms.counters.traffic.mine().bytes_in.fetch_add(count as u64, Relaxed);
                self.received.filled(count);
                self.may_have_more = self.received.is_full();
                Ok(())
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => Ok(()),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if within_message {
                    Ok(())
                } else {
                    Err(End::Silent)
                }
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Sets the socket's timeout, if it is another.
    fn wait_at_most(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if self.timeout != timeout {
            self.outbox.socket.set_read_timeout(timeout)?;
            self.timeout = timeout;
        }
        Ok(())
    }

    fn progress_interval(&self) -> Duration {
        if self.memory.has_turn() { PROGRESS_INTERVAL_IN_TURN } else { PROGRESS_INTERVAL }
    }

    fn wait(&self) -> Duration {
        self.terms.rest_after.min(self.terms.message_timeout / 2).max(Duration::from_millis(1))
    }

    /// Decodes the message at the start of the buffer and has it handled.
    fn serve(
        &mut self,
        length_bytes: usize,
        handler: &mut impl Handler,
        out: &mut Vec<u8>,
        scratch: &mut Vec<u8>,
    ) -> Result<(), End> {
        self.terms.counters.traffic.mine().requests.fetch_add(1, Relaxed);
        // The client speaks: it is silent again only after another silence.
        self.patience = Some(self.terms.rest_after);
        out.clear();
        self.last_reply_id = self.last_reply_id.wrapping_add(1);
        // What a compressed message becomes is held before it is inflated.
        if let Some(inflated_bytes) = frame::inflated_bytes(&self.received.received()[..length_bytes]) {
            let _ = self.hold(self.received.size_bytes() + inflated_bytes);
        }
        let message = &self.received.received()[..length_bytes];
        match decode(message, scratch) {
            Ok(mut request) => {
                request.waited = self.arrivals.waited();
                let mut reply_id = self.last_reply_id;
                let served = self.answer(request, &mut reply_id, handler, out);
                self.last_reply_id = reply_id;
                self.has_promised = served? == After::Later;
                Ok(())
            }
            Err(Failure::Close(reason)) => {
                self.terms.counters.malformed.fetch_add(1, Relaxed);
                Err(End::Malformed(reason))
            }
            Err(Failure::Reject(rejection)) => {
                self.terms.counters.malformed.fetch_add(1, Relaxed);
                rejection.write(self.last_reply_id, out);
                if rejection.close {
                    self.send_farewell(out)?;
                    return Err(End::Malformed("a message refused for good"));
                }
                Ok(self.send(out)?)
            }
        }
    }

    /// Has a request handled and sends the reply, or the stream of them; tells what the handler said last. `reply_id` is the number of
    /// the first, and becomes that of the last.
    fn answer(
        &self,
        mut request: Request<'_>,
        reply_id: &mut i32,
        handler: &mut impl Handler,
        out: &mut Vec<u8>,
    ) -> Result<After, End> {
        let active = Active::new(&self.terms.counters);
        let wants_reply = !request.flags.more_to_come();
        request.reply_id = *reply_id;
        let mut after = handler.handle(&request, out);
        if after == After::Later {
            // It is, until the reply is sent.
            std::mem::forget(active);
            return Ok(after);
        }
        loop {
            let has_reply = wants_reply && after != After::NoReply && !out.is_empty();
            let sent = if has_reply { self.send_reply(out, handler) } else { Ok(()) };
            give_back(out);
            handler.sent();
            sent?;
            match after {
                After::Reply | After::NoReply | After::Later => return Ok(after),
                After::Close => return Err(End::Asked),
                After::Exhaust if !wants_reply || self.terms.stopping.load(Relaxed) => return Err(End::Asked),
                After::Exhaust => {
                    // The next one comes when there is something to tell, and after it another.
                    let _waiting = about_to_wait();
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
        let _waiting = about_to_wait();
        self.send(bytes)?;
        self.outbox.socket.shutdown(Shutdown::Write)?;
        self.outbox.socket.set_read_timeout(Some(FAREWELL_WAIT))?;
        let (mut socket, mut sink) = (&*self.outbox.socket, [0; 4096]);
        for _ in 0..FAREWELL_READ_COUNT_MAX {
            if !matches!(socket.read(&mut sink), Ok(1..)) {
                break;
            }
        }
        Ok(())
    }

    /// Sends a reply; says so if the client does not take it at once.
    fn send_reply(&self, bytes: &[u8], handler: &mut impl Handler) -> io::Result<()> {
        match self.outbox.send_at_once(bytes) {
            Some(count) if count == bytes.len() => Ok(()),
            Some(count) => {
                handler.sends_slowly();
                let _waiting = about_to_wait();
                self.send(&bytes[count..])
            }
            None => Err(ErrorKind::BrokenPipe.into()),
        }
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let mut socket = &*self.outbox.socket;
        socket.write_all(bytes)?;
        self.terms.counters.traffic.mine().bytes_out.fetch_add(bytes.len() as u64, Relaxed);
        Ok(())
    }
}

/// How a message comes along.
struct Progress {
    begun: Instant,
    /// When it was last looked at, and how much had come by then.
    seen: (Instant, usize),
}

impl Progress {
    fn begun(received_bytes: usize) -> Self {
        let now = Instant::now();
        Self { begun: now, seen: (now, received_bytes) }
    }

    /// So long nothing was read.
    fn pause(&mut self, waited: Duration) {
        self.begun += waited;
        self.seen.0 += waited;
    }

    /// Whether to give the client up: its message takes too long; or it holds what others wait for, and sends next to nothing
    /// `within` that time.
    fn is_too_slow(&mut self, received_bytes: usize, message_timeout: Duration, within: Option<Duration>) -> bool {
        let slow_line = Duration::from_secs((received_bytes / SLOW_LINE_BYTES_PER_SEC) as u64);
        if self.begun.elapsed() >= message_timeout + slow_line {
            return true;
        }
        let (seen_at, seen_bytes) = self.seen;
        if seen_at.elapsed() < within.unwrap_or(PROGRESS_INTERVAL) {
            return false;
        }
        self.seen = (Instant::now(), received_bytes);
        within.is_some() && received_bytes - seen_bytes < PROGRESS_BYTES_MIN
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
