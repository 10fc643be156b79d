//! From `tracing`'s events to lines.
//!
//! What it does not do: spans; the thread's name (`conn12`) says whom a line is about.

use super::line::Line;
use super::{Format, Shared};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

pub(super) struct LineLayer {
    shared: Arc<Shared>,
}

impl LineLayer {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    fn level(&self) -> LevelFilter {
        match self.shared.verbosity.load(Relaxed) {
            0 => LevelFilter::INFO,
            1 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        }
    }
}

impl<S: Subscriber> Layer<S> for LineLayer {
    fn enabled(&self, metadata: &Metadata<'_>, _context: Context<'_, S>) -> bool {
        *metadata.level() <= self.level()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level())
    }

    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let line = Line::of(event);
        let json: Arc<str> = line.json().into();
        let human = (self.shared.format == Format::Human).then(|| line.human());
        let mut state = self.shared.state.lock();
        state.sink.write(human.as_deref().unwrap_or(&json));
        state.recent.keep(json, line.startup_warning);
    }
}
