//! The figures as a table in Markdown and as JSON, what must be reached, and what the picture shows.

use serde_json::{Value, json};

use super::events::Event;
use super::load::{Figures, Role, Sample, Stretch};
use super::threads::{self, ByName};
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
    /// Why it was refused, if it was in any round.
    pub refused: Option<String>,
    /// What was measured, at least once.
    pub rounds: Vec<Round>,
}

/// What an event did in one round.
pub struct Round {
    /// Until it had its turn, in seconds.
    pub waited_secs: f64,
    /// Until it was answered, in seconds.
    pub answered_secs: f64,
    /// Until it had ended on all members, in seconds.
    pub ended_secs: f64,
    /// From the beginning of its work to its end.
    pub stretch: Stretch,
    /// By role: without it, and meanwhile.
    pub figures: Vec<(Role, Figures, Figures)>,
    /// Where the processors' time went: without it, and meanwhile.
    pub threads: [ByName; 2],
}

impl Round {
    /// Of the throughput of all clients without it, what was left.
    fn throughput_ratio(&self) -> f64 {
        let sum = |of: fn(&(Role, Figures, Figures)) -> f64| self.figures.iter().map(of).sum::<f64>();
        sum(|(_, _, meanwhile)| meanwhile.per_sec) / sum(|(_, quiet, _)| quiet.per_sec)
    }
}

/// The same events of several rounds, each in one row.
pub fn gather(rounds: Vec<Vec<Row>>) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for row in rounds.into_iter().flatten() {
        match rows.iter_mut().find(|gathered| gathered.event == row.event) {
            Some(gathered) => {
                gathered.refused = gathered.refused.take().or(row.refused);
                gathered.rounds.extend(row.rounds);
            }
            None => rows.push(row),
        }
    }
    rows
}

impl Row {
    /// Of the throughput of all clients without the event, what was left.
    pub fn throughput_ratio(&self) -> f64 {
        self.median(Round::throughput_ratio)
    }

    /// The median of the rounds; of an even number the lower of the two in the middle.
    fn median(&self, figure: impl Fn(&Round) -> f64) -> f64 {
        let mut figures: Vec<f64> = self.rounds.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures.get(figures.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
    }

    /// The median of a figure of one role.
    fn of_role(&self, place: usize, figure: impl Fn(&Figures, &Figures) -> f64) -> f64 {
        self.median(|round| round.figures.get(place).map_or(f64::NAN, |(_, quiet, meanwhile)| figure(quiet, meanwhile)))
    }

    /// Where the processors' time went, in the mean of the rounds.
    fn threads(&self) -> [ByName; 2] {
        [0, 1].map(|which| threads::mean(self.rounds.iter().map(|round| &round.threads[which])))
    }

    fn json(&self) -> Value {
        let mut roles = serde_json::Map::new();
        for (role, quiet, meanwhile) in self.rounds.iter().flat_map(|round| &round.figures) {
            let ratio = meanwhile.p99 / quiet.p99;
            roles.insert(
                role.name().into(),
                json!({ "quiet": quiet.json(), "meanwhile": meanwhile.json(), "p99Ratio": ratio }),
            );
        }
        let [quiet, meanwhile] = self.threads();
        json!({
            "event": self.event.name(), "refused": self.refused, "waitedSecs": self.median(|round| round.waited_secs),
            "answeredSecs": self.median(|round| round.answered_secs),
            "endedSecs": self.median(|round| round.ended_secs), "startSecs": self.median(|round| round.stretch.start as f64 / 1e9),
            "throughputRatio": self.throughput_ratio(), "clients": roles,
            "threads": { "quiet": threads::json(&quiet), "meanwhile": threads::json(&meanwhile) },
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
    for (place, role) in Role::ALL.into_iter().enumerate() {
        let ratio = row.of_role(place, |quiet, meanwhile| meanwhile.p99 / quiet.p99);
        at_most(format!("{event}: {}'s p99, of quiet", role.name()), ratio, P99_RATIO_MAX);
        let longest = row.of_role(place, |_, meanwhile| meanwhile.longest);
        at_most(format!("{event}: {}'s longest, ms", role.name()), longest, LONGEST_MS_MAX);
    }
    if row.event == Event::Drop {
        at_most(format!("{event}: answered after, s"), row.median(|round| round.answered_secs), DROP_SECS_MAX);
    }
    targets
}

/// The table. Latencies are milliseconds.
pub fn text(rows: &[Row]) -> String {
    let mut text = String::from(
        "| event | waited, answered, ended (s) | client | a second, of quiet | quiet: p50, p99, p99.9, longest (ms) | meanwhile | p99, of quiet | failed |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        if let Some(why) = &row.refused {
            text += &format!("| {} | refused: {why} | | | | | | |\n", row.event.name());
            continue;
        }
        for (place, role) in Role::ALL.into_iter().enumerate() {
            let (answered, ended) = (row.median(|round| round.answered_secs), row.median(|round| round.ended_secs));
            let waited = row.median(|round| round.waited_secs);
            let (event, took) = match place {
                0 => (row.event.name(), format!("{waited:.2}, {answered:.2}, {ended:.2}")),
                _ => Default::default(),
            };
            let four = |which: fn(&Figures, &Figures) -> Figures| {
                let of = |figure: fn(&Figures) -> f64| {
                    row.of_role(place, |quiet, meanwhile| figure(&which(quiet, meanwhile)))
                };
                let (p50, p99, p999) = (of(|f| f.p50), of(|f| f.p99), of(|f| f.p999));
                format!("{p50:.2}, {p99:.2}, {p999:.2}, {:.1}", of(|f| f.longest))
            };
            text += &format!(
                "| {event} | {took} | {} | {:.2} | {} | {} | {:.2} | {} |\n",
                role.name(),
                row.of_role(place, |quiet, meanwhile| meanwhile.per_sec / quiet.per_sec),
                four(|quiet, _| *quiet),
                four(|_, meanwhile| *meanwhile),
                row.of_role(place, |quiet, meanwhile| meanwhile.p99 / quiet.p99),
                row.of_role(place, |_, meanwhile| meanwhile.failures as f64),
            );
        }
    }
    text
}

/// Where the processors' time went meanwhile, and where without the event: of the members' threads by name, and of the clients', how long
/// they ran and how long they were kept waiting for a processor.
pub fn threads_text(rows: &[Row]) -> String {
    let mut text =
        String::from("\n| event | ran/waited, hundredths of a second a second, quiet → meanwhile |\n|---|---|\n");
    for row in rows {
        let [quiet, meanwhile] = row.threads();
        text += &format!("| {} | {} |\n", row.event.name(), threads::differences(&quiet, &meanwhile));
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
