//! Where there are windows for a kind of task, one that is heavy and can wait begins outside of them only if it must.

use super::Checker;
use crate::world::World;
use baton_leadership::{Effect, Rule};

/// See the file's header.
pub struct Windows;

impl Checker for Windows {
    fn name(&self) -> &'static str {
        "outside of the windows only what must begin does"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        let Some(duties) = world.duties().filter(|duties| !duties.settings.windows.is_empty()) else { return Ok(()) };
        for acted in world.acted() {
            let Effect::Admit { task, why, .. } = acted.effect else { continue };
            let is_forced = matches!(
                why,
                Rule::ModeOff
                    | Rule::NoSet
                    | Rule::Light
                    | Rule::Deadline
                    | Rule::NearStall
                    | Rule::DebtBudget
                    | Rule::FreesSpace
            );
            let Some(kind) = world.brain(acted.member).and_then(|brain| brain.task(task)).map(|task| task.work.kind)
            else {
                continue;
            };
            let windows = &duties.settings.windows;
            let mut of_kind = windows.iter().filter(|window| window.kind.is_none_or(|of| of == kind)).peekable();
            let is_bound = !is_forced && of_kind.peek().is_some();
            if is_bound && !of_kind.any(|window| window.is_open(world.wall())) {
                return Err(format!(
                    "member {} lets a task of kind {} begin by {}",
                    acted.member,
                    kind.name(),
                    why.name()
                ));
            }
        }
        Ok(())
    }
}
