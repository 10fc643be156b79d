//! Whether this member may become primary now: what consensus's driver asks before it lets the member stand or take over.
//!
//! A member in a heavy task is a bad primary, but a better one than none.
//!
//! Invariant: a member that has waited for two election timeouts may stand, whatever it does. So the set always gets a primary.

use crate::candidates::{DISK_FREE_MIN, Obstacle};
use crate::leadership::Leadership;
use crate::settings::Mode;
use std::time::Duration;

impl Leadership {
    /// What keeps this member from standing for election, when there has been no sign of a primary for `silence`. Others have one
    /// election timeout to notice that, and another to stand.
    pub fn standing_obstacle(&self, silence: Duration) -> Option<Obstacle> {
        let set = self.set.as_ref().filter(|set| set.settings.mode != Mode::Off)?;
        let others_had_time = silence >= 2 * set.election_timeout;
        // Nobody else could stand: there is nobody to wait for.
        let is_alone = !set.others().any(crate::set::Member::is_electable);
        if others_had_time || is_alone {
            return None;
        }
        self.running().map(Obstacle::RunsTask)
    }

    /// What keeps this member from taking over from a primary that works, by its priority or its longer log: it waits for the end of
    /// its tasks, those that are about to begin too.
    pub fn takeover_obstacle(&self) -> Option<Obstacle> {
        self.set.as_ref().filter(|set| set.settings.mode != Mode::Off)?;
        let waiting = || self.tasks.waiting().find(|(_, task, _)| task.is_heavy).map(|(_, task, _)| task.work.kind);
        let disk = || {
            if self.disk.is_sick(self.now) {
                Some(Obstacle::DiskSlow)
            } else {
                (self.figures.disk_free < DISK_FREE_MIN).then_some(Obstacle::DiskNearlyFull)
            }
        };
        self.running().map(Obstacle::RunsTask).or_else(|| waiting().map(Obstacle::WaitsForTask)).or_else(disk)
    }

    fn running(&self) -> Option<baton_types::TaskKind> {
        self.tasks.running().map(|task| task.work.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Start;
    use crate::figures::Figures;
    use crate::set::{Member, Set};
    use crate::step::{Input, Role, Work};
    use baton_types::TaskKind;

    fn member(mode: Mode, members: i32) -> Leadership {
        let mut set = Set::new(0, (0..members).map(Member::new).collect());
        set.settings.mode = mode;
        let mut leadership = Leadership::new(Start { incarnation: 1, seed: 1 });
        leadership.step(Duration::ZERO, Input::Configured(Box::new(set)));
        leadership.step(Duration::ZERO, Input::Role { role: Role::Secondary, term: 1 });
        leadership
    }

    const BACKUP: Work = Work { kind: TaskKind::Backup, subject: 1, expected: 0, expected_duration: None };
    const SHORTLY: Duration = Duration::from_secs(12);
    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn who_is_in_a_task_stands_only_if_nobody_else_did_and_takes_over_when_it_has_ended() {
        let mut leadership = member(Mode::CostBased, 3);
        assert_eq!((leadership.standing_obstacle(SHORTLY), leadership.takeover_obstacle()), (None, None));
        leadership.step(Duration::ZERO, Input::Wanted { task: 1, work: BACKUP, wait_max: None });
        assert_eq!(leadership.standing_obstacle(SHORTLY), None, "it only waits");
        assert_eq!(leadership.takeover_obstacle(), Some(Obstacle::WaitsForTask(TaskKind::Backup)));
        leadership.step(Duration::ZERO, Input::Begun { task: 1, work: BACKUP });
        assert_eq!(leadership.standing_obstacle(SHORTLY), Some(Obstacle::RunsTask(TaskKind::Backup)));
        assert_eq!(leadership.standing_obstacle(LONG), None);
        assert_eq!(leadership.takeover_obstacle(), Some(Obstacle::RunsTask(TaskKind::Backup)));
        leadership.step(Duration::ZERO, Input::Ended { task: 1, cost: None });
        assert_eq!((leadership.standing_obstacle(SHORTLY), leadership.takeover_obstacle()), (None, None));
    }

    #[test]
    fn a_light_task_keeps_nobody_from_it_and_a_full_disk_from_taking_over() {
        let mut leadership = member(Mode::Always, 3);
        let flush = Work { kind: TaskKind::Flush, subject: 1, expected: 0, expected_duration: None };
        leadership.step(Duration::ZERO, Input::Begun { task: 1, work: flush });
        assert_eq!((leadership.standing_obstacle(SHORTLY), leadership.takeover_obstacle()), (None, None));
        let figures = Figures { disk_free: 0.01, ..Figures::default() };
        leadership.step(Duration::ZERO, Input::Figures(Box::new(figures)));
        assert_eq!(leadership.standing_obstacle(SHORTLY), None);
        assert_eq!(leadership.takeover_obstacle(), Some(Obstacle::DiskNearlyFull));
    }

    #[test]
    fn with_the_mode_off_or_nobody_else_a_task_keeps_nobody_from_it() {
        for mut leadership in [member(Mode::Off, 3), member(Mode::CostBased, 1)] {
            leadership.step(Duration::ZERO, Input::Begun { task: 1, work: BACKUP });
            assert_eq!(leadership.standing_obstacle(SHORTLY), None);
        }
        assert_eq!(member(Mode::Off, 3).takeover_obstacle(), None);
    }
}
