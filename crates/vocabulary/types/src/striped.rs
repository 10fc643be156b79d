//! Counters that every request adds to and that are seldom read: several copies, each on lines of the CPU's cache of its
//! own, so that two cores do not take turns with one line.
//!
//! Invariant: a thread adds to one copy for its life; the figure is the sum over all copies, exact once the adding is over.
//! A copy of a count that goes up and down may be negative; the sum is not.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Copies. More than cores that matter, since threads are spread over them blindly.
const STRIPES: usize = 8;

#[derive(Debug)]
#[repr(align(128))]
struct Padded<T>(T);

/// See the file's header.
#[derive(Debug)]
pub struct Striped<T> {
    stripes: Box<[Padded<T>]>,
}

impl<T> Striped<T> {
    /// Copies as `make` makes them.
    pub fn new(make: impl Fn() -> T) -> Self {
        Self { stripes: (0..STRIPES).map(|_| Padded(make())).collect() }
    }

    /// The copy that this thread adds to.
    pub fn mine(&self) -> &T {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static STRIPE: usize = NEXT.fetch_add(1, Relaxed) % STRIPES;
        }
        &self.stripes[STRIPE.with(|stripe| *stripe)].0
    }

    /// All copies, to be summed.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.stripes.iter().map(|padded| &padded.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicI64;

    #[test]
    fn what_many_threads_add_is_there_once() {
        let count = Striped::new(AtomicI64::default);
        std::thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| (0..100).for_each(|_| _ = count.mine().fetch_add(1, Relaxed)));
            }
        });
        assert_eq!(count.all().map(|stripe| stripe.load(Relaxed)).sum::<i64>(), 4000);
        assert!(count.all().filter(|stripe| stripe.load(Relaxed) > 0).count() > 1);
    }
}
