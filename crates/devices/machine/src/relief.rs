//! A thread that does work for many in turns, and says so before it waits: another takes its place then.
//!
//! Invariants: who relieves a thread is known to that thread alone; a thread that nobody relieves may say that it waits, and nothing comes
//! of it. Nothing is decided here, and what a request does is the same whether its thread is relieved or not.
//!
//! What it does not do: notice who waits without a word, or computes for long; whoever relieves the thread looks after that himself.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Takes over what a thread would have done next.
pub trait Relief {
    /// The calling thread is about to wait for something that may take long.
    fn relieve(&self);

    /// It goes on.
    fn resume(&self) {}
}

thread_local! {
    static RELIEF: RefCell<Option<Rc<dyn Relief>>> = const { RefCell::new(None) };
    static CONNECTION: Cell<u64> = const { Cell::new(0) };
}

/// The calling thread is relieved so, until it ends.
pub fn be_relieved_by(relief: Rc<dyn Relief>) {
    RELIEF.set(Some(relief));
}

/// The calling thread waits, until this is dropped.
#[must_use = "dropped, it waits no more"]
pub struct Waiting(Option<Rc<dyn Relief>>);

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(relief) = &self.0 {
            relief.resume();
        }
    }
}

/// To be called where the calling thread may wait for long: for a lock that requests hold, for another member, for a client.
pub fn about_to_wait() -> Waiting {
    // A thread that ends has nobody to relieve it.
    let relief = RELIEF.try_with(|relief| relief.borrow().clone()).ok().flatten();
    if let Some(relief) = &relief {
        relief.relieve();
    }
    Waiting(relief)
}

/// The calling thread works for this connection from now on, or for none (0): what is logged says so.
pub fn work_for_connection(id: u64) {
    CONNECTION.set(id);
}

/// For which connection the calling thread works, if it has others besides; one with a single connection is named after that.
pub fn connection() -> Option<u64> {
    CONNECTION.try_with(Cell::get).ok().filter(|id| *id != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often it was told to relieve, and to resume.
    #[derive(Default)]
    struct Count {
        relieved: Cell<u32>,
        resumed: Cell<u32>,
    }

    impl Relief for Count {
        fn relieve(&self) {
            self.relieved.set(self.relieved.get() + 1);
            // Whoever relieves it may wait as well.
            if self.relieved.get() == 1 {
                drop(about_to_wait());
            }
        }

        fn resume(&self) {
            self.resumed.set(self.resumed.get() + 1);
        }
    }

    #[test]
    fn a_thread_is_relieved_by_its_own_relief_and_others_by_none() {
        drop(about_to_wait());
        let count = Rc::<Count>::default();
        be_relieved_by(count.clone());
        let waiting = about_to_wait();
        assert_eq!((count.relieved.get(), count.resumed.get()), (2, 1));
        drop(waiting);
        assert_eq!((count.relieved.get(), count.resumed.get()), (2, 2));
        std::thread::spawn(|| drop(about_to_wait())).join().unwrap();
        assert_eq!(count.relieved.get(), 2);
    }
}
