//! Never is a majority of the voters busy by claims that a primary has confirmed.
//!
//! What is not counted: tasks that could not wait, or no longer; until its tasks have ended, a member that some primary had not heard of
//! for the election timeout, and so took for gone with its claim after it had begun (before that the confirmation was no longer to be
//! believed), and a member that some configuration in use gave no vote meanwhile: a primary with that one asked nobody for it. Where
//! somebody lies nothing can be said: he may confirm what he likes.

use super::Checker;
use crate::world::{Brain, Silence, World};
use baton_consensus::MemberId;
use baton_leadership::Set;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// See the file's header.
#[derive(Default)]
pub struct MajorityFree {
    /// Members whose claims a primary took for those of a dead, or of nobody.
    given_up: BTreeSet<MemberId>,
    /// The most slots that any configuration had while these were busy.
    slots: usize,
    /// The world's changes of tasks that were looked at last.
    changes: u64,
    /// Who is busy by a claim, and since when.
    busy: BTreeMap<MemberId, Duration>,
}

impl Checker for MajorityFree {
    fn name(&self) -> &'static str {
        "never a majority busy while claims are honoured"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        if world.duties().is_none_or(|duties| !duties.liars.is_empty()) {
            return Ok(());
        }
        if std::mem::replace(&mut self.changes, world.task_changes()) != world.task_changes() {
            let since = |brain: &Brain| brain.tasks().filter_map(|task| task.in_slot_since).max();
            self.busy = world.brains().filter_map(|(id, brain)| Some((id, since(brain)?))).collect();
            self.given_up.retain(|id| self.busy.contains_key(id));
            let slots = world.brains().filter_map(|(_, brain)| brain.set().map(Set::slots)).max().unwrap_or(0);
            self.slots = if self.busy.is_empty() { slots } else { self.slots.max(slots) };
        }
        // Any primary, one that is none any more but does not know it too, may have taken a member for gone.
        let mut give_up = |silence: Silence| {
            if self.busy.get(&silence.member).is_some_and(|since| silence.gone_at > *since) {
                self.given_up.insert(silence.member);
            }
        };
        if !self.busy.is_empty() {
            world.ended_silences().iter().copied().for_each(&mut give_up);
            for (id, primary) in world.brains().filter(|(_, brain)| brain.is_primary()) {
                let others = self.busy.keys().filter(|busy| **busy != id);
                others.filter_map(|busy| primary.silence(*busy, world.now())).for_each(&mut give_up);
            }
        }
        for id in self.busy.keys() {
            let votes = |set: &Set| set.member(id.0).is_some_and(|member| member.is_voter);
            if !world.brains().all(|(_, brain)| brain.set().is_none_or(votes)) {
                self.given_up.insert(*id);
            }
        }
        if self.busy.len() <= self.slots {
            return Ok(());
        }
        let honoured: Vec<_> = self.busy.keys().filter(|id| !self.given_up.contains(id)).collect();
        if honoured.len() > self.slots {
            return Err(format!("members {honoured:?} are busy, where {} may be", self.slots));
        }
        Ok(())
    }
}
