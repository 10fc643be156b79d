//! How far a dump or a restore is: documents, bytes, a share of the whole, and the time that is left.
//!
//! On a terminal it is one line that changes; elsewhere a line every few seconds, so that a log stays readable. It goes
//! to standard error: standard output is for the result.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

const ON_TERMINAL: Duration = Duration::from_millis(200);
const IN_LOG: Duration = Duration::from_secs(5);

/// A long piece of work.
pub struct Progress {
    begun: Instant,
    shown: Instant,
    terminal: bool,
    /// How many bytes there are in all, as far as is known.
    pub bytes_total: u64,
    /// How many are done.
    pub bytes: u64,
    /// Documents done.
    pub documents: u64,
}

impl Progress {
    /// Of `bytes_total` bytes, begun now.
    pub fn new(bytes_total: u64) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let now = Instant::now();
        Self { begun: now, shown: now, terminal, bytes_total, bytes: 0, documents: 0 }
    }

    /// Shows the state, if the last time is long enough ago. `what` is being worked on.
    pub fn show(&mut self, what: &str) {
        let every = if self.terminal { ON_TERMINAL } else { IN_LOG };
        if self.shown.elapsed() < every {
            return;
        }
        self.shown = Instant::now();
        let line = self.line(what, self.begun.elapsed());
        let mut err = std::io::stderr().lock();
        // Nobody may be reading; the work goes on.
        let _ = if self.terminal { write!(err, "\r{line}\x1b[K") } else { writeln!(err, "{line}") };
        let _ = err.flush();
    }

    /// Says something in a line of its own.
    pub fn say(&self, line: &str) {
        let clear = if self.terminal { "\r\x1b[K" } else { "" };
        let _ = writeln!(std::io::stderr().lock(), "{clear}{line}");
    }

    /// How long it has taken, in seconds.
    pub fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    fn line(&self, what: &str, elapsed: Duration) -> String {
        let mut line = format!("{what}  {} documents  {}", self.documents, megabytes(self.bytes));
        if self.bytes_total > 0 {
            // What was counted beforehand may have grown since.
            let share = (self.bytes as f64 / self.bytes_total as f64).min(1.0);
            line += &format!(" of {}  {:.0} %", megabytes(self.bytes_total), share * 100.0);
            if share > 0.0 && elapsed >= Duration::from_secs(1) {
                line += &format!("  ETA {}", clock(elapsed.as_secs_f64() * (1.0 - share) / share));
            }
        }
        line
    }
}

/// A number of bytes for people.
pub fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

fn clock(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_done_after_a_minute_leaves_three() {
        let mut progress = Progress::new(4_000_000);
        progress.bytes = 1_000_000;
        progress.documents = 7;
        let line = progress.line("db.c", Duration::from_secs(60));
        assert_eq!(line, "db.c  7 documents  1.0 MB of 4.0 MB  25 %  ETA 3:00");
        progress.bytes = 5_000_000;
        assert!(progress.line("db.c", Duration::from_secs(60)).ends_with("100 %  ETA 0:00"));
        assert_eq!(Progress::new(0).line("oplog", Duration::ZERO), "oplog  0 documents  0.0 MB");
        assert_eq!(clock(3723.0), "1:02:03");
    }
}
