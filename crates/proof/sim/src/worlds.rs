//! Many worlds, on several threads.
//!
//! A world is run by one thread from its beginning to its end, and depends on its seed alone: with more threads there are more worlds,
//! and no others. Of several that break a property the one of the first seed is told, whichever was found first.

use crate::world::{Tally, Weather};
use crate::{Failure, run};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Which worlds are to be run.
#[derive(Clone, Copy, Debug)]
pub struct Worlds {
    /// The first seed; the others follow.
    pub from: u64,
    /// How many.
    pub count: u64,
    /// No world begins later than this.
    pub begin_within: Option<Duration>,
    /// By how many threads.
    pub threads: usize,
    /// What they are to be like.
    pub weather: Weather,
}

impl Worlds {
    /// Runs them: how many there were, and what they went through.
    ///
    /// # Errors
    /// The first that broke a property.
    pub fn run(&self) -> Result<(u64, Tally), Box<Failure>> {
        let begun = Instant::now();
        // The number of the next world, and of the first that none is to follow.
        let (next, end) = (AtomicU64::new(0), AtomicU64::new(self.count));
        let work = || {
            let (mut done, mut sum) = (0, Tally::default());
            while self.begin_within.is_none_or(|limit| begun.elapsed() < limit) {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= end.load(Ordering::Relaxed) {
                    break;
                }
                match run(self.from.wrapping_add(number), self.weather) {
                    Ok(tally) => sum.add(&tally),
                    Err(failure) => {
                        end.fetch_min(number, Ordering::Relaxed);
                        return Err((number, failure));
                    }
                }
                done += 1;
            }
            Ok((done, sum))
        };
        let outcomes: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads.max(1)).map(|_| scope.spawn(work)).collect();
            // A machine that panics ends all of it, as it would without threads.
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        let (mut done, mut sum, mut first) = (0, Tally::default(), None);
        for outcome in outcomes {
            match outcome {
                Ok((more, tally)) => {
                    done += more;
                    sum.add(&tally);
                }
                Err((number, failure)) if first.as_ref().is_none_or(|(before, _)| number < *before) => {
                    first = Some((number, failure));
                }
                Err(_) => {}
            }
        }
        first.map_or(Ok((done, sum)), |(_, failure)| Err(failure))
    }
}
