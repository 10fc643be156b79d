//! What befalls a world: faults, and the works that its members want.

use crate::world::World;
use baton_leadership::Work;
use baton_types::TaskKind;
use rand::Rng;
use std::time::Duration;

fn work(kind: TaskKind, expected: u64) -> Work {
    Work { kind, expected, expected_duration: None }
}

impl World {
    /// Once a second, for each member.
    pub fn luck(&mut self) {
        if !self.now_ms.is_multiple_of(1000) {
            return;
        }
        let all_due = match self.weather.all_due_secs {
            0 => false,
            secs => (self.now_ms / 1000).is_multiple_of(secs),
        };
        for at in 0..self.nodes.len() {
            self.faults(at);
            if self.nodes[at].is_up {
                self.works(at, all_due);
            }
        }
    }

    fn faults(&mut self, at: usize) {
        if !self.nodes[at].is_up {
            if self.random.random_bool(0.03) {
                self.restart(at);
            }
            return;
        }
        if self.random.random_bool(self.weather.crash) {
            self.nodes[at].is_up = false;
            self.nodes[at].tasks.clear();
            self.nodes[at].leads_since = None;
            return;
        }
        if self.random.random_bool(self.weather.cut) {
            // Alone on the other side, until all are on one again.
            let others_are_cut = self.nodes.iter().any(|node| node.is_cut);
            if !others_are_cut {
                self.nodes[at].is_cut = true;
            }
        } else if self.nodes[at].is_cut && self.random.random_bool(0.05) {
            self.nodes[at].is_cut = false;
        }
        let node = &mut self.nodes[at];
        node.lag_ms = match node.lag_ms {
            0 if self.random.random_bool(self.weather.lag) => self.random.random_range(100..60_000),
            lag if lag > 0 && self.random.random_bool(0.05) => 0,
            lag => lag,
        };
        if self.random.random_bool(self.weather.sick_disk) {
            node.is_sick = !node.is_sick;
        }
        if self.random.random_bool(self.weather.nonsense) {
            node.is_nonsense = !node.is_nonsense;
        }
    }

    fn works(&mut self, at: usize, all_due: bool) {
        if self.weather.members[at].is_arbiter {
            return;
        }
        // What every member does all the time, and nobody feels.
        if self.random.random_bool(0.02) {
            let kind = [TaskKind::TtlDeletion, TaskKind::OplogTruncation][self.random.random_range(0..2)];
            self.want(at, work(kind, 100), None);
        }
        if self.random.random_bool(0.02) {
            self.begin_unasked(at, work(TaskKind::Flush, 0));
        }
        if all_due || self.random.random_bool(self.weather.heavy) {
            let (kind, expected) = match self.random.random_range(0..4) {
                0 => (TaskKind::Backup, 0),
                1 => (TaskKind::DropCleanup, 1 << 36),
                _ => (TaskKind::Compaction, self.random.random_range(1_u64 << 20..8 << 30)),
            };
            let wait_max = self.random.random_bool(0.2).then(|| Duration::from_secs(self.random.random_range(0..60)));
            self.want(at, work(kind, expected), wait_max);
        }
        if self.random.random_bool(self.weather.unasked) {
            self.begin_unasked(at, work(TaskKind::IndexBuild, 10_000_000));
        }
    }
}
