//! The machine as one whose steps can be kept and taken again.

use crate::{Consensus, Effect, Gossip, HeartbeatResponse, Input, Moment, Request, Response};
use baton_replay::Machine;

/// About what a configuration takes.
pub(crate) const CONFIGURATION_BYTES: usize = 4 << 10;
/// A map of members' positions: one node holds eleven of them.
const POSITIONS_BYTES: usize = 1100;

fn of_gossip(gossip: &Gossip) -> usize {
    gossip.leadership.as_ref().map_or(0, |document| document.as_bytes().len())
}

fn of_heartbeat(heartbeat: &HeartbeatResponse) -> usize {
    of_gossip(&heartbeat.gossip) + heartbeat.configuration.as_ref().map_or(0, |_| CONFIGURATION_BYTES)
}

fn of_request(request: &Request) -> usize {
    match request {
        Request::Heartbeat(heartbeat) => of_gossip(&heartbeat.gossip),
        Request::UpdatePosition(_) => POSITIONS_BYTES,
        Request::RequestVotes(_) | Request::StepUp { .. } => 0,
    }
}

fn of_response(response: &Response) -> usize {
    match response {
        Response::Heartbeat(heartbeat) => of_heartbeat(heartbeat),
        Response::RequestVotes(_) | Response::UpdatePosition { .. } | Response::StepUp { .. } => 0,
    }
}

impl Machine for Consensus {
    const NAME: &'static str = "consensus";
    type Input = Input;
    type Effect = Effect;

    fn step(&mut self, now: Moment, input: Input) -> Vec<Effect> {
        Self::step(self, now, input)
    }

    fn bytes_behind(input: &Input) -> usize {
        match input {
            Input::Request { request, .. } => of_request(request),
            Input::Response { response, .. } => of_response(response),
            Input::ConfigurationFetched(_) | Input::Initiate(_) | Input::Reconfigure { .. } => CONFIGURATION_BYTES,
            Input::Busy(members) => members.len() * size_of::<crate::MemberId>(),
            Input::Tick
            | Input::Unreachable { .. }
            | Input::Log(_)
            | Input::Data(_)
            | Input::VotePersisted(_)
            | Input::ConfigurationPersisted(_)
            | Input::WritesBlocked(_)
            | Input::TermBegun(_)
            | Input::BatchTaken { .. }
            | Input::SourceFailed { .. }
            | Input::SourceTooStale { .. }
            | Input::StepDown(_)
            | Input::StepDownInterrupted
            | Input::StandForElection { .. }
            | Input::Freeze(_)
            | Input::SyncFrom(_)
            | Input::AbortCatchUp
            | Input::Maintenance(_)
            | Input::Occupied(_)
            | Input::Announce => 0,
        }
    }

    fn bytes_behind_effect(effect: &Effect) -> usize {
        match effect {
            Effect::Send { request, .. } => of_request(request),
            Effect::Respond { response, .. } => response.as_ref().map_or(0, of_response),
            Effect::PersistConfiguration(_) => CONFIGURATION_BYTES,
            Effect::Heard { leadership, .. } => leadership.as_bytes().len(),
            Effect::FetchConfiguration { host: text } | Effect::RefusedMember { reason: text, .. } => text.len(),
            Effect::PersistVote(_)
            | Effect::TermAdopted(_)
            | Effect::Won { .. }
            | Effect::BeginTerm(_)
            | Effect::BlockWrites
            | Effect::UnblockWrites
            | Effect::Resign { .. }
            | Effect::SteppedDown(_)
            | Effect::Reconfigured(_)
            | Effect::Stood(_)
            | Effect::Committed(_)
            | Effect::SyncSource(_)
            | Effect::TopologyChanged => 0,
        }
    }
}
