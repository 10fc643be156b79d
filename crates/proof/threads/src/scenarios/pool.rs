// What the seats of connections, and those who serve them in turns, are put through.

use crate::shuttled::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::shuttled::parking_lot::Mutex;
use seat::Seat;
use staff::{Hired, Staff};
use std::sync::Arc;

/// A connection whose client has sent so much, of which so much is served; and how often it stands in the row.
#[derive(Default)]
struct Line {
    sent: AtomicUsize,
    served: AtomicUsize,
    in_row: Mutex<usize>,
    is_served: AtomicBool,
}

impl Line {
    /// Serves it once, if it stands in the row.
    fn serve(&self, seat: &Seat<()>) -> bool {
        {
            let mut in_row = self.in_row.lock();
            if *in_row == 0 {
                return false;
            }
            *in_row -= 1;
        }
        seat.take().expect("who stands in the row is ready");
        assert!(!self.is_served.swap(true, Ordering::SeqCst), "two threads serve it");
        self.served.store(self.sent.load(Ordering::SeqCst), Ordering::SeqCst);
        self.is_served.store(false, Ordering::SeqCst);
        if seat.give_back((), false) {
            *self.in_row.lock() += 1;
        }
        true
    }
}

/// News comes while two threads serve: all of it is served in the end.
pub fn news_comes_at_any_moment() {
    crate::shuttled::time::begin(false);
    let (line, seat) = (Arc::new(Line::default()), Arc::new(Seat::new(())));
    let (of, its) = (Arc::clone(&line), Arc::clone(&seat));
    let mut threads = vec![shuttle::thread::spawn(move || {
        for _ in 0..3 {
            of.sent.fetch_add(1, Ordering::SeqCst);
            if its.tell_news() {
                *of.in_row.lock() += 1;
            }
        }
    })];
    for _ in 0..2 {
        let (of, its) = (Arc::clone(&line), Arc::clone(&seat));
        threads.push(shuttle::thread::spawn(move || {
            for _ in 0..3 {
                if !of.serve(&its) {
                    shuttle::thread::yield_now();
                }
            }
        }));
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    while line.serve(&seat) {}
    assert_eq!(line.served.load(Ordering::SeqCst), 3, "news is lost");
}

/// A staff of two, of which nobody waits for events.
fn two_at_work() -> Arc<Staff> {
    let staff = Arc::new(Staff::new(2));
    assert_eq!([staff.hire(), staff.hire(), staff.hire()], [Hired::New, Hired::New, Hired::Nobody]);
    staff
}

/// Hires as long as somebody is to be; how many threads are to be started.
fn hire(staff: &Staff) -> usize {
    let mut started = 0;
    loop {
        match staff.hire() {
            Hired::Nobody => return started,
            Hired::Spare => {}
            Hired::New => started += 1,
        }
    }
}

/// One is relieved while the other, who has waited for events, begins to work.
pub fn the_last_to_work_or_to_wait_sees_to_it() {
    crate::shuttled::time::begin(false);
    let staff = two_at_work();
    staff.waits();
    let (relieved, works) = (Arc::clone(&staff), Arc::clone(&staff));
    let threads = [
        shuttle::thread::spawn(move || if relieved.is_relieved() { hire(&relieved) } else { 0 }),
        shuttle::thread::spawn(move || if works.works() { hire(&works) } else { 0 }),
    ];
    let started: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert_eq!(started, 1, "a place is left empty, or filled twice");
}

/// One comes back when his place is filled, while the one who has filled it is relieved.
pub fn a_spare_is_called() {
    crate::shuttled::time::begin(false);
    let staff = two_at_work();
    assert!(staff.is_relieved());
    assert_eq!(hire(&staff), 1);
    let (comes, goes) = (Arc::clone(&staff), Arc::clone(&staff));
    let is_back = Arc::new(AtomicBool::new(false));
    let says_so = Arc::clone(&is_back);
    let comes = shuttle::thread::spawn(move || {
        let is_at_work = comes.comes_back();
        says_so.store(true, Ordering::SeqCst);
        is_at_work
    });
    let goes = shuttle::thread::spawn(move || if goes.is_relieved() { hire(&goes) } else { 0 });
    let started = goes.join().unwrap();
    if started > 0 {
        // He came too late, and finds the next place free, or is called for it; whoever else is hired cannot be started.
        staff.is_relieved();
        while !is_back.load(Ordering::SeqCst) {
            if staff.hire() == Hired::New {
                staff.is_not_started();
            }
            shuttle::thread::yield_now();
        }
    }
    assert!(comes.join().unwrap(), "nobody ends");
    assert_eq!(staff.hire(), Hired::Nobody, "all places are filled");
}

pub const SCENARIOS: &[(&str, fn())] = &[
    ("news_comes_at_any_moment", news_comes_at_any_moment),
    ("the_last_to_work_or_to_wait_sees_to_it", the_last_to_work_or_to_wait_sees_to_it),
    ("a_spare_is_called", a_spare_is_called),
];
