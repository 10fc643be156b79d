//! The registry of metrics, for Prometheus.
//!
//! Figures that are counted as they happen are registered as prometheus' own types; those that are kept elsewhere are
//! read when somebody asks, by a closure given to [`Metrics::before_render`].
//! What it does not do: serve them (see [`crate::http`]), or know what they mean. Of its own it has the process's.

use baton_machine::Usage;
use parking_lot::Mutex;
use prometheus::core::Collector;
use prometheus::{Counter, Gauge, Registry, TextEncoder};
use std::time::{SystemTime, UNIX_EPOCH};

type Refresh = Box<dyn Fn() + Send + Sync>;

/// All metrics of the process.
pub struct Metrics {
    registry: Registry,
    refresh: Mutex<Vec<Refresh>>,
}

impl Metrics {
    /// A registry with the process's own figures.
    ///
    /// # Errors
    /// Never, unless a name were registered twice.
    pub fn new() -> prometheus::Result<Self> {
        let metrics = Self { registry: Registry::new(), refresh: Mutex::new(Vec::new()) };
        metrics.add_process()?;
        Ok(metrics)
    }

    /// Registers a metric and gives it back. Clones of it count together.
    ///
    /// # Errors
    /// If another has its name.
    pub fn register<M: Collector + Clone + 'static>(&self, metric: M) -> prometheus::Result<M> {
        self.registry.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    /// Has `refresh` called each time before the metrics are rendered.
    pub fn before_render(&self, refresh: impl Fn() + Send + Sync + 'static) {
        self.refresh.lock().push(Box::new(refresh));
    }

    /// Prometheus' text form of all metrics.
    pub fn render(&self) -> String {
        self.refresh.lock().iter().for_each(|refresh| refresh());
        TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap_or_else(|e| format!("# {e}\n"))
    }

    fn add_process(&self) -> prometheus::Result<()> {
        let gauge = |name, help| self.register(Gauge::new(name, help)?);
        let resident = gauge("process_resident_memory_bytes", "Resident memory in bytes.")?;
        let virtual_memory = gauge("process_virtual_memory_bytes", "Address space in bytes.")?;
        let threads = gauge("process_threads", "Threads.")?;
        let open_files = gauge("process_open_fds", "Open file descriptors.")?;
        let start = gauge("process_start_time_seconds", "When the process started, in seconds since 1970.")?;
        start.set(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64()));
        let cpu = self.register(Counter::new("process_cpu_seconds_total", "Time on a CPU in seconds.")?)?;
        self.before_render(move || {
            let usage = Usage::now();
            resident.set(usage.resident_bytes as f64);
            virtual_memory.set(usage.virtual_bytes as f64);
            threads.set(usage.threads as f64);
            open_files.set(usage.open_files as f64);
            let spent = (usage.cpu_user + usage.cpu_system).as_secs_f64();
            cpu.inc_by((spent - cpu.get()).max(0.0));
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::IntCounter;

    #[test]
    fn registered_metrics_and_the_processs_are_rendered_fresh() {
        let metrics = Metrics::new().unwrap();
        let counted = metrics.register(IntCounter::new("baton_things_total", "Things.").unwrap()).unwrap();
        let refreshed = counted.clone();
        metrics.before_render(move || refreshed.inc());
        counted.inc_by(41);
        let text = metrics.render();
        assert!(text.contains("baton_things_total 42"), "{text}");
        assert!(text.contains("process_resident_memory_bytes ") && text.contains("process_cpu_seconds_total "));
        assert!(metrics.register(counted).is_err(), "a name is taken once");
    }
}
