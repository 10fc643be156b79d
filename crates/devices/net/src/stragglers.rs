//! Replies whose clients read slowly: one thread sends the rest of each as the client makes room.
//!
//! Invariants: nobody who hands a reply over waits; a client that reads nothing for [`SEND_STALL_MAX`] is given up; the thread exists
//! only while there is something to send.

use crate::connection::SEND_STALL_MAX;
use crate::outbox::Outbox;
use crate::waker::{Waker, poll_until};
use baton_types::must_not_unwind;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags};
use std::io;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often it is looked who has stalled.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

struct Straggler {
    outbox: Arc<Outbox>,
    reply: Vec<u8>,
    sent: usize,
    /// When it took something last.
    moved: Instant,
}

#[derive(Default)]
struct State {
    new: Vec<Straggler>,
    is_served: bool,
}

/// All of them.
pub(crate) struct Stragglers {
    state: Mutex<State>,
    waker: Waker,
}

impl Stragglers {
    /// None yet.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { state: Mutex::default(), waker: Waker::new()? })
    }

    /// Takes a reply over of which `sent` bytes are on their way.
    pub fn take(self: Arc<Self>, outbox: Arc<Outbox>, reply: Vec<u8>, sent: usize) {
        let is_served = {
            let mut state = self.state.lock();
            state.new.push(Straggler { outbox, reply, sent, moved: Instant::now() });
            std::mem::replace(&mut state.is_served, true)
        };
        if is_served {
            self.waker.wake();
            return;
        }
        let serving = Arc::clone(&self);
        let spawned = std::thread::Builder::new().name("stragglers".into()).spawn(move || serving.serve());
        if spawned.is_err() {
            // No thread is left for them: they are given up.
            let given_up = {
                let mut state = self.state.lock();
                state.is_served = false;
                std::mem::take(&mut state.new)
            };
            given_up.into_iter().for_each(Straggler::give_up);
        }
    }

    fn serve(&self) {
        // Whoever reads slowly would wait for ever.
        let _guard = must_not_unwind("sending replies to slow clients");
        let mut all: Vec<Straggler> = Vec::new();
        loop {
            {
                let mut state = self.state.lock();
                all.append(&mut state.new);
                if all.is_empty() {
                    state.is_served = false;
                    return;
                }
            }
            let mut waits: Vec<PollFd<'_>> = vec![PollFd::new(&self.waker, PollFlags::IN)];
            waits.extend(all.iter().map(|straggler| PollFd::new(&*straggler.outbox.socket, PollFlags::OUT)));
            poll_until(&mut waits, Some(LOOK_INTERVAL));
            let is_woken = !waits[0].revents().is_empty();
            let has_room: Vec<bool> = waits[1..].iter().map(|wait| !wait.revents().is_empty()).collect();
            drop(waits);
            if is_woken {
                self.waker.silence();
            }
            let mut left = Vec::with_capacity(all.len());
            for (straggler, has_room) in all.into_iter().zip(has_room) {
                left.extend(straggler.go_on(has_room));
            }
            all = left;
        }
    }
}

impl Straggler {
    /// Sends what there is room for; itself, if something is left.
    fn go_on(mut self, has_room: bool) -> Option<Self> {
        if has_room {
            match self.outbox.send_at_once(&self.reply[self.sent..]) {
                Some(0) => {}
                Some(count) => {
                    self.sent += count;
                    self.moved = Instant::now();
                }
                None => {
                    self.give_up();
                    return None;
                }
            }
        }
        if self.sent == self.reply.len() {
            self.outbox.settled(self.reply);
            return None;
        }
        if self.moved.elapsed() >= SEND_STALL_MAX {
            self.give_up();
            return None;
        }
        Some(self)
    }

    fn give_up(self) {
        let _ = self.outbox.socket.shutdown(Shutdown::Both);
        self.outbox.settled(Vec::new());
    }
}
