//! The niceness of threads that serve requests: as their class is, for as long as they serve one, and as that of whoever waits for them.
//!
//! | class | niceness |
//! |---|---|
//! | high | -20 |
//! | normal | what the process began with, 0 as a rule |
//! | low | 19 |
//!
//! One of low class that has lasted long is lent a tenth of a normal one's weight ([`Bearer::lend_to_last`]): with a seventieth it would not
//! come to its end beside those who always ask.
//!
//! To be less nice than the process takes a privilege (`CAP_SYS_NICE`, or `RLIMIT_NICE`), and to be so again after having been nicer
//! takes it, too. So a process without it sets none at all, and [`right`] says so.
//!
//! Who waits for what another thread holds or does [lends](Bearer::lend) it his own niceness, for as long as he waits. Loans go
//! from one who waits to one who does not wait for him, and nobody lends what he was lent but by waiting himself, so there are no circles:
//! whoever waits in a circle would wait for ever without any loans.
//!
//! Invariants: a thread's niceness is its own or the least that it is lent, whichever is less; the kernel is told of no thread that is known to have
//! ended. (One may end while the kernel is about to be told: then there is no such thread, unless all numbers were given anew in between.)
//! **Nobody waits here for anybody**: a thread that gets nicer, because somebody takes back what he lent it, may lose its processor in that very moment,
//! for as long as others want it. Were there a lock around that, whoever comes to lend it something would wait for the thread that he is to help. So
//! whoever changes what a thread's niceness is to be tells the kernel, and looks afterwards whether it is that still.
//!
//! Source: `sched_setattr(2)`, `setpriority(2)` and `sched(7)`: for Linux niceness is a thread's, not a process's. Lending is priority inheritance (Sha,
//! Rajkumar and Lehoczky, "Priority Inheritance Protocols", IEEE Transactions on Computers, 1990).

use crate::slices::{self, AtomicSlices, Slices};
use arc_swap::ArcSwap;
use baton_types::Class;
use rustix::process::{Pid, Resource, Rlimit, getpriority_process, getrlimit, setpriority_process, setrlimit};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, LazyLock, Weak};

const HIGH: i32 = -20;
const LOW: i32 = 19;
/// How many there are, from -20 to 19.
const LEVELS: usize = 40;

/// What a process may do about the niceness of its threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// All of it.
    All,
    /// Be nicer, and as nice as before again, but not less than that.
    Lower,
    /// Nothing that it could take back.
    None,
}

impl Right {
    /// As shown to users.
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Lower => "lower",
            Self::None => "none",
        }
    }
}

/// What the process began with, and what it may do: found out once, by a thread that ends with it.
static STANDING: LazyLock<(i32, Right)> = LazyLock::new(|| {
    let found_out = std::thread::spawn(|| {
        let limit = getrlimit(Resource::Nice);
        // What it may have it takes: services and shells give the hard limit, and not always the soft one.
        let _ = setrlimit(Resource::Nice, Rlimit { current: limit.maximum, maximum: limit.maximum });
        let usual = getpriority_process(None).unwrap_or(0);
        let right = if setpriority_process(None, HIGH).is_ok() && setpriority_process(None, usual).is_ok() {
            Right::All
        } else if setpriority_process(None, LOW).is_ok() && setpriority_process(None, usual).is_ok() {
            Right::Lower
        } else {
            Right::None
        };
        (usual, right)
    });
    found_out.join().unwrap_or((0, Right::None))
});

/// What this process may do.
pub fn right() -> Right {
    STANDING.1
}

fn of(class: Class) -> i32 {
    let (usual, right) = *STANDING;
    match (class, right) {
        (_, Right::None) | (Class::Normal | Class::Background, _) => usual,
        (Class::High, Right::All) => HIGH,
        (Class::High, Right::Lower) => usual,
        (Class::Low, _) => LOW,
    }
}

thread_local! {
    static OWN: Owner = Owner(Bearer::new());
}

