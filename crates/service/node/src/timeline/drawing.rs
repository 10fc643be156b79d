//! The timeline as a picture, one lane a member: a band while it is primary, thinner ones for its tasks, a mark for each handoff, and
//! red where nobody was known to lead.
//!
//! Invariants: pure; names are shown as text, never as markup. Everything drawn has a title that says it in words.

use super::{LENGTH, Seen, SeenTask, Span};
use crate::status_page::escape;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

const WIDTH: f64 = 900.0;
/// Where the lanes begin: left of it are the members' names.
const LEFT: f64 = 150.0;
const RIGHT: f64 = 885.0;
const TOP: f64 = 22.0;
const LANE: f64 = 40.0;
/// The band of a primary, from the top of its lane.
const BAND: (f64, f64) = (4.0, 14.0);
/// The bands of tasks: of those that run, and of those that wait.
const RUNNING: (f64, f64) = (20.0, 8.0);
const WAITING: (f64, f64) = (30.0, 4.0);
/// So wide everything is at least.
const WIDTH_MIN: f64 = 1.5;
/// How many minutes the picture covers: the fewest of these that the process is not older than, or the last. So what happened just
/// after a start can be seen.
const COVERED_MINUTES: [u64; 4] = [5, 15, 30, LENGTH.as_secs() / 60];
/// Marks of the time axis.
const TICKS: u64 = 5;
/// The gaps of no more handoffs are written beside them.
const WRITTEN_MAX: usize = 12;

/// A handoff that this member made.
#[derive(Clone, Debug)]
pub struct Move {
    /// When, since the process began.
    pub at: Duration,
    /// Who took over, if that is known.
    pub to: Option<String>,
    /// What made it.
    pub why: String,
    /// How long nobody took writes, if that is known.
    pub gap: Option<Duration>,
}

struct Drawing {
    now: Duration,
    covered: Duration,
    lanes: BTreeMap<String, usize>,
    svg: String,
}

/// The picture as of `now`, with a lane for each of `members` and for whoever else was seen.
pub fn draw(seen: &Seen, moves: &[Move], members: &[String], now: Duration) -> String {
    let primaries = seen.primaries.iter().filter_map(|span| span.what.as_ref());
    let names = members.iter().chain(primaries).chain(seen.tasks.iter().map(|span| &span.what.host));
    let mut lanes = BTreeMap::new();
    for name in names {
        let next = lanes.len();
        lanes.entry(name.clone()).or_insert(next);
    }
    let mut drawing = Drawing { now, covered: covered(now), lanes, svg: String::with_capacity(8 * 1024) };
    drawing.begin();
    for span in &seen.primaries {
        drawing.primary(span);
    }
    for span in &seen.tasks {
        drawing.task(span);
    }
    let is_written = moves.len() <= WRITTEN_MAX;
    for one in moves.iter().filter(|one| now.saturating_sub(one.at) <= covered(now)) {
        drawing.handoff(one, is_written);
    }
    drawing.svg.push_str("</svg>");
    drawing.svg
}

fn covered(age: Duration) -> Duration {
    let minutes = COVERED_MINUTES.into_iter().find(|minutes| age.as_secs() <= minutes * 60);
    minutes.map_or(LENGTH, |minutes| Duration::from_secs(minutes * 60))
}

impl Drawing {
    fn height(&self) -> f64 {
        TOP + LANE * self.lanes.len().max(1) as f64
    }

    fn x(&self, at: Duration) -> f64 {
        let ago = self.now.saturating_sub(at).as_secs_f64() / self.covered.as_secs_f64();
        RIGHT - (RIGHT - LEFT) * ago.min(1.0)
    }

    fn begin(&mut self) {
        let height = self.height();
        let _ = write!(
            self.svg,
            "<svg class=timeline viewBox=\"0 0 {WIDTH} {height}\" role=img aria-label=\"The last hour: who was primary, and tasks\">"
        );
        let covered = self.covered.as_secs() / 60;
        for minutes in (0..=covered).step_by((covered / TICKS) as usize) {
            let x = RIGHT - (RIGHT - LEFT) * minutes as f64 / covered as f64;
            let label = if minutes == 0 { "now".to_owned() } else { format!("−{minutes} min") };
            let _ = write!(
                self.svg,
                "<line x1={x:.1} y1={TOP} x2={x:.1} y2={height} class=tick /><text x={x:.1} y=12 text-anchor=middle>{label}</text>"
            );
        }
        for (name, lane) in &self.lanes {
            let y = TOP + LANE * *lane as f64;
            let _ = write!(
                self.svg,
                "<line x1=0 y1={y} x2={WIDTH} y2={y} class=tick /><text x=0 y={:.1}>{}</text>",
                y + BAND.0 + BAND.1 - 2.0,
                escape(name)
            );
        }
    }

