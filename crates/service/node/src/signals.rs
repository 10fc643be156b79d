//! Signals: SIGTERM and SIGINT stop the member cleanly, SIGUSR1 begins a new log file.
//!
//! Invariant: a second SIGTERM or SIGINT while the member stops ends the process at once.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::{flag, low_level};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Asks another process to stop; says whether it was there to be asked.
pub fn ask_to_stop(process: u32) -> bool {
    let pid = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::kill_process(pid, rustix::process::Signal::TERM).is_ok())
}

/// What signals have asked for.
#[derive(Clone, Debug)]
pub struct Signals {
    stop: Arc<AtomicBool>,
    rotate: Arc<AtomicBool>,
}

impl Signals {
    /// Takes over the process's signals.
    ///
    /// # Errors
    /// If the system does not let it.
    pub fn install() -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let rotate = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            // In this order: the first signal only sets the flag, the second finds it set.
            flag::register_conditional_shutdown(signal, 1, stop.clone())?;
            flag::register(signal, stop.clone())?;
        }
        flag::register(SIGUSR1, rotate.clone())?;
        Ok(Self { stop, rotate })
    }

    /// Whether the member was asked to stop.
    pub fn stop_asked(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether a new log file was asked for since the last time this was called.
    pub fn rotation_asked(&self) -> bool {
        self.rotate.swap(false, Ordering::Relaxed)
    }

    /// Sends this process the signal that stops it.
    ///
    /// # Errors
    /// If the system does not let it.
    pub fn raise_stop() -> io::Result<()> {
        low_level::raise(SIGTERM)
    }
}
