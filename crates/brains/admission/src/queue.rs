//! Who of one class waits, and who of them is next.
//!
//! The order is by deadline, earliest first. Who has none, or one that is further away than anybody may be kept waiting, is *patient*: he
//! counts as if he had to begin when his wait is at its end. So nobody is overtaken for ever, and among equals it is the order of arrival.
//!
//! Under overload the order by deadline alone fails everybody by a little. So those who wait are laid out one after the other, as
//! Moore's algorithm does, and where one might be late, the longest so far is passed over: for this time, he stays in the queue. That he
//! only just might be in time is not enough: there is another who will.
//!
//! Invariants: who can no longer be in time is given as hopeless, and not begun; nobody patient is passed over.

use crate::admission::{Moment, Ticket};
use crate::estimates::Estimate;
use baton_types::Class;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How many of those who are due first are laid out.
const LAID_OUT_MAX: usize = 64;
/// A queue of many patient ones moves in no smaller steps than this part of the worst wait.
const STEPS_MAX: u32 = 20;

/// One who waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub ticket: Ticket,
    pub class: Class,
    pub arrived: Moment,
    /// Of his own.
    pub stated: Option<Moment>,
    /// The same, if it is nearer than the end of the worst wait.
    pub deadline: Option<Moment>,
    pub estimate: Estimate,
}

impl Waiting {
    /// As of other settings.
    pub fn of_worst_wait(self, worst: Duration) -> Self {
        let deadline = self.stated.filter(|deadline| *deadline < self.arrived + worst);
        Self { deadline, ..self }
    }

    /// Whether he could not be in time even if he began now.
    pub fn is_hopeless(&self, now: Moment) -> bool {
        self.deadline.is_some_and(|deadline| now + self.estimate.least > deadline)
    }
}

type Key = (Moment, Ticket);

/// Those who wait, of one class.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    by_due: BTreeMap<Key, Waiting>,
    by_ticket: BTreeMap<Ticket, Key>,
    /// By their arrival.
    patient: BTreeSet<Key>,
    /// When the first of the patient ones begins whatever else goes on.
    forced_at: Option<Moment>,
}

impl Queue {
    pub fn len(&self) -> usize {
        self.by_due.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_due.is_empty()
    }

    /// `worst`: how long anybody may be kept waiting.
    pub fn push(&mut self, waiting: Waiting, now: Moment, worst: Duration) {
        let key = (waiting.deadline.unwrap_or(waiting.arrived + worst), waiting.ticket);
        self.by_ticket.insert(waiting.ticket, key);
        self.by_due.insert(key, waiting);
        if waiting.deadline.is_none() {
            self.patient.insert((waiting.arrived, waiting.ticket));
            let at = self.step_from(now, worst);
            self.forced_at = self.forced_at.into_iter().chain(at).min();
        }
    }

    pub fn remove(&mut self, ticket: Ticket) -> Option<Waiting> {
        let key = self.by_ticket.remove(&ticket)?;
        let waiting = self.by_due.remove(&key)?;
        self.patient.remove(&(waiting.arrived, ticket));
        if self.patient.is_empty() {
            self.forced_at = None;
        }
        Some(waiting)
    }

    /// The worst wait is another.
    pub fn rearrange(&mut self, now: Moment, worst: Duration) {
        for waiting in std::mem::take(self).by_due.into_values() {
            self.push(waiting.of_worst_wait(worst), now, worst);
        }
    }

    /// One of them begins.
    pub fn moved(&mut self, now: Moment, worst: Duration) {
        self.forced_at = self.step_from(now, worst);
    }

    /// When the first of the patient ones begins, if none did before: those who are here by now are to have begun, evenly, before the
    /// first of them has waited for too long.
    fn step_from(&self, now: Moment, worst: Duration) -> Option<Moment> {
        let (arrived, _) = self.patient.first()?;
        let left = (*arrived + worst).saturating_sub(now);
        let step = left / u32::try_from(self.patient.len() + 1).unwrap_or(u32::MAX);
        Some(now + step.max(worst / STEPS_MAX).min(left))
    }

    /// When somebody's wait is at its end.
    pub fn forced_at(&self) -> Option<Moment> {
        self.forced_at
    }

    /// Who has been here for longest of the patient ones.
    pub fn oldest_patient(&self) -> Option<Ticket> {
        self.patient.first().map(|(_, ticket)| *ticket)
    }

    /// Who came last.
    pub fn newest(&self) -> Option<Ticket> {
        self.by_ticket.last_key_value().map(|(ticket, _)| *ticket)
    }

    /// Who came first.
    pub fn oldest(&self) -> Option<Ticket> {
        self.by_ticket.first_key_value().map(|(ticket, _)| *ticket)
    }