    fn rect<T>(&mut self, span: &Span<T>, y: f64, height: f64, class: &str, title: &str) {
        let (from, to) = (self.x(span.from), self.x(span.to));
        let width = (to - from).max(WIDTH_MIN);
        let secs = span.to.saturating_sub(span.from).as_secs_f64();
        let ended = self.now.saturating_sub(span.to).as_secs();
        let when = if ended < 2 { "until now".to_owned() } else { format!("until {ended} s ago") };
        let _ = write!(
            self.svg,
            "<rect x={from:.1} y={y:.1} width={width:.1} height={height:.1} class=\"{class}\"><title>{}: {secs:.1} s, {when}</title></rect>",
            escape(title)
        );
    }

    fn lane(&self, host: &str) -> f64 {
        TOP + LANE * self.lanes.get(host).copied().unwrap_or_default() as f64
    }

    fn primary(&mut self, span: &Span<Option<String>>) {
        match &span.what {
            Some(host) => {
                let y = self.lane(host) + BAND.0;
                self.rect(span, y, BAND.1, "primary", &format!("{host} was primary"));
            }
            None => self.rect(span, TOP, self.height() - TOP, "nobody", "no primary was known here"),
        }
    }

    fn task(&mut self, span: &Span<SeenTask>) {
        let SeenTask { host, kind, is_running } = &span.what;
        let ((top, height), does) = if *is_running { (RUNNING, "ran") } else { (WAITING, "waited") };
        let state = if *is_running { "running" } else { "waiting" };
        let y = self.lane(host) + top;
        self.rect(
            span,
            y,
            height,
            &format!("task {state} {}", kind.name()),
            &format!("{} {does} on {host}", kind.name()),
        );
    }

    fn handoff(&mut self, one: &Move, is_written: bool) {
        let (x, height) = (self.x(one.at), self.height());
        let gap = one.gap.map(|gap| format!("{:.0} ms", gap.as_secs_f64() * 1000.0));
        let to = one.to.as_deref().unwrap_or("nobody yet");
        let length = gap.as_ref().map(|gap| format!("; nobody took writes for {gap}")).unwrap_or_default();
        let _ = write!(
            self.svg,
            "<g class=handoff><title>handed over to {} ({}){length}</title><line x1={x:.1} y1={TOP} x2={x:.1} y2={height} />",
            escape(to),
            escape(&one.why)
        );
        if let Some(gap) = gap.filter(|_| is_written) {
            let _ = write!(self.svg, "<text x={:.1} y={:.1}>{gap}</text>", x + 3.0, height - 3.0);
        }
        self.svg.push_str("</g>");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_types::TaskKind;

    fn span<T>(from: u64, to: u64, what: T) -> Span<T> {
        Span { from: Duration::from_secs(from), to: Duration::from_secs(to), what }
    }

    #[test]
    fn every_member_has_a_lane_and_everything_seen_its_place_on_it() {
        let task = SeenTask { host: "b:2".into(), kind: TaskKind::Backup, is_running: true };
        let seen = Seen {
            primaries: [
                span(400, 2200, Some("a:1".into())),
                span(2200, 2201, None),
                span(2201, 4000, Some("b:2".into())),
            ]
            .into(),
            tasks: [span(2200, 2230, task)].into(),
        };
        let at = Duration::from_secs(2200);
        let one = Move { at, to: Some("b:2".into()), why: "backup".into(), gap: Some(Duration::from_millis(11)) };
        let svg = draw(&seen, &[one], &["a:1".into(), "b:2".into()], Duration::from_secs(4000));
        // An hour is 735 wide: half of it ends in the middle.
        let first = "<rect x=150.0 y=26.0 width=367.5 height=14.0 class=\"primary\"><title>a:1 was primary: 1800.0 s, until 1800 s ago";
        assert!(svg.contains(first), "{svg}");
        assert!(
            svg.contains("<rect x=517.7 y=66.0 width=367.3 height=14.0 class=\"primary\"><title>b:2 was primary"),
            "{svg}"
        );
        assert!(svg.contains("class=\"nobody\"><title>no primary was known here: 1.0 s"), "{svg}");
        assert!(svg.contains("class=\"task running backup\"><title>backup ran on b:2: 30.0 s"), "{svg}");
        assert!(svg.contains("handed over to b:2 (backup); nobody took writes for 11 ms"), "{svg}");
        assert!(svg.contains(">−60 min</text>") && svg.contains(">now</text>"), "{svg}");
    }

    #[test]
    fn a_young_process_draws_its_few_minutes_large() {
        let seen = Seen { primaries: [span(0, 150, Some("a".into()))].into(), ..Seen::default() };
        let svg = draw(&seen, &[], &[], Duration::from_secs(150));
        assert!(svg.contains("<rect x=517.5 y=26.0 width=367.5"), "{svg}");
        assert!(svg.contains(">−5 min</text>") && !svg.contains(">−12 min</text>"), "{svg}");
    }

    #[test]
    fn names_are_text_and_what_is_older_than_an_hour_is_at_the_edge() {
        let seen = Seen { primaries: [span(0, 9000, Some("<b>".into()))].into(), ..Seen::default() };
        let svg = draw(&seen, &[], &[], Duration::from_secs(9000));
        assert!(svg.contains("&lt;b&gt;") && !svg.contains("<b>"), "{svg}");
        assert!(svg.contains("<rect x=150.0 y=26.0 width=735.0"), "{svg}");
    }
}
