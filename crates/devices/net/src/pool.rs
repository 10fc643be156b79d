//! The threads that serve connections in turns: as few as there are processors, whatever the number of connections.
//!
//! ```text
//!   epoll ── news ──▶ seat is ready ──▶ row ──▶ worker: one turn, as a rule one request ──▶ seat waits
//!                                                  └─ takes long, or is about to wait ─▶ relieved: another worker takes the next turn
//! ```
//!
//! A thread for each connection leaves it to the kernel who of those that are ready runs next, and the kernel gives everybody the same part
//! of the time: who is interrupted in the middle of a request waits for tens of others, though he may hold what they wait for. Few threads
//! that serve one request after the other are interrupted by nobody of their own kind, and those whose clients have spoken first are served
//! first (docs/spikes/shared-threads.md). But a request may take long. So a worker says when it is about to wait
//! ([`baton_machine::about_to_wait`]), and one thread, the [watch], looks every two milliseconds who has been at the same turn for so long.
//! Either way the worker is *relieved*: it belongs to that one connection until the turn is over, and another is at work in its place. With
//! every request relieved this would be a thread for each connection again.
//!
//! What handlers leave undone, because it is cheaper for many at once, the service does when nobody is ready any more, or after so many turns
//! ([`crate::Service::catch_up`]); or another worker has it do that, if this one is relieved.
//!
//! Before each turn a worker lets those go before it that are more urgent ([`crate::precedence`]).
//!
//! A connection that is to have a thread of its own ([`crate::Handler::threads`]), or has one while few are at work ([`crate::crowd`]), leaves the
//! pool after its turn. When its client is silent it has a seat again; one that its handler wants alone gets another thread as soon as there is
//! news, any other has a turn first.
//!
//! Invariants:
//! - No news is lost: sockets are watched edge-triggered, and a seat remembers what comes while it is served ([`crate::seat`]). What a turn
//!   may have left unread makes the seat ready again.
//! - Who is ready is served in the order in which that was noticed, one turn at a time.
//! - As long as somebody is ready and a thread can be started, a worker that has not been relieved serves or looks at the row, or the watch
//!   sees to that at its next look.
//! - A connection is ended by the thread that ends connections ([`crate::closing`]), but for those whose handler panicked.
//! - A worker keeps the buffers of its turns: a connection that waits has none, unless part of a message has come already.
//!
//! What it does not do: read, write, or handle anything (see [`crate::connection`]).
//!
//! Source: `epoll(7)`. Handing the others over while one waits is owed to Go's scheduler.

mod post;
mod watch;

use self::post::{Post, Seen};
use self::watch::Watch;
use crate::connection::{Desk, STACK_SIZE_BYTES};
use crate::counters::Counters;
use crate::precedence::Precedence;
use crate::seat::Seat;
use crate::staff::{Hired, Staff};
use crate::waker::Waker;
use baton_machine::{Relief, be_relieved_by, work_for_connection};
use baton_types::must_not_unwind;
use parking_lot::Mutex;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use smallvec::SmallVec;
use socket2::Socket;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::mpsc::Sender;
use std::thread::Builder;
use std::time::{Duration, Instant};

/// How many are noticed in one go: the more, the longer the last of them waits for one worker while another may be idle.
const EVENT_COUNT_MAX: usize = 8;
/// After so many turns the handlers' service catches up with what they have left undone, though more are ready: that is how many writes are
/// one group at the least, where so many come.
const CATCH_UP_AFTER: u32 = 32;
/// The same where urgent ones may wait for the end of a group.
const CATCH_UP_SOON_AFTER: u32 = 8;
/// Stands for the waker, where numbers of connections stand: these are counted from 1.
const WAKER: u64 = 0;
/// That the client hung up, or that the connection is broken; there may be something to read all the same.
const HUNG_UP: EventFlags = EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR);

/// What one turn of a connection came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing is left to be served.
    Done,
    /// There may be more.
    More,
    /// It wants a thread of its own.
    Own,
    /// The connection ends.
    Ended,
}

