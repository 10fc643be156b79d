//! Death on demand: the process kills itself with SIGKILL when storage passes a named point for the n-th time.
//!
//! Exists only with the feature `crash-points`, which no binary that anybody runs has. The points themselves are
//! `crash_point!`s in storage; which of them kills, and at which pass, is in the environment: `BATON_CRASH_AT=name:pass`, or
//! `BATON_CRASH_AT=first,name:pass` to count the passes only after another point, `first`, was passed.
//!
//! Invariant: the process ends as `kill -9` ends it: nothing is flushed, no destructor and no handler runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const VARIABLE: &str = "BATON_CRASH_AT";

/// Arms the point that the environment names, if it names one. Call it before storage is opened.
pub fn arm() -> Result<(), String> {
    let Ok(wanted) = std::env::var(VARIABLE) else { return Ok(()) };
    let (name, pass) = wanted.split_once(':').unwrap_or((&wanted, "1"));
    let pass: u64 = pass.parse().map_err(|_| format!("{VARIABLE}: '{pass}' is not a number of passes"))?;
    let (first, name) = name.split_once(',').map_or((None, name), |(first, name)| (Some(first), name));
    let counts = Arc::new(AtomicBool::new(first.is_none()));
    if let Some(first) = first {
        let counts = Arc::clone(&counts);
        fail::cfg_callback(first, move || counts.store(true, Ordering::Relaxed))?;
    }
    let left = AtomicU64::new(pass);
    fail::cfg_callback(name, move || {
        if counts.load(Ordering::Relaxed) && left.fetch_sub(1, Ordering::Relaxed) <= 1 {
            die();
        }
    })
}

fn die() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    // The kernel ends the thread before the call returns; this is for the compiler.
    std::process::abort()
}
