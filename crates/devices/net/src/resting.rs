//! Connections whose clients are silent: one thread waits for all of them, and they have none.
//!
//! A thread's stack and what the allocator keeps for it are most of what an idle connection would cost, and ten thousand threads that wake
//! up at once take the processors from everybody. So a connection whose client is silent gives its thread back: what it consists of rests
//! here as a value. When bytes come it goes on on a fresh thread, which has by itself all that a connection's thread has: the name that the
//! log knows it by, the niceness and the slices that the process began with, and nothing of another client's. To start one takes some thirty
//! microseconds, and no connection needs it more often than once in each of its silences; threads kept in stock would have to be told apart
//! in the log and made as if new, and when very many clients wake up at once there would be too few.
//!
//! Invariants:
//! - No wake-up is lost: the sockets are waited for by `epoll`, level-triggered, so that bytes, or an end, that came before a connection
//!   was handed over are seen like those that come later.
//! - A connection is handed over whole or not at all, and given to one: a thread of its own, or, if its client has hung up and left nothing
//!   to read, the thread that ends connections ([`crate::closing`]). Nothing is read from the socket here.
//! - Where no thread can be started, a connection whose client woke up waits until one can be, for which is looked twenty times a
//!   second; the client's bytes stay with the socket. It is then the only one for which anything periodic happens.
//! - After [`Resting::stop`] no connection rests, and no other will: all go to the thread that ends them.
//!
//! What it does not do: decide who may rest, or how long a client must be silent before (see [`crate::served`], [`crate::connection`]).
//!
//! Source: `epoll(7)`.

use crate::counters::Counters;
use crate::served::spawn;
use crate::waker::Waker;
use baton_types::must_not_unwind;
use parking_lot::Mutex;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use socket2::Socket;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Sender;
use tracing::warn;

/// How many are looked at in one go.
const EVENT_COUNT_MAX: usize = 256;
/// Stands for the waker, where numbers of connections stand: these are counted from 1.
const WAKER: u64 = 0;
/// How long to wait for a thread, where there is none.
const NO_THREAD_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// That the client hung up, or that the connection is broken; there may be something to read all the same.
const HUNG_UP: EventFlags = EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR);

/// What rests. Dropped, it has ended.
pub(crate) trait Rests: Send {
    /// Its number.
    fn id(&self) -> u64;
    /// Where its client's bytes come.
    fn socket(&self) -> &Socket;
    /// Goes on, on the calling thread, until it rests again or ends.
    fn serve(self: Box<Self>);
}

#[derive(Default)]
struct State {
    by_id: HashMap<u64, Box<dyn Rests>>,
    is_over: bool,
}

/// See the file's header.
pub(crate) struct Resting {
    epoll: OwnedFd,
    waker: Waker,
    state: Mutex<State>,
    counters: Arc<Counters>,
}

impl Resting {
    /// Nobody rests yet.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub fn new(counters: Arc<Counters>) -> io::Result<Self> {
        let (epoll, waker) = (epoll::create(CreateFlags::CLOEXEC)?, Waker::new()?);
        epoll::add(&epoll, &waker, EventData::new_u64(WAKER), EventFlags::IN)?;
        Ok(Self { epoll, waker, state: Mutex::default(), counters })
    }

    /// Takes a connection over. Refused, it is given back: the server stops, or the kernel watches no more sockets.
    pub fn take<R: Rests + 'static>(&self, connection: Box<R>) -> Result<(), Box<R>> {
        let mut state = self.state.lock();
        let (id, flags) = (connection.id(), EventFlags::IN | EventFlags::RDHUP);
        // Whoever is told of it waits for the lock.
        if state.is_over || epoll::add(&self.epoll, connection.socket(), EventData::new_u64(id), flags).is_err() {
            return Err(connection);
        }
        self.counters.resting.fetch_add(1, Relaxed);
        state.by_id.insert(id, connection);
        Ok(())
    }

    /// From now on nobody rests; the thread that waits for them ends.
    pub fn stop(&self) {
        self.state.lock().is_over = true;
        self.waker.wake();
    }

    /// Waits for all that rest, until it is told to stop. Those that end go to `closing`.
    pub fn wait_for_all(&self, closing: &Sender<Box<dyn Rests>>) {
        // Whoever rests would never be served again.
        let _guard = must_not_unwind("waiting for clients that are silent");
        let mut events = Vec::with_capacity(EVENT_COUNT_MAX);
        let mut woken: VecDeque<Box<dyn Rests>> = VecDeque::new();
        loop {
            events.clear();
            // Interrupted by a signal, it waits again.
            let pause = (!woken.is_empty()).then_some(&NO_THREAD_PAUSE);
            let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), pause);
            let is_short_of_threads = !woken.is_empty();
            for event in &events {
                let (id, flags) = (event.data.u64(), event.flags);
                if id == WAKER {
                    self.waker.silence();
                    continue;
                }
                let Some(connection) = self.take_out(id) else { continue };
                if flags.intersects(HUNG_UP) && has_ended(connection.socket()) {
                    end(connection, closing);
                } else {
                    woken.push_back(connection);
                }
            }
            if self.state.lock().is_over {
                break;
            }
            while let Some(connection) = woken.pop_front() {
                if let Err((connection, error)) = go_on(connection) {
                    woken.push_front(connection);
                    if !is_short_of_threads {
                        say_no_thread(woken.len(), &error);
                    }
                    break;
                }
            }
        }
        let left: Vec<_> = std::mem::take(&mut self.state.lock().by_id).into_values().collect();
        self.counters.resting.fetch_sub(left.len(), Relaxed);
        woken.into_iter().chain(left).for_each(|connection| end(connection, closing));
    }

    fn take_out(&self, id: u64) -> Option<Box<dyn Rests>> {
        let connection = self.state.lock().by_id.remove(&id)?;
        // Its socket is open, and is watched: this does not fail.
        let _ = epoll::delete(&self.epoll, connection.socket());
        self.counters.resting.fetch_sub(1, Relaxed);
        Some(connection)
    }
}

/// Whether the client has hung up, or the connection is broken, and nothing is left to be read.
fn has_ended(socket: &Socket) -> bool {
    match recv(socket, &mut [0u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((_, byte_count)) => byte_count == 0,
        Err(error) => !matches!(error, Errno::AGAIN | Errno::INTR),
    }
}

/// Starts its thread; gives it back if there is none.
fn go_on(connection: Box<dyn Rests>) -> Result<(), (Box<dyn Rests>, io::Error)> {
    let id = connection.id();
    // What cannot be started drops what it was given.
    let handed_over = Arc::new(Mutex::new(Some(connection)));
    let taken_over = Arc::clone(&handed_over);
    let spawned = spawn(id, move || {
        let connection = taken_over.lock().take();
        drop(taken_over);
        connection.into_iter().for_each(Rests::serve);
    });
    match spawned {
        Ok(()) => Ok(()),
        Err(error) => match handed_over.lock().take() {
            Some(connection) => Err((connection, error)),
            None => Ok(()),
        },
    }
}

fn end(connection: Box<dyn Rests>, closing: &Sender<Box<dyn Rests>>) {
    if let Err(refused) = closing.send(connection) {
        // Nobody is there to end it, which cannot be while this thread is: it is ended here.
        drop(refused);
    }
}

fn say_no_thread(waiting: usize, error: &io::Error) {
    warn!(
        target: "NETWORK", id = 22949, waiting, error = %error,
        "Unable to start a thread for a connection that has rested; it waits for one"
    );
}
