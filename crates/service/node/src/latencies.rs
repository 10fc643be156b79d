//! How long requests of each class took within the last ten minutes, as a picture for the status page: for each class half of them (the
//! thick line) and 99 of 100 (the thin one), every five seconds.
//!
//! Invariants: what is kept is bounded; where nobody was served, or nothing told apart, no line is drawn. Everything drawn has a title that
//! says it in words.
//!
//! What it deliberately does not do: measure. The door counts; here is what came between two looks.

use baton_commands::{ClassTimes, Server};
use baton_types::Class;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt::Write;
use std::time::Duration;

/// How far back it goes.
const LENGTH: Duration = Duration::from_secs(600);
const INTERVAL: Duration = Duration::from_secs(5);
/// Two looks further apart than this are not joined by a line.
const APART: Duration = Duration::from_secs(12);

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 190.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 885.0;
const TOP: f64 = 22.0;
const BOTTOM: f64 = 180.0;
/// The axis of times, logarithmic: from a twentieth of a millisecond to ten seconds.
const MICROS: (f64, f64) = (50.0, 10_000_000.0);
const MARKS: [(f64, &str); 6] = [
    (100.0, "0.1 ms"),
    (1_000.0, "1 ms"),
    (10_000.0, "10 ms"),
    (100_000.0, "0.1 s"),
    (1_000_000.0, "1 s"),
    (10_000_000.0, "10 s"),
];

/// What one class did between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When it was looked at, since the process began.
    pub at: Duration,
    /// Half of the requests took no longer, in microseconds.
    pub half_micros: u64,
    /// 99 of 100 did not.
    pub most_micros: u64,
    /// How many there were.
    pub count: u64,
}

#[derive(Debug, Default)]
struct Seen {
    looked_at: Option<Duration>,
    /// For each class, the most urgent first: what was counted by the last look, and what came between two.
    classes: Vec<(Class, ClassTimes, VecDeque<Sample>)>,
}

/// See the file's header.
#[derive(Debug, Default)]
pub struct Latencies(Mutex<Seen>);

impl Latencies {
    /// Looks, if it is time to.
    pub fn look(&self, server: &Server) {
        let now = server.started.elapsed();
        let is_due = self.0.lock().looked_at.is_none_or(|before| now.saturating_sub(before) >= INTERVAL);
        if is_due {
            self.see(now, server.priority.times());
        }
    }

    fn see(&self, now: Duration, times: impl IntoIterator<Item = (Class, ClassTimes)>) {
        let mut seen = self.0.lock();
        seen.looked_at = Some(now);
        for (class, so_far) in times {
            let Some((_, before, samples)) = seen.classes.iter_mut().find(|(of, ..)| *of == class) else {
                seen.classes.push((class, so_far, VecDeque::new()));
                continue;
            };
            let between = so_far.since(before);
            *before = so_far;
            if between.count > 0 {
                let (half_micros, most_micros) = (between.quantile_micros(0.5), between.quantile_micros(0.99));
                samples.push_back(Sample { at: now, half_micros, most_micros, count: between.count });
            }
            while samples.front().is_some_and(|oldest| now.saturating_sub(oldest.at) > LENGTH) {
                samples.pop_front();
            }
        }
    }

    /// The picture as of `now`; none if there is nothing to see.
    pub fn draw(&self, now: Duration) -> Option<String> {
        let seen = self.0.lock();
        if seen.classes.iter().all(|(.., samples)| samples.is_empty()) {
            return None;
        }
        let mut svg = String::with_capacity(8 * 1024);
        begin(&mut svg);
        for (class, _, samples) in &seen.classes {
            draw_class(&mut svg, *class, samples, now);
        }
        svg.push_str("</svg>");
        Some(svg)
    }
}

fn x(at: Duration, now: Duration) -> f64 {
    let ago = now.saturating_sub(at).as_secs_f64() / LENGTH.as_secs_f64();
    RIGHT - (RIGHT - LEFT) * ago.min(1.0)
}

fn y(micros: f64) -> f64 {
    let part = (micros.clamp(MICROS.0, MICROS.1) / MICROS.0).ln() / (MICROS.1 / MICROS.0).ln();
    BOTTOM - (BOTTOM - TOP) * part
}