/// The calling thread serves a request of this class from now on.
pub fn as_class(class: Class) {
    if right() != Right::None {
        OWN.with(|own| own.0.be(of(class)));
    }
}

/// The calling thread is no nicer than one of this class from now on: what it does next may be for anybody of that.
pub fn at_most_as_nice_as(class: Class) {
    if right() != Right::None {
        OWN.with(|own| own.0.be(own.0.own.load(Relaxed).min(of(class))));
    }
}

/// The calling thread is nicer by itself from now on, if it is not so nice already.
pub(crate) fn be_at_least_as_nice_as(niceness: i32) {
    OWN.with(|own| own.0.be(own.0.own.load(Relaxed).max(niceness)));
}

/// What the calling thread's own slices are.
pub(crate) fn slices() -> Slices {
    OWN.with(|own| own.0.slices.load())
}

/// They are these from now on.
pub(crate) fn take(slices: Slices) {
    OWN.with(|own| {
        own.0.slices.store(slices);
        own.0.tell(own.0.wanted());
    });
}

/// The calling thread, as the kernel numbers it, and its niceness, loans included.
pub(crate) fn of_this_thread() -> (i32, i32) {
    OWN.with(|own| (own.0.thread.as_raw_nonzero().get(), own.0.niceness()))
}

/// The bearer of that thread's niceness, if it has one yet and has not ended.
pub(crate) fn bearer_of(thread: i32) -> Option<Arc<Bearer>> {
    BEARERS.load().get(&thread)?.upgrade()
}

/// Those of all threads that have one and have not ended.
pub fn bearers() -> Vec<Arc<Bearer>> {
    BEARERS.load().values().filter_map(Weak::upgrade).collect()
}

/// All of them, by their threads. There are as many changes as threads that begin and end.
static BEARERS: LazyLock<ArcSwap<HashMap<i32, Weak<Bearer>>>> = LazyLock::new(ArcSwap::default);

fn change_bearers(change: impl Fn(&mut HashMap<i32, Weak<Bearer>>)) {
    BEARERS.rcu(|all| {
        let mut all = HashMap::clone(all);
        change(&mut all);
        all
    });
}

/// The bearer of the calling thread's niceness.
pub fn bearer() -> Arc<Bearer> {
    OWN.with(|own| Arc::clone(&own.0))
}

/// The niceness of the calling thread, loans included.
pub fn niceness() -> i32 {
    OWN.with(|own| own.0.niceness())
}

/// Whether the calling thread, by itself, serves requests of high class, or what they wait for.
pub fn is_urgent() -> bool {
    right() == Right::All && OWN.with(|own| own.0.own.load(Relaxed) == HIGH)
}

/// How often a thread was lent a niceness that it did not have by itself, since the start.
static INHERITED: AtomicU64 = AtomicU64::new(0);

/// How often a thread was as urgent as somebody who waited for it, and not by itself, since the start.
pub fn inheritances() -> u64 {
    INHERITED.load(Relaxed)
}

/// Of so many things that threads share one says that it has them.
pub(crate) const SHARED_MAX: usize = 4;

/// What the calling thread shares with others: a lock, a pool of memory. Whoever waits until there is none, or more, of it finds the thread
/// by that ([`lend_to_sharers`]).
#[derive(Debug)]
#[must_use = "dropped, it is shared no more"]
pub struct Sharing {
    /// None, if the thread shares too much.
    place: Option<usize>,
    /// It ends on its own thread.
    _own: PhantomData<*const ()>,
}

/// The calling thread shares this from now on, until what it gets is dropped. A thing is known by where it is, which is not 0.
pub fn share<T>(thing: &T) -> Sharing {
    let place = OWN.with(|own| {
        let place = own.0.shares.iter().position(|shared| shared.load(Relaxed) == 0)?;
        own.0.shares[place].store(std::ptr::from_ref(thing).addr(), Relaxed);
        Some(place)
    });
    Sharing { place, _own: PhantomData }
}

