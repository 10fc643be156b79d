//! The disks of a world, and what members write to them of their own: entries, votes, configurations.
//!
//! What is written is lost in a crash until it is synced, and a sync takes its time.

use super::World;
use super::event::{Event, Persisted};
use super::observing::Applied;
use crate::disk::Entry;
use baton_consensus::{Input, MemberId, MemberState};
use baton_types::{OpTime, Term, Timestamp};
use rand::Rng;
use std::time::Duration;

impl World {
    pub(super) fn disk_delay(&mut self) -> Duration {
        let slow = !self.healed && self.random.random_bool(0.02);
        Duration::from_micros(self.random.random_range(50..if slow { 800_000 } else { 3_000 }))
    }

    pub(super) fn persisted(&mut self, id: MemberId, what: Persisted) {
        self.touch(id);
        let Some(member) = self.members.get_mut(&id) else { return };
        match what {
            Persisted::Vote(vote) => {
                if vote.term >= member.disk.vote.term {
                    member.disk.vote = vote;
                }
                self.deliver(id, Input::VotePersisted(vote));
            }
            Persisted::Configuration(configuration) => {
                let version = configuration.version;
                member.disk.configuration = Some(*configuration);
                self.tally.configurations += 1;
                self.deliver(id, Input::ConfigurationPersisted(version));
            }
        }
    }

    pub(super) fn append(&mut self, id: MemberId, entries: &[Entry]) {
        self.touch(id);
        let Some(member) = self.members.get_mut(&id) else { return };
        for entry in entries {
            let after = member.disk.last();
            member.disk.apply(*entry);
            self.applied.push(Applied { member: id, entry: *entry, after, is_own: true });
        }
        let position = member.disk.position();
        self.deliver(id, Input::Log(position));
        self.begin_sync(id);
    }

    pub(super) fn begin_sync(&mut self, id: MemberId) {
        let wait = self.disk_delay();
        let Some(member) = self.members.get_mut(&id) else { return };
        if member.syncing || member.disk.durable == member.disk.log.len() {
            return;
        }
        member.syncing = true;
        let (boot, len) = (member.boot, member.disk.log.len());
        self.schedule(wait, Event::Synced { to: id, boot, len });
    }

    pub(super) fn synced(&mut self, id: MemberId, len: usize) {
        let Some(member) = self.members.get_mut(&id) else { return };
        member.syncing = false;
        // A rollback may have removed what this sync began with.
        let len = len.min(member.disk.log.len());
        member.disk.durable = member.disk.durable.max(len);
        if member.disk.is_half_copied {
            return;
        }
        let position = member.disk.position();
        self.deliver(id, Input::Log(position));
        self.begin_sync(id);
    }

    pub(super) fn next_entry(&mut self, id: MemberId) -> Entry {
        self.next_value += 1;
        let member = &self.members[&id];
        let last = member.disk.last().timestamp;
        let wall = u32::try_from((1000 + self.now.as_secs() as i64 + member.skew_secs).max(1)).unwrap_or(1);
        let timestamp = if wall > last.seconds {
            Timestamp { seconds: wall, increment: 1 }
        } else {
            Timestamp { seconds: last.seconds, increment: last.increment + 1 }
        };
        Entry::new(OpTime { term: member.summary.term, timestamp }, self.next_value)
    }

    pub(super) fn begin_term(&mut self, id: MemberId, term: Term) {
        let summary = &self.members[&id].summary;
        if summary.term != term || summary.state != MemberState::Primary {
            return;
        }
        self.set_takes_writes(id, true);
        let entry = self.next_entry(id);
        self.append(id, &[entry]);
        self.deliver(id, Input::TermBegun(term));
    }
}
