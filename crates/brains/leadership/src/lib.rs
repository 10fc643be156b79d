//! When leadership moves to another member, and to whom, so that heavy work never runs on a primary that could have handed over.
//!
//! Source: "Replica-group leadership change as a performance enhancing mechanism in NoSQL data stores" (Papaioannou and Magoutis,
//! ICDCS 2018), with what later systems found: a target that is worse is refused (CockroachDB), a move needs an absolute gain and a
//! relative one (CockroachDB), the cold cache is part of the cost and a minimum time lies between moves (TiKV).
//!
//! ```text
//!   Input (a task wanted, begun, ended; gossip, figures, roles, time)
//!                     │
//!                     ▼
//!   Leadership::step(now, input)  ──▶  Effects (admit, defer, hand over, resume, claim, release, gossip)
//!   │
//!   ├─ state         Figure 1 of the paper
//!   ├─ policy        Policy 1, when; postponement
//!   ├─ cost          what tasks and moves cost, learnt
//!   ├─ limits        how often leadership may move
//!   ├─ windows       stated intervals for maintenance
//!   ├─ candidates    Policy 2, who: what keeps a member from leading
//!   ├─ ranking       who is the best of the others, one file each
//!   ├─ claims        never a majority busy
//!   ├─ electability  may this member stand, or take over
//!   ├─ disk          a disk that fails slowly
//!   ├─ warming       what the successor reads before
//!   ├─ decision      each decision as data, and the last of them
//!   └─ report        what it tells when it is asked
//! ```
//!
//! # How a driver carries it out
//!
//! One machine a member, behind a lock; a step takes microseconds and never waits.
//!
//! - It brings [`Input::Configured`] with each configuration, [`Input::Role`] with each change of role or term, and
//!   [`Input::Followers`] after each step of consensus that changed what that knows of the others.
//! - It is the gate of the member's tasks. A first ask is [`Input::Wanted`] under an id that the driver draws for the kind and the
//!   name; a further one is answered by [`Leadership::admission`], in the vocabulary's words. A task that cannot wait is
//!   [`Input::Begun`] alone. Each ends with [`Input::Ended`], with what it cost, however it ends. What was permitted and is done by
//!   others (automatic compaction) ends when those have nothing left to do, not when they were permitted.
//! - Each heartbeat and each answer to one carries [`Leadership::gossip`]; [`Effect::Gossip`] has one sent at once. [`Effect::Claim`]
//!   and [`Effect::Release`] are for logs: gossip carries claims, and what the primary has confirmed.
//! - [`Effect::HandOver`] and [`Effect::Resume`] are a step-down with handoff to that member: consensus waits until it has every
//!   entry, blocks writes for a bounded time, and moves or gives up. Either is told as [`Input::Handoff`].
//! - It measures [`Input::Figures`] and brings [`Input::WallClock`] once a second, and steps with [`Input::Tick`] at [`Leadership::next_deadline`].
//! - It tells consensus whether [`Leadership::standing_obstacle`] and [`Leadership::takeover_obstacle`] keep this member from leading,
//!   whenever that changes.
//!
//! Invariants, each with a checker in the simulator (`proof/sim`), where this machine runs beside consensus:
//! - A task that waits is admitted by its deadline.
//! - Never is a majority of the voters in heavy tasks by confirmed claims.
//! - Leadership is handed only to a member that was level and free, as far as could be known.
//! - Moves within an hour are bounded, whatever is gossiped.
//! - Between a move that a primary knows of, whoever made it, and one of its own lies the cooldown; and nobody hands on what it has only
//!   just got, whatever the settings say.
//! - A set that does nothing heavy makes no moves, and neither does one with the mode off.
//! - Every move and every decision against one is explained by its rule, and has every member's standing.
//!
//! What it deliberately does not do: elect (consensus does; it can only ask for a handoff); choose what is compacted; know a log
//! entry, a socket or a clock; keep anything over a restart.

mod candidates;
mod claims;
mod cost;
mod decision;
mod disk;
mod electability;
mod figures;
mod gossip;
mod leadership;
mod limits;
mod mutant;
mod policy;
mod ranking;
mod recorded;
mod recurring;
mod report;
mod rule;
mod set;
mod settings;
mod state;
mod step;
mod tasks;
mod warming;
mod windows;

pub use candidates::{Candidate, LAG_MAX, Obstacle};
pub use cost::{Cost, CostModel, is_worthwhile};
pub use decision::{Decision, History, KEPT_MAX, Outcome, Trigger};
pub use figures::Figures;
pub use gossip::{Claim, Gossip, GossipedTask, Grant, HeardPrimary};
pub use leadership::{Leadership, Start};
pub use mutant::Mutant;
pub use ranking::Ranking;
pub use recorded::{Call, Outcome as CallOutcome};
pub use recurring::interval;
pub use rule::Rule;
pub use set::{Member, MemberId, Set};
pub use settings::{Mode, Settings};
pub use state::{State, Transition};
pub use step::{Effect, Follower, HandoffOutcome, Input, Moment, Role, TaskId, Work};
pub use warming::Warming;
pub use windows::{Days, TimeOfDay, Window};