impl Drop for Sharing {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            OWN.with(|own| own.0.shares[place].store(0, Relaxed));
        }
    }
}

/// Lends the calling thread's niceness to those that [share](share) this now, as far as they are nicer.
pub fn lend_to_sharers<T>(thing: &T) -> SmallVec<[Loan; 4]> {
    if right() == Right::None {
        return SmallVec::new();
    }
    let thing = std::ptr::from_ref(thing).addr();
    let shares = |bearer: &Arc<Bearer>| bearer.shares.iter().any(|shared| shared.load(Relaxed) == thing);
    let own = niceness();
    BEARERS.load().values().filter_map(Weak::upgrade).filter(shares).filter_map(|sharer| sharer.lend(own)).collect()
}

/// Ends with its thread.
struct Owner(Arc<Bearer>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.has_ended.store(true, SeqCst);
        change_bearers(|all| drop(all.remove(&self.0.thread())));
    }
}

/// One thread's niceness, as others may see and lessen it.
#[derive(Debug)]
pub struct Bearer {
    thread: Pid,
    /// By itself.
    own: AtomicI32,
    /// What the kernel was told last, or is being told.
    now: AtomicI32,
    /// Its own slices, which it has while it is not urgent.
    slices: AtomicSlices,
    /// What it shares, by where that is; 0: nothing.
    shares: [AtomicUsize; SHARED_MAX],
    /// How many lend it each niceness, -20 first.
    lent: [AtomicU32; LEVELS],
    has_ended: AtomicBool,
}

impl Bearer {
    fn new() -> Arc<Self> {
        let now = getpriority_process(None).unwrap_or(0);
        let bearer = Arc::new(Self {
            thread: rustix::thread::gettid(),
            own: AtomicI32::new(now),
            now: AtomicI32::new(now),
            slices: AtomicSlices::default(),
            shares: Default::default(),
            lent: [const { AtomicU32::new(0) }; LEVELS],
            has_ended: AtomicBool::new(false),
        });
        change_bearers(|all| drop(all.insert(bearer.thread(), Arc::downgrade(&bearer))));
        bearer
    }

    /// The thread, as the kernel numbers it.
    pub fn thread(&self) -> i32 {
        self.thread.as_raw_nonzero().get()
    }

    /// The class that has this niceness, if the thread by itself has one.
    pub fn class(&self) -> Option<Class> {
        let own = self.own.load(Relaxed);
        [Class::Normal, Class::Low, Class::High].into_iter().find(|class| of(*class) == own)
    }

    /// What it is now.
    pub fn niceness(&self) -> i32 {
        self.now.load(Relaxed)
    }

    /// By itself it is this from now on. Only its own thread says so.
    fn be(&self, niceness: i32) {
        if self.own.load(Relaxed) != niceness {
            self.own.store(niceness, SeqCst);
            self.settle();
        }
    }

    /// One of this niceness waits for the thread, until the loan is dropped. Nothing, if the thread by itself is no nicer than that:
    /// what others lend it they take back.
    pub fn lend(self: &Arc<Self>, niceness: i32) -> Option<Loan> {
        if self.own.load(Relaxed) <= niceness || right() == Right::None {
            return None;
        }
        self.lent[level(niceness)].fetch_add(1, SeqCst);
        INHERITED.fetch_add(1, Relaxed);
        // Though it may be so already: one that gets nicer may have lost its processor before it could look.
        self.tell(self.wanted());
        Some(Loan { to: Arc::clone(self), niceness })
    }

    /// The same, of one that is served as this class.
    pub fn lend_as(self: &Arc<Self>, class: Class) -> Option<Loan> {
        self.lend(of(class))
    }

    /// Whoever the thread serves has lasted so long that it is to come to its end, until the loan is dropped.
    pub fn lend_to_last(self: &Arc<Self>) -> Option<Loan> {
        self.lend(crate::background::NICENESS)
    }

