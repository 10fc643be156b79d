//! The ring of what a machine was told.
//!
//! Invariants:
//! - Each segment begins with the machine as the one before left it, unless it says that it does not.
//! - The segments that are kept reach back for [`Bounds::age`], unless that takes more memory than [`Bounds::bytes`].
//! - A step costs a clone of its input and of its effects; once a segment, a clone of the machine.

use crate::Machine;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// About what a machine takes in memory.
const MACHINE_BYTES_ASSUMED: usize = 16 << 10;
/// A segment takes no more than this part of the memory: sealing one and letting go of another is done within a step.
const SEGMENTS_MIN: usize = 64;

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// For how long, at least.
    pub age: Duration,
    /// How long a segment lasts.
    pub segment_age: Duration,
    /// In how much memory, at most, about.
    pub bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { age: Duration::from_secs(60), segment_age: Duration::from_secs(10), bytes: 8 << 20 }
    }
}

/// One step.
#[derive(Clone)]
pub struct Step<M: Machine> {
    /// When.
    pub now: Duration,
    /// What the machine was told.
    pub input: M::Input,
    /// What it asked for; none if it never came back.
    pub effects: Option<Vec<M::Effect>>,
}

/// Steps in a row, and where they began.
#[derive(Clone)]
pub struct Segment<M: Machine> {
    /// The machine is here as the steps before have left it; else something else has changed it, or there are none.
    pub continues: bool,
    /// The machine before the first of the steps.
    pub machine: M,
    /// The steps.
    pub steps: Vec<Step<M>>,
    begun: Duration,
    bytes: usize,
}

impl<M: Machine> Segment<M> {
    fn new(machine: &M, now: Duration, continues: bool) -> Self {
        let bytes = size_of::<M>() + MACHINE_BYTES_ASSUMED;
        Self { continues, machine: machine.clone(), steps: Vec::new(), begun: now, bytes }
    }
}

/// What a recorder has kept, the oldest first. Cheap to take.
#[derive(Clone)]
pub struct Recording<M: Machine> {
    /// Without a gap.
    pub segments: Vec<Arc<Segment<M>>>,
}

impl<M: Machine> Recording<M> {
    /// How many steps.
    pub fn steps(&self) -> usize {
        self.segments.iter().map(|segment| segment.steps.len()).sum()
    }

    /// About how much memory they take.
    pub fn bytes(&self) -> usize {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }
}

/// See the file's header.
pub struct Recorder<M: Machine> {
    bounds: Bounds,
    kept: VecDeque<Arc<Segment<M>>>,
    open: Segment<M>,
    /// Of all segments.
    bytes: usize,
}

impl<M: Machine> Recorder<M> {
    /// Of a machine as it is now.
    pub fn new(machine: &M, now: Duration, bounds: Bounds) -> Self {
        let open = Segment::new(machine, now, false);
        Self { bounds, kept: VecDeque::new(), bytes: open.bytes, open }
    }

    /// Has the machine take an input, and keeps both, and what comes of it.
    pub fn step(&mut self, machine: &mut M, now: Duration, input: M::Input) -> Vec<M::Effect> {
        self.observe(machine, now, input.clone(), |machine| machine.step(now, input), Vec::clone)
    }

    /// Has something done to the machine that counts as this input, and keeps what came of it as `effects` tells it.
    pub fn observe<T>(
        &mut self,
        machine: &mut M,
        now: Duration,
        input: M::Input,
        act: impl FnOnce(&mut M) -> T,
        effects: impl FnOnce(&T) -> Vec<M::Effect>,
    ) -> T {
        let lasts = now.saturating_sub(self.open.begun);
        if lasts >= self.bounds.segment_age || self.open.bytes >= self.bounds.bytes / SEGMENTS_MIN {
            self.seal(machine, now, true);
        }
        self.add(size_of::<Step<M>>() + M::bytes_behind(&input));
        self.open.steps.push(Step { now, input, effects: None });
        let result = act(machine);
        let effects = effects(&result);
        let behind: usize = effects.iter().map(M::bytes_behind_effect).sum();
        self.add(size_of_val(effects.as_slice()) + behind);
        if let Some(step) = self.open.steps.last_mut() {
            step.effects = Some(effects);
        }
        result
    }

    /// The machine was changed by other means than a step, and is now so.
    pub fn changed(&mut self, machine: &M, now: Duration) {
        self.seal(machine, now, false);
    }

    /// What is kept. The machine is as the last step left it.
    pub fn recording(&mut self, machine: &M) -> Recording<M> {
        let now = self.open.steps.last().map_or(self.open.begun, |step| step.now);
        self.seal(machine, now, true);
        Recording { segments: self.kept.iter().cloned().collect() }
    }