/// What has a seat. Dropped, it has ended.
pub(crate) trait Seated: Send {
    /// Its number.
    fn id(&self) -> u64;
    /// Where its client's bytes come.
    fn socket(&self) -> &Socket;
    /// Serves what its client has sent, one request at the most.
    fn turn(&mut self, desk: &mut Desk) -> Turn;
    /// Its client has been silent for long: gives back what it does not need until it speaks. Whether that is so.
    fn rest(&mut self) -> bool;
    /// Whether a reply is on its way that somebody else has promised.
    fn is_promised(&self) -> bool;
    /// Goes on, on the calling thread, to its end.
    fn serve_alone(self: Box<Self>);
}

/// A connection in its seat.
struct Sitting {
    connection: Box<dyn Seated>,
    /// The silences counted when it was served last.
    served_at: u64,
    rests: bool,
}

struct Place {
    id: u64,
    /// Whoever is told of news gives it a thread of its own.
    is_alone: bool,
    seat: Seat<Sitting>,
}

/// What a worker is to do next.
enum Next {
    Turn(Arc<Place>),
    CatchUp,
    End,
}

/// See the file's header.
pub(crate) struct Pool {
    epoll: OwnedFd,
    waker: Waker,
    places: Mutex<HashMap<u64, Arc<Place>>>,
    row: Mutex<VecDeque<Arc<Place>>>,
    staff: Staff,
    precedence: Arc<Precedence>,
    /// Of those at work.
    posts: Mutex<Vec<Arc<Post>>>,
    watch: Watch,
    /// Half the time for which a client must be silent before its connection rests.
    silence: Duration,
    silences: AtomicU64,
    /// Does what handlers have left undone.
    catch_up: Box<dyn Fn() + Send + Sync>,
    /// Something is undone, and whoever owes it was relieved.
    owes: AtomicBool,
    closing: Mutex<Option<Sender<Box<dyn Seated>>>>,
    /// Nobody is given back a seat any more.
    is_stopping: AtomicBool,
    /// Workers end.
    is_over: AtomicBool,
    counters: Arc<Counters>,
}

impl Pool {
    /// Nobody has a seat yet. Connections that end go to `closing`; `catch_up` is their [service's](crate::Service::catch_up).
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub fn new(
        worker_count: usize,
        rest_after: Duration,
        counters: Arc<Counters>,
        precedence: Arc<Precedence>,
        catch_up: Box<dyn Fn() + Send + Sync>,
        closing: Sender<Box<dyn Seated>>,
    ) -> io::Result<Self> {
        let (epoll, waker) = (epoll::create(CreateFlags::CLOEXEC)?, Waker::new()?);
        epoll::add(&epoll, &waker, EventData::new_u64(WAKER), EventFlags::IN)?;
        Ok(Self {
            epoll,
            waker,
            places: Mutex::default(),
            row: Mutex::default(),
            staff: Staff::new(worker_count.max(1)),
            precedence,
            posts: Mutex::default(),
            watch: Watch::default(),
            silence: (rest_after / 2).max(Duration::from_millis(1)),
            silences: AtomicU64::new(0),
            catch_up,
            owes: AtomicBool::new(false),
            closing: Mutex::new(Some(closing)),
            is_stopping: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            counters,
        })
    }

    /// Starts the workers.
    ///
    /// # Errors
    /// If not all can be started.
    pub fn start(self: &Arc<Self>) -> io::Result<()> {
        while self.staff.hire() == Hired::New {
            self.start_worker()?;
        }
        Ok(())
    }

    /// Gives a connection a seat, and its first turn: something may have been received before. It is ended instead if the server stops, or
    /// the kernel watches no more sockets.
    pub fn seat(&self, connection: Box<dyn Seated>) {
        self.sit_down(connection, false);
        self.waker.wake();
    }

    /// The same, of one with a thread of its own whose client is silent: it gets another when there is news.
    pub fn seat_alone(&self, connection: Box<dyn Seated>) {
        self.sit_down(connection, true);
        self.watch.wake();
    }

