//! Who goes before the workers: connections with a thread of their own that is less nice than theirs.
//!
//! Niceness says how large a part of a processor's time a thread has, and not that it has it now. A worker that has slept and is never at a
//! loss for a connection was seen to run on for three of the kernel's ticks with an urgent thread ready; it seems that its scheduler (EEVDF)
//! makes up to a worker for what it was short of while it slept, and looks at who is to run by the tick alone. So a worker looks
//! between two turns whether one of those is to be served, and sleeps until they are: where nobody else is ready the kernel has nobody to
//! prefer (docs/spikes/priority-scheduling.md).
//!
//! Invariants, beside those of the [`crate::room`] that there is: who waits is not waited for, and what was left undone, which others may wait
//! for, is done without waiting; a connection that ends, however it does, goes before nobody.
//!
//! What it does not do: say whose thread is less nice.

use crate::room::Room;
use baton_machine::Relief;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;
use socket2::Socket;
use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// How long a worker waits for those before it at the most: who computes for longer leaves it the part that niceness leaves it.
pub(crate) const PATIENCE: Duration = Duration::from_millis(2);
/// It is noticed of so many at a time that they have been spoken to. They are asked for where there are fewer processors.
const SPOKEN_TO_MAX: usize = 16;

/// See the file's header.
pub(crate) struct Precedence {
    room: Room,
    /// Their sockets.
    epoll: OwnedFd,
    /// How many there are.
    watched: AtomicUsize,
}

impl Precedence {
    /// Of nobody yet.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub fn new(processors: usize, patience: Duration) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Self { room: Room::new(processors, patience), epoll, watched: AtomicUsize::new(0) })
    }

    /// Whether anybody goes before the workers.
    pub fn is_there(&self) -> bool {
        self.watched.load(SeqCst) > 0
    }

    /// A worker is about to begin a turn: returns when it may. `in_vain`: the worker's own, and 0 at first.
    pub fn begin_turn(&self, in_vain: &mut u32) {
        if self.is_there() {
            self.room.take_in_turn(in_vain, || self.spoken_to());
        } else {
            self.room.take();
        }
    }

    /// A worker is about to do what was left undone.
    pub fn begin_catching_up(&self) {
        self.room.take();
    }

    /// A worker's turn is over, or it has caught up.
    pub fn end_turn(&self) {
        self.room.give_back();
    }

    /// A worker has been relieved in its turn.
    pub fn leave_turn(&self) {
        self.room.leave();
    }

    /// How many have been spoken to and have not read it yet.
    fn spoken_to(&self) -> usize {
        // Nothing is allocated: it is asked for each turn.
        let mut events = [const { MaybeUninit::<Event>::uninit() }; SPOKEN_TO_MAX];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        epoll::wait(&self.epoll, &mut events, Some(&at_once)).map_or(0, |(spoken_to, _)| spoken_to.len())
    }
}

/// What the thread of a connection is beside the workers. It is nothing once it is dropped.
pub(crate) struct Standing {
    precedence: Arc<Precedence>,
    socket: Arc<Socket>,
    is_watched: Cell<bool>,
    is_served: Cell<bool>,
    /// It would be served if it did not wait.
    waits: Cell<bool>,
}

impl Standing {
    /// It does not go before them yet.
    pub fn new(precedence: &Arc<Precedence>, socket: &Arc<Socket>) -> Rc<Self> {
        let (precedence, socket) = (Arc::clone(precedence), Arc::clone(socket));
        Rc::new(Self {
            precedence,
            socket,
            is_watched: Cell::new(false),
            is_served: Cell::new(false),
            waits: Cell::new(false),
        })
    }

    /// Its client has sent a request.
    pub fn begin(&self) {
        if self.is_watched.get() && !self.is_served.replace(true) {
            self.precedence.room.begin_serving();
        }
    }

    /// That is dealt with. Whether it goes before the workers from now on.
    pub fn end(&self, precedes: bool) {
        self.waits.set(false);
        self.stop();
        match (self.is_watched.get(), precedes) {
            (false, true) => self.watch(),
            (true, false) => self.leave(),
            (true, true) | (false, false) => {}
        }
    }

    fn stop(&self) {
        if self.is_served.take() {
            self.precedence.room.end_serving();
        }
    }

    fn watch(&self) {
        // Not edge-triggered: it is asked again and again until its thread has read what came.
        if epoll::add(&self.precedence.epoll, &*self.socket, EventData::new_u64(0), EventFlags::IN).is_ok() {
            self.is_watched.set(true);
            self.precedence.watched.fetch_add(1, SeqCst);
        }
    }

    /// It does not go before the workers any more.
    pub fn leave(&self) {
        self.waits.set(false);
        self.stop();
        if self.is_watched.take() {
            let _ = epoll::delete(&self.precedence.epoll, &*self.socket);
            self.precedence.watched.fetch_sub(1, SeqCst);
            self.precedence.room.tell();
        }
    }
}

