//! How members of a world follow another's log: fetching, judging what came, going back.

use super::event::{Event, FetchAnswer};
use super::{Removed, World};
use crate::disk::{Entry, common_prefix};
use baton_consensus::{DataState, Input, MemberId, MemberState, Mutant, SourceState, Verdict, judge};
use baton_types::{OpTime, Timestamp};
use rand::Rng;
use std::time::Duration;

impl World {
    pub(super) fn fetch(&mut self, by: MemberId, generation: u64, from: MemberId) {
        let member = &self.members[&by];
        if member.fetch_generation != generation {
            return;
        }
        let (boot, asked) = (member.boot, member.disk.last());
        let source = &self.members[&from];
        let reachable =
            source.consensus.is_some() && source.summary.state.is_readable() && source.paused_until <= self.now;
        let lost = self.is_lost(by, from) || self.is_lost(from, by);
        let answer = (reachable && !lost).then(|| {
            let source = &self.members[&from];
            let most = 1 + (self.next_value % 7) as usize;
            // Who has nothing copies documents, and so is at the end of the source's log at once.
            let copies = self.weather.truncates && asked == OpTime::ZERO;
            let entries = match copies {
                true => source.disk.log.clone(),
                false => source.disk.from(asked).iter().take(most + 1).copied().collect(),
            };
            let oldest =
                source.disk.log.get(source.disk.oldest).map_or(Timestamp::ZERO, |entry| entry.optime.timestamp);
            FetchAnswer {
                state: SourceState { term: source.summary.term, last: source.disk.last(), oldest },
                term: source.summary.term,
                commit_point: source.summary.commit_point,
                entries,
            }
        });
        let wait = self.network_delay() + self.network_delay();
        self.schedule(wait, Event::Fetched { by, boot, generation, from, asked, answer });
    }

    pub(super) fn fetched(
        &mut self,
        by: MemberId,
        generation: u64,
        from: MemberId,
        asked: OpTime,
        answer: Option<FetchAnswer>,
    ) {
        let member = &self.members[&by];
        let mutant = self.weather.mutant;
        let has_changed = member.disk.last() != asked && mutant != Mutant::FetchesOnAsPrimary;
        if member.fetch_generation != generation || has_changed {
            return;
        }
        let boot = member.boot;
        let Some(answer) = answer else {
            self.deliver(by, Input::SourceFailed { source: from, avoid: Duration::from_millis(200) });
            return;
        };
        let leads = member.summary.state == MemberState::Primary && mutant != Mutant::FetchesOnAsPrimary;
        let optimes: Vec<OpTime> = answer.entries.iter().map(|entry| entry.optime).collect();
        // An empty log has nothing to be found in the source's: it takes all, as an initial sync would.
        let is_empty = asked == OpTime::ZERO;
        let verdict = if is_empty && !leads {
            Verdict::Append { entries: optimes.len() }
        } else {
            judge(asked, member.summary.term, leads, answer.state, &optimes)
        };
        match verdict {
            Verdict::Append { entries } => {
                let skip = usize::from(!is_empty);
                let batch: Vec<Entry> = answer.entries.iter().skip(skip).take(entries).copied().collect();
                if !batch.is_empty() {
                    self.append(by, &batch);
                    if is_empty {
                        self.deliver(by, Input::Data(DataState::Ready));
                    }
                }
                let term = if mutant == Mutant::FetchesOnAsPrimary { 0 } else { answer.term };
                let FetchAnswer { commit_point, state: SourceState { last, .. }, .. } = answer;
                self.deliver(by, Input::BatchTaken { source: from, term, commit_point, last });
                let wait_ms = if batch.is_empty() { self.random.random_range(5..60) } else { 0 };
                self.schedule_ms(wait_ms, Event::Fetch { by, boot, generation, from });
            }
            Verdict::ChangeSource => {
                self.deliver(by, Input::SourceFailed { source: from, avoid: Duration::from_millis(300) });
            }
            Verdict::TooStale => {
                self.tally.too_stale += 1;
                self.deliver(by, Input::SourceTooStale { source: from, oldest: answer.state.oldest });
            }
            Verdict::RollBack => {
                self.deliver(by, Input::Data(DataState::Rollback));
                let wait = self.disk_delay();
                self.schedule(wait, Event::RolledBack { by, boot, from });
            }
        }
    }

    pub(super) fn roll_back(&mut self, by: MemberId, from: MemberId) {
        let source = &self.members[&from].disk.log;
        let mine = &self.members[&by].disk.log;
        let common = common_prefix(mine, source);
        let is_primary = self.members[&by].summary.state == MemberState::Primary;
        let still_behind = self.members[&from].disk.last() > self.disk(by).last();
        let committed = mine.partition_point(|entry| entry.optime <= self.members[&by].summary.commit_point);
        if common < committed {
            // Refused, as a real member refuses it.
            self.deliver(by, Input::SourceFailed { source: from, avoid: Duration::from_millis(300) });
        } else if !is_primary && still_behind {
            let term = self.members[&by].summary.term;
            let removed: Vec<Removed> = mine[common..].iter().map(|entry| Removed { term, entry: *entry }).collect();
            if let Some(member) = self.members.get_mut(&by) {
                member.disk.truncate(common);
                self.tally.rollbacks += 1;
            }
            self.removed.extend(removed);
            let position = self.disk(by).position();
            self.deliver(by, Input::Log(position));
        }
        self.deliver(by, Input::Data(DataState::Ready));
        let member = &self.members[&by];
        if let Some(from) = member.fetches_from {
            let (boot, generation) = (member.boot, member.fetch_generation);
            self.schedule_ms(1, Event::Fetch { by, boot, generation, from });
        }
    }
}