    fn sit_down(&self, mut connection: Box<dyn Seated>, is_alone: bool) {
        let (id, silences) = (connection.id(), self.silences.load(Relaxed));
        let rests = is_alone && connection.rest();
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        let mut places = self.places.lock();
        let watched = epoll::add(&self.epoll, connection.socket(), EventData::new_u64(id), flags);
        if watched.is_err() || self.is_stopping.load(SeqCst) {
            drop(places);
            return self.end(connection);
        }
        self.count_rest(false, rests);
        let seat = Seat::new(Sitting { connection, served_at: silences, rests });
        let place = Arc::new(Place { id, is_alone, seat });
        if !is_alone && place.seat.tell_news() {
            self.row.lock().push_back(Arc::clone(&place));
        }
        // Who is told of news meanwhile waits for the lock.
        places.insert(id, place);
    }

    /// Ends all connections that wait for their clients, and from now on whoever has been served; but whose reply is promised
    /// waits for that first.
    pub fn stop(&self) {
        self.is_stopping.store(true, SeqCst);
        let places: Vec<_> = self.places.lock().values().cloned().collect();
        for place in places {
            if let Some(sitting) = place.seat.take_away_if(|sitting| !sitting.connection.is_promised()) {
                self.take_place(place.id, sitting.connection.as_ref());
                self.count_rest(sitting.rests, false);
                self.end(sitting.connection);
            }
        }
    }

    /// Ends the workers, once no connection is left; whether all of them ended in time.
    pub fn end_workers(&self, until: Instant) -> bool {
        self.is_over.store(true, SeqCst);
        self.staff.stop();
        self.waker.wake();
        self.watch.wake();
        let is_gone = self.staff.is_gone(until);
        // Nobody ends a connection any more.
        self.closing.lock().take();
        is_gone
    }

    /// Work of a worker, until the workers are to end or it is one too many.
    fn work(self: &Arc<Self>) {
        let post = Arc::<Post>::default();
        self.posts.lock().push(Arc::clone(&post));
        be_relieved_by(Rc::new(Worker { pool: Arc::clone(self), post: Arc::clone(&post) }));
        let (mut desk, mut events) = (Desk::default(), Vec::with_capacity(EVENT_COUNT_MAX));
        let (mut is_at_work, mut in_vain) = (true, 0);
        while is_at_work {
            let was_relieved = match self.next(&post, &mut in_vain, &mut events) {
                Next::Turn(place) => self.serve(&place, &post, &mut desk),
                Next::CatchUp => self.catch_up(&post),
                Next::End => break,
            };
            if !was_relieved {
                self.precedence.end_turn();
            }
            if was_relieved {
                is_at_work = self.staff.comes_back();
                if is_at_work {
                    self.posts.lock().push(Arc::clone(&post));
                }
            }
        }
        self.posts.lock().retain(|other| !Arc::ptr_eq(other, &post));
        if is_at_work {
            self.staff.leaves_work();
        }
    }

    /// What a worker is to do next; waits until there is something. A turn has begun with that.
    fn next(self: &Arc<Self>, post: &Post, in_vain: &mut u32, events: &mut Vec<Event>) -> Next {
        loop {
            let undone = post.undone();
            if undone >= CATCH_UP_AFTER || undone >= CATCH_UP_SOON_AFTER && self.precedence.is_there() {
                return Next::CatchUp;
            }
            if let Some(place) = self.next_in_row(in_vain) {
                return Next::Turn(place);
            }
            if undone > 0 {
                // Who has spoken meanwhile is of the same group.
                self.look_around(events);
                return self.next_in_row(in_vain).map_or(Next::CatchUp, Next::Turn);
            }
            if self.owes.load(SeqCst) {
                return Next::CatchUp;
            }
            if self.is_over.load(SeqCst) {
                return Next::End;
            }
            self.wait(events);
        }
    }

    /// Who is first in the row, once those have gone before that are to. He is not taken before: another worker may serve him meanwhile.
    fn next_in_row(&self, in_vain: &mut u32) -> Option<Arc<Place>> {
        // Nobody waits for nothing.
        if self.precedence.is_there() && self.row.lock().is_empty() {
            return None;
        }
        self.precedence.begin_turn(in_vain);
        let place = self.row.lock().pop_front();
        if place.is_none() {
            self.precedence.end_turn();
        }
        place
    }

