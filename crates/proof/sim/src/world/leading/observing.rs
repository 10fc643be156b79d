//! What checkers see of leadership in a world.
//!
//! Nothing here changes anything.

use super::{Duties, HandingOver, Shape, World};
use baton_consensus::{ConfigurationVersion, MemberId, Occupation};
use baton_leadership::{Effect, Follower, Gossip, History, Leadership, Member, Role, Set, State, TaskId, Work};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// A task of a member, as it is.
#[derive(Clone, Copy, Debug)]
pub struct SimTask {
    /// What it does.
    pub work: Work,
    /// By when it must have been admitted, if it can wait.
    pub deadline: Option<Duration>,
    /// It waits for its beginning.
    pub is_waiting: bool,
    /// When it was admitted by a confirmed claim, or by a primary's own; none if it was not, or otherwise.
    pub in_slot_since: Option<Duration>,
}

/// What a member was told last by another.
pub struct Known {
    pub gossip: Rc<Gossip>,
    pub heard: Duration,
}

/// One thing that a brain asked for.
pub struct Acted {
    /// Whose.
    pub member: MemberId,
    /// What.
    pub effect: Effect,
    /// Where the machine was in Figure 1 after that step.
    pub state: State,
    /// Of a move: what could be known of its target.
    pub seen: Option<Seen>,
    /// Of a task that is to end: whether a primary was known then to need this member.
    pub is_named: bool,
    /// Of a task that may begin: whether a backup of this member had been admitted too when that step was over.
    pub is_beside_backup: bool,
}

/// What a primary that moves leadership could know.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// How long ago the target was heard, and whether it had neither a task nor a claim.
    pub heard: Option<(Duration, bool)>,
    /// How well it follows.
    pub follower: Option<Follower>,
    /// Whether the configuration lets it lead.
    pub is_electable: bool,
    /// When this primary was elected.
    pub won_at: Duration,
    /// How many of the world's moves it had taken part in or was told of.
    pub moves_known: usize,
    /// Two of its heartbeats.
    pub gossip_age_max: Duration,
    /// The least that must lie between its election and this.
    pub tenure: Duration,
    /// Members of its configuration.
    pub members: usize,
}

/// A member that a primary took for gone.
#[derive(Clone, Copy, Debug)]
pub struct Silence {
    /// Who.
    pub member: MemberId,
    /// From when on.
    pub gone_at: Duration,
}

/// Leadership has moved because a brain decided so.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    /// When the old primary resigned.
    pub at: Duration,
    /// Who that was.
    pub from: MemberId,
    /// Who leads.
    pub to: MemberId,
}

/// A member's machine for leadership, and what its driver remembers.
pub struct Brain {
    pub(in crate::world) machine: Leadership,
    pub(super) clock_began: Duration,
    pub(super) clock_behind: Duration,
    pub(super) configured: Option<(ConfigurationVersion, Option<MemberId>)>,
    pub(super) set: Option<Set>,
    pub(super) role: (Role, i64),
    pub(super) led_by: Option<MemberId>,
    pub(super) won_at: Duration,
    /// In the configuration's order.
    pub(super) followers: Vec<(i32, Follower)>,
    pub(super) known: BTreeMap<i32, Known>,
    pub(super) moves_known: usize,
    pub(super) tasks: BTreeMap<TaskId, SimTask>,
    pub(super) handing_over: Option<HandingOver>,
    pub(super) occupation: Occupation,
    /// When it is looked at by itself.
    pub(super) look_at: Option<Duration>,
}

impl Brain {
    /// Its tasks.
    pub fn tasks(&self) -> impl Iterator<Item = &SimTask> {
        self.tasks.values()
    }

    /// One of them.
    pub fn task(&self, task: TaskId) -> Option<&SimTask> {
        self.tasks.get(&task)
    }

    /// What it was told last by others.
    pub fn heard(&self) -> impl Iterator<Item = &Gossip> {
        self.known.values().map(|known| &*known.gossip)
    }

