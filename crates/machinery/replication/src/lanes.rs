//! The ways to the other members: two lanes for each, one for heartbeats and one for everything else.
//!
//! ```text
//!   send(to, request) ──▶ member 1 ──▶ heartbeats ─┐
//!                     │            └─▶ the rest   ─┤
//!                     └─▶ member 2 ──▶ …           ├──▶ on_input(Response | Unreachable)
//! ```
//!
//! Each lane is a thread with a connection of its own, so neither a silent member nor a slow name service keeps anything from
//! another member, and a vote that hangs does not keep the heartbeats of its own.
//!
//! Invariants:
//! - [`Lanes::send`] never waits for the network;
//! - what waits in a lane is bounded: a request takes the place of an older one of its kind that has not been sent yet, and its
//!   answer stands for both;
//! - once dropped, `on_input` is called no more.
//!
//! What it does not do: send anything of its own accord, or decide what a failure means.

use crate::lane::{Job, Lane, Purpose};
use baton_consensus::{Input, MemberId, Request, RequestKind};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Where the answers go: called on the lanes' threads, several at a time.
pub type OnInput = Arc<dyn Fn(Input) + Send + Sync>;

/// See the file's header.
pub struct Lanes {
    on_input: OnInput,
    peers: Mutex<BTreeMap<MemberId, Peer>>,
}

/// The lanes to one member.
struct Peer {
    heartbeats: Lane,
    others: Lane,
}

impl Peer {
    fn start(id: MemberId, on_input: &OnInput) -> io::Result<Self> {
        Ok(Self {
            heartbeats: Lane::start(id, Purpose::Heartbeats, Arc::clone(on_input))?,
            others: Lane::start(id, Purpose::Others, Arc::clone(on_input))?,
        })
    }

    fn lanes(&self) -> [&Lane; 2] {
        [&self.heartbeats, &self.others]
    }
}

impl Lanes {
    /// Lanes to nobody yet. `on_input` gets [`Input::Response`] and [`Input::Unreachable`]; it should be quick, for the lane
    /// that calls it waits.
    pub fn new(on_input: OnInput) -> Self {
        Self { on_input, peers: Mutex::new(BTreeMap::new()) }
    }

    /// Has the member at `host` (`name:port`) asked. `timeout` is for the exchange from the moment that its turn comes,
    /// connecting included.
    ///
    /// # Errors
    /// If it is the first request to this member and there are no threads or file descriptors left for it; nothing was
    /// sent, and no answer comes.
    pub fn send(&self, to: MemberId, host: &str, request: Request, timeout: Duration) -> io::Result<()> {
        let mut peers = self.peers.lock();
        let peer = match peers.entry(to) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(Peer::start(to, &self.on_input)?),
        };
        let lane = match request.kind() {
            RequestKind::Heartbeat => &peer.heartbeats,
            RequestKind::RequestVotes | RequestKind::UpdatePosition | RequestKind::StepUp => &peer.others,
        };
        lane.push(Job { host: host.to_owned(), request, timeout });
        Ok(())
    }

    /// Gives up the lanes to members that are not to be kept: those that a new configuration no longer has. What is on its
    /// way to them may still be answered once.
    pub fn retain(&self, mut keep: impl FnMut(MemberId) -> bool) {
        self.peers.lock().retain(|id, _| keep(*id));
    }
}

impl Drop for Lanes {
    /// Ends the threads. One that waits for the name service or for a connection ends when it has it; every other one has ended
    /// on return. So whoever drops the lanes must not hold what `on_input` waits for.
    fn drop(&mut self) {
        let peers = std::mem::take(self.peers.get_mut());
        for lane in peers.values().flat_map(Peer::lanes) {
            lane.end();
        }
        for lane in peers.values().flat_map(Peer::lanes) {
            lane.wait_for_end();
        }
    }
}

impl fmt::Debug for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lanes").field("peers", &self.peers.lock().keys().collect::<Vec<_>>()).finish_non_exhaustive()
    }
}