    /// Has the service do what handlers have left undone, here and on threads that were relieved. Whether the worker was relieved meanwhile.
    fn catch_up(&self, post: &Post) -> bool {
        self.owes.store(false, SeqCst);
        post.take_undone();
        self.precedence.begin_catching_up();
        post.begin_turn();
        (self.catch_up)();
        post.end_turn()
    }

    /// Waits for news, and tells the seats.
    fn wait(self: &Arc<Self>, events: &mut Vec<Event>) {
        events.clear();
        self.staff.waits();
        // Whoever has put something into the row since it was looked at, and goes away, found nobody to call.
        if !self.is_undone() {
            // Interrupted by a signal, it looks around and waits again.
            let _ = epoll::wait(&self.epoll, spare_capacity(events), None);
        }
        if self.staff.works() {
            self.hire();
        }
        self.watch.wake();
        self.tell_news(events);
    }

    /// Tells the seats what news there is.
    fn look_around(&self, events: &mut Vec<Event>) {
        events.clear();
        let _ = epoll::wait(&self.epoll, spare_capacity(events), Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        self.tell_news(events);
    }

    fn tell_news(&self, events: &[Event]) {
        let mut alone: SmallVec<[(Arc<Place>, bool); 4]> = SmallVec::new();
        {
            let places = self.places.lock();
            let mut row = self.row.lock();
            for event in events {
                match event.data.u64() {
                    // All are to be woken at the end.
                    WAKER if self.is_over.load(SeqCst) => {}
                    WAKER => self.waker.silence(),
                    id => match places.get(&id).filter(|place| place.seat.tell_news()) {
                        Some(place) if place.is_alone => {
                            let flags = event.flags;
                            alone.push((Arc::clone(place), flags.intersects(HUNG_UP)));
                        }
                        Some(place) => row.push_back(Arc::clone(place)),
                        None => {}
                    },
                }
            }
        }
        for (place, has_hung_up) in alone {
            let Some(sitting) = place.seat.take() else { continue };
            self.count_rest(sitting.rests, false);
            if has_hung_up && has_ended(sitting.connection.socket()) {
                self.leave(&place, sitting.connection);
            } else {
                self.let_go(&place, sitting.connection);
            }
        }
    }

    /// The connection ends.
    fn leave(&self, place: &Place, connection: Box<dyn Seated>) {
        self.take_place(place.id, connection.as_ref());
        place.seat.leave();
        self.end(connection);
    }

    /// One turn of a connection. Whether the worker was relieved meanwhile.
    fn serve(self: &Arc<Self>, place: &Arc<Place>, post: &Post, desk: &mut Desk) -> bool {
        let Some(sitting) = place.seat.take() else { return false };
        self.count_rest(sitting.rests, false);
        work_for_connection(place.id);
        post.begin_turn();
        let served = catch_unwind(AssertUnwindSafe(|| {
            let mut connection = sitting.connection;
            let turn = connection.turn(desk);
            (turn, connection)
        }));
        // A panic in what follows would leave the connection nowhere.
        let _guard = must_not_unwind("a connection's turn");
        match served {
            Ok((turn @ (Turn::Done | Turn::More), connection)) => {
                self.give_back(place, connection, turn == Turn::More);
            }
            Ok((Turn::Own, connection)) => self.let_go(place, connection),
            Ok((Turn::Ended, connection)) => self.leave(place, connection),
            // It is dropped already, and its socket closed.
            Err(_) => {
                self.places.lock().remove(&place.id);
                place.seat.leave();
                *desk = Desk::default();
            }
        }
        work_for_connection(0);
        post.note_turn(std::mem::take(&mut desk.owes));
        let was_relieved = post.end_turn();
        if was_relieved {
            if post.take_undone() {
                (self.catch_up)();
            }
            // It may be one too many now, and what it has put into the row is another's.
            self.call_idle();
        }
        was_relieved
    }

    fn give_back(&self, place: &Arc<Place>, connection: Box<dyn Seated>, is_more: bool) {
        let sitting = Sitting { connection, served_at: self.silences.load(Relaxed), rests: false };
        if place.seat.give_back(sitting, is_more) {
            self.row.lock().push_back(Arc::clone(place));
        } else if self.is_stopping.load(SeqCst)
            && let Some(sitting) = place.seat.take_away_if(|sitting| !sitting.connection.is_promised())
        {
            // Whoever stops may have looked before.
            self.take_place(place.id, sitting.connection.as_ref());
            self.end(sitting.connection);
        }
    }

    /// The connection goes on on a thread of its own, or in its seat if there is none.
    fn let_go(&self, place: &Arc<Place>, connection: Box<dyn Seated>) {
        self.take_place(place.id, connection.as_ref());
        place.seat.leave();
        // What cannot be started drops what it was given.
        let handed_over = Arc::new(Mutex::new(Some(connection)));
        let taken_over = Arc::clone(&handed_over);
        let name = format!("conn{}", place.id);
        let started = Builder::new().name(name).stack_size(STACK_SIZE_BYTES).spawn(move || {
            let connection = taken_over.lock().take();
            drop(taken_over);
            connection.into_iter().for_each(Seated::serve_alone);
        });
        let left = if started.is_ok() { None } else { handed_over.lock().take() };
        if let Some(connection) = left {
            self.seat(connection);
        }
    }

    /// Nobody tells this seat news any more.
    fn take_place(&self, id: u64, connection: &dyn Seated) {
        // Its socket is open, and is watched: this does not fail.
        let _ = epoll::delete(&self.epoll, connection.socket());
        self.places.lock().remove(&id);
    }

    fn end(&self, connection: Box<dyn Seated>) {
        let refused = match &*self.closing.lock() {
            Some(closing) => closing.send(connection).err().map(|refused| refused.0),
            None => Some(connection),
        };
        // Nobody is there to end it, which cannot be while the server runs: it is ended here.
        drop(refused);
    }

    fn count_rest(&self, before: bool, now: bool) {
        if before && !now {
            self.counters.resting.fetch_sub(1, SeqCst);
            // It may sleep because all rest.
            self.watch.wake();
        } else if now && !before {
            self.counters.resting.fetch_add(1, SeqCst);
        }
    }

    /// Fills all places that are free.
    fn hire(self: &Arc<Self>) {
        loop {
            match self.staff.hire() {
                Hired::Nobody => return,
                Hired::Spare => {}
                Hired::New if self.start_worker().is_err() => return,
                Hired::New => {}
            }
        }
    }

    fn start_worker(self: &Arc<Self>) -> io::Result<()> {
        let pool = Arc::clone(self);
        let started = Builder::new().name("worker".into()).stack_size(STACK_SIZE_BYTES).spawn(move || {
            // Handlers' panics end connections; any other would leave a place unfilled.
            let _guard = must_not_unwind("serving connections");
            pool.work();
            pool.staff.ends();
        });
        started.map(drop).inspect_err(|_| self.staff.is_not_started())
    }

    /// Relieves a worker in the turn in which it was seen.
    fn relieve(self: &Arc<Self>, post: &Post, seen: Seen) {
        if !seen.can_be_relieved() {
            return;
        }
        {
            // The worker may be done at once, and puts its post back: not before it is taken away here.
            let mut posts = self.posts.lock();
            if !post.relieve(seen) {
                return;
            }
            posts.retain(|other| !std::ptr::eq(&**other, post));
        }
        self.precedence.leave_turn();
        if post.take_undone() {
            self.owes.store(true, SeqCst);
        }
        if self.staff.is_relieved() {
            self.hire();
        }
        self.call_idle();
    }

    /// Whoever waits for events does not see those that are in the row already, nor what was left undone.
    fn call_idle(&self) {
        if self.staff.has_idle() && self.is_undone() {
            self.waker.wake();
        }
    }

    fn is_undone(&self) -> bool {
        self.owes.load(SeqCst) || !self.row.lock().is_empty()
    }
}

/// How a worker is relieved that says so itself.
struct Worker {
    pool: Arc<Pool>,
    post: Arc<Post>,
}

impl Relief for Worker {
    fn relieve(&self) {
        self.pool.relieve(&self.post, self.post.see());
    }
}

/// Whether the client has hung up, or the connection is broken, and nothing is left to be read.
fn has_ended(socket: &Socket) -> bool {
    match recv(socket, &mut [0u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((_, byte_count)) => byte_count == 0,
        Err(error) => !matches!(error, Errno::AGAIN | Errno::INTR),
    }
}