    fn add(&mut self, bytes: usize) {
        self.open.bytes += bytes;
        self.bytes += bytes;
    }

    /// Ends the segment that is open, begins another, and lets go of what is too old or too much.
    fn seal(&mut self, machine: &M, now: Duration, continues: bool) {
        let is_empty = self.open.steps.is_empty();
        if is_empty && continues {
            return;
        }
        let next = Segment::new(machine, now, continues);
        let sealed = std::mem::replace(&mut self.open, next);
        self.bytes += self.open.bytes;
        if is_empty {
            self.bytes -= sealed.bytes;
        } else {
            self.kept.push_back(Arc::new(sealed));
        }
        while let Some(oldest) = self.kept.front() {
            // The minute begins within the first segment of those that reach back that far.
            let next_begun = self.kept.get(1).map_or(self.open.begun, |next| next.begun);
            let is_too_old = now.saturating_sub(next_begun) >= self.bounds.age;
            if !is_too_old && self.bytes <= self.bounds.bytes {
                break;
            }
            self.bytes -= oldest.bytes;
            self.kept.pop_front();
        }
    }
}

/// Steps a machine, and keeps that if there is a recorder.
pub fn step<M: Machine>(
    recorder: Option<&mut Recorder<M>>,
    machine: &mut M,
    now: Duration,
    input: M::Input,
) -> Vec<M::Effect> {
    match recorder {
        Some(recorder) => recorder.step(machine, now, input),
        None => machine.step(now, input),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::tests::{Adder, Told};

    const SECOND: Duration = Duration::from_secs(1);

    fn recorded(steps: u64, each: Duration, bounds: Bounds) -> (Recorder<Adder>, Adder) {
        let mut machine = Adder::default();
        let mut recorder = Recorder::new(&machine, Duration::ZERO, bounds);
        for n in 0..steps {
            recorder.step(&mut machine, each * n as u32, Told::Add(n));
        }
        (recorder, machine)
    }

    #[test]
    fn what_is_kept_reaches_back_for_a_minute_and_for_no_more_than_a_segment_beyond() {
        let (mut recorder, machine) = recorded(1000, SECOND, Bounds::default());
        let recording = recorder.recording(&machine);
        let oldest = recording.segments[0].steps[0].now;
        assert!(oldest <= 939 * SECOND && oldest >= 929 * SECOND, "{oldest:?}");
        assert_eq!(recording.steps() as u64, 1000 - oldest.as_secs());
        assert!(recording.segments.iter().all(|segment| segment.steps.len() <= 10));
    }

    #[test]
    fn memory_is_bounded_however_much_happens_in_a_minute() {
        let bounds = Bounds { bytes: 1 << 20, ..Bounds::default() };
        let (mut recorder, machine) = recorded(1_000_000, Duration::from_micros(10), bounds);
        assert!(recorder.bytes <= bounds.bytes + bounds.bytes / SEGMENTS_MIN, "{}", recorder.bytes);
        let recording = recorder.recording(&machine);
        let counted: usize = recording.segments.iter().map(|segment| segment.bytes).sum();
        assert_eq!(recorder.bytes, counted + recorder.open.bytes);
        assert!(counted >= bounds.bytes / 2, "most of the memory is in use: {counted}");
        assert_eq!(recording.segments.last().unwrap().steps.last().unwrap().input, Told::Add(999_999));
    }

    #[test]
    fn no_step_is_missing_between_two_that_are_kept() {
        let (mut recorder, mut machine) = recorded(500, SECOND / 10, Bounds::default());
        let first = recorder.recording(&machine);
        recorder.step(&mut machine, 51 * SECOND, Told::Add(500));
        let second = recorder.recording(&machine);
        let numbers = |recording: &Recording<Adder>| -> Vec<Told> {
            recording.segments.iter().flat_map(|segment| &segment.steps).map(|step| step.input.clone()).collect()
        };
        assert_eq!(numbers(&first), (0..500).map(Told::Add).collect::<Vec<_>>());
        assert_eq!(numbers(&second), (0..=500).map(Told::Add).collect::<Vec<_>>());
        assert!(second.segments[1..].iter().all(|segment| segment.continues));
        assert!(!second.segments[0].continues);
    }

    #[test]
    fn a_machine_that_was_changed_begins_a_segment_that_says_so() {
        let (mut recorder, mut machine) = recorded(3, SECOND, Bounds::default());
        machine.sum = 1000;
        recorder.changed(&machine, 3 * SECOND);
        recorder.step(&mut machine, 4 * SECOND, Told::Add(1));
        let recording = recorder.recording(&machine);
        let segments: Vec<_> = recording.segments.iter().map(|s| (s.continues, s.machine.sum, s.steps.len())).collect();
        assert_eq!(segments, [(false, 0, 3), (false, 1000, 1)]);
    }
}
