//! Which of several candidates gets leadership (the paper's Policy 2): one file each, and the table of them.
//!
//! Invariants:
//! - Members' priorities of the configuration stand above every ranking.
//! - The order is total: what a ranking leaves open, the shorter lag and then the lower `_id` decide.

mod lsp;
mod mrc;
mod preferred;
mod random;
mod score;

pub(crate) use score::score;

use crate::candidates::Candidate;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

/// How candidates are ranked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ranking {
    /// The member that most recently completed a task: it has the longest time until its next.
    #[default]
    Mrc,
    /// The member that has served as primary longest: its caches are the warmest.
    Lsp,
    /// The member that had leadership before tasks moved it, which gets it back when it is free; then as [`Self::Lsp`].
    Preferred,
    /// The best by a score of debt, lag, warmth, load and sync latency.
    Score,
    /// By lot. For the lab, to compare the others with.
    Random,
}

impl Ranking {
    /// Every ranking.
    pub const ALL: [Self; 5] = [Self::Mrc, Self::Lsp, Self::Preferred, Self::Score, Self::Random];

    /// As in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mrc => "mrc",
            Self::Lsp => "lsp",
            Self::Preferred => "preferred",
            Self::Score => "score",
            Self::Random => "random",
        }
    }

    /// The ranking of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|ranking| ranking.name() == name)
    }

    /// The better one is the lesser, by this ranking alone.
    fn order(self, one: &Candidate, other: &Candidate) -> Ordering {
        match self {
            Self::Mrc => mrc::order(one, other),
            Self::Lsp => lsp::order(one, other),
            Self::Preferred => preferred::order(one, other),
            Self::Score => score::order(one, other),
            Self::Random => random::order(one, other),
        }
    }

    /// Puts those that nothing keeps from it first, the best first. See the file's header.
    pub(crate) fn sort(self, candidates: &mut [Candidate]) {
        candidates.sort_by(|one, other| {
            one.obstacle
                .is_some()
                .cmp(&other.obstacle.is_some())
                .then(other.priority.total_cmp(&one.priority))
                .then_with(|| self.order(one, other))
                .then(one.lag.cmp(&other.lag))
                .then(one.member.cmp(&other.member))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidates::Obstacle;
    use crate::figures::Figures;
    use std::time::Duration;

    fn candidate(member: i32) -> Candidate {
        Candidate {
            member,
            priority: 1.0,
            figures: Some(Figures::default()),
            gossip_age: Some(Duration::ZERO),
            lag: Duration::ZERO,
            last_task_end_at: None,
            served_as_primary: Duration::ZERO,
            is_preferred: false,
            score: 0.5,
            lot: 0,
            moving_secs: 0.0,
            obstacle: None,
        }
    }

    fn ranked(ranking: Ranking, mut candidates: Vec<Candidate>) -> Vec<i32> {
        candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.member));
        ranking.sort(&mut candidates);
        candidates.iter().map(|candidate| candidate.member).collect()
    }

    #[test]
    fn mrc_takes_who_completed_a_task_last_and_who_never_did_after_those() {
        let at = |member, secs: Option<u64>| Candidate {
            last_task_end_at: secs.map(Duration::from_secs),
            ..candidate(member)
        };
        assert_eq!(
            ranked(Ranking::Mrc, vec![at(1, Some(5)), at(2, Some(9)), at(3, None), at(4, Some(7))]),
            [2, 4, 1, 3]
        );
    }

    #[test]
    fn lsp_takes_who_served_longest() {
        let served = |member, secs| Candidate { served_as_primary: Duration::from_secs(secs), ..candidate(member) };
        assert_eq!(ranked(Ranking::Lsp, vec![served(1, 5), served(2, 0), served(3, 9)]), [3, 1, 2]);
    }

    #[test]
    fn preferred_takes_that_one_and_then_who_served_longest() {
        let served = |member, secs| Candidate { served_as_primary: Duration::from_secs(secs), ..candidate(member) };
        let preferred = Candidate { is_preferred: true, ..served(2, 0) };
        assert_eq!(ranked(Ranking::Preferred, vec![served(1, 5), preferred, served(3, 9)]), [2, 3, 1]);
    }

    #[test]
    fn score_takes_the_least_and_random_the_lot() {
        let scored = |member, score, lot| Candidate { score, lot, ..candidate(member) };
        let candidates = vec![scored(1, 0.9, 2), scored(2, 0.1, 3), scored(3, 0.5, 1)];
        assert_eq!(ranked(Ranking::Score, candidates.clone()), [2, 3, 1]);
        assert_eq!(ranked(Ranking::Random, candidates), [3, 1, 2]);
    }

    #[test]
    fn priority_stands_above_each_ranking_and_whoever_cannot_lead_is_last() {
        for ranking in Ranking::ALL {
            let best = Candidate {
                last_task_end_at: Some(Duration::from_secs(9)),
                served_as_primary: Duration::from_secs(9),
                is_preferred: true,
                score: 0.0,
                ..candidate(1)
            };
            let out = Candidate { obstacle: Some(Obstacle::Lags), priority: 9.0, ..best.clone() };
            let favoured = Candidate { priority: 2.0, lot: 9, ..candidate(3) };
            assert_eq!(ranked(ranking, vec![best, Candidate { member: 2, ..out }, favoured]), [3, 1, 2], "{ranking:?}");
        }
    }

    #[test]
    fn what_a_ranking_leaves_open_the_lag_decides_and_then_the_id() {
        for ranking in Ranking::ALL {
            let lagging = Candidate { lag: Duration::from_millis(5), ..candidate(1) };
            assert_eq!(ranked(ranking, vec![lagging, candidate(3), candidate(2)]), [2, 3, 1], "{ranking:?}");
        }
    }
}
