//! What is to happen in a world, and when.
//!
//! Invariant: events come in the order of their times, and of two at the same time the one that was put down first.

use super::event::Event;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// So many bits say where in `events` an event is. More than that never wait at once.
const PLACE_BITS: u32 = 20;

/// See the file's header.
#[derive(Default)]
pub(super) struct Agenda {
    /// From the high bits to the low ones: the time in nanoseconds, how many events were put down before, the place in `events`. One
    /// number is compared, and moved, faster than its parts.
    order: BinaryHeap<Reverse<u128>>,
    events: Vec<Option<Event>>,
    /// Places of `events` that are free.
    vacant: Vec<usize>,
    put_down: u64,
}

impl Agenda {
    /// Has an event happen at a time. One that is beyond the end of time never happens before others.
    pub fn put_down(&mut self, at: Duration, event: Event) {
        let place = match self.vacant.pop() {
            Some(place) => {
                self.events[place] = Some(event);
                place
            }
            None => {
                self.events.push(Some(event));
                self.events.len() - 1
            }
        };
        let at_ns = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        self.put_down += 1;
        self.order.push(Reverse(u128::from(at_ns) << 64 | u128::from(self.put_down << PLACE_BITS | place as u64)));
    }

    /// What happens next, and when.
    pub fn next(&mut self) -> Option<(Duration, Event)> {
        let Reverse(next) = self.order.pop()?;
        let place = (next & ((1 << PLACE_BITS) - 1)) as usize;
        self.vacant.push(place);
        let event = self.events[place].take()?;
        Some((Duration::from_nanos((next >> 64) as u64), event))
    }
}
