//! Steps a machine through a recording again, and compares.
//!
//! Invariant: a machine that does not do as was recorded is found out at the first step that differs; one that was changed unseen, at
//! the next segment at the latest.

use crate::{Machine, SegmentLine, Steps, title};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// A step as it was taken again.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Of which machine: its [`title`].
    pub machine: &'a str,
    /// Which of its steps, from 1 on.
    pub number: usize,
    /// When.
    pub now: Duration,
    /// What it was told.
    pub input: &'a Value,
    /// What it asks for now.
    pub effects: &'a Value,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// How many steps were taken again.
    pub steps: usize,
    /// The last one broke the machine, then and now.
    pub breaks: bool,
}

/// Where the machine does not do as was recorded.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Which machine: its [`title`].
    pub machine: String,
    /// Before which step, or in which, from 1 on.
    pub step: usize,
    /// What differs.
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, step {}: {}", self.machine, self.step, self.what)
    }
}

fn parse<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    T::deserialize(value).map_err(|error| format!("cannot be read: {error}"))
}

fn written(value: &impl Serialize) -> Result<Value, String> {
    serde_json::to_value(value).map_err(|error| format!("cannot be written: {error}"))
}

/// What a panic says.
fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic")
}

/// Where two values part first, by name.
fn parts_at(recorded: &Value, now: &Value, path: &str) -> String {
    match (recorded, now) {
        (Value::Object(before), Value::Object(after)) if before.keys().eq(after.keys()) => {
            let field = before.iter().zip(after).find(|(before, after)| before.1 != after.1);
            field.map_or_else(String::new, |((name, before), (_, after))| {
                parts_at(before, after, &format!("{path}.{name}"))
            })
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            let item = before.iter().zip(after).enumerate().find(|(_, (before, after))| before != after);
            item.map_or_else(String::new, |(at, (before, after))| parts_at(before, after, &format!("{path}[{at}]")))
        }
        _ => format!("{path}: recorded {recorded}, now {now}"),
    }
}

