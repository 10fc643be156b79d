//! The log: mongod's structured JSON lines, or one human line each on a terminal.
//!
//! Log with `tracing`'s macros. The target is mongod's component, `id` its number for the message, the fields become
//! `attr`:
//!
//! ```
//! tracing::info!(target: "NETWORK", id = 22943, remote = "127.0.0.1:50000", "Connection accepted");
//! ```
//!
//! Fields with a meaning of their own: `id`; `startupWarning = true` keeps the line for `getLog: "startupWarnings"`;
//! `fatal = true` makes the severity F; a field named `json.x` holds JSON text and becomes the attribute `x` as it is;
//! `ctx` is in whose name a thread speaks that does another's work, where a line has its thread's name otherwise.
//!
//! Invariants: a line is written whole or not at all; the last 1024 lines are kept, as JSON whatever the output's form;
//! a failing output never fails who logs.
//! What it does not do: levels per component, or logging to syslog.

mod layer;
mod line;
mod recent;
mod sink;

use baton_types::guarded_section;
use layer::LineLayer;
use parking_lot::Mutex;
use recent::Recent;
use sink::Sink;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use tracing::Subscriber;
use tracing_subscriber::layer::SubscriberExt;

/// The form of the lines that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// mongod's structured form.
    Json,
    /// One short line for eyes.
    Human,
}

impl Format {
    /// Human on a terminal, JSON into a pipe or a file.
    pub fn for_stdout() -> Self {
        if io::stdout().is_terminal() { Self::Human } else { Self::Json }
    }
}

/// Where the lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// The process's standard output.
    Stdout,
    /// A file, appended to.
    File(PathBuf),
    /// Nowhere; they are only kept in memory.
    Nowhere,
}

/// What [`Log::rotate`] does with the file written so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rotation {
    /// Renames it, with the time behind its name, and starts a new one (mongod's `rename`).
    #[default]
    Rename,
    /// Opens the path anew: logrotate has renamed it already (mongod's `reopen`).
    Reopen,
}

/// How to log.
#[derive(Clone, Debug)]
pub struct Options {
    /// The form of the lines.
    pub format: Format,
    /// Where they go.
    pub output: Output,
    /// What rotating does.
    pub rotation: Rotation,
    /// 0 for information and worse, 1 and above for ever more detail (`logLevel`).
    pub verbosity: u8,
}

impl Default for Options {
    fn default() -> Self {
        Self { format: Format::for_stdout(), output: Output::Stdout, rotation: Rotation::default(), verbosity: 0 }
    }
}

/// What the layer and the handle share.
struct Shared {
    format: Format,
    verbosity: AtomicU8,
    state: Mutex<State>,
}

struct State {
    sink: Sink,
    recent: Recent,
}

/// The handle to the process's log. Clones are the same log.
#[derive(Clone)]
pub struct Log {
    shared: Arc<Shared>,
    rotation: Rotation,
}

impl Log {
    /// Opens the output.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(options: &Options) -> io::Result<Self> {
        let state = State { sink: Sink::open(&options.output)?, recent: Recent::default() };
        Ok(Self {
            shared: Arc::new(Shared {
                format: options.format,
                verbosity: AtomicU8::new(options.verbosity),
                state: Mutex::new(state),
            }),
            rotation: options.rotation,
        })
    }

    /// Makes this the process's log, for `tracing` and for panics. Returns false if there is another already.
    pub fn install(&self) -> bool {
        if tracing::subscriber::set_global_default(self.subscriber()).is_err() {
            return false;
        }
        let inherited = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let place = panic.location().map(ToString::to_string).unwrap_or_default();
            let reason = panic.payload_as_str().unwrap_or("(no message)");
            let backtrace = std::backtrace::Backtrace::force_capture().to_string();
            // What unwinds through such a section ends the process; else it costs the request.
            match guarded_section() {
                Some(section) => {
                    tracing::error!(target: "CONTROL", id = 6384300, fatal = true, section, reason, place, backtrace, "A broken invariant; stopping")
                }
                None => {
                    tracing::error!(target: "CONTROL", id = 6384301, reason, place, backtrace, "A thread panicked")
                }
            }
            inherited(panic);
        }));
        true
    }

    /// A subscriber that writes to this log, for `tracing::subscriber::with_default`.
    pub fn subscriber(&self) -> impl Subscriber + Send + Sync + use<> {
        tracing_subscriber::registry().with(LineLayer::new(self.shared.clone()))
    }

    /// Changes how much is logged from now on (`setParameter: {logLevel: n}`).
    pub fn set_verbosity(&self, verbosity: u8) {
        self.shared.verbosity.store(verbosity, Relaxed);
        tracing::callsite::rebuild_interest_cache();
    }

    /// How much is logged.
    pub fn verbosity(&self) -> u8 {
        self.shared.verbosity.load(Relaxed)
    }

    /// Starts a new file (SIGUSR1, `logRotate`). Without a file it does nothing.
    ///
    /// # Errors
    /// If the file cannot be renamed or opened; then the old one is still written to.
    pub fn rotate(&self) -> io::Result<()> {
        self.shared.state.lock().sink.rotate(self.rotation)
    }

    /// The last lines, oldest first, as JSON, and how many were ever written (`getLog: "global"`).
    pub fn recent(&self) -> (Vec<Arc<str>>, u64) {
        let state = self.shared.state.lock();
        (state.recent.lines(), state.recent.total())
    }

    /// The warnings of the start (`getLog: "startupWarnings"`), as JSON.
    pub fn startup_warnings(&self) -> Vec<Arc<str>> {
        self.shared.state.lock().recent.startup_warnings()
    }

    /// Lines that could not be written to the output (they are in memory all the same).
    pub fn failed_writes(&self) -> u64 {
        self.shared.state.lock().sink.failed_writes()
    }
}
