//! Waking a thread that waits in [`Watch::idle`](crate::Watch::idle).
//!
//! Invariant: a wake is never lost; one that comes while nobody waits ends the next wait. Several in a row may count as one.
//! What it does not do: carry anything. What there is to do stands elsewhere, and is written before the wake.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::time::{Duration, Instant};

/// A bell for one thread, which any other may ring.
#[derive(Debug)]
pub struct Waker {
    event: OwnedFd,
}

impl Waker {
    /// A silent one.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { event: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)? })
    }

    /// Ends the present wait, or the next one.
    pub fn wake(&self) {
        // It can only fail when it is full, and then it rings already.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// Waits until it is woken, or for `timeout` if there is one. Returns whether it was woken.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        let mut fds = [PollFd::new(&self.event, PollFlags::IN)];
        poll_until(&mut fds, timeout);
        let woken = !fds[0].revents().is_empty();
        if woken {
            self.silence();
        }
        woken
    }

    /// Takes back the wakes that have been noticed.
    pub(crate) fn silence(&self) {
        let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// `poll` that signals do not cut short. Ends early without events only if the system refuses to wait at all.
pub(crate) fn poll_until(fds: &mut [PollFd<'_>], timeout: Option<Duration>) {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let wait = left.and_then(|left| Timespec::try_from(left).ok());
        if poll(fds, wait.as_ref()) != Err(rustix::io::Errno::INTR) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_before_the_wait_ends_it_and_is_then_spent() {
        let waker = Waker::new().unwrap();
        waker.wake();
        waker.wake();
        assert!(waker.wait(None), "a wait without end ended only because it was woken");
        assert!(!waker.wait(Some(Duration::from_millis(1))), "both wakes were taken by the first wait");
    }

    #[test]
    fn a_wake_from_another_thread_ends_the_wait() {
        let waker = Waker::new().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| waker.wake());
            assert!(waker.wait(None));
        });
    }
}