    /// Whether a primary that it has heard of needs this member, and asks it to end its tasks.
    pub fn is_named(&self, id: MemberId) -> bool {
        self.heard().any(|gossip| gossip.is_primary && gossip.asks_to_end == Some(id.0))
    }

    /// What it decided lately.
    pub fn history(&self) -> &History {
        self.machine.history()
    }

    /// The set as it was told of it.
    pub fn set(&self) -> Option<&Set> {
        self.set.as_ref()
    }

    /// Its term.
    pub fn term(&self) -> i64 {
        self.role.1
    }

    /// Whether it takes itself for primary.
    pub fn is_primary(&self) -> bool {
        matches!(self.role.0, Role::Primary { .. })
    }

    /// As a primary that has not heard of a member for the election timeout, or two if it never did in its term: that.
    pub fn silence(&self, member: MemberId, now: Duration) -> Option<Silence> {
        let set = self.set.as_ref().filter(|_| self.is_primary())?;
        let known = self.known.get(&member.0);
        let timeouts = if known.is_some_and(|known| known.gossip.term == self.term()) { 1 } else { 2 };
        let heard = known.map_or(Duration::ZERO, |known| known.heard);
        let gone_at = (heard + set.election_timeout).max(self.won_at + timeouts * set.election_timeout);
        (now >= gone_at).then_some(Silence { member, gone_at })
    }

    pub(super) fn see(&self, now: Duration, to: i32) -> Seen {
        let heard = self.known.get(&to).map(|known| {
            let is_free = known.gossip.tasks.is_empty() && known.gossip.claim.is_none();
            (now - known.heard, is_free)
        });
        let set = self.set.as_ref();
        Seen {
            heard,
            follower: self.followers.iter().find(|(id, _)| *id == to).map(|(_, follower)| *follower),
            is_electable: set.and_then(|set| set.member(to)).is_some_and(Member::is_electable),
            won_at: self.won_at,
            moves_known: self.moves_known,
            gossip_age_max: set.map_or(Duration::ZERO, Set::gossip_age_max),
            tenure: set.map_or(Duration::ZERO, |set| set.settings.tenure_min.max(set.election_timeout)),
            members: set.map_or(0, |set| set.members.len()),
        }
    }
}

impl World {
    /// What the members have to do; none where leadership is not simulated.
    pub fn duties(&self) -> Option<&Duties> {
        self.leading.duties.as_ref()
    }

    /// A member's brain, if its process lives.
    pub fn brain(&self, id: MemberId) -> Option<&Brain> {
        self.members.get(&id)?.brain.as_ref()
    }

    /// All of them.
    pub fn brains(&self) -> impl Iterator<Item = (MemberId, &Brain)> {
        self.members.iter().filter_map(|(id, member)| Some((id, member.brain.as_ref()?)))
    }

    /// Grows whenever some task comes, changes or goes, or what brains there are and what they know of their set.
    pub fn task_changes(&self) -> u64 {
        self.leading.task_changes
    }

    /// What brains asked for in the last step.
    pub fn acted(&self) -> &[Acted] {
        &self.leading.acted
    }

    /// Silences of members that some primary took for gone, which ended in the last step. For those that go on: [`Brain::silence`].
    pub fn ended_silences(&self) -> &[Silence] {
        &self.leading.silences
    }

    /// The moves so far.
    pub fn moves(&self) -> &[Move] {
        &self.leading.moves
    }

    /// When processes began anew.
    pub fn restarts(&self) -> &[Duration] {
        &self.leading.restarts
    }

    /// Until then something may come late that was due while the member paused.
    pub fn late_until(&self, id: MemberId) -> Duration {
        self.members[&id].late_until
    }

    /// What every wall clock says, as time since 1970. Worlds begin at some midnight, or ten seconds before it.
    pub fn wall(&self) -> Duration {
        let midnight = Duration::from_secs(20_000 * 86_400);
        let before = if self.duties().is_some_and(|duties| duties.shape == Shape::Hour) { 0 } else { 10 };
        midnight + self.now - Duration::from_secs(before)
    }

    /// Whether bad luck is over.
    pub fn is_healed(&self) -> bool {
        self.healed
    }
}
