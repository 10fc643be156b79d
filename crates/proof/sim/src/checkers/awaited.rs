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
            let kind = brain.task(task).map(|task| task.work.kind);
            let kind = kind.filter(|kind| !matches!(kind, TaskKind::IndexBuild | TaskKind::Backup));
            if let Some(kind) = kind.filter(|_| acted.is_beside_backup) {
                let (member, why, kind) = (acted.member, why.name(), kind.name());
                return Err(format!("member {member} lets a {kind} begin by {why} beside a backup"));
            }
        }
        Ok(())
    }
}
