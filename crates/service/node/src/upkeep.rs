//! The threads of what a member does by itself while it runs: one for each of its duties, and those that its commands have started.

use baton_commands::Server;
use baton_commands::duties::{DUTIES, Stop};
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// The threads at work. Dropped, they stop.
pub struct Upkeep {
    server: Arc<Server>,
    stop: Arc<Stop>,
    threads: Vec<JoinHandle<()>>,
}

/// Starts a thread of this name.
pub fn start_thread(name: &'static str, work: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name.into()).spawn(work)
}

impl Upkeep {
    /// Starts the upkeep of a member.
    ///
    /// # Errors
    /// If the machine gives no more threads.
    pub fn start(server: &Arc<Server>) -> io::Result<Self> {
        let mut upkeep = Self { server: Arc::clone(server), stop: Arc::default(), threads: Vec::new() };
        for duty in &DUTIES {
            let (server, stop) = (Arc::clone(server), Arc::clone(&upkeep.stop));
            upkeep.threads.push(start_thread(duty.name, Box::new(move || duty.carry_out(&server, &stop)))?);
        }
        Ok(upkeep)
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.stop.ask(&self.server);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!(target: "CONTROL", "A thread of the upkeep panicked");
            }
        }
    }
}
