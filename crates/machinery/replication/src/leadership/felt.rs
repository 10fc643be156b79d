//! What clients lose beside a heavy task: how many requests are answered a second meanwhile, of those before.
//!
//! A member looks once a second. Invariants: it says something of a stretch in which it was primary and busy throughout, of at least one whole
//! second, after one in which it was primary and free; and only if enough was asked for to tell.

use std::time::Duration;

/// Of fewer requests a second it is chance how many there are.
const RATE_MIN: f64 = 20.0;
/// The weight of the newest second in what is usual.
const WEIGHT: f64 = 0.25;

/// What a member is in one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It does not lead.
    Follows,
    /// It leads, and has nothing heavy to do.
    LeadsFree,
    /// It leads, and has.
    LeadsBusy,
}

/// See the file's header.
#[derive(Debug, Default)]
pub(super) struct Felt {
    last: Option<(Duration, u64, Standing)>,
    /// Requests a second while it leads and is free.
    usual: Option<f64>,
    /// Of the busy stretch: whole seconds of it, and what was answered in them.
    busy: (f64, f64),
}

impl Felt {
    /// Looks: at this time so many requests have been answered since the start. Gives what clients have lost, of 1, if a stretch has just ended.
    pub fn look(&mut self, now: Duration, answered: u64, standing: Standing) -> Option<f64> {
        let (before, answered_before, stood) = self.last.replace((now, answered, standing))?;
        let secs = now.saturating_sub(before).as_secs_f64();
        let count = answered.saturating_sub(answered_before) as f64;
        if secs <= 0.0 {
            return None;
        }
        match (stood, standing) {
            (Standing::LeadsBusy, Standing::LeadsBusy) => {
                self.busy = (self.busy.0 + secs, self.busy.1 + count);
                return None;
            }
            (Standing::LeadsFree, Standing::LeadsFree) => {
                let rate = count / secs;
                self.usual = Some(self.usual.map_or(rate, |usual| usual + WEIGHT * (rate - usual)));
            }
            (Standing::Follows, _) | (_, Standing::Follows) => self.usual = None,
            (Standing::LeadsFree, Standing::LeadsBusy) | (Standing::LeadsBusy, Standing::LeadsFree) => {}
        }
        let (secs, count) = std::mem::take(&mut self.busy);
        let usual = self.usual.filter(|usual| *usual >= RATE_MIN)?;
        (secs > 0.0 && standing == Standing::LeadsFree).then(|| (1.0 - count / secs / usual).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::Standing::{Follows, LeadsBusy, LeadsFree};
    use super::*;

    /// What it says of seconds like these, each with what was answered in it and as what the member stood at its end.
    fn says(seconds: &[(u64, Standing)]) -> Vec<f64> {
        let mut felt = Felt::default();
        let mut answered = 0;
        let look = |(second, (count, standing)): (usize, &(u64, Standing))| {
            answered += count;
            felt.look(Duration::from_secs(second as u64), answered, *standing)
        };
        seconds.iter().enumerate().filter_map(look).collect()
    }

    #[test]
    fn what_is_answered_beside_a_task_is_compared_with_what_was_before() {
        let free = [(1000, LeadsFree); 5];
        let busy = [(700, LeadsBusy), (400, LeadsBusy), (200, LeadsBusy), (900, LeadsFree)];
        let said = says(&[free.as_slice(), &busy].concat());
        assert_eq!(said.len(), 1);
        assert!((said[0] - 0.7).abs() < 1e-9, "of the whole seconds alone: {said:?}");
        assert_eq!(
            says(&[free.as_slice(), &[(1500, LeadsBusy), (1500, LeadsBusy), (1000, LeadsFree)]].concat()),
            [0.0]
        );
    }

    #[test]
    fn nothing_is_said_of_what_was_short_or_idle_or_not_led_throughout() {
        let free = [(1000, LeadsFree); 5];
        let seldom = [(10, LeadsFree); 5];
        let short = [(700, LeadsBusy), (900, LeadsFree)];
        let long = [(700, LeadsBusy), (0, LeadsBusy), (900, LeadsFree)];
        assert!(says(&[free.as_slice(), &short].concat()).is_empty());
        assert!(says(&[seldom.as_slice(), &long].concat()).is_empty());
        assert!(
            says(&[free.as_slice(), &[(700, LeadsBusy), (0, LeadsBusy), (0, Follows), (900, LeadsFree)]].concat())
                .is_empty()
        );
        assert!(says(&[[(1000, Follows); 5].as_slice(), &long].concat()).is_empty(), "it does not know what is usual");
    }
}
