//! What nobody waits for (a compaction, the rest of what was dropped) does not begin beside a heavy task of its own member that
//! somebody waits for, unless it must.

use super::Checker;
use crate::world::World;
use baton_leadership::{Effect, Rule};
use baton_types::TaskKind;

/// See the file's header.
pub struct Awaited;

impl Checker for Awaited {
    fn name(&self) -> &'static str {
        "what nobody waits for does not begin beside what somebody waits for"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        for acted in world.acted() {
            let Effect::Admit { task, why, .. } = acted.effect else { continue };
            let may_begin_beside = matches!(
                why,
                Rule::ModeOff
                    | Rule::NoSet
                    | Rule::NotServing
                    | Rule::Light
                    | Rule::Deadline
                    | Rule::NearStall
                    | Rule::DebtBudget
                    | Rule::FreesSpace
            );
            let Some(brain) = world.brain(acted.member).filter(|_| !may_begin_beside) else { continue };
            // Nothing is learnt of what backups cost here, so that they are always heavy; an index build may have proved cheap.
            let is_awaited = |kind| kind == TaskKind::Backup;
            let Some(kind) = brain
                .task(task)
                .map(|task| task.work.kind)
                .filter(|kind| *kind != TaskKind::IndexBuild && !is_awaited(*kind))
            else {
                continue;
            };
            if let Some(other) = brain.tasks().find(|other| !other.is_waiting && is_awaited(other.work.kind)) {
                let (member, other, why) = (acted.member, other.work.kind.name(), why.name());
                return Err(format!("member {member} lets a {} begin by {why} beside a {other}", kind.name()));
            }
        }
        Ok(())
    }
}
