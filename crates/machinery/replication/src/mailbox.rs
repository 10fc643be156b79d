//! Letters to one worker, taken by whoever brings one: a thread that would only wake another to have a letter read reads it
//! itself, if nobody else is at it. What may wait for somebody is left to the worker's own thread.
//!
//! ```text
//!  post ──▶ letters ──▶ worker, in passing (the poster's thread)
//!              └──────▶ worker, at home    (its own thread: what was left, and what is due)
//! ```
//!
//! Invariants:
//! - The worker is used by one thread at a time, and takes letters in the order in which they came.
//! - A letter that was posted is taken, unless the mailbox is closed: at the latest by the worker's own thread.
//! - A panic within the worker ends the process, whoever's thread it is on.
//! - A poster waits for nobody: it leaves its letter behind if the worker is busy or has something left undone; and what comes of a letter
//!   for others is done out of the worker (`afterwards`).

use baton_types::must_not_unwind;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Letters taken in passing by one poster, at most: it has something else to do. At home as many, before those are told whom they concern.
const IN_PASSING_MAX: usize = 16;

/// What a panic must not leave half done: a worker is one state machine, and whoever brings the next letter would step it on.
const SECTION: &str = "a step of replication";

/// Who takes letters.
pub(crate) trait Worker: Send {
    /// What it is told.
    type Letter: Send;

    /// Takes a letter. In passing, nothing may be done that waits for another thread: it is left for [`Self::finish`], and
    /// `false` says so.
    fn take(&mut self, letter: Self::Letter, in_passing: bool) -> bool;

    /// Does what was left, and what is due by now.
    fn finish(&mut self);

    /// Whether something was left.
    fn has_work_left(&self) -> bool;

    /// When something is due, whatever comes.
    fn due(&self) -> Instant;

    /// No more letters come.
    fn end(self);
}

struct Letters<L> {
    queue: VecDeque<L>,
    is_closed: bool,
    /// The worker's own thread is to look.
    is_rung: bool,
    /// When it looks by itself.
    looks_at: Instant,
}

/// See the file's header.
pub(crate) struct Mailbox<W: Worker> {
    letters: Mutex<Letters<W::Letter>>,
    bell: Condvar,
    /// Absent before the worker has come, and after it has gone.
    worker: Mutex<Option<W>>,
    /// Done by whoever has used the worker, once nobody else need wait for that.
    afterwards: Box<dyn Fn() + Send + Sync>,
}

/// The mailbox is closed.
#[derive(Debug)]
pub(crate) struct Closed;

impl<W: Worker> Mailbox<W> {
    /// Without a worker, which comes with [`Self::run`]. What is posted until then waits. Whoever has used the worker does `afterwards`.
    pub fn new(afterwards: impl Fn() + Send + Sync + 'static) -> Self {
        let letters = Letters { queue: VecDeque::new(), is_closed: false, is_rung: false, looks_at: Instant::now() };
        Self {
            letters: Mutex::new(letters),
            bell: Condvar::new(),
            worker: Mutex::new(None),
            afterwards: Box::new(afterwards),
        }
    }

    /// Brings a letter, and has it taken if nobody else is at it.
    pub fn post(&self, letter: W::Letter) -> Result<(), Closed> {
        {
            let mut letters = self.letters.lock();
            if letters.is_closed {
                return Err(Closed);
            }
            letters.queue.push_back(letter);
        }
        let is_done = self.worker.try_lock().is_some_and(|mut worker| match worker.as_mut() {
            Some(worker) => self.work_in_passing(worker),
            None => false,
        });
        if !is_done {
            self.ring();
        }
        (self.afterwards)();
        Ok(())
    }

    /// Whether nothing is left for the worker's own thread before it looks by itself.
    fn work_in_passing(&self, worker: &mut W) -> bool {
        let _guard = must_not_unwind(SECTION);
        for _ in 0..IN_PASSING_MAX {
            if worker.has_work_left() {
                return false;
            }
            let Some(letter) = self.letters.lock().queue.pop_front() else {
                return worker.due() >= self.letters.lock().looks_at;
            };
            if !worker.take(letter, true) {
                return false;
            }
        }
        false
    }

    /// Looks at the worker, between two letters; not if it is busy for so long, or absent.
    pub fn look<T>(&self, patience: Duration, look: impl FnOnce(&mut W) -> T) -> Option<T> {
        self.worker.try_lock_for(patience)?.as_mut().map(look)
    }

