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
//! ([`baton_machine::about_to_wait`]), and one thread, the *watch*, looks every two milliseconds who has been at the same turn for so long.
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
//! Source: `epoll(7)`. The watch is what `sysmon` is for Go's scheduler, to which handing the others over while one waits is owed.

use crate::connection::{Desk, STACK_SIZE_BYTES};
use crate::counters::Counters;
use crate::precedence::Precedence;
use crate::seat::Seat;
use crate::staff::{Hired, Staff};
use crate::waker::Waker;
use baton_machine::{Relief, be_relieved_by, work_for_connection};
use baton_types::must_not_unwind;
use parking_lot::{Condvar, Mutex};
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
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::mpsc::Sender;
use std::thread::Builder;
use std::time::{Duration, Instant};
use tracing::warn;

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
/// How often the watch looks, while somebody works; a turn that it sees twice takes long.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// After so many looks at which nobody worked it sleeps.
const IDLE_LOOKS_MAX: u32 = 10;
/// How long it sleeps where nobody is left that could fall silent.
const ALL_REST_WAIT: Duration = Duration::from_secs(3600);
/// How often the log says that no thread can be started.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

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

/// What a worker is at, as the watch sees it: the turn's number, whether it is in it, and whether it has been relieved.
#[derive(Default)]
struct Post {
    state: AtomicU64,
    /// What the watch saw last.
    seen: AtomicU64,
    /// The turns since something was left undone, that one included; 0, if nothing is.
    undone: AtomicU32,
}

/// What a worker is to do next.
enum Next {
    Turn(Arc<Place>),
    CatchUp,
    End,
}

const IN_TURN: u64 = 1;
const RELIEVED: u64 = 2;
const TURN: u64 = 4;

impl Post {
    fn begin(&self) {
        self.state.fetch_or(IN_TURN, SeqCst);
    }

    /// Whether it was relieved meanwhile.
    fn end(&self) -> bool {
        let next = (self.state.load(SeqCst) & !(IN_TURN | RELIEVED)).wrapping_add(TURN);
        self.state.swap(next, SeqCst) & RELIEVED != 0
    }

    /// Whether it is relieved by this, in the turn in which it was seen.
    fn relieve(&self, seen: u64) -> bool {
        Self::can_be_relieved(seen) && self.state.compare_exchange(seen, seen | RELIEVED, SeqCst, SeqCst).is_ok()
    }

    /// Whether it is in a turn, and has not been relieved.
    fn can_be_relieved(seen: u64) -> bool {
        seen & (IN_TURN | RELIEVED) == IN_TURN
    }
}

#[derive(Default)]
struct Watch {
    /// Whether it sleeps until somebody works.
    asleep: AtomicBool,
    called: Mutex<bool>,
    call: Condvar,
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
        self.wake_watch();
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
        self.wake_watch();
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
            let undone = post.undone.load(SeqCst);
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
        post.undone.store(0, SeqCst);
        self.precedence.begin_catching_up();
        post.begin();
        (self.catch_up)();
        post.end()
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
        self.wake_watch();
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
        post.begin();
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
        if std::mem::take(&mut desk.owes) || post.undone.load(SeqCst) > 0 {
            post.undone.fetch_add(1, SeqCst);
        }
        let was_relieved = post.end();
        if was_relieved {
            if post.undone.swap(0, SeqCst) > 0 {
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
            self.wake_watch();
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
    fn relieve(self: &Arc<Self>, post: &Post, seen: u64) {
        if !Post::can_be_relieved(seen) {
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
        if post.undone.swap(0, SeqCst) > 0 {
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

    fn wake_watch(&self) {
        if self.watch.asleep.load(SeqCst) && self.watch.asleep.swap(false, SeqCst) {
            *self.watch.called.lock() = true;
            self.watch.call.notify_one();
        }
    }

    /// The watch: relieves who takes long, and has those rest that are silent. Until the workers are to end.
    pub fn keep_watch(self: &Arc<Self>) {
        let _guard = must_not_unwind("watching those who serve connections");
        let (mut idle_looks, mut swept, mut warned) = (0, Instant::now(), None::<Instant>);
        while !self.is_over.load(SeqCst) {
            let is_busy = self.look();
            if self.staff.is_short() {
                self.hire();
                if self.staff.is_short() && warned.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL) {
                    warned = Some(Instant::now());
                    say_no_thread();
                }
            }
            self.call_idle();
            if swept.elapsed() >= self.silence {
                swept = Instant::now();
                self.sweep();
            }
            idle_looks = if is_busy { 0 } else { idle_looks + 1 };
            if idle_looks < IDLE_LOOKS_MAX {
                std::thread::sleep(LOOK_EVERY.min(self.silence));
            } else {
                self.sleep();
            }
        }
    }

    /// Relieves whoever has been at one turn since the last look; whether anybody works.
    fn look(self: &Arc<Self>) -> bool {
        let posts = self.posts.lock().clone();
        let mut is_busy = false;
        for post in posts {
            let state = post.state.load(SeqCst);
            let seen = post.seen.swap(state, Relaxed);
            is_busy |= seen != state;
            if seen == state {
                self.relieve(&post, seen);
            }
        }
        is_busy || !self.staff.has_idle()
    }

    /// Has all rest that have been silent for two sweeps.
    fn sweep(&self) {
        let silences = self.silences.fetch_add(1, Relaxed) + 1;
        let places: Vec<_> = self.places.lock().values().cloned().collect();
        for place in places {
            place.seat.while_it_waits(|sitting| {
                if !sitting.rests && sitting.served_at + 2 <= silences && sitting.connection.rest() {
                    sitting.rests = true;
                    self.count_rest(false, true);
                }
            });
        }
    }

    /// Until somebody works, or somebody may be silent for long enough.
    fn sleep(&self) {
        self.watch.asleep.store(true, SeqCst);
        let all_rest = self.counters.resting.load(SeqCst) >= self.places.lock().len();
        let mut called = self.watch.called.lock();
        let wait = if all_rest { ALL_REST_WAIT } else { self.silence };
        // Whoever began to work before it slept found nobody to wake.
        if !*called && self.staff.has_idle() && !self.is_over.load(SeqCst) {
            self.watch.call.wait_for(&mut called, wait);
        }
        *called = false;
        self.watch.asleep.store(false, SeqCst);
    }
}

/// How a worker is relieved that says so itself.
struct Worker {
    pool: Arc<Pool>,
    post: Arc<Post>,
}

impl Relief for Worker {
    fn relieve(&self) {
        self.pool.relieve(&self.post, self.post.state.load(SeqCst));
    }
}

/// Whether the client has hung up, or the connection is broken, and nothing is left to be read.
fn has_ended(socket: &Socket) -> bool {
    match recv(socket, &mut [0u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((_, byte_count)) => byte_count == 0,
        Err(error) => !matches!(error, Errno::AGAIN | Errno::INTR),
    }
}

fn say_no_thread() {
    warn!(
        target: "NETWORK", id = 22949,
        "Unable to start a thread that serves connections; those whose clients have spoken wait for one"
    );
}