    /// By itself, or by what it is lent.
    fn wanted(&self) -> i32 {
        let own = self.own.load(SeqCst);
        let lent = (HIGH..own).zip(&self.lent).find(|(_, loans)| loans.load(SeqCst) > 0);
        lent.map_or(own, |(niceness, _)| niceness)
    }

    /// What it is to be has changed, or may have.
    fn settle(&self) {
        let wanted = self.wanted();
        if wanted != self.niceness() {
            self.tell(wanted);
        }
    }

    /// The shortest, while it is as urgent as the high class, by itself or because somebody of that waits for it.
    fn slices_at(&self, niceness: i32) -> Slices {
        if niceness == HIGH { Slices::Short } else { self.slices.load() }
    }

    /// Tells the kernel, and again, if that was too late.
    fn tell(&self, mut wanted: i32) {
        let mut slices = self.slices_at(wanted);
        while !self.has_ended.load(SeqCst) {
            self.now.store(wanted, SeqCst);
            if let Err(error) = slices::set(self.thread, wanted, slices) {
                tracing::debug!(component = "MACHINE", error = %error, "The kernel does not change a thread's niceness");
            }
            let told = (wanted, slices);
            wanted = self.wanted();
            slices = self.slices_at(wanted);
            if told == (wanted, slices) {
                break;
            }
        }
    }
}

fn level(niceness: i32) -> usize {
    usize::try_from(niceness - HIGH).unwrap_or(0).min(LEVELS - 1)
}

/// See [`Bearer::lend`].
#[derive(Debug)]
#[must_use = "dropped, it is given back"]
pub struct Loan {
    to: Arc<Bearer>,
    niceness: i32,
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.to.lent[level(self.niceness)].fetch_sub(1, SeqCst);
        self.to.settle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn kernels() -> i32 {
        getpriority_process(None).unwrap()
    }

    fn on_a_thread_of_its_own(work: impl FnOnce() + Send) {
        std::thread::scope(|scope| scope.spawn(work).join().unwrap());
    }

    #[test]
    fn a_thread_is_as_nice_as_its_class_and_others_stay_as_they_are() {
        let usual = kernels();
        on_a_thread_of_its_own(|| {
            as_class(Class::Normal);
            assert_eq!(kernels(), usual);
            for class in [Class::Low, Class::High, Class::Normal] {
                as_class(class);
                assert_eq!((kernels(), niceness()), (of(class), of(class)), "{class}");
            }
            as_class(Class::Low);
            at_most_as_nice_as(Class::Normal);
            assert_eq!(kernels(), usual);
            as_class(Class::High);
            at_most_as_nice_as(Class::Normal);
            assert_eq!(kernels(), of(Class::High), "it is not nicer than that");
        });
        assert_eq!(kernels(), usual);
    }

    #[test]
    fn without_the_right_nothing_is_changed_that_could_not_be_changed_back() {
        match right() {
            Right::All => assert!(of(Class::High) < of(Class::Normal) && of(Class::Normal) < of(Class::Low)),
            Right::Lower => assert!(of(Class::High) == of(Class::Normal) && of(Class::Normal) < of(Class::Low)),
            Right::None => assert!(of(Class::High) == of(Class::Low)),
        }
    }

    #[test]
    fn who_is_waited_for_has_the_least_niceness_of_those_who_wait_until_they_do_not() {
        on_a_thread_of_its_own(|| {
            as_class(Class::Low);
            let bearer = bearer();
            let of_normal = bearer.lend(of(Class::Normal));
            assert_eq!(kernels(), of(Class::Normal));
            let of_high = bearer.lend(of(Class::High));
            assert_eq!(kernels(), of(Class::High));
            assert!(bearer.lend(of(Class::Low)).is_none(), "it is as nice by itself");
            let before = inheritances();
            let of_another = bearer.lend(of(Class::High));
            assert!(inheritances() > before);
            drop(of_high);
            assert_eq!(kernels(), of(Class::High), "each is given back by itself");
            let of_high = of_another;
            as_class(Class::Normal);
            assert_eq!(kernels(), of(Class::High), "whatever it is by itself");
            drop(of_high);
            assert_eq!(kernels(), of(Class::Normal));
            as_class(Class::Low);
            assert_eq!(kernels(), of(Class::Normal));
            drop(of_normal);
            assert_eq!(kernels(), of(Class::Low));
        });
    }

