//! What checkers and reports see of a world.
//!
//! Nothing here changes anything.

use super::{Removed, ToldVote, World};
use crate::disk::{Disk, Entry};
use baton_consensus::{Member, MemberId, Moment, SourceState, Summary};
use baton_following::{Here, State};
use baton_types::OpTime;
use std::time::Duration;

/// An entry that a member wrote or applied.
#[derive(Clone, Copy, Debug)]
pub struct Applied {
    /// Who.
    pub member: MemberId,
    /// What.
    pub entry: Entry,
    /// Where its log ended before.
    pub after: OpTime,
    /// Whether it is the member that wrote it, as primary.
    pub is_own: bool,
}

/// A rollback: what was known when the last page of the source's log came.
#[derive(Clone, Copy, Debug)]
pub struct WentBack {
    /// Who.
    pub member: MemberId,
    /// What it was then.
    pub here: Here,
    /// What the source said of itself.
    pub source: SourceState,
    /// What it went back to.
    pub common: OpTime,
}

impl World {
    /// All members, up or down.
    pub fn ids(&self) -> impl Iterator<Item = MemberId> {
        self.members.ids()
    }

    /// Members whose process lives, and what they are.
    pub fn views(&self) -> impl Iterator<Item = (MemberId, &Summary)> {
        self.members.iter().filter(|(_, member)| member.consensus.is_some()).map(|(id, member)| (id, &member.summary))
    }

    /// A member's disk.
    pub fn disk(&self, id: MemberId) -> &Disk {
        &self.members[&id].disk
    }

    /// Whether a member has given up its log for a copy that is not whole, or has not begun to use it.
    pub fn is_copying(&self, id: MemberId) -> bool {
        let member = &self.members[&id];
        !member.disk.is_whole || member.follower.machine.is_copying()
    }

    /// Whether every configuration in use gives a member a vote.
    pub fn is_voter(&self, id: MemberId) -> bool {
        self.is_everywhere(id, Member::is_voter)
    }

    /// Whether every configuration in use lets a member lead.
    pub fn is_electable(&self, id: MemberId) -> bool {
        self.is_everywhere(id, Member::is_electable)
    }

    fn is_everywhere(&self, id: MemberId, so: impl Fn(&Member) -> bool) -> bool {
        let mut configurations = self.members.values().filter_map(|member| member.consensus.as_ref()?.configuration());
        configurations.all(|configuration| configuration.member(id).is_some_and(&so))
    }

    /// How often a member's process has begun.
    pub fn boot(&self, id: MemberId) -> u64 {
        self.members[&id].boot
    }

    /// The members that the last step changed, each once: their process, what they are, their disk, what they follow; and those who
    /// told a vote. A step of a machine alone is no change: most leave everything as it was.
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

    /// Rollbacks of the last step.
    pub fn went_back(&self) -> &[WentBack] {
        &self.went_back
    }

    /// Entries written and applied in the last step.
    pub fn applied(&self) -> &[Applied] {
        &self.applied
    }

    /// What a member that follows others says of itself, and since when nothing has come of it, though the world let it work: no batch
    /// was taken, no other source set, no rollback ended.
    pub fn following(&self, id: MemberId) -> (State, Duration) {
        let member = &self.members[&id];
        let since = member.follower.moved_at.max(member.paused_until).max(member.condition.lags_until);
        (member.follower.machine.state(), self.now.saturating_sub(since))
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
                    "  {id}: {}{} term {} primary {:?} log {} ({}) durable {} commit {} source {:?} config {:?} follows: {:?} {:?}\n",
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
                    member.follower.machine.state(),
                    member.trouble,
                )
            })
            .collect()
    }
}
