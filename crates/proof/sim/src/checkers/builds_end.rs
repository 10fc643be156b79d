//! A build ends on all members in bounded time, once the world is healed and has a primary.

use super::Checker;
use crate::world::World;
use baton_consensus::{MemberId, Moment};
use baton_types::Term;
use std::time::Duration;

/// How long members may take to find each other and catch up, with copies of what they cannot apply, and a build after the other.
const WITHIN: Duration = Duration::from_secs(90);

/// See the file's header.
#[derive(Default)]
pub struct BuildsEnd {
    /// The writable primary of the healed world, and since when it is that.
    leads: Option<(MemberId, Term, Moment)>,
}

impl Checker for BuildsEnd {
    fn name(&self) -> &'static str {
        "a build ends in bounded time after healing"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        if !world.is_healed() {
            return Ok(());
        }
        let Some((primary, term)) =
            world.views().filter(|(_, view)| view.is_writable).map(|(id, view)| (id, view.term)).max_by_key(|of| of.1)
        else {
            self.leads = None;
            return Ok(());
        };
        let since = self.leads.filter(|(id, of, _)| (*id, *of) == (primary, term)).map_or(world.now(), |of| of.2);
        self.leads = Some((primary, term, since));
        if world.now() - since <= WITHIN {
            return Ok(());
        }
        let Some(configuration) = &world.disk(primary).configuration else { return Ok(()) };
        for member in configuration.members.iter().filter(|member| member.bears_data()) {
            if let Some(index) = world.disk(member.id).catalog.under_way().next() {
                let said = world.builder(member.id, index.build).map(|builder| builder.said());
                return Err(format!("member {} still has {index:?}: {said:?}", member.id));
            }
        }
        Ok(())
    }
}
