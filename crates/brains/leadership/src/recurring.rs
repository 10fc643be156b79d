//! The interval of work that repeats.
//!
//! Members that start together and do the same at the same interval would all be due at once, and no free member would be left to
//! lead. Each draws its intervals anew instead (paper, end of section III: 30 to 45 minutes for the oplog's compaction).

use std::time::Duration;

/// By how much an interval is longer at most: from 30 to 45 minutes.
const SPREAD: f64 = 0.5;

/// The next interval of work that repeats every `base` at the soonest; `drawn` is uniform in 0 to 1.
pub fn interval(base: Duration, drawn: f64) -> Duration {
    base.mul_f64(1.0 + SPREAD * crate::figures::within(drawn, 0.0, 1.0, 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    #[test]
    fn intervals_are_the_papers_and_members_that_start_in_step_do_not_stay_so() {
        let base = Duration::from_secs(30 * 60);
        assert_eq!((interval(base, 0.0), interval(base, 1.0)), (base, Duration::from_secs(45 * 60)));
        let mut random = StdRng::seed_from_u64(1);
        let mut due = [Duration::ZERO; 3];
        let mut together = 0;
        const ROUNDS: u32 = 1000;
        for _ in 0..ROUNDS {
            due.iter_mut().for_each(|due| *due += interval(base, random.random()));
            let (first, last) = (due.iter().min().unwrap(), due.iter().max().unwrap());
            together += u32::from(*last - *first < Duration::from_secs(60));
        }
        assert!(together < ROUNDS / 100, "all three within a minute {together} times of {ROUNDS}");
    }
}
