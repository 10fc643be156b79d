//! The lines kept in memory, for `getLog`.
//!
//! What it does not do: keep what happened before the process started.

use std::collections::VecDeque;
use std::sync::Arc;

/// As many as mongod keeps.
const LINE_COUNT_MAX: usize = 1024;
/// Enough for every warning there is.
const STARTUP_WARNING_COUNT_MAX: usize = 128;

#[derive(Default)]
pub(super) struct Recent {
    lines: VecDeque<Arc<str>>,
    startup_warnings: Vec<Arc<str>>,
    total: u64,
}

impl Recent {
    pub(super) fn keep(&mut self, line: Arc<str>, startup_warning: bool) {
        if startup_warning && self.startup_warnings.len() < STARTUP_WARNING_COUNT_MAX {
            self.startup_warnings.push(line.clone());
        }
        if self.lines.len() == LINE_COUNT_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
        self.total += 1;
    }

    pub(super) fn lines(&self) -> Vec<Arc<str>> {
        self.lines.iter().cloned().collect()
    }

    pub(super) fn startup_warnings(&self) -> Vec<Arc<str>> {
        self.startup_warnings.clone()
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }
}
