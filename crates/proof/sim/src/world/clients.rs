//! Clients of a world: whoever takes writes gets some, and they wait for a majority.
//!
//! A write counts as acknowledged when its member says that its entry is committed, in the term in which it was taken.

use super::event::Event;
use super::{SimMember, World};
use baton_consensus::{MemberId, MemberState};
use baton_types::OpTime;
use rand::Rng;

impl World {
    pub(super) fn set_takes_writes(&mut self, id: MemberId, takes_writes: bool) {
        if let Some(member) = self.members.get_mut(&id) {
            member.takes_writes = takes_writes;
        }
    }

    pub(super) fn committed(&mut self, id: MemberId, optime: OpTime) {
        let term = self.members[&id].summary.term;
        let is_primary = self.members[&id].summary.state == MemberState::Primary;
        if let Some(member) = self.members.get_mut(&id)
            && self.random.random_bool(0.3)
        {
            member.disk.commit_point = optime;
        }
        if !is_primary {
            return;
        }
        let Some(waiting) = self.waiting.get_mut(&id) else { return };
        let (done, rest): (Vec<_>, Vec<_>) =
            std::mem::take(waiting).into_iter().partition(|(of, entry)| *of == term && entry.optime <= optime);
        *waiting = rest;
        self.tally.acknowledged += done.len() as u64;
        self.newly_acknowledged.extend(done.into_iter().map(|(_, entry)| entry));
    }

    /// Who takes writes.
    pub(super) fn writers(&self) -> Vec<MemberId> {
        let takes_writes = |m: &SimMember| m.consensus.is_some() && m.takes_writes && m.paused_until <= self.now;
        self.members.iter().filter(|(_, member)| takes_writes(member)).map(|(id, _)| id).collect()
    }

    pub(super) fn client(&mut self) {
        let writers = self.writers();
        if !writers.is_empty() && self.next_value < self.writes_max() && !self.healed {
            let id = writers[self.random.random_range(0..writers.len())];
            let term = self.members[&id].summary.term;
            for _ in 0..self.random.random_range(1..4) {
                let entry = self.next_entry(id);
                if self.is_refused_by_index(id, &entry) {
                    continue;
                }
                self.tally.writes += 1;
                self.waiting.entry(id).or_default().push((term, entry));
                self.append(id, &[entry]);
                if !self.members[&id].takes_writes {
                    break;
                }
            }
        }
        let wait_ms = self.random.random_range(5..300) * self.slowness();
        self.schedule_ms(wait_ms, Event::Client);
    }

    /// What takes a millisecond in most worlds takes so many in this one: the pauses of clients and followers, and between faults.
    pub(super) fn slowness(&self) -> u64 {
        self.duties().map_or(1, |duties| duties.slowness)
    }

    pub(super) fn stray(&self) -> f64 {
        self.duties().map_or(0.02, |duties| duties.stray)
    }

    fn writes_max(&self) -> u64 {
        if self.slowness() > 1 { 1500 } else { 600 }
    }
}