fn begin(svg: &mut String) {
    let _ = write!(
        svg,
        "<svg class=timeline viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=img aria-label=\"The last ten minutes: how long requests of each class took\">"
    );
    for minutes in (0..=LENGTH.as_secs() / 60).step_by(2) {
        let x = RIGHT - (RIGHT - LEFT) * (minutes * 60) as f64 / LENGTH.as_secs_f64();
        let label = if minutes == 0 { "now".to_owned() } else { format!("−{minutes} min") };
        let _ = write!(
            svg,
            "<line x1={x:.1} y1={TOP} x2={x:.1} y2={BOTTOM} class=tick /><text x={x:.1} y=12 text-anchor=middle>{label}</text>"
        );
    }
    for (micros, label) in MARKS {
        let y = y(micros);
        let _ = write!(
            svg,
            "<line x1={LEFT} y1={y:.1} x2={RIGHT} y2={y:.1} class=tick /><text x=0 y={:.1}>{label}</text>",
            y + 4.0
        );
    }
}

fn draw_class(svg: &mut String, class: Class, samples: &VecDeque<Sample>, now: Duration) {
    let Some(last) = samples.back() else { return };
    let _ = write!(
        svg,
        "<g class=\"of-{class}\"><title>{class}: {} requests within five seconds, {} s ago; half of them within {} ms, 99 of 100 within {} ms</title>",
        last.count,
        now.saturating_sub(last.at).as_secs(),
        last.half_micros as f64 / 1000.0,
        last.most_micros as f64 / 1000.0,
    );
    let all: Vec<Sample> = samples.iter().copied().collect();
    for together in all.chunk_by(|one, next| next.at.saturating_sub(one.at) <= APART) {
        for (name, micros) in [("half", half as fn(&Sample) -> u64), ("most", most)] {
            let points: Vec<String> =
                together.iter().map(|of| format!("{:.1},{:.1}", x(of.at, now), y(micros(of) as f64))).collect();
            let _ = write!(svg, "<polyline class={name} points=\"{}\"/>", points.join(" "));
            if let [alone] = together {
                let _ = write!(svg, "<circle r=2 cx={:.1} cy={:.1} />", x(alone.at, now), y(micros(alone) as f64));
            }
        }
    }
    svg.push_str("</g>");
}

fn half(sample: &Sample) -> u64 {
    sample.half_micros
}

fn most(sample: &Sample) -> u64 {
    sample.most_micros
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn times(each: &[(Class, &[u64])]) -> Vec<(Class, ClassTimes)> {
        let of = |millis: &[u64]| millis.iter().map(|millis| Duration::from_millis(*millis)).collect();
        each.iter().map(|(class, millis)| (*class, of(millis))).collect()
    }

    fn samples(latencies: &Latencies, class: Class) -> Vec<Sample> {
        let seen = latencies.0.lock();
        seen.classes.iter().filter(|(of, ..)| *of == class).flat_map(|(.., samples)| samples.iter().copied()).collect()
    }

    #[test]
    fn what_came_between_two_looks_is_kept_for_ten_minutes() {
        let latencies = Latencies::default();
        latencies.see(at(0), times(&[(Class::High, &[1, 1]), (Class::Low, &[])]));
        assert_eq!(latencies.draw(at(0)), None, "what was before the first look is nobody's");
        latencies.see(at(5), times(&[(Class::High, &[1, 1, 20, 20, 20]), (Class::Low, &[])]));
        let first = Sample { at: at(5), half_micros: 20_000, most_micros: 20_000, count: 3 };
        assert_eq!(samples(&latencies, Class::High), [first]);
        assert_eq!(samples(&latencies, Class::Low), [], "nobody was served");
        latencies.see(at(10), times(&[(Class::High, &[1, 1, 20, 20, 20]), (Class::Low, &[100])]));
        assert_eq!(samples(&latencies, Class::High), [first]);
        assert_eq!(samples(&latencies, Class::Low).len(), 1);
        latencies.see(at(606), times(&[(Class::High, &[1, 1, 20, 20, 20]), (Class::Low, &[100])]));
        assert_eq!((samples(&latencies, Class::High).len(), samples(&latencies, Class::Low).len()), (0, 1));
    }

    #[test]
    fn each_class_has_its_lines_and_says_what_they_are() {
        let latencies = Latencies::default();
        for (n, secs) in [0, 5, 10, 60].into_iter().enumerate() {
            let high = vec![1; n];
            latencies.see(at(secs), times(&[(Class::High, &high), (Class::Low, &[])]));
        }
        let svg = latencies.draw(at(61)).unwrap();
        assert_eq!(svg.matches("<g class=\"of-high\">").count(), 1);
        assert!(!svg.contains("of-low"), "{svg}");
        assert_eq!(svg.matches("<polyline class=half").count(), 2, "what was not seen is not drawn: {svg}");
        assert!(svg.contains("high: 1 requests within five seconds, 1 s ago; half of them within 1 ms"), "{svg}");
        assert!(y(50.0) > y(1000.0) && y(1000.0) > y(1e9) && (y(1e9) - TOP).abs() < 1e-9);
    }
}
