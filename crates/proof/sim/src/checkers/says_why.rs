//! Nothing fails silently: a member that should follow another and gets nowhere says what keeps it from that; and one that cannot
//! apply an entry does not look like a secondary.

use super::Checker;
use crate::ByMember;
use crate::world::World;
use baton_consensus::{MemberState, Moment};
use baton_following::Obstacle;
use std::time::Duration;

/// Longer than any answer is waited for: a stream is silent for ten seconds at most.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// See the file's header.
#[derive(Default)]
pub struct SaysWhy {
    /// When each member last said what keeps it.
    said: ByMember<Moment>,
}

impl Checker for SaysWhy {
    fn name(&self) -> &'static str {
        "whoever makes no progress says why"
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        for (id, view) in world.touched_views() {
            let (state, since) = world.following(id);
            if matches!(state.obstacle, Some(Obstacle::Refused { .. })) && view.state == MemberState::Secondary {
                return Err(format!("member {id} is a secondary and {state:?}"));
            }
            let is_explained = match state.obstacle {
                None | Some(Obstacle::NoSource) => view.sync_source.is_none(),
                Some(_) => true,
            };
            if is_explained {
                *self.said.of(id) = world.now();
                continue;
            }
            let silence = since.min(world.now() - *self.said.of(id));
            if silence > SILENCE_MAX {
                return Err(format!("member {id} has said nothing for {silence:?}: {state:?}"));
            }
        }
        Ok(())
    }
}