impl Relief for Standing {
    fn relieve(&self) {
        if self.is_served.get() {
            self.waits.set(true);
            self.stop();
        }
    }

    fn resume(&self) {
        if self.waits.take() {
            self.begin();
        }
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room::TURNS_IN_VAIN;
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Instant;

    /// Nobody waits in vain.
    const LONG: Duration = Duration::from_secs(60);

    fn of(processors: usize, patience: Duration) -> Arc<Precedence> {
        Arc::new(Precedence::new(processors, patience).unwrap())
    }

    /// A client, and the standing of its connection.
    fn urgent(precedence: &Arc<Precedence>) -> (TcpStream, Rc<Standing>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_nodelay(true).unwrap();
        let standing = Standing::new(precedence, &Arc::new(listener.accept().unwrap().0.into()));
        standing.end(true);
        (client, standing)
    }

    /// A worker that has one turn, on a thread of its own; when it has had it.
    fn worker(precedence: &Arc<Precedence>) -> Receiver<()> {
        let (had, turn) = channel();
        let precedence = Arc::clone(precedence);
        std::thread::spawn(move || {
            precedence.begin_turn(&mut 0);
            precedence.leave_turn();
            had.send(()).unwrap();
        });
        turn
    }

    fn await_that(is_so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < LONG);
            std::thread::yield_now();
        }
    }

    fn waits(precedence: &Precedence) {
        await_that(|| precedence.room.is_waited_for());
    }

    #[test]
    fn a_worker_waits_for_one_that_is_served_and_not_for_one_that_is_silent() {
        let precedence = of(1, LONG);
        worker(&precedence).recv().unwrap();
        let (_client, standing) = urgent(&precedence);
        worker(&precedence).recv().unwrap();
        standing.begin();
        let turn = worker(&precedence);
        waits(&precedence);
        assert!(turn.try_recv().is_err());
        standing.end(true);
        turn.recv().unwrap();
        standing.begin();
        standing.end(false);
        assert!(!precedence.is_there());
    }

    #[test]
    fn a_worker_waits_for_one_that_has_been_spoken_to_until_that_has_been_served() {
        use std::io::{Read, Write};
        let precedence = of(1, LONG);
        let (mut client, standing) = urgent(&precedence);
        client.write_all(b"?").unwrap();
        await_that(|| precedence.spoken_to() == 1);
        let turn = worker(&precedence);
        waits(&precedence);
        (&*standing.socket).read_exact(&mut [0]).unwrap();
        standing.begin();
        assert!(turn.try_recv().is_err());
        standing.end(true);
        turn.recv().unwrap();
    }

    #[test]
    fn who_waits_is_not_waited_for_until_he_goes_on() {
        let precedence = of(1, LONG);
        let (_client, standing) = urgent(&precedence);
        standing.begin();
        standing.relieve();
        worker(&precedence).recv().unwrap();
        standing.resume();
        let turn = worker(&precedence);
        waits(&precedence);
        standing.relieve();
        turn.recv().unwrap();
        standing.end(true);
        // Its request is over.
        standing.resume();
        worker(&precedence).recv().unwrap();
    }

    #[test]
    fn a_worker_waits_for_other_workers_where_urgent_ones_have_the_rest_of_the_processors() {
        let precedence = of(2, LONG);
        let (_client, standing) = urgent(&precedence);
        standing.begin();
        worker(&precedence).recv().unwrap();
        precedence.begin_turn(&mut 0);
        let turn = worker(&precedence);
        waits(&precedence);
        precedence.leave_turn();
        turn.recv().unwrap();
    }

    #[test]
    fn what_was_left_undone_is_done_at_once() {
        let precedence = of(1, LONG);
        let (_client, standing) = urgent(&precedence);
        standing.begin();
        precedence.begin_catching_up();
        precedence.end_turn();
    }

    #[test]
    fn who_has_waited_in_vain_begins_a_few_turns_at_once() {
        let precedence = of(1, Duration::from_millis(1));
        let (_client, standing) = urgent(&precedence);
        standing.begin();
        let mut in_vain = 0;
        for left in (0..TURNS_IN_VAIN).rev() {
            precedence.begin_turn(&mut in_vain);
            assert_eq!(in_vain, left);
            precedence.end_turn();
        }
        precedence.begin_turn(&mut in_vain);
        assert_eq!(in_vain, TURNS_IN_VAIN - 1, "it waits again");
    }

    #[test]
    fn a_thread_that_ends_in_a_panic_goes_before_nobody() {
        let precedence = of(1, LONG);
        let outcome = std::thread::scope(|scope| {
            let served = scope.spawn(|| {
                let (_client, standing) = urgent(&precedence);
                baton_machine::be_relieved_by(standing.clone());
                standing.begin();
                panic!("asked to");
            });
            served.join()
        });
        assert!(outcome.is_err());
        worker(&precedence).recv().unwrap();
        assert!(!precedence.is_there());
    }
}