    /// Who is next, or is hopeless, where so many begin at a time.
    pub fn next(&self, now: Moment, lanes: usize) -> Option<Ticket> {
        if self.patient.len() == self.by_due.len() {
            return self.by_due.first_key_value().map(|((_, ticket), _)| *ticket);
        }
        let lanes = u32::try_from(lanes.max(1)).unwrap_or(u32::MAX);
        let (mut laid_out, mut lasts) = (Vec::with_capacity(LAID_OUT_MAX), Duration::ZERO);
        for waiting in self.by_due.values().take(LAID_OUT_MAX) {
            if waiting.is_hopeless(now) {
                return Some(waiting.ticket);
            }
            let over_by = now + lasts + waiting.estimate.most;
            lasts += waiting.estimate.mean / lanes;
            laid_out.push(waiting);
            if waiting.deadline.is_some_and(|deadline| over_by > deadline) {
                let longest = (0..laid_out.len())
                    .filter(|index| laid_out[*index].deadline.is_some())
                    .max_by_key(|index| laid_out[*index].estimate.mean);
                if let Some(index) = longest {
                    lasts -= laid_out.remove(index).estimate.mean / lanes;
                }
            }
        }
        let first = laid_out.first().copied().or_else(|| self.by_due.values().next());
        first.map(|waiting| waiting.ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORST: Duration = Duration::from_secs(1);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn waiting(ticket: Ticket, arrived: u64, deadline: Option<u64>, takes: u64) -> Waiting {
        let estimate = Estimate { mean: ms(takes), least: ms(takes), most: ms(takes), computes: None };
        let stated = deadline.map(ms);
        Waiting { ticket, class: Class::Normal, arrived: ms(arrived), stated, deadline: stated, estimate }
            .of_worst_wait(WORST)
    }

    fn queue(all: &[Waiting]) -> Queue {
        let mut queue = Queue::default();
        for waiting in all {
            queue.push(*waiting, waiting.arrived, WORST);
        }
        queue
    }

    #[test]
    fn the_nearest_deadline_is_first_and_who_has_none_counts_as_due_at_the_end_of_the_worst_wait() {
        let queue = queue(&[waiting(1, 0, None, 1), waiting(2, 0, Some(900), 1), waiting(3, 0, Some(500), 1)]);
        assert_eq!(queue.next(ms(0), 1), Some(3));
        let older = self::queue(&[waiting(1, 0, None, 1), waiting(2, 200, Some(1100), 1)]);
        assert_eq!(older.next(ms(200), 1), Some(1));
    }

    #[test]
    fn without_deadlines_it_is_the_order_of_arrival() {
        let mut queue = queue(&[waiting(1, 0, None, 1), waiting(2, 0, None, 1), waiting(3, 5, None, 1)]);
        for ticket in [1, 2, 3] {
            assert_eq!(queue.next(ms(6), 1), Some(ticket));
            queue.remove(ticket);
        }
        assert_eq!(queue.next(ms(6), 1), None);
        assert!(queue.forced_at().is_none());
    }

    #[test]
    fn where_not_all_can_be_in_time_the_longest_is_passed_over() {
        // One after the other, by deadline, all but the first would be late.
        let queue = queue(&[waiting(1, 0, Some(10), 9), waiting(2, 0, Some(11), 2), waiting(3, 0, Some(12), 2)]);
        assert_eq!(queue.next(ms(0), 1), Some(2));
        assert_eq!(queue.next(ms(0), 4), Some(1), "with four lanes all are in time");
    }

    #[test]
    fn the_hopeless_is_given_as_such() {
        let queue = queue(&[waiting(1, 0, Some(10), 5), waiting(2, 0, Some(50), 5)]);
        assert_eq!(queue.next(ms(6), 1), Some(1));
        assert!(queue.by_due.values().next().is_some_and(|first| first.is_hopeless(ms(6))));
    }

    #[test]
    fn the_patient_begin_evenly_before_the_first_of_them_has_waited_for_too_long() {
        let mut queue = queue(&(0..9).map(|ticket| waiting(ticket, 0, None, 1)).collect::<Vec<_>>());
        let mut at = Vec::new();
        while let Some(now) = queue.forced_at() {
            at.push(now.as_millis());
            let oldest = queue.oldest_patient().unwrap();
            queue.remove(oldest);
            queue.moved(now, WORST);
        }
        assert_eq!(at.len(), 9);
        assert!(at.windows(2).all(|pair| (90..=110).contains(&(pair[1] - pair[0]))) && at[8] <= 1000, "{at:?}");
    }
}
