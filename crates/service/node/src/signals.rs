//! Signals: SIGTERM and SIGINT stop the member cleanly, SIGUSR1 begins a new log file, SIGUSR2 has it write down what its step machines
//! did. A program that wraps another passes on what it
//! is sent.
//!
//! Invariant: a second SIGTERM or SIGINT while the member stops ends the process at once.

use rustix::process::{Pid, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::{flag, low_level};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Asks another process to stop; says whether it was there to be asked.
pub fn ask_to_stop(process: u32) -> bool {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::kill_process(pid, Signal::TERM).is_ok())
}

/// What signals have asked for.
#[derive(Clone, Debug)]
pub struct Signals {
    stop: Arc<AtomicBool>,
    rotate: Arc<AtomicBool>,
    steps: Arc<AtomicBool>,
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
        let steps = Arc::new(AtomicBool::new(false));
        flag::register(SIGUSR2, steps.clone())?;
        Ok(Self { stop, rotate, steps })
    }

    /// Whether the member was asked to stop.
    pub fn stop_asked(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether a new log file was asked for since the last time this was called.
    pub fn rotation_asked(&self) -> bool {
        self.rotate.swap(false, Ordering::Relaxed)
    }

    /// Whether the step machines' last steps were asked for since the last time this was called.
    pub fn steps_asked(&self) -> bool {
        self.steps.swap(false, Ordering::Relaxed)
    }

    /// Sends this process the signal that stops it.
    ///
    /// # Errors
    /// If the system does not let it.
    pub fn raise_stop() -> io::Result<()> {
        low_level::raise(SIGTERM)
    }
}

/// Passes signals on to another process, whose wrapper this one is.
#[derive(Debug)]
pub struct Relay(Vec<Relayed>);

#[derive(Debug)]
struct Relayed {
    signal: Signal,
    /// A terminal sends it to the wrapped process, too.
    is_from_terminal: bool,
    has_come: Arc<AtomicBool>,
}

impl Relay {
    /// Takes over the signals of this process.
    ///
    /// # Errors
    /// If the system does not let it.
    pub fn install() -> io::Result<Self> {
        let signals = [
            (SIGTERM, Signal::TERM, false),
            (SIGHUP, Signal::HUP, false),
            (SIGUSR1, Signal::USR1, false),
            (SIGUSR2, Signal::USR2, false),
            (SIGINT, Signal::INT, true),
            (SIGQUIT, Signal::QUIT, true),
        ];
        let relayed = signals.into_iter().map(|(number, signal, is_from_terminal)| {
            let has_come = Arc::new(AtomicBool::new(false));
            flag::register(number, Arc::clone(&has_come))?;
            Ok(Relayed { signal, is_from_terminal, has_come })
        });
        relayed.collect::<io::Result<_>>().map(Self)
    }

    /// Sends what has come since the last time this was called.
    pub fn pass_on(&self, process: u32) {
        let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) else { return };
        for relayed in &self.0 {
            let has_come = relayed.has_come.swap(false, Ordering::Relaxed);
            if has_come && !(relayed.is_from_terminal && baton_machine::is_in_foreground()) {
                // Who is gone needs no signal.
                let _ = rustix::process::kill_process(pid, relayed.signal);
            }
        }
    }
}
