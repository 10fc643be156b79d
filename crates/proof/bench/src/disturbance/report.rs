//! The figures as a table in Markdown and as JSON, what must be reached, and what the picture shows.

use serde_json::{Value, json};

use super::events::Event;
use super::load::{Figures, Role, Sample, Stretch};
use crate::target::Target;

/// How often p99 may be what it is without the event.
const P99_RATIO_MAX: f64 = 1.5;
/// The longest that a request may take meanwhile.
const LONGEST_MS_MAX: f64 = 50.0;
/// The longest that a drop may take to be answered.
const DROP_SECS_MAX: f64 = 0.05;
/// Points of a curve, at the most.
const POINTS: u64 = 3000;

/// What one event did to the clients.
pub struct Row {
    /// The event.
    pub event: Event,
    /// Why it was refused, if it was.
    pub refused: Option<String>,
    /// Until it was answered, in seconds.
    pub answered_secs: f64,
    /// Until it had ended on all members, in seconds.
    pub ended_secs: f64,
    /// From its start to its end.
    pub stretch: Stretch,
    /// By role: without it, and meanwhile.
    pub figures: Vec<(Role, Figures, Figures)>,
}

impl Row {
    /// Of the throughput of all clients right before, what was left.
    pub fn throughput_ratio(&self) -> f64 {
        let sum = |of: fn(&(Role, Figures, Figures)) -> f64| self.figures.iter().map(of).sum::<f64>();
        sum(|(_, _, meanwhile)| meanwhile.per_sec) / sum(|(_, quiet, _)| quiet.per_sec)
    }

    fn json(&self) -> Value {
        let mut roles = serde_json::Map::new();
        for (role, quiet, meanwhile) in &self.figures {
            let ratio = meanwhile.p99 / quiet.p99;
            roles.insert(
                role.name().into(),
                json!({ "quiet": quiet.json(), "meanwhile": meanwhile.json(), "p99Ratio": ratio }),
            );
        }
        json!({
            "event": self.event.name(), "refused": self.refused, "answeredSecs": self.answered_secs, "endedSecs": self.ended_secs,
            "startSecs": self.stretch.start as f64 / 1e9, "throughputRatio": self.throughput_ratio(), "clients": roles,
        })
    }
}

/// What is to be reached by an event that was not refused.
pub fn targets(row: &Row, records: u64, busy: usize) -> Vec<Target> {
    if row.refused.is_some() || row.event.is_yardstick() {
        return Vec::new();
    }
    let event = row.event.name();
    if busy > 0 {
        return vec![Target {
            demand: format!("{event}: throughput meanwhile, of quiet"),
            place: format!("{records} documents, {busy} busy clients"),
            figure: row.throughput_ratio(),
            bound: row.event.throughput_min(),
            at_least: true,
        }];
    }
    let mut targets = Vec::new();
    let mut at_most = |demand: String, figure: f64, bound: f64| {
        let place = format!("{records} documents");
        targets.push(Target { demand, place, figure, bound, at_least: false });
    };
    for (role, quiet, meanwhile) in &row.figures {
        at_most(format!("{event}: {}'s p99, of quiet", role.name()), meanwhile.p99 / quiet.p99, P99_RATIO_MAX);
        at_most(format!("{event}: {}'s longest, ms", role.name()), meanwhile.longest, LONGEST_MS_MAX);
    }
    if row.event == Event::Drop {
        at_most(format!("{event}: answered after, s"), row.answered_secs, DROP_SECS_MAX);
    }
    targets
}

/// The table. Latencies are milliseconds.
pub fn text(rows: &[Row]) -> String {
    let mut text = String::from(
        "| event | answered, ended (s) | client | a second, of quiet | quiet: p50, p99, p99.9, longest (ms) | meanwhile | p99, of quiet | failed |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        if let Some(why) = &row.refused {
            text += &format!("| {} | refused: {why} | | | | | | |\n", row.event.name());
            continue;
        }
        for (place, (role, quiet, meanwhile)) in row.figures.iter().enumerate() {
            let (event, took) = match place {
                0 => (row.event.name(), format!("{:.2}, {:.2}", row.answered_secs, row.ended_secs)),
                _ => Default::default(),
            };
            let four = |f: &Figures| format!("{:.2}, {:.2}, {:.2}, {:.1}", f.p50, f.p99, f.p999, f.longest);
            text += &format!(
                "| {event} | {took} | {} | {:.2} | {} | {} | {:.2} | {} |\n",
                role.name(),
                meanwhile.per_sec / quiet.per_sec,
                four(quiet),
                four(meanwhile),
                meanwhile.p99 / quiet.p99,
                meanwhile.failures,
            );
        }
    }
    text
}

/// All of it for programs, with what the picture shows: by role the longest latency of every moment, in which a request counts that
/// began there.
pub fn json(rows: &[Row], samples: &[Sample]) -> Value {
    let last = samples.iter().map(|sample| sample.end).max().unwrap_or(0);
    let width = (last / POINTS).max(100_000_000);
    let mut curves = serde_json::Map::new();
    for role in Role::ALL {
        let mut longest = vec![0; (last / width) as usize + 1];
        for sample in samples.iter().filter(|sample| sample.role == role) {
            let moment = &mut longest[(sample.start / width) as usize];
            *moment = (*moment).max(sample.end - sample.start);
        }
        let points = longest.iter().enumerate().filter(|(_, ns)| **ns > 0);
        let points = points.map(|(at, ns)| json!([(at as u64 * width) as f64 / 1e9, *ns as f64 / 1e6]));
        curves.insert(role.name().into(), points.collect());
    }
    json!({ "events": rows.iter().map(Row::json).collect::<Value>(), "longestMs": curves })
}
