//! Latencies by kind of operation.
//!
//! Invariant: three significant digits from a microsecond to a minute; what took longer counts as a minute.

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::Failure;
use crate::workload::Kind;

const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// One histogram (nanoseconds) for every kind of operation.
#[derive(Clone, Debug)]
pub struct Latencies {
    by_kind: Vec<Histogram<u64>>,
}

impl Latencies {
    /// Nothing recorded yet.
    ///
    /// # Errors
    /// If there is no memory for them.
    pub fn new() -> Result<Self, Failure> {
        let by_kind =
            Kind::ALL.iter().map(|_| Histogram::new_with_bounds(100, LATENCY_NS_MAX, 3)).collect::<Result<_, _>>()?;
        Ok(Self { by_kind })
    }

    /// Notes that one operation took so long.
    pub fn record(&mut self, kind: Kind, ns: u64) {
        self.by_kind[kind as usize].saturating_record(ns);
    }

    /// Takes over what another client recorded.
    ///
    /// # Errors
    /// Never for histograms of the same bounds.
    pub fn add(&mut self, other: &Self) -> Result<(), Failure> {
        for (mine, theirs) in self.by_kind.iter_mut().zip(&other.by_kind) {
            mine.add(theirs)?;
        }
        Ok(())
    }

    /// Operations of all kinds.
    pub fn count(&self) -> u64 {
        self.by_kind.iter().map(Histogram::len).sum()
    }

    /// The kinds that occurred.
    pub fn kinds(&self) -> impl Iterator<Item = (Kind, &Histogram<u64>)> {
        Kind::ALL.into_iter().zip(&self.by_kind).filter(|(_, histogram)| !histogram.is_empty())
    }

    /// The latency, in microseconds, under which `quantile` of the operations of all kinds stayed.
    ///
    /// # Errors
    /// Never for histograms of the same bounds.
    pub fn quantile_us(&self, quantile: f64) -> Result<f64, Failure> {
        let mut all = Histogram::new_with_bounds(100, LATENCY_NS_MAX, 3)?;
        for histogram in &self.by_kind {
            all.add(histogram)?;
        }
        Ok(us(&all, quantile))
    }

    /// The longest of all kinds, in microseconds.
    pub fn max_us(&self) -> f64 {
        self.by_kind.iter().map(Histogram::max).max().unwrap_or(0) as f64 / 1000.0
    }

    /// A line a kind: count, mean, p50, p95, p99, p99.9, max in microseconds.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{:18} {:>11} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}\n",
            "latency (us)", "count", "mean", "p50", "p95", "p99", "p99.9", "max"
        );
        for (kind, histogram) in self.kinds() {
            text += &format!(
                "{:18} {:>11} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>10.1}\n",
                kind.name(),
                histogram.len(),
                histogram.mean() / 1000.0,
                us(histogram, 0.5),
                us(histogram, 0.95),
                us(histogram, 0.99),
                us(histogram, 0.999),
                histogram.max() as f64 / 1000.0
            );
        }
        text
    }

    /// The same figures by name.
    pub fn json(&self) -> Value {
        let mut kinds = serde_json::Map::new();
        for (kind, histogram) in self.kinds() {
            kinds.insert(
                kind.name().into(),
                json!({
                    "count": histogram.len(),
                    "meanUs": histogram.mean() / 1000.0,
                    "p50Us": us(histogram, 0.5),
                    "p95Us": us(histogram, 0.95),
                    "p99Us": us(histogram, 0.99),
                    "p999Us": us(histogram, 0.999),
                    "maxUs": histogram.max() as f64 / 1000.0,
                }),
            );
        }
        Value::Object(kinds)
    }
}

fn us(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    histogram.value_at_quantile(quantile) as f64 / 1000.0
}
