//! What this member has seen within the last hour: who was primary, and which tasks ran or waited on which member. For the status page.
//!
//! Invariants:
//! - What is kept is bounded: an hour, and so many spans, however often anything changes.
//! - What nobody looked at is not told: a span ends with the last look that saw it, unless the next look sees the same.
//!
//! What it deliberately does not do: survive a restart, draw (`drawing`), or know more precisely than it looks. How long nobody took
//! writes during a handoff is measured elsewhere, and drawn beside.

mod drawing;

pub use drawing::{Move, draw};

use baton_commands::Server;
use baton_types::TaskKind;
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// How far back it goes.
pub const LENGTH: Duration = Duration::from_secs(3600);
/// Two looks further apart than this have nothing known between them.
const UNSEEN_AFTER: Duration = Duration::from_secs(5);
/// The most spans of primaries, and the most of tasks.
const SPANS_MAX: usize = 1000;

/// A task on some member.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeenTask {
    /// The member.
    pub host: String,
    /// What kind of work.
    pub kind: TaskKind,
    /// Whether it runs; otherwise it waits.
    pub is_running: bool,
}

/// Something that was so for a while. Times are since the process began.
#[derive(Clone, Debug, PartialEq)]
pub struct Span<T> {
    /// When it was seen first.
    pub from: Duration,
    /// When it was seen last, or when something else was seen instead.
    pub to: Duration,
    /// What was so.
    pub what: T,
}

/// What is drawn.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Who was primary, oldest first; none: nobody, as far as this member knew.
    pub primaries: VecDeque<Span<Option<String>>>,
    /// Tasks, by when they were seen first.
    pub tasks: VecDeque<Span<SeenTask>>,
}

/// See the file's header.
#[derive(Debug, Default)]
pub struct Timeline(Mutex<Seen>);

impl Timeline {
    /// Who is primary now.
    pub fn see_primary(&self, now: Duration, primary: Option<String>) {
        let primaries = &mut self.0.lock().primaries;
        let last = primaries.back_mut().filter(|span| now.saturating_sub(span.to) <= UNSEEN_AFTER);
        if let Some(last) = last {
            last.to = now;
            if last.what == primary {
                return;
            }
        }
        primaries.push_back(Span { from: now, to: now, what: primary });
        trim(primaries, now);
    }

    /// Every task that runs or waits now.
    pub fn see_tasks(&self, now: Duration, mut tasks: BTreeSet<SeenTask>) {
        let spans = &mut self.0.lock().tasks;
        for span in spans.iter_mut().filter(|span| now.saturating_sub(span.to) <= UNSEEN_AFTER) {
            if tasks.remove(&span.what) {
                span.to = now;
            }
        }
        spans.extend(tasks.into_iter().map(|what| Span { from: now, to: now, what }));
        trim(spans, now);
    }

    /// All that is kept.
    pub fn seen(&self) -> Seen {
        self.0.lock().clone()
    }
}

/// Looks at who leads, and at the tasks if those are wanted, too.
pub fn look(timeline: &Timeline, server: &Server, with_tasks: bool) {
    let Some(set) = server.topology.set() else { return };
    let now = server.started.elapsed();
    timeline.see_primary(now, set.view.primary.and_then(|id| set.host_of(id)).map(str::to_owned));
    if !with_tasks {
        return;
    }
    let own = server.storage.tasks();
    let is_task = |kind: TaskKind| kind != TaskKind::Flush;
    let mut tasks: BTreeSet<SeenTask> = own
        .running()
        .into_iter()
        .chain(own.waiting())
        .filter(|task| is_task(task.kind))
        .map(|task| SeenTask { host: set.me.clone(), kind: task.kind, is_running: task.waits_for.is_none() })
        .collect();
    let peers = server.replication().map(|replication| replication.leadership().members).unwrap_or_default();
    let my_id = set.view.me.map(|me| me.0);
    for (id, (gossip, age)) in peers {
        let host = set.configuration().and_then(|all| all.members.iter().find(|member| member.id.0 == id));
        // What nobody has confirmed for so long is not known to go on.
        let Some(host) = host.filter(|_| Some(id) != my_id && age <= UNSEEN_AFTER) else { continue };
        tasks.extend(gossip.tasks.iter().map(|task| SeenTask {
            host: host.host.clone(),
            kind: task.kind,
            is_running: task.is_running,
        }));
    }
    timeline.see_tasks(now, tasks);
}

