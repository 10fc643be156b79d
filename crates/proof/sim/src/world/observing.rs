//! What checkers and reports see of a world.
//!
//! Nothing here changes anything.

use super::{Removed, ToldVote, World};
use crate::disk::{Disk, Entry};
use baton_consensus::{MemberId, Moment, Summary};

impl World {
    /// All members, up or down.
    pub fn ids(&self) -> impl Iterator<Item = MemberId> {
        self.members.keys().copied()
    }

    /// Members whose process lives, and what they are.
    pub fn views(&self) -> impl Iterator<Item = (MemberId, &Summary)> {
        self.members.iter().filter(|(_, member)| member.consensus.is_some()).map(|(id, member)| (*id, &member.summary))
    }

    /// A member's disk.
    pub fn disk(&self, id: MemberId) -> &Disk {
        &self.members[&id].disk
    }

    /// How often a member's process has begun.
    pub fn boot(&self, id: MemberId) -> u64 {
        self.members[&id].boot
    }

    /// The members that the last step changed, each once.
    pub fn touched(&self) -> &[MemberId] {
        &self.touched
    }

    /// Those of them whose process lives, and what they are.
    pub fn touched_views(&self) -> impl Iterator<Item = (MemberId, &Summary)> {
        let live = |id: &MemberId| self.members.get(id).filter(|member| member.consensus.is_some());
        self.touched.iter().filter_map(move |id| live(id).map(|member| (*id, &member.summary)))
    }

    /// Votes told in the last step.
    pub fn votes_told(&self) -> &[ToldVote] {
        &self.told
    }

    /// Entries rolled back in the last step.
    pub fn removed(&self) -> &[Removed] {
        &self.removed
    }

    /// Majority writes acknowledged in the last step.
    pub fn acknowledged(&self) -> &[Entry] {
        &self.newly_acknowledged
    }

    /// Simulated time.
    pub fn now(&self) -> Moment {
        self.now
    }

    /// One line a member, for reports.
    pub fn describe(&self) -> String {
        self.members
            .iter()
            .map(|(id, member)| {
                let s = &member.summary;
                format!(
                    "  {id}: {}{} term {} primary {:?} log {} ({}) durable {} commit {} source {:?} config {:?}\n",
                    if member.consensus.is_some() { s.state.name() } else { "(down)" },
                    if s.is_writable { ", writable" } else { "" },
                    s.term,
                    s.primary.map(|p| p.0),
                    member.disk.last(),
                    member.disk.log.len(),
                    member.disk.durable,
                    s.commit_point,
                    s.sync_source.map(|p| p.0),
                    member.disk.configuration.as_ref().map(|c| (c.version.term, c.version.version, c.members.len())),
                )
            })
            .collect()
    }
}
