//! A request that runs for long rests between its steps, if others want the processors, and if there are small requests among them
//! of its own class or of a higher one: see [`baton_storage::tasks::GivingWay`] and [`baton_storage::tasks::Company`].
//!
//! Invariants: a request never rests in its first milliseconds, so a small one costs its clock at the most; and who rests holds no
//! lock that others wait for. The latter is the caller's to know: [`Resting::never`] is for who cannot say so. What it has of the
//! shared pools of memory it keeps.

use baton_machine::take_long_slices;
use baton_query::Effort;
use baton_storage::tasks::{Company, GivingWay};
use baton_types::Class;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// A step ends after so long; and in the first of them nothing is measured.
const STEP: Duration = Duration::from_millis(5);
/// The longest rest at a time: a kill and a deadline are noticed after it. What is left of it comes after the next step.
const REST_MAX: Duration = Duration::from_millis(50);
/// Who was not asked for anything for so long begins anew: what its thread did meanwhile was for somebody else.
const PAUSE: Duration = Duration::from_millis(100);

/// The steps of one request, or of one cursor's requests.
#[derive(Debug)]
pub(crate) struct Resting {
    /// As which class it rests; nothing, if it does not.
    rests_as: Option<Class>,
    step_began: Option<Instant>,
    giving_way: Option<GivingWay>,
    owed: Duration,
}

impl Resting {
    /// Of a request of this class that holds nothing that others wait for.
    pub fn allowed(class: Class) -> Self {
        Self { rests_as: Some(class), step_began: None, giving_way: None, owed: Duration::ZERO }
    }

    /// Of one that others may wait for.
    pub fn never() -> Self {
        Self { rests_as: None, step_began: None, giving_way: None, owed: Duration::ZERO }
    }

    /// Asked every so many documents: ends the step under way, if it has lasted long enough, and rests. Every rest is noted, and that the
    /// request is a long one.
    pub fn step(&mut self, company: &Company, effort: &Effort) {
        let Some(class) = self.rests_as else { return };
        let now = Instant::now();
        let lasted = self.step_began.map(|began| now.saturating_duration_since(began));
        if lasted.is_some_and(|lasted| lasted < STEP) {
            return;
        }
        self.step_began = Some(now);
        let Some(lasted) = lasted else { return };
        effort.is_long.store(true, Relaxed);
        match (company.share_beside(class, now).filter(|_| lasted <= PAUSE), &mut self.giving_way) {
            (None, giving_way) => *giving_way = None,
            (Some(share), None) => {
                take_long_slices();
                self.giving_way = Some(GivingWay::new(share));
            }
            (Some(share), Some(giving_way)) => {
                // A cursor's next request may come to another thread.
                take_long_slices();
                giving_way.take(share);
                let rest = giving_way.rest();
                // Who has the processors for itself owes nothing.
                self.owed = if rest > Duration::ZERO { self.owed + rest } else { Duration::ZERO };
                let rest = self.owed.min(REST_MAX);
                if rest > Duration::ZERO {
                    self.owed -= rest;
                    std::thread::sleep(rest);
                    giving_way.rested();
                    let began = Instant::now();
                    company.note_rest(began.saturating_duration_since(now));
                    self.step_began = Some(began);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_machine::has_long_slices;

    /// Works for so long, asking as often as it can, on twice as many threads as there are processors, and one more; beside clients
    /// of normal class whose requests are small, or beside nobody else. Gives how often it rested, and how long.
    fn rests_of(work: Duration, resting: fn() -> Resting, has_company: bool) -> (u64, u64) {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let company = Company::default();
        if has_company {
            company.note(Class::Normal, Instant::now());
        }
        std::thread::scope(|scope| {
            for _ in 0..2 * processors + 1 {
                scope.spawn(|| {
                    let (mut resting, began) = (resting(), Instant::now());
                    while began.elapsed() < work {
                        resting.step(&company, &Effort::default());
                    }
                });
            }
        });
        (company.rests(), company.rest_micros())
    }

    #[test]
    fn who_runs_for_long_among_many_rests_and_who_is_waited_for_does_not() {
        let (rests, micros) = rests_of(Duration::from_millis(400), || Resting::allowed(Class::Normal), true);
        assert!(rests > 0 && micros > 0, "{rests} rests, {micros} us");
        assert_eq!(rests_of(Duration::from_millis(400), Resting::never, true), (0, 0));
        let high = || Resting::allowed(Class::High);
        assert_eq!(rests_of(Duration::from_millis(400), high, true), (0, 0), "nobody does for a lower class");
    }

    #[test]
    fn those_who_run_for_long_beside_each_other_alone_do_not_rest() {
        assert_eq!(rests_of(Duration::from_millis(400), || Resting::allowed(Class::Normal), false), (0, 0));
    }

    #[test]
    fn nothing_is_measured_of_the_first_step_and_of_one_after_a_pause() {
        let company = Company::default();
        company.note(Class::Normal, Instant::now());
        let ago = |ago| Instant::now().checked_sub(ago).expect("this machine runs for a second");
        let mut resting = Resting::allowed(Class::Normal);
        resting.step(&company, &Effort::default());
        assert!(resting.giving_way.is_none() && !has_long_slices(), "the request begins");
        resting.step_began = Some(ago(2 * STEP));
        resting.step(&company, &Effort::default());
        assert!(
            resting.giving_way.is_some() && has_long_slices(),
            "from the second step on it is measured, and in nobody's way"
        );
        resting.step_began = Some(ago(2 * PAUSE));
        resting.step(&company, &Effort::default());
        assert!(resting.giving_way.is_none(), "it begins anew");
        assert_eq!(company.rests(), 0);
    }
}