/// Steps a machine again through all that the file has of it; `of` says of which one, if there are several. `seen` is shown each
/// step.
///
/// # Errors
/// The first difference.
pub fn replay<M: Machine>(
    steps: &Steps,
    of: Option<&str>,
    seen: &mut dyn FnMut(&Seen<'_>),
) -> Result<Replayed, Difference> {
    let mut replayed = Replayed::default();
    let mut machine: Option<M> = None;
    let title = title(M::NAME, of);
    let is_asked_for = |segment: &SegmentLine| segment.machine == M::NAME && segment.of.as_deref() == of;
    for (segment, steps) in steps.segments.iter().filter(|(segment, _)| is_asked_for(segment)) {
        let differs = |what| Difference { machine: title.clone(), step: replayed.steps + 1, what };
        let recorded: M = parse(&segment.state).map_err(|why| differs(format!("the machine {why}")))?;
        if let Some(machine) = machine.as_ref().filter(|_| segment.continues) {
            let now = written(machine).map_err(differs)?;
            if now != segment.state {
                return Err(differs(format!(
                    "the machine is not as it was: {}",
                    parts_at(&segment.state, &now, "state")
                )));
            }
        }
        let machine = machine.insert(recorded);
        for step in steps {
            replayed.steps += 1;
            let differs = |what| Difference { machine: title.clone(), step: replayed.steps, what };
            let input: M::Input = parse(&step.input).map_err(|why| differs(format!("the input {why}")))?;
            let taken = catch_unwind(AssertUnwindSafe(|| machine.step(step.now, input)));
            let told = |effects: &Value| {
                let Value::Null = effects else { return format!("asks for {effects}") };
                "breaks".to_owned()
            };
            let effects = match &taken {
                Ok(effects) => written(effects).map_err(differs)?,
                Err(_) => Value::Null,
            };
            let number = replayed.steps;
            seen(&Seen { machine: &title, number, now: step.now, input: &step.input, effects: &effects });
            let recorded = step.effects.as_ref().unwrap_or(&Value::Null);
            match (&taken, recorded) {
                (Err(_), Value::Null) => return Ok(Replayed { breaks: true, ..replayed }),
                (Ok(_), recorded) if *recorded == effects => {}
                (Ok(_), Value::Array(_)) => {
                    let parts = parts_at(recorded, &effects, "effects");
                    return Err(differs(format!("told {}: {parts}", step.input)));
                }
                (Ok(_), _) => {
                    return Err(differs(format!("the member never came back from it; now it {}", told(&effects))));
                }
                (Err(panic), _) => {
                    return Err(differs(format!("told {}, it breaks: {}", step.input, message(panic.as_ref()))));
                }
            }
        }
    }
    Ok(replayed)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Bounds, FORMAT, Header, Recorder, Recording, read, write};
    use serde::Deserialize;

    /// Adds; reports the sum when asked.
    #[derive(Clone, Debug, Default, Serialize, Deserialize)]
    pub struct Adder {
        pub sum: u64,
    }

    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub enum Told {
        Add(u64),
        Report,
        Break,
    }

    impl Machine for Adder {
        const NAME: &'static str = "adder";
        type Input = Told;
        type Effect = u64;

        fn step(&mut self, _: Duration, input: Told) -> Vec<u64> {
            match input {
                Told::Add(n) => {
                    self.sum += n;
                    Vec::new()
                }
                Told::Report => vec![self.sum],
                Told::Break => panic!("told to break"),
            }
        }

        fn bytes_behind(_: &Told) -> usize {
            0
        }

        fn bytes_behind_effect(_: &u64) -> usize {
            0
        }
    }

    fn file(recording: &Recording<Adder>) -> String {
        let mut out = Vec::new();
        let header = Header { format: FORMAT, baton: "1".into(), member: "here:1".into(), written_secs: 1 };
        header.write(&mut out).unwrap();
        write(recording, None, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn again(file: &str) -> Result<Replayed, Difference> {
        replay::<Adder>(&read(file.as_bytes()).unwrap(), None, &mut |_| {})
    }

    /// A segment each three seconds.
    fn run(inputs: &[Told]) -> Recording<Adder> {
        let mut machine = Adder::default();
        let bounds = Bounds { segment_age: Duration::from_secs(3), ..Bounds::default() };
        let mut recorder = Recorder::new(&machine, Duration::ZERO, bounds);
        for (second, input) in inputs.iter().enumerate() {
            recorder.step(&mut machine, Duration::from_secs(second as u64), input.clone());
        }
        recorder.recording(&machine)
    }

    #[test]
    fn a_machine_does_again_what_it_did() {
        let inputs = [Told::Add(1), Told::Add(2), Told::Report, Told::Add(u64::MAX / 2), Told::Report];
        assert_eq!(again(&file(&run(&inputs))).unwrap(), Replayed { steps: 5, breaks: false });
    }

    #[test]
    fn an_input_that_was_forgotten_is_noticed_by_the_effects() {
        let whole = file(&run(&[Told::Add(1), Told::Add(2), Told::Report]));
        let lines: Vec<&str> = whole.lines().filter(|line| !line.contains(r#""Add":2"#)).collect();
        let difference = again(&lines.join("\n")).unwrap_err();
        assert_eq!(difference.to_string(), r#"adder, step 2: told "Report": effects[0]: recorded 3, now 1"#);
    }

    #[test]
    fn an_input_that_was_forgotten_and_asked_for_nothing_is_noticed_at_the_next_segment() {
        let whole = file(&run(&[Told::Add(1), Told::Add(2), Told::Add(3), Told::Add(4)]));
        let lines: Vec<&str> = whole.lines().filter(|line| !line.contains(r#""Add":2"#)).collect();
        let difference = again(&lines.join("\n")).unwrap_err();
        assert_eq!(difference.to_string(), "adder, step 3: the machine is not as it was: state.sum: recorded 6, now 4");
    }

    #[test]
    fn a_change_beside_the_steps_is_noticed_unless_the_recorder_was_told() {
        for is_told in [true, false] {
            let mut machine = Adder::default();
            let mut recorder = Recorder::new(&machine, Duration::ZERO, Bounds::default());
            recorder.step(&mut machine, Duration::ZERO, Told::Add(1));
            machine.sum += 10;
            if is_told {
                recorder.changed(&machine, Duration::ZERO);
            }
            recorder.step(&mut machine, Duration::ZERO, Told::Report);
            assert_eq!(again(&file(&recorder.recording(&machine))).is_ok(), is_told);
        }
    }

    #[test]
    fn the_step_that_breaks_a_machine_is_kept_and_breaks_it_again() {
        let mut machine = Adder::default();
        let mut recorder = Recorder::new(&machine, Duration::ZERO, Bounds::default());
        recorder.step(&mut machine, Duration::ZERO, Told::Add(1));
        let broken = catch_unwind(AssertUnwindSafe(|| recorder.step(&mut machine, Duration::ZERO, Told::Break)));
        assert!(broken.is_err());
        let file = file(&recorder.recording(&machine));
        assert_eq!(again(&file).unwrap(), Replayed { steps: 2, breaks: true });
        let mended = again(&file.replace(r#""Break""#, r#""Report""#)).unwrap_err();
        assert_eq!(mended.to_string(), "adder, step 2: the member never came back from it; now it asks for [1]");
    }

    #[test]
    fn a_file_that_is_not_whole_or_of_another_form_is_refused_with_the_line() {
        let whole = file(&run(&[Told::Add(1)]));
        let cut = &whole[..whole.len() - 4];
        assert_eq!(read(cut.as_bytes()).unwrap_err().line, 3);
        let newer = whole.replace(r#""format":2"#, r#""format":3"#);
        assert_eq!(read(newer.as_bytes()).unwrap_err().to_string(), "line 1: format 3, and this is for 2");
        let lines: Vec<&str> = whole.lines().collect();
        let headless = [lines[0], lines[2]].join("\n");
        assert_eq!(read(headless.as_bytes()).unwrap_err().to_string(), "line 2: a step of no machine");
        assert_eq!(read("".as_bytes()).unwrap_err().line, 1);
    }

    #[test]
    fn machines_of_one_kind_are_told_apart() {
        let (first, second) = (run(&[Told::Add(1), Told::Report]), run(&[Told::Add(5), Told::Report, Told::Report]));
        let mut out = Vec::new();
        Header { format: FORMAT, baton: "1".into(), member: "here:1".into(), written_secs: 1 }.write(&mut out).unwrap();
        write(&first, Some("one"), &mut out).unwrap();
        write(&second, Some("another"), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let again = |text: &str, of| replay::<Adder>(&read(text.as_bytes()).unwrap(), Some(of), &mut |_| {});
        let steps = read(text.as_bytes()).unwrap();
        assert_eq!(steps.machines(), [("adder", Some("one")), ("adder", Some("another"))]);
        assert_eq!(again(&text, "one").unwrap().steps, 2);
        assert_eq!(again(&text, "another").unwrap().steps, 3);
        let changed = text.replacen(r#""effects":[5]"#, r#""effects":[6]"#, 1);
        assert!(again(&changed, "one").is_ok());
        let difference = again(&changed, "another").unwrap_err().to_string();
        assert_eq!(difference, r#"adder another, step 2: told "Report": effects[0]: recorded 6, now 5"#);
    }

    #[test]
    fn a_recording_whose_beginning_was_let_go_of_continues_nothing_that_comes_before_it_in_the_file() {
        let mut rest = run(&[Told::Add(1), Told::Add(2), Told::Add(3), Told::Add(4), Told::Report]);
        rest.segments.remove(0);
        assert!(rest.segments[0].continues);
        let mut out = Vec::new();
        Header { format: FORMAT, baton: "1".into(), member: "here:1".into(), written_secs: 1 }.write(&mut out).unwrap();
        write(&run(&[Told::Add(100)]), None, &mut out).unwrap();
        write(&rest, None, &mut out).unwrap();
        assert_eq!(again(std::str::from_utf8(&out).unwrap()).unwrap().steps, 3);
    }

    #[test]
    fn numbers_come_back_as_they_were() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Number(#[serde(with = "crate::numbers")] f64);
        for number in [0.1 + 0.2, 1e300, f64::MIN_POSITIVE, -0.0, f64::INFINITY, f64::NEG_INFINITY] {
            let text = serde_json::to_string(&Number(number)).unwrap();
            assert_eq!(serde_json::from_str::<Number>(&text).unwrap().0.to_bits(), number.to_bits(), "{text}");
        }
        let nan = serde_json::to_string(&Number(f64::NAN)).unwrap();
        assert!(serde_json::from_str::<Number>(&nan).unwrap().0.is_nan());
    }
}
