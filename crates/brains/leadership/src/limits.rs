//! How often leadership may move: not soon after an election, not soon after a move, and so many times an hour.
//!
//! A primary cannot know every move of the set: those that made them may have died, and gossip may be lost. But it knows terms: each
//! move begins one, and every member learns of it before anything else. Terms begun within the last hour are no fewer than moves.
//! Elections for other reasons count, too: a set that elects that often is better left alone.
//!
//! Which of the terms began with a move is gossiped. A member takes such a term's move for as late as it heard of that term itself: so
//! what passes through many members does not grow younger on its way, and one that lies delays a move by one cooldown for each term.
//!
//! Invariants:
//! - Within any hour no more moves are begun than the settings allow, whatever is gossiped: gossip can only make them fewer. (A
//!   member that was restarted knows no earlier terms, but takes what it hears others count.)
//! - Between two moves lies the least tenure, even if everybody was restarted. It is no shorter than the election timeout, whatever
//!   the settings say: until then a new primary does not know how the others are, nor they that it leads.
//! - Between a move that a member has heard of and one that it makes lies the cooldown, whoever made the first.

use crate::rule::Rule;
use crate::set::Set;
use crate::step::Moment;
use baton_types::Term;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::Duration;

/// Moves are counted within so much time.
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
/// If others know more of the last hour than this member does: when to look again.
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// See the file's header.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// When each term was first heard of; the oldest may be more than an hour ago.
    terms: VecDeque<(Moment, Term)>,
    /// Handoffs of this member that came to nothing, within the last hour.
    failed: VecDeque<Moment>,
    elected_at: Moment,
    /// When leadership last moved, or was to, as far as this member took part or has heard.
    moved_at: Option<Moment>,
    /// The last term that began with a move.
    moved_in: Term,
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
    pub fn elected(&mut self, now: Moment, term: Term, is_move: bool) {
        self.elected_at = now;
        if is_move {
            self.moved_at = Some(now);
            self.moved_in = self.moved_in.max(term);
        }
    }

    /// Somebody says that a term began with a move. Of a term that this member has not heard of yet, it will be told again.
    pub fn hear_move(&mut self, term: Term) {
        let Some(at) = self.terms.iter().find(|(_, known)| *known >= term).map(|(at, _)| *at) else { return };
        if term > self.moved_in {
            self.moved_in = term;
            self.moved_at = self.moved_at.max(Some(at));
        }
    }

    /// The last term that began with a move, as far as this member knows; 0: none.
    pub fn moved_in(&self) -> Term {
        self.moved_in
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
        let old = self.terms.partition_point(|(at, _)| now.saturating_sub(*at) >= HOUR);
        let before = self.terms.get(old.saturating_sub(1));
        let terms = before.map_or(0, |(_, before)| last - before);
        let failed = self.failed.iter().filter(|at| now.saturating_sub(**at) < HOUR).count();
        u32::try_from(terms).unwrap_or(u32::MAX).saturating_add(failed as u32)
    }

    /// Why leadership may not move now, and when it may at the soonest. `heard` is the most that others count within the last hour.
    pub fn obstacle(&self, now: Moment, set: &Set, heard: u32) -> Option<(Rule, Moment)> {
        let settings = &set.settings;
        let tenure = self.elected_at + settings.tenure_min.max(set.election_timeout);
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
    use crate::set::Member;

    fn at(secs: u64) -> Moment {
        Duration::from_secs(secs)
    }

    fn set() -> Set {
        Set::new(0, (0..3).map(Member::new).collect())
    }

    fn obstacle(limits: &Limits, secs: u64) -> Option<Rule> {
        limits.obstacle(at(secs), &set(), 0).map(|(rule, _)| rule)
    }

    #[test]
    fn an_election_and_a_move_are_let_settle() {
        let mut limits = Limits::default();
        limits.hear_term(at(100), 1);
        limits.elected(at(100), 1, true);
        assert_eq!(obstacle(&limits, 159), Some(Rule::TooSoonAfterElection));
        assert_eq!(obstacle(&limits, 219), Some(Rule::Cooldown));
        assert_eq!(obstacle(&limits, 220), None);
        limits.elected(at(300), 2, false);
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
        let rule = |heard| limits.obstacle(at(9_000), &set(), heard);
        assert_eq!(rule(11), None);
        assert_eq!(rule(12), Some((Rule::MovesSpent, at(9_060))));
    }

    #[test]
    fn a_move_of_others_is_as_old_as_its_term_is_here_and_counts_once() {
        let mut limits = Limits::default();
        limits.hear_move(3);
        assert_eq!(limits.moved_in(), 0, "nothing was heard of the term itself");
        limits.hear_term(at(100), 2);
        limits.hear_term(at(200), 3);
        limits.elected(at(250), 4, false);
        limits.hear_move(3);
        assert_eq!(obstacle(&limits, 319), Some(Rule::Cooldown));
        assert_eq!((obstacle(&limits, 320), limits.moved_in()), (None, 3));
        limits.hear_term(at(900), 4);
        limits.hear_move(3);
        limits.hear_move(2);
        assert_eq!(obstacle(&limits, 900), None, "it is told again and again, and is no younger for that");
        limits.hear_move(4);
        assert_eq!(obstacle(&limits, 1_019), Some(Rule::Cooldown));
    }

    #[test]
    fn no_setting_makes_the_tenure_shorter_than_the_election_timeout() {
        let mut limits = Limits::default();
        limits.elected(at(100), 1, true);
        let mut set = set();
        (set.settings.tenure_min, set.settings.cooldown) = (Duration::ZERO, Duration::ZERO);
        let rule = |secs| limits.obstacle(at(secs), &set, 0).map(|(rule, _)| rule);
        assert_eq!((rule(109), rule(110)), (Some(Rule::TooSoonAfterElection), None));
    }
}
