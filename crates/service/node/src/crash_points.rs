//! Death on demand: when storage passes a named point for the n-th time, the process kills itself with SIGKILL, or the thread that
//! passes it panics.
//!
//! Exists only with the feature `crash-points`, which no binary that anybody runs has. The points themselves are `crash_point!`s;
//! which of them strikes, and at which pass, is in the environment: `BATON_CRASH_AT=name:pass`, or
//! `BATON_CRASH_AT=first,name:pass` to count the passes only after another point, `first`, was passed. `BATON_PANIC_AT` names in
//! the same way the point at which to panic, once; `BATON_PANIC_FROM`, if it is there, a file: passes count once it exists.
//!
//! Invariant: a crash ends the process as `kill -9` ends it: nothing is flushed, no destructor and no handler runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const CRASH: &str = "BATON_CRASH_AT";
const PANIC: &str = "BATON_PANIC_AT";
const PANIC_FROM: &str = "BATON_PANIC_FROM";

/// Arms the points that the environment names, if it names any. Call it before storage is opened.
pub fn arm() -> Result<(), String> {
    arm_with(CRASH, || true, die)?;
    let from = std::env::var_os(PANIC_FROM).map(PathBuf::from);
    arm_with(PANIC, move || from.as_ref().is_none_or(|path| path.exists()), panic_on_purpose)
}

fn arm_with(variable: &str, counts: impl Fn() -> bool + Send + Sync + 'static, strike: fn()) -> Result<(), String> {
    let Ok(wanted) = std::env::var(variable) else { return Ok(()) };
    let (name, pass) = wanted.split_once(':').unwrap_or((&wanted, "1"));
    let pass: u64 = pass.parse().map_err(|_| format!("{variable}: '{pass}' is not a number of passes"))?;
    let (first, name) = name.split_once(',').map_or((None, name), |(first, name)| (Some(first), name));
    let has_begun = Arc::new(AtomicBool::new(first.is_none()));
    if let Some(first) = first {
        let has_begun = Arc::clone(&has_begun);
        fail::cfg_callback(first, move || has_begun.store(true, Ordering::Relaxed))?;
    }
    let passes = AtomicU64::new(0);
    fail::cfg_callback(name, move || {
        if has_begun.load(Ordering::Relaxed) && counts() && passes.fetch_add(1, Ordering::Relaxed) + 1 == pass {
            strike();
        }
    })
}

fn die() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    // The kernel ends the thread before the call returns; this is for whoever reads on.
    std::process::abort()
}

#[expect(clippy::panic, reason = "it is what this is for")]
fn panic_on_purpose() {
    panic!("a test wants this");
}
