//! How often leadership may move: not soon after an election, not soon after a move, and so many times an hour.
//!
//! A primary cannot know every move of the set: those that made them may have died, and gossip may be lost. But it knows terms: each
//! move begins one, and every member learns of it before anything else. Terms begun within the last hour are no fewer than moves.
//! Elections for other reasons count, too: a set that elects that often is better left alone.
//!
//! Invariants:
//! - Within any hour no more moves are begun than the settings allow, whatever is gossiped: gossip can only make them fewer. (A
//!   member that was restarted knows no earlier terms, but takes what it hears others count.)
//! - Between two moves lies the least tenure, even if everybody was restarted.

use crate::rule::Rule;
use crate::settings::Settings;
use crate::step::Moment;
use baton_types::Term;
use std::collections::VecDeque;
use std::time::Duration;

/// Moves are counted within so much time.
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
/// If others know more of the last hour than this member does: when to look again.
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// See the file's header.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limits {
    /// When each term was first heard of; the oldest may be more than an hour ago.
    terms: VecDeque<(Moment, Term)>,
    /// Handoffs of this member that came to nothing, within the last hour.
    failed: VecDeque<Moment>,
    elected_at: Moment,
    /// When leadership last moved, or was to, as far as this member took part.
    moved_at: Option<Moment>,
}

impl Limits {
    /// A term is known of from now on.
    pub fn hear_term(&mut self, now: Moment, term: Term) {
        if self.terms.back().is_none_or(|(_, known)| *known < term) {
            self.terms.push_back((now, term));
        }
        // The last one that is older than an hour says how many began since.
        while self.terms.get(1).is_some_and(|(at, _)| now.saturating_sub(*at) >= HOUR) {
            self.terms.pop_front();
        }
        while self.failed.front().is_some_and(|at| now.saturating_sub(*at) >= HOUR) {
            self.failed.pop_front();
        }
    }

    /// This member was elected; by a handoff, or otherwise.
    pub fn elected(&mut self, now: Moment, is_move: bool) {
        self.elected_at = now;
        if is_move {
            self.moved_at = Some(now);
        }
    }

    /// This member begins to hand over.
    pub fn begin_move(&mut self, now: Moment) {
        self.moved_at = Some(now);
    }

    /// That came to nothing.
    pub fn fail_move(&mut self, now: Moment) {
        self.failed.push_back(now);
    }

    /// How many terms began within the last hour, as far as this process has seen; and how many handoffs failed.
    pub fn begun_last_hour(&self, now: Moment) -> u32 {
        let Some((_, last)) = self.terms.back() else { return 0 };
        // Of the first term that it heard of, this process does not know when it began.
        let before = self.terms.iter().rev().find(|(at, _)| now.saturating_sub(*at) >= HOUR).or(self.terms.front());
        let terms = before.map_or(0, |(_, before)| last - before);
        let failed = self.failed.iter().filter(|at| now.saturating_sub(**at) < HOUR).count();
        u32::try_from(terms).unwrap_or(u32::MAX).saturating_add(failed as u32)
    }

    /// Why leadership may not move now, and when it may at the soonest. `heard` is the most that others count within the last hour.
    pub fn obstacle(&self, now: Moment, settings: &Settings, heard: u32) -> Option<(Rule, Moment)> {
        let tenure = self.elected_at + settings.tenure_min;
        if now < tenure {
            return Some((Rule::TooSoonAfterElection, tenure));
        }
        let cooled = self.moved_at.map_or(Moment::ZERO, |at| at + settings.cooldown);
        if now < cooled {
            return Some((Rule::Cooldown, cooled));
        }
        if self.begun_last_hour(now).max(heard) < settings.moves_per_hour_max {
            return None;
        }
        let oldest = self.terms.iter().skip(1).map(|(at, _)| *at).chain(self.failed.iter().copied()).min();
        let ends = oldest.map(|at| at + HOUR).filter(|ends| *ends > now).unwrap_or(now + ASK_AGAIN);
        Some((Rule::MovesSpent, ends))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Moment {
        Duration::from_secs(secs)
    }

    fn obstacle(limits: &Limits, secs: u64) -> Option<Rule> {
        limits.obstacle(at(secs), &Settings::default(), 0).map(|(rule, _)| rule)
    }

    #[test]
    fn an_election_and_a_move_are_let_settle() {
        let mut limits = Limits::default();
        limits.hear_term(at(100), 1);
        limits.elected(at(100), true);
        assert_eq!(obstacle(&limits, 159), Some(Rule::TooSoonAfterElection));
        assert_eq!(obstacle(&limits, 219), Some(Rule::Cooldown));
        assert_eq!(obstacle(&limits, 220), None);
        limits.elected(at(300), false);
        assert_eq!(obstacle(&limits, 360), None, "an election is no move");
    }

    #[test]
    fn terms_are_counted_whoever_made_them_begin_and_a_first_one_says_nothing() {
        let mut limits = Limits::default();
        limits.hear_term(at(0), 5_000);
        assert_eq!(limits.begun_last_hour(at(0)), 0);
        (0..12).for_each(|n| limits.hear_term(at(200 + n), 5_001 + n as i64));
        assert_eq!(obstacle(&limits, 3_799), Some(Rule::MovesSpent));
        assert_eq!(obstacle(&limits, 3_800), None, "the first was an hour ago");
        limits.fail_move(at(3_800));
        assert_eq!(obstacle(&limits, 3_800), Some(Rule::MovesSpent), "a failed handoff counts");
        // Pruning changes nothing.
        let before = limits.begun_last_hour(at(3_805));
        limits.hear_term(at(3_805), 0);
        assert_eq!(limits.begun_last_hour(at(3_805)), before);
    }

    #[test]
    fn what_others_count_makes_moves_fewer_and_never_more() {
        let limits = Limits::default();
        let rule = |heard| limits.obstacle(at(9_000), &Settings::default(), heard);
        assert_eq!(rule(11), None);
        assert_eq!(rule(12), Some((Rule::MovesSpent, at(9_060))));
    }
}
