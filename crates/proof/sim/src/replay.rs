//! Steps the machines of a member again through what it wrote down.
//!
//! Invariant: all that is in the file is stepped through, or the first difference is told.

use baton_consensus::Consensus;
use baton_following::Following;
use baton_leadership::Leadership;
use baton_replay::{Header, Machine, Seen, read, replay};
use std::io::BufRead;

/// The machines that a file may have steps of.
pub const MACHINES: [&str; 3] = [Consensus::NAME, Following::NAME, Leadership::NAME];

/// What was found.
#[derive(Clone, Debug)]
pub struct Report {
    /// The file's.
    pub header: Header,
    /// Steps that were taken again.
    pub steps: usize,
    /// Machines that took them.
    pub machines: Vec<&'static str>,
    /// Those that broke at the last one, then and now.
    pub broken: Vec<&'static str>,
}

/// Takes the steps of all machines again, or of the one that `only` names, and shows each.
///
/// # Errors
/// Why the file is not one that can be replayed, or the first difference.
pub fn replay_file(file: impl BufRead, only: Option<&str>, seen: &mut dyn FnMut(&Seen<'_>)) -> Result<Report, String> {
    let steps = read(file).map_err(|error| error.to_string())?;
    let unknown = steps.segments.iter().find(|(segment, _)| !MACHINES.contains(&segment.machine.as_str()));
    if let Some((segment, _)) = unknown {
        return Err(format!("there is no machine {}", segment.machine));
    }
    let mut report = Report { header: steps.header.clone(), steps: 0, machines: Vec::new(), broken: Vec::new() };
    let again = [replay::<Consensus>, replay::<Following>, replay::<Leadership>];
    for (name, again) in MACHINES.into_iter().zip(again).filter(|(name, _)| only.is_none_or(|only| only == *name)) {
        if steps.segments.iter().all(|(segment, _)| segment.machine != name) {
            continue;
        }
        let replayed = again(&steps, seen).map_err(|difference| difference.to_string())?;
        report.steps += replayed.steps;
        report.machines.push(name);
        report.broken.extend(replayed.breaks.then_some(name));
    }
    Ok(report)
}