    #[test]
    fn one_of_low_class_that_lasts_has_the_weight_of_the_background_and_no_other_class_has() {
        on_a_thread_of_its_own(|| {
            let bearer = bearer();
            for class in [Class::High, Class::Normal] {
                as_class(class);
                assert!(bearer.lend_to_last().is_none(), "{class}");
            }
            as_class(Class::Low);
            let loan = bearer.lend_to_last();
            let lasting = if right() == Right::None { of(Class::Low) } else { crate::background::NICENESS };
            assert_eq!(kernels(), lasting);
            drop(loan);
            assert_eq!(kernels(), of(Class::Low));
        });
    }

    /// It is given back on a processor that two others want all the time: whoever is given back on it is gone for seconds.
    #[test]
    fn who_gets_nicer_and_loses_its_processor_by_that_keeps_nobody_from_lending_to_it() {
        if right() != Right::All {
            return;
        }
        const TURNS: u32 = 100;
        const MS: Duration = Duration::from_millis(1);
        let on_the_first = || {
            let mut one = rustix::thread::CpuSet::new();
            one.set(0);
            // Where that is not for this process, wherever it likes.
            let _ = rustix::thread::sched_setaffinity(None, &one);
        };
        let (stop, (tell, told)) = (AtomicBool::new(false), std::sync::mpsc::channel());
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    on_the_first();
                    as_class(Class::High);
                    while !stop.load(Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            scope.spawn(|| {
                as_class(Class::Low);
                tell.send(bearer()).unwrap();
                on_the_first();
                while !stop.load(Relaxed) {
                    drop(bearer().lend(of(Class::Normal)));
                }
            });
            as_class(Class::High);
            let (low, mut longest) = (told.recv().unwrap(), Duration::ZERO);
            for _ in 0..TURNS {
                let began = Instant::now();
                let loan = low.lend(of(Class::High));
                longest = longest.max(began.elapsed());
                std::thread::sleep(MS);
                drop(loan);
                std::thread::sleep(MS);
            }
            let _to_its_end = low.lend(of(Class::High));
            stop.store(true, Relaxed);
            as_class(Class::Normal);
            assert!(longest < 500 * MS, "{longest:?}");
        });
    }

    #[test]
    fn whoever_lends_and_takes_back_at_once_with_others_the_kernel_knows_the_outcome() {
        const TURNS: usize = 20_000;
        on_a_thread_of_its_own(|| {
            let bearer = bearer();
            std::thread::scope(|scope| {
                for niceness in [of(Class::High), of(Class::Normal), crate::background::NICENESS] {
                    let bearer = &bearer;
                    scope.spawn(move || (0..TURNS).for_each(|_| drop(bearer.lend(niceness))));
                }
                for _ in 0..TURNS / 2 {
                    as_class(Class::Low);
                    as_class(Class::Normal);
                }
                as_class(Class::Low);
            });
            assert_eq!((kernels(), niceness()), (of(Class::Low), of(Class::Low)));
            let loan = bearer.lend(of(Class::High));
            assert_eq!(kernels(), of(Class::High));
            drop(loan);
            assert_eq!(kernels(), of(Class::Low), "nothing is left of all that was lent");
        });
    }

    #[test]
    fn a_thread_that_has_ended_is_left_alone() {
        let bearer = std::thread::spawn(|| {
            as_class(Class::Low);
            bearer()
        });
        let bearer = bearer.join().unwrap();
        let before = bearer.niceness();
        drop(bearer.lend(of(Class::High)));
        assert_eq!(bearer.niceness(), before);
    }
}
