//! What a member's store can have against an entry, for a while or until it is copied anew.
//!
//! At most one member of a world has trouble that only a copy ends: what two have nobody is to be cured of by giving up its data.

use super::World;
use super::event::Event;
use crate::disk::Entry;
use baton_consensus::{MemberId, MemberState, Summary};
use baton_following::{Copying, Input};
use rand::Rng;
use std::time::Duration;

/// The trouble of one store.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trouble {
    /// Applies nothing until then.
    until: Duration,
    /// Builds an index until then, which some entries complete.
    builds_until: Duration,
    /// One of its documents is not what entries take it for.
    document: Option<usize>,
    /// Entries of no one collection cannot be applied.
    is_deep: bool,
    /// Somebody wants nothing to be applied.
    is_held: bool,
}

/// What a store has against an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Complaint {
    NotYet,
    Refused { is_of_collection: bool },
}

impl Trouble {
    pub fn complaint(&self, now: Duration, entry: &Entry) -> Option<Complaint> {
        if now < self.until {
            return Some(Complaint::Refused { is_of_collection: false });
        }
        if now < self.builds_until && entry.value.is_multiple_of(5) {
            return Some(Complaint::NotYet);
        }
        if self.is_deep && entry.value.is_multiple_of(3) {
            return Some(Complaint::Refused { is_of_collection: false });
        }
        (self.document == Some(entry.document())).then_some(Complaint::Refused { is_of_collection: true })
    }

    /// A copy ends what it reaches.
    pub fn copied(&mut self, what: Copying) {
        self.document = None;
        self.is_deep &= what != Copying::Everything;
    }

    fn needs_copy(&self) -> bool {
        self.document.is_some() || self.is_deep
    }
}

impl World {
    /// Now and then somebody's store gets into trouble, or an operator has it apply nothing.
    pub(super) fn trouble(&mut self) {
        if self.healed {
            return;
        }
        let now = self.now;
        let ids: Vec<MemberId> = self.members.ids().collect();
        let id = ids[self.troubling.random_range(0..ids.len())];
        let one_needs_copy = self.members.values().any(|member| member.trouble.needs_copy());
        let kind = self.troubling.random_range(0..6);
        let long = Duration::from_millis(self.troubling.random_range(100..12_000));
        let document = self.troubling.random_range(0..4);
        let Some(member) = self.members.get_mut(&id) else { return };
        let trouble = &mut member.trouble;
        match kind {
            0 => trouble.until = now + long,
            1 | 2 => trouble.builds_until = now + long,
            3 if !one_needs_copy => trouble.document = Some(document),
            4 if !one_needs_copy => trouble.is_deep = true,
            _ => {
                trouble.is_held = !trouble.is_held;
                let is_held = trouble.is_held;
                self.follow(id, Input::Hold(is_held));
            }
        }
        let wait_ms = self.troubling.random_range(500..9000) * self.slowness();
        self.schedule_ms(wait_ms, Event::Trouble);
    }

    /// What ends by itself has ended.
    pub(super) fn end_troubles(&mut self) {
        let now = self.now;
        let ids: Vec<MemberId> = self.members.ids().collect();
        for id in ids {
            let Some(member) = self.members.get_mut(&id) else { continue };
            let trouble = &mut member.trouble;
            trouble.until = trouble.until.min(now);
            trouble.builds_until = trouble.builds_until.min(now);
            trouble.is_held = false;
            self.follow(id, Input::Hold(false));
            self.follow(id, Input::Delay(Duration::ZERO));
        }
    }

    /// Of those who may lead one refuses an entry, and may not give up its copy while the others cannot be read from; and those have logs
    /// that have parted, and wait for a primary to roll back to. That is the operator's (docs/replication.md), who has the first repaired.
    pub(super) fn repair_who_keeps_others_from_leading(&mut self) {
        let is_able = |(id, summary): (MemberId, &Summary)| {
            self.is_electable(id) && (summary.is_writable || summary.state == MemberState::Secondary)
        };
        if self.views().any(is_able) {
            return;
        }
        let ids: Vec<MemberId> = self.members.ids().collect();
        for id in ids {
            if let Some(member) = self.members.get_mut(&id) {
                member.trouble.copied(Copying::Everything);
            }
        }
    }

    /// What a member that has just started knows of it.
    pub(super) fn boot_follower(&mut self, id: MemberId) {
        let (is_held, delay) = {
            let Some(member) = self.members.get(&id) else { return };
            (member.trouble.is_held, member.delay)
        };
        if is_held {
            self.follow(id, Input::Hold(true));
        }
        if !delay.is_zero() && !self.healed {
            self.follow(id, Input::Delay(delay));
        }
    }
}
