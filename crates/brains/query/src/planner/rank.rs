//! Which plan won the trial.
//!
//! Candidates run side by side for a while; the one that produced most for its work goes on. The score is MongoDB's:
//! productivity, plus a bonus for having finished, plus small bonuses that break ties. Pure: the trial itself is the
//! execution's.

use super::plan::Plan;

/// How long a trial lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrialLimits {
    /// Units of work for each candidate.
    pub works_max: u64,
    /// Results after which a candidate has shown enough.
    pub results_max: u64,
}

impl TrialLimits {
    /// For a collection of so many documents: MongoDB's 10,000 works or three tenths of the collection, and 101 results
    /// (or the query's limit, if less).
    pub fn new(documents_count: u64, limit: Option<u64>) -> Self {
        const WORKS_MIN: u64 = 10_000;
        const RESULTS: u64 = 101;
        Self {
            works_max: WORKS_MIN.max(documents_count.saturating_mul(3) / 10),
            results_max: limit.filter(|limit| *limit > 0).unwrap_or(RESULTS).min(RESULTS),
        }
    }
}

/// What a candidate did during the trial.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TrialResult {
    /// Units of work: keys and documents looked at.
    pub works: u64,
    /// Results produced.
    pub advanced: u64,
    /// Whether it came to its end.
    pub is_eof: bool,
    /// Whether it failed (a sort beyond its memory, say), and so can only be the last choice.
    pub has_failed: bool,
}

/// The score of a candidate: higher is better.
pub fn score(plan: &Plan, result: &TrialResult) -> f64 {
    if result.has_failed {
        return 0.0;
    }
    let works = result.works.max(1) as f64;
    let productivity = result.advanced as f64 / works;
    // Too small to outweigh one more result.
    let epsilon = (1.0 / (10.0 * works)).min(1e-4);
    let bonuses = [!plan.has_fetch(), !plan.has_blocking_sort()];
    let tie_breakers = bonuses.into_iter().filter(|holds| *holds).count() as f64 * epsilon;
    let eof_bonus = if result.is_eof { 1.0 } else { 0.0 };
    1.0 + productivity + tie_breakers + eof_bonus
}

/// The candidates' positions, best first; equals stay in the planner's order.
pub fn rank(candidates: &[(&Plan, TrialResult)]) -> Vec<usize> {
    let mut positions: Vec<usize> = (0..candidates.len()).collect();
    let scores: Vec<f64> = candidates.iter().map(|(plan, result)| score(plan, result)).collect();
    positions.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    positions
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_document::keys::Direction;

    #[test]
    fn the_more_productive_plan_wins_and_finishing_beats_all() {
        let scan = Plan::CollectionScan { direction: Direction::Ascending };
        let fetch = Plan::Fetch { input: scan.clone().boxed() };
        let result = |works, advanced, is_eof| TrialResult { works, advanced, is_eof, has_failed: false };
        assert_eq!(rank(&[(&scan, result(100, 10, false)), (&scan, result(100, 50, false))]), [1, 0]);
        assert_eq!(rank(&[(&scan, result(100, 90, false)), (&scan, result(100, 0, true))]), [1, 0]);
        assert_eq!(rank(&[(&fetch, result(100, 50, false)), (&scan, result(100, 50, false))]), [1, 0]);
        assert_eq!(rank(&[(&fetch, result(100, 51, false)), (&scan, result(100, 50, false))]), [0, 1]);
        let failed = TrialResult { works: 1, advanced: 1, is_eof: true, has_failed: true };
        assert_eq!(rank(&[(&scan, failed), (&scan, result(100, 0, false))]), [1, 0]);
    }

    #[test]
    fn a_trial_is_longer_on_a_larger_collection() {
        assert_eq!(TrialLimits::new(100, None), TrialLimits { works_max: 10_000, results_max: 101 });
        assert_eq!(TrialLimits::new(1_000_000, Some(5)), TrialLimits { works_max: 300_000, results_max: 5 });
    }
}