/// The handoffs that this member has made.
pub fn moves(server: &Server) -> Vec<Move> {
    let handoffs = server.replication().map(|replication| replication.handoffs()).unwrap_or_default();
    let age = server.started.elapsed();
    let moved = handoffs.into_iter().map(|handoff| {
        let why = handoff.decision.map_or_else(String::new, |decision| format!(": {}", decision.rule));
        let asked = age.saturating_sub(handoff.asked.elapsed().unwrap_or_default());
        let why = format!("{}{why}", handoff.trigger.name());
        Move { at: asked + handoff.waited, to: handoff.to, why, gap: handoff.write_gap }
    });
    moved.collect()
}

fn trim<T>(spans: &mut VecDeque<Span<T>>, now: Duration) {
    spans.retain(|span| now.saturating_sub(span.to) <= LENGTH);
    while spans.len() > SPANS_MAX {
        spans.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn task(host: &str, is_running: bool) -> SeenTask {
        SeenTask { host: host.into(), kind: TaskKind::Backup, is_running }
    }

    #[test]
    fn a_primary_is_one_span_as_long_as_it_is_seen_again_and_again() {
        let timeline = Timeline::default();
        for (secs, primary) in [(0, "a"), (1, "a"), (2, "a"), (3, "b"), (4, "b"), (100, "b")] {
            timeline.see_primary(at(secs), Some(primary.into()));
        }
        let spans: Vec<_> =
            timeline.seen().primaries.iter().map(|s| (s.from.as_secs(), s.to.as_secs(), s.what.clone())).collect();
        let is = |from, to, primary: &str| (from, to, Some(primary.to_owned()));
        assert_eq!(spans, [is(0, 3, "a"), is(3, 4, "b"), is(100, 100, "b")], "nobody looked from 4 to 100");
    }

    #[test]
    fn a_task_that_waits_and_then_runs_is_two_spans_and_one_that_returns_is_a_new_one() {
        let timeline = Timeline::default();
        timeline.see_tasks(at(0), [task("a", false)].into());
        timeline.see_tasks(at(1), [task("a", false)].into());
        timeline.see_tasks(at(2), [task("a", true), task("b", false)].into());
        timeline.see_tasks(at(3), [task("a", true)].into());
        timeline.see_tasks(at(60), [task("a", true)].into());
        let spans: Vec<_> =
            timeline.seen().tasks.iter().map(|s| (s.from.as_secs(), s.to.as_secs(), s.what.clone())).collect();
        let expected =
            [(0, 1, task("a", false)), (2, 3, task("a", true)), (2, 2, task("b", false)), (60, 60, task("a", true))];
        assert_eq!(spans, expected);
    }

    #[test]
    fn what_is_kept_is_an_hour_and_bounded_however_often_primaries_and_tasks_change() {
        let timeline = Timeline::default();
        for n in 0..10_000_u64 {
            timeline.see_primary(Duration::from_millis(n * 10), Some(format!("m{n}")));
            timeline.see_tasks(Duration::from_millis(n * 10), [task(&format!("m{n}"), true)].into());
        }
        let seen = timeline.seen();
        assert_eq!((seen.primaries.len(), seen.tasks.len()), (SPANS_MAX, SPANS_MAX));
        timeline.see_primary(at(5_000), None);
        timeline.see_tasks(at(5_000), BTreeSet::new());
        let seen = timeline.seen();
        assert_eq!((seen.primaries.len(), seen.tasks.len()), (1, 0));
    }
}
