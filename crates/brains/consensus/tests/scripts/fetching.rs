//! How a member fetches from its source: one batch, judged and taken in one line. Kept thin: the machinery's part is elsewhere.

use crate::words::{name, show};
use crate::world::World;
use baton_consensus::{DataState, Input, MemberId, MemberState, SourceState, Verdict, judge};
use baton_types::OpTime;
use std::time::Duration;

/// How long a source that has nothing for us is not chosen again.
const AVOID: Duration = Duration::from_secs(1);

impl World {
    fn source(&self, by: MemberId) -> Option<MemberId> {
        let source = self.members[&by].machine().summary().sync_source?;
        let reachable = self.members[&source].is_up() && !self.network.is_cut(by, source);
        (reachable && !self.network.is_cut(source, by)).then_some(source)
    }

    /// Whether there was anything to be had.
    pub fn fetch_if_useful(&mut self, by: MemberId) -> bool {
        let Some(source) = self.source(by) else { return false };
        let (mine, theirs) = (self.members[&by].machine().summary(), self.members[&source].machine().summary());
        // Who has nothing copies, by a line that says so.
        if self.members[&by].disk.log.is_empty() {
            return false;
        }
        let is_useful = theirs.position.written > mine.position.written
            || theirs.commit_point.min(mine.position.written) > mine.commit_point
            || theirs.term > mine.term;
        if is_useful {
            self.fetch(by, None);
        }
        is_useful
    }

    /// One batch of `most` entries at the most, from the source that the machine has chosen.
    pub fn fetch(&mut self, by: MemberId, most: Option<usize>) {
        let Some(from) = self.source(by) else {
            self.tell(format!("{}: has no source that answers", name(by)));
            return;
        };
        let source = self.members[&from].machine().summary();
        let disk = &self.members[&from].disk;
        let state = SourceState { term: source.term, last: disk.last(), oldest: disk.oldest() };
        let own_last = self.members[&by].disk.last();
        let mut batch = disk.from(own_last.timestamp);
        batch.truncate(most.map_or(batch.len(), |most| most + 1));
        let mine = self.members[&by].machine().summary();
        let leads = mine.state == MemberState::Primary;
        match judge(own_last, mine.term, leads, state, &batch) {
            Verdict::Append { entries } => {
                let entries = batch.get(1..=entries).unwrap_or_default().to_vec();
                if !entries.is_empty() {
                    self.tell(format!("{}: appends {}", name(by), show_all(&entries)));
                    self.extend(by, &entries);
                }
                let left = batch.len() - 1 - entries.len();
                if left > 0 {
                    self.tell(format!("{}: leaves {}", name(by), show_all(&batch[batch.len() - left..])));
                }
                let (term, commit_point, last) = (state.term, source.commit_point, state.last);
                self.input(by, Input::BatchTaken { source: from, term, commit_point, last });
            }
            Verdict::RollBack => self.roll_back(by, from),
            Verdict::TooStale => {
                let oldest = state.oldest;
                self.tell(format!(
                    "{}: is too stale for {}, whose log begins at {}",
                    name(by),
                    name(from),
                    oldest.seconds
                ));
                self.input(by, Input::SourceTooStale { source: from, oldest });
            }
            Verdict::ChangeSource => {
                self.tell(format!("{}: has nothing to take from {}", name(by), name(from)));
                self.input(by, Input::SourceFailed { source: from, avoid: AVOID });
            }
        }
    }

    fn roll_back(&mut self, by: MemberId, from: MemberId) {
        self.input(by, Input::Data(DataState::Rollback));
        let common = self.members[&by].disk.common(&self.members[&from].disk);
        let removed = self.disk(by).log.split_off(common);
        let disk = self.disk(by);
        disk.durable = disk.durable.min(common);
        let position = disk.position();
        let line = format!("{}: rolls back to {}, without {}", name(by), show(position.written), show_all(&removed));
        self.tell(line);
        self.input(by, Input::Log(position));
        self.input(by, Input::Data(DataState::Ready));
    }

    /// Initial sync: everything that the source has.
    pub fn copy(&mut self, by: MemberId) {
        let Some(from) = self.source(by) else {
            self.tell(format!("{}: has no source that answers", name(by)));
            return;
        };
        let log = self.members[&from].disk.log.clone();
        self.extend(by, &log);
        self.tell(format!("{}: has copied {}", name(by), name(from)));
        self.input(by, Input::Data(DataState::Ready));
    }
}

pub fn show_all(entries: &[OpTime]) -> String {
    entries.iter().map(|entry| show(*entry)).collect::<Vec<String>>().join(" ")
}
