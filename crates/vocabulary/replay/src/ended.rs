//! The recordings of machines that have ended, of a kind of which a member has many, one after another.
//!
//! Invariants:
//! - A recording is kept for [`Bounds::age`] after its machine has ended, unless there are too many, or they take too much
//!   memory: then the one that ended first is let go of.
//! - What is too old is let go of when the next machine ends, and is shown to nobody.

use crate::{Bounds, Machine, Recording};
use std::collections::VecDeque;
use std::time::Duration;

struct Kept<M: Machine> {
    ended: Duration,
    of: String,
    recording: Recording<M>,
}

/// See the file's header.
pub struct Ended<M: Machine> {
    bounds: Bounds,
    count_max: usize,
    /// The one that ended first comes first.
    kept: VecDeque<Kept<M>>,
    bytes: usize,
}

impl<M: Machine> Ended<M> {
    /// Keeps so many at the most, in the bounds' memory and for their age.
    pub fn new(bounds: Bounds, count_max: usize) -> Self {
        Self { bounds, count_max, kept: VecDeque::new(), bytes: 0 }
    }

    /// The machine `of` has ended, and this is what was kept of it.
    pub fn add(&mut self, now: Duration, of: String, recording: Recording<M>) {
        self.bytes += recording.bytes();
        self.kept.push_back(Kept { ended: now, of, recording });
        while let Some(oldest) = self.kept.front() {
            let is_too_much = self.kept.len() > self.count_max || self.bytes > self.bounds.bytes;
            if !is_too_much && !self.is_too_old(oldest, now) {
                break;
            }
            self.bytes -= oldest.recording.bytes();
            self.kept.pop_front();
        }
    }

    /// What there is, the one that ended first at first.
    pub fn recordings(&self, now: Duration) -> Vec<(String, Recording<M>)> {
        let young = self.kept.iter().filter(|kept| !self.is_too_old(kept, now));
        young.map(|kept| (kept.of.clone(), kept.recording.clone())).collect()
    }

    fn is_too_old(&self, kept: &Kept<M>, now: Duration) -> bool {
        now.saturating_sub(kept.ended) > self.bounds.age
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Recorder;
    use crate::replay::tests::{Adder, Told};

    const SECOND: Duration = Duration::from_secs(1);

    fn of_steps(steps: u64) -> Recording<Adder> {
        let mut machine = Adder::default();
        let mut recorder = Recorder::new(&machine, Duration::ZERO, Bounds::default());
        for n in 0..steps {
            recorder.step(&mut machine, Duration::ZERO, Told::Add(n));
        }
        recorder.recording(&machine)
    }

    fn names(ended: &Ended<Adder>, now: Duration) -> Vec<String> {
        ended.recordings(now).into_iter().map(|(of, _)| of).collect()
    }

    #[test]
    fn a_machine_that_has_ended_is_shown_for_a_minute_more() {
        let mut ended = Ended::new(Bounds::default(), 10);
        ended.add(10 * SECOND, "first".into(), of_steps(1));
        ended.add(30 * SECOND, "second".into(), of_steps(1));
        assert_eq!(names(&ended, 70 * SECOND), ["first", "second"]);
        assert_eq!(names(&ended, 71 * SECOND), ["second"]);
        ended.add(100 * SECOND, "third".into(), of_steps(1));
        assert_eq!(ended.kept.len(), 1);
    }

    #[test]
    fn those_that_ended_first_go_when_there_are_too_many_or_take_too_much_memory() {
        let mut ended = Ended::new(Bounds::default(), 3);
        for n in 0..10 {
            ended.add(SECOND, n.to_string(), of_steps(1));
        }
        assert_eq!(names(&ended, SECOND), ["7", "8", "9"]);
        let bounds = Bounds { bytes: 5 * of_steps(100).bytes(), ..Bounds::default() };
        let mut ended = Ended::new(bounds, 1000);
        for n in 0..50 {
            ended.add(SECOND, n.to_string(), of_steps(100));
            assert!(ended.bytes <= bounds.bytes);
        }
        assert_eq!(names(&ended, SECOND), ["45", "46", "47", "48", "49"]);
        ended.add(SECOND, "too large".into(), of_steps(20_000));
        assert!(ended.kept.is_empty() && ended.bytes == 0);
    }
}
