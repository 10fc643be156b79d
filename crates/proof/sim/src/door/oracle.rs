//! How many requests could have been in time, for one who knew all of them before.
//!
//! Source: requests that are taken in only if all that were taken in before stay in time, the shortest first, in the order by deadline
//! with interruptions. Where all take the same time no other choice has more of them in time but for the borders of their releases
//! (matroids of unit jobs, Lawler 1976); for a bound it is enough that requests may be interrupted here, which no door may do.

use super::{Job, Part};
use std::time::Duration;

/// An upper bound, up to its heuristic, of how many with a deadline could have been in time on one processor.
pub fn in_time_at_most(jobs: &[Job]) -> usize {
    let mut order: Vec<&Job> = jobs.iter().filter(|job| job.deadline.is_some()).collect();
    order.sort_by_key(|job| (work_of(job), job.deadline));
    let mut taken: Vec<&Job> = Vec::new();
    for job in order {
        let at = taken.partition_point(|other| other.arrives <= job.arrives);
        taken.insert(at, job);
        if !is_feasible(&taken) {
            taken.remove(at);
        }
    }
    taken.len()
}

/// How many of those with a deadline were over by it where they came first and were served first, and nobody was refused, on one
/// processor; of 1.
pub fn share_in_time(jobs: &[Job]) -> f64 {
    let (mut free_at, mut in_time, mut all) = (Duration::ZERO, 0, 0);
    for job in jobs {
        free_at = free_at.max(job.arrives) + work_of(job);
        if let Some(deadline) = job.deadline {
            all += 1;
            in_time += usize::from(free_at <= deadline);
        }
    }
    in_time as f64 / all.max(1) as f64
}

fn work_of(job: &Job) -> Duration {
    job.parts
        .iter()
        .map(|part| match part {
            Part::Computes(work) => *work,
            Part::Pauses(_) => Duration::ZERO,
        })
        .sum()
}

/// Whether all are in time, earliest deadline first, with interruptions; `jobs` by their arrival.
fn is_feasible(jobs: &[&Job]) -> bool {
    let mut waiting = std::collections::BTreeMap::new();
    let (mut now, mut next) = (Duration::ZERO, 0);
    loop {
        while next < jobs.len() && jobs[next].arrives <= now {
            waiting.insert((jobs[next].deadline, next), work_of(jobs[next]));
            next += 1;
        }
        let Some((key, left)) = waiting.pop_first() else {
            let Some(job) = jobs.get(next) else { return true };
            now = job.arrives;
            continue;
        };
        let until = jobs.get(next).map_or(now + left, |job| job.arrives.min(now + left));
        if until < now + left {
            waiting.insert(key, now + left - until);
        } else if key.0.is_some_and(|deadline| until > deadline) {
            return false;
        }
        now = until;
    }
}
