//! Where a panic must not be survived.
//!
//! A panic is a broken invariant. What it leaves behind decides what it costs: the evaluation of one request has changed nothing
//! that others see, so its panic costs that request (the commands catch it). The commit queue, applying, rollback, a step of
//! consensus and every thread that a member cannot do without leave something half done, which nobody may go on with: such code holds
//! a [`MustNotUnwind`], and a panic that unwinds through it ends the process with SIGABRT. The panic's hook (the log's) has said
//! by then what broke, where, and in which section.
//!
//! Invariant: outside of tests nothing catches a panic but the one place that answers requests, and that holds no guard; and those that
//! write down what a step machine did (`replication::steps`), under its lock, and then let the panic go on.

use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    static SECTION: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Ends the process if it is dropped by a panic that began while it was held. Of the thread that made it.
#[must_use = "it guards as long as it lives"]
pub struct MustNotUnwind {
    outer: Option<&'static str>,
    /// Made by a destructor that a panic runs: that panic is not of what is guarded.
    is_within_panic: bool,
    _of_one_thread: PhantomData<*const ()>,
}

/// From here until the guard is dropped a panic ends the process. `section` says what is being done, for the log.
pub fn must_not_unwind(section: &'static str) -> MustNotUnwind {
    MustNotUnwind {
        outer: SECTION.replace(Some(section)),
        is_within_panic: std::thread::panicking(),
        _of_one_thread: PhantomData,
    }
}

/// What this thread is doing that must not be left by a panic, if it is.
pub fn guarded_section() -> Option<&'static str> {
    SECTION.get()
}

impl Drop for MustNotUnwind {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.is_within_panic {
            std::process::abort();
        }
        SECTION.set(self.outer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_nest_and_end() {
        assert_eq!(guarded_section(), None);
        {
            let _outer = must_not_unwind("outer");
            {
                let _inner = must_not_unwind("inner");
                assert_eq!(guarded_section(), Some("inner"));
            }
            assert_eq!(guarded_section(), Some("outer"));
        }
        assert_eq!(guarded_section(), None);
    }

    /// Fails if a destructor that commits something on the way out of a panic ends the process.
    #[test]
    fn a_guard_that_a_destructor_makes_during_a_panic_lets_it_pass() {
        struct Cleanup;
        impl Drop for Cleanup {
            fn drop(&mut self) {
                let _guard = must_not_unwind("clean-up");
            }
        }
        let caught = std::panic::catch_unwind(|| {
            let _cleanup = Cleanup;
            panic!("on purpose");
        });
        assert!(caught.is_err());
        assert_eq!(guarded_section(), None);
    }
}
