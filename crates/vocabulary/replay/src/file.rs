//! The file: a header, then for each machine its segments, each a line with the machine and a line for each step.
//!
//! ```text
//! {"format":2,"baton":"0.1.0","member":"db1:27017","written_secs":1767225600}
//! {"machine":"consensus","continues":false,"state":{…}}
//! {"now":{"secs":12,"nanos":5},"input":…,"effects":[…]}
//! {"machine":"index_build","of":"0d9b… shop.carts","continues":false,"state":{…}}
//! ```
//!
//! Invariants:
//! - What was written is read, or refused with the number of the line.
//! - The first segment of a recording continues none.

use crate::{Machine, Recording};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{BufRead, Write};
use std::time::Duration;
use std::{fmt, io};

/// The version of the file's form. What a machine's state, inputs and effects look like is Baton's version's.
pub const FORMAT: u32 = 2;

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`FORMAT`].
    pub format: u32,
    /// Baton's version.
    pub baton: String,
    /// The member's host.
    pub member: String,
    /// When, in seconds since 1970.
    pub written_secs: u64,
}

/// The line with which a segment begins.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SegmentLine<S = Value> {
    /// Of which machine: [`Machine::NAME`].
    pub machine: String,
    /// Which of them, if a member may have several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// As in [`Segment`](crate::Segment).
    pub continues: bool,
    /// The machine.
    pub state: S,
}

/// The line of a step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StepLine<I = Value, E = Value> {
    /// When.
    pub now: Duration,
    /// What the machine was told.
    pub input: I,
    /// What it asked for; none if it never came back.
    pub effects: Option<E>,
}

/// A file that was read: the header, and the segments in their order.
#[derive(Clone, Debug)]
pub struct Steps {
    /// The first line.
    pub header: Header,
    /// Each with its steps.
    pub segments: Vec<(SegmentLine, Vec<StepLine>)>,
}

/// Why a file cannot be replayed.
#[derive(Debug)]
pub struct Unreadable {
    /// Which line, from 1 on.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

fn line(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

impl Header {
    /// Writes the first line.
    ///
    /// # Errors
    /// What writing says.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        line(out, self)
    }
}

impl Steps {
    /// The machines that it has steps of, in the order in which they come: [`Machine::NAME`], and which of them.
    pub fn machines(&self) -> Vec<(&str, Option<&str>)> {
        let mut machines = Vec::new();
        for (segment, _) in &self.segments {
            let machine = (segment.machine.as_str(), segment.of.as_deref());
            if !machines.contains(&machine) {
                machines.push(machine);
            }
        }
        machines
    }
}

/// What people call a machine: its name, and which of them.
pub fn title(name: &str, of: Option<&str>) -> String {
    of.map_or_else(|| name.to_owned(), |of| format!("{name} {of}"))
}

/// Writes one machine's recording; `of` says which of them it is, if there may be several.
///
/// # Errors
/// What writing says.
pub fn write<M: Machine>(recording: &Recording<M>, of: Option<&str>, out: &mut impl Write) -> io::Result<()> {
    for (at, segment) in recording.segments.iter().enumerate() {
        let (machine, of) = (M::NAME.to_owned(), of.map(str::to_owned));
        // What it would go on from is not here, or another recording's.
        let continues = segment.continues && at > 0;
        line(out, &SegmentLine { machine, of, continues, state: &segment.machine })?;
        for step in &segment.steps {
            line(out, &StepLine { now: step.now, input: &step.input, effects: step.effects.as_ref() })?;
        }
    }
    Ok(())
}

/// Reads a file.
///
/// # Errors
/// The first line that is not as it should be.
pub fn read(file: impl BufRead) -> Result<Steps, Unreadable> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Line {
        Segment(SegmentLine),
        Step(StepLine),
    }
    let mut header = None;
    let mut segments: Vec<(SegmentLine, Vec<StepLine>)> = Vec::new();
    for (number, text) in (1..).zip(file.lines()) {
        let wrong = |reason: String| Unreadable { line: number, reason };
        let text = text.map_err(|error| wrong(error.to_string()))?;
        if header.is_none() {
            let read: Header = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
            if read.format != FORMAT {
                return Err(wrong(format!("format {}, and this is for {FORMAT}", read.format)));
            }
            header = Some(read);
            continue;
        }
        match serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))? {
            Line::Segment(segment) => segments.push((segment, Vec::new())),
            Line::Step(step) => {
                segments.last_mut().ok_or_else(|| wrong("a step of no machine".to_owned()))?.1.push(step);
            }
        }
    }
    let header = header.ok_or_else(|| Unreadable { line: 1, reason: "the file is empty".to_owned() })?;
    Ok(Steps { header, segments })
}
