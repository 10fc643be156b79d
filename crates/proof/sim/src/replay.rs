//! Steps the machines of a member again through what it wrote down.
//!
//! Invariant: all that is in the file is stepped through, or the first difference is told.

use baton_consensus::Consensus;
use baton_consensus::index_build::IndexBuild;
use baton_following::Following;
use baton_leadership::Leadership;
use baton_replay::{Header, Machine, Seen, read, replay, title};
use std::io::BufRead;

/// The machines that a file may have steps of.
pub const MACHINES: [&str; 4] = [Consensus::NAME, Following::NAME, Leadership::NAME, IndexBuild::NAME];

/// What was found.
#[derive(Clone, Debug)]
pub struct Report {
    /// The file's.
    pub header: Header,
    /// Steps that were taken again.
    pub steps: usize,
    /// Machines that took them, by their titles: each build of an index is one.
    pub machines: Vec<String>,
    /// Those that broke at the last one, then and now.
    pub broken: Vec<String>,
}

/// Takes the steps of all machines again, or of those that `only` names, and shows each.
///
/// # Errors
/// Why the file is not one that can be replayed, or the first difference.
pub fn replay_file(file: impl BufRead, only: Option<&str>, seen: &mut dyn FnMut(&Seen<'_>)) -> Result<Report, String> {
    let steps = read(file).map_err(|error| error.to_string())?;
    let again = [replay::<Consensus>, replay::<Following>, replay::<Leadership>, replay::<IndexBuild>];
    let machines = steps.machines();
    if let Some((name, _)) = machines.iter().find(|(name, _)| !MACHINES.contains(name)) {
        return Err(format!("there is no machine {name}"));
    }
    let mut report = Report { header: steps.header.clone(), steps: 0, machines: Vec::new(), broken: Vec::new() };
    for (kind, again) in MACHINES.into_iter().zip(again).filter(|(kind, _)| only.is_none_or(|only| only == *kind)) {
        for (name, of) in machines.iter().copied().filter(|(name, _)| *name == kind) {
            let replayed = again(&steps, of, seen).map_err(|difference| difference.to_string())?;
            report.steps += replayed.steps;
            report.machines.push(title(name, of));
            report.broken.extend(replayed.breaks.then(|| title(name, of)));
        }
    }
    Ok(report)
}