    fn ring(&self) {
        self.letters.lock().is_rung = true;
        self.bell.notify_one();
    }

    /// The worker's own thread: until the mailbox is closed.
    pub fn run(&self, worker: W) {
        let _guard = must_not_unwind(SECTION);
        *self.worker.lock() = Some(worker);
        while self.work_at_home() {
            (self.afterwards)();
            let mut letters = self.letters.lock();
            while !letters.is_rung && Instant::now() < letters.looks_at {
                let until = letters.looks_at;
                self.bell.wait_until(&mut letters, until);
            }
            letters.is_rung = false;
        }
        // Out of the lock: what it ends may post once more.
        let worker = self.worker.lock().take();
        if let Some(worker) = worker {
            worker.end();
        }
        (self.afterwards)();
    }

    /// Whether there is more to come.
    fn work_at_home(&self) -> bool {
        let mut worker = self.worker.lock();
        let Some(worker) = worker.as_mut() else { return false };
        for _ in 0..IN_PASSING_MAX {
            worker.finish();
            let letter = {
                let mut letters = self.letters.lock();
                if letters.is_closed {
                    return false;
                }
                letters.queue.pop_front()
            };
            match letter {
                Some(letter) => worker.take(letter, false),
                None => break,
            };
        }
        let mut letters = self.letters.lock();
        letters.looks_at = worker.due();
        // Somebody may have found the worker busy; and what is left of the last letter is done next.
        letters.is_rung |= !letters.queue.is_empty() || worker.has_work_left();
        !letters.is_closed
    }

    /// Takes no more letters; the worker's thread ends.
    pub fn close(&self) {
        let unread = {
            let mut letters = self.letters.lock();
            letters.is_closed = true;
            letters.is_rung = true;
            std::mem::take(&mut letters.queue)
        };
        // Whoever waits for an answer to one hears by this that none comes.
        drop(unread);
        self.bell.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::{Sender, channel};

    /// Adds numbers; those above 100 wait for it to be at home. Reports the sum and the thread's name.
    struct Adder {
        sum: u64,
        left: Option<u64>,
        report: Sender<(u64, Option<String>)>,
    }

    impl Worker for Adder {
        type Letter = u64;

        fn take(&mut self, letter: u64, in_passing: bool) -> bool {
            if in_passing && letter > 100 {
                self.left = Some(letter);
                return false;
            }
            self.sum += letter;
            let _ = self.report.send((self.sum, std::thread::current().name().map(str::to_owned)));
            true
        }

        fn finish(&mut self) {
            if let Some(letter) = self.left.take() {
                self.take(letter, false);
            }
        }

        fn has_work_left(&self) -> bool {
            self.left.is_some()
        }

        fn due(&self) -> Instant {
            Instant::now() + Duration::from_secs(60)
        }

        fn end(self) {
            let _ = self.report.send((u64::MAX, None));
        }
    }

    #[test]
    fn letters_are_taken_in_order_whoever_takes_them_and_heavy_ones_at_home() {
        let (report, reports) = channel();
        let mailbox = Arc::new(Mailbox::new(|| ()));
        let home = {
            let mailbox = Arc::clone(&mailbox);
            let home = std::thread::Builder::new().name("home".into());
            home.spawn(move || mailbox.run(Adder { sum: 0, left: None, report })).unwrap()
        };
        let posters: Vec<_> = (0..4)
            .map(|_| {
                let mailbox = Arc::clone(&mailbox);
                std::thread::spawn(move || (0..500).for_each(|n| mailbox.post(n % 200).unwrap()))
            })
            .collect();
        posters.into_iter().for_each(|poster| poster.join().unwrap());
        let all: Vec<_> = reports.iter().take(2000).collect();
        assert_eq!(all.last().unwrap().0, 4 * (2 * (0..200).sum::<u64>() + (0..100).sum::<u64>()));
        let mut before = 0;
        for (sum, thread) in &all {
            assert!(sum - before <= 100 || thread.as_deref() == Some("home"), "a heavy letter was taken in passing");
            before = *sum;
        }
        mailbox.close();
        assert!(mailbox.post(1).is_err());
        home.join().unwrap();
        assert_eq!(reports.recv().unwrap().0, u64::MAX);
    }
}
