//! Nothing fails silently: a member that should follow another and gets nowhere says what keeps it from that; and one that cannot
//! apply an entry does not look like a secondary.

use super::Checker;
use crate::ByMember;
use crate::world::World;
use baton_consensus::{MemberId, MemberState, Moment, Summary};
use baton_following::Obstacle;
use std::time::Duration;

/// Longer than any answer is waited for: a stream is silent for ten seconds at most.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// How often all members are looked at, changed or not.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// See the file's header.
#[derive(Default)]
pub struct SaysWhy {
    members: ByMember<Said>,
    look_at: Moment,
}

/// What a member has said.
#[derive(Clone, Copy, Default)]
struct Said {
    /// It made progress, or said what keeps it, when it was looked at last.
    is_explained: bool,
    /// Until when, as far as is known, it did.
    until: Moment,
}

impl Checker for SaysWhy {
    fn name(&self) -> &'static str {
        "whoever makes no progress says why"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        if world.now() < self.look_at {
            return world.touched_views().try_for_each(|(id, view)| self.look(world, id, view));
        }
        self.look_at = world.now() + LOOK_INTERVAL;
        world.views().try_for_each(|(id, view)| self.look(world, id, view))
    }
}

impl SaysWhy {
    fn look(&mut self, world: &World, id: MemberId, view: &Summary) -> Result<(), String> {
        let (state, since) = world.following(id);
        if matches!(state.obstacle, Some(Obstacle::Refused { .. })) && view.state == MemberState::Secondary {
            return Err(format!("member {id} is a secondary and {state:?}"));
        }
        let is_explained = match state.obstacle {
            None | Some(Obstacle::NoSource) => view.sync_source.is_none(),
            Some(_) => true,
        };
        let said = self.members.of(id);
        // What it said last went for all the time until it changed.
        if is_explained || said.is_explained {
            *said = Said { is_explained, until: world.now() };
        }
        let silence = since.min(world.now() - said.until);
        if !is_explained && silence > SILENCE_MAX {
            return Err(format!("member {id} has said nothing for {silence:?}: {state:?}"));
        }
        Ok(())
    }
}
