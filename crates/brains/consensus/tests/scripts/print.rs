//! How a machine's effects, and changes of what it is, are written below a line.
//!
//! Left out: what drivers are told anew, what members say of their heavy tasks, and whatever another line says by itself: that a
//! member which won is PRIMARY, that one which resigned is SECONDARY and knows of no primary. Of a report of positions those are
//! told that its receiver does not know already.

use crate::words::{name, show};
use baton_consensus::{
    Configuration, ConfigurationVersion, Consensus, Effect, Gossip, Member, MemberId, MemberState, Position, Request,
    ResignReason, Response, View,
};

/// What is told when it changes.
pub struct Status {
    state: MemberState,
    is_writable: bool,
    primary: Option<MemberId>,
    standing: Option<&'static str>,
    configuration: Option<String>,
}

impl Status {
    pub fn of(machine: &Consensus) -> Self {
        let summary = machine.summary();
        Self {
            state: summary.state,
            is_writable: summary.is_writable,
            primary: summary.primary,
            standing: machine.standing_reason().map(|reason| reason.name()),
            configuration: machine.configuration().map(show_configuration),
        }
    }

    /// Told before the effects: that it stands.
    pub fn before_effects(&self, now: &Self) -> Option<String> {
        now.standing.filter(|_| self.standing.is_none()).map(|reason| format!("stands for election ({reason})"))
    }

    /// Told after them.
    pub fn after_effects(&self, now: &Self, effects: &[Effect]) -> Vec<String> {
        let mut lines = Vec::new();
        let decided = effects
            .iter()
            .any(|effect| matches!(effect, Effect::Won { .. } | Effect::Resign { .. } | Effect::TermAdopted(_)));
        if self.standing.is_some() && now.standing.is_none() && !decided {
            lines.push("stands no more".to_owned());
        }
        let is_said = matches!(
            (self.state, now.state),
            (_, MemberState::Primary) | (MemberState::Primary, MemberState::Secondary)
        );
        if self.state != now.state && !is_said {
            lines.push(format!("is {}", now.state.name()));
        }
        match now.primary {
            Some(primary) if self.primary != now.primary && now.state != MemberState::Primary => {
                lines.push(format!("{} is primary", name(primary)));
            }
            None if self.primary.is_some() && !decided => lines.push("nobody is primary".to_owned()),
            _ => {}
        }
        if let Some(configuration) = now.configuration.as_ref().filter(|_| self.configuration != now.configuration) {
            lines.push(format!("has {configuration}"));
        }
        if now.is_writable && !self.is_writable {
            lines.push("takes writes".to_owned());
        }
        lines
    }
}

/// What an effect is, but for messages, which the network shows.
pub fn show_effect(effect: &Effect, is_disk_slow: bool) -> Option<String> {
    Some(match effect {
        Effect::PersistVote(vote) => {
            let candidate = vote.candidate.map_or("nobody".to_owned(), |candidate| name(candidate).to_string());
            format!("writes its vote of term {} for {candidate}", vote.term)
        }
        // Told when it is there, which it is at once unless the disk is slow.
        Effect::PersistConfiguration(_) if !is_disk_slow => return None,
        Effect::PersistConfiguration(configuration) => format!("writes {}", show_configuration(configuration)),
        Effect::FetchConfiguration { host } => format!("asks {host} for its configuration"),
        Effect::TermAdopted(term) => format!("is in term {term}"),
        Effect::Won { term, reason } => format!("wins term {term} ({reason})"),
        Effect::BlockWrites => "blocks writes".to_owned(),
        Effect::UnblockWrites => "unblocks writes".to_owned(),
        Effect::Resign { reason } => format!("resigns: {}", show_reason(*reason)),
        Effect::SteppedDown(Ok(())) => "answers the operator: stepped down".to_owned(),
        Effect::SteppedDown(Err(error)) | Effect::Reconfigured(Err(error)) | Effect::Stood(Err(error)) => {
            format!("answers the operator: {:?}: {}", error.code, error.message)
        }
        Effect::Reconfigured(Ok(())) => "answers the operator: reconfigured".to_owned(),
        Effect::Stood(Ok(())) => "answers the operator: elected".to_owned(),
        Effect::Committed(optime) => format!("committed up to {}", show(*optime)),
        Effect::SyncSource(Some(source)) => format!("fetches from {}", name(*source)),
        Effect::SyncSource(None) => "fetches from nobody".to_owned(),
        Effect::RefusedMember { member, reason } => format!("refuses {}: {reason}", name(*member)),
        // The first three are told by what is done about them.
        Effect::Send { .. }
        | Effect::Respond { .. }
        | Effect::BeginTerm(_)
        | Effect::Heard { .. }
        | Effect::TopologyChanged => return None,
    })
}

fn show_reason(reason: ResignReason) -> String {
    match reason {
        ResignReason::HigherTerm(term) => format!("there is term {term}"),
        ResignReason::NoMajority => "it hears no majority".to_owned(),
        ResignReason::Request => "it was asked to".to_owned(),
        ResignReason::Configuration => "its configuration does not let it".to_owned(),
        ResignReason::Data => "its data is not what its log says".to_owned(),
    }
}

pub fn show_version(version: ConfigurationVersion) -> String {
    match version.term {
        baton_consensus::configuration::UNKNOWN_TERM => format!("{} of no term", version.version),
        term => format!("{} of term {term}", version.version),
    }
}

/// Its version, and who votes, who does not yet, and who does not.
pub fn show_configuration(configuration: &Configuration) -> String {
    let named = |is: fn(&Member) -> bool| -> String {
        configuration.members.iter().filter(|member| is(member)).map(|member| name(member.id)).collect()
    };
    let mut line = format!("configuration {}: voters {}", show_version(configuration.version), named(Member::is_voter));
    for (what, who) in [("newly added", named(|it| it.newly_added)), ("without a vote", named(|it| !it.votes))] {
        if !who.is_empty() {
            line.push_str(&format!(", {what} {who}"));
        }
    }
    line
}

/// A request; of a report of positions only what is news to its receiver, if that is given with what it knows.
pub fn show_request(request: &Request, receiver: Option<&(Option<MemberId>, View)>) -> String {
    match request {
        Request::Heartbeat(heartbeat) => format!("heartbeat: {}", show_gossip(&heartbeat.gossip)),
        Request::RequestVotes(votes) => {
            let dry_run = if votes.dry_run { " (dry run)" } else { "" };
            format!("RequestVotes{dry_run}, term {}, log to {}", votes.term, show(votes.last_written))
        }
        Request::UpdatePosition(update) => {
            let is_news = |member: MemberId, position: Position| match receiver {
                Some((me, _)) if *me == Some(member) => false,
                Some((_, view)) => view.peers.get(&member).is_some_and(|it| it.position.max(position) != it.position),
                None => true,
            };
            let news = update.positions.iter().filter(|(member, (position, _))| is_news(**member, *position));
            let news: Vec<String> =
                news.map(|(member, (position, _))| format!("{} {}", name(*member), show_position(*position))).collect();
            let news = if news.is_empty() { "nothing new".to_owned() } else { news.join(", ") };
            format!("UpdatePosition, term {}: {news}", update.term)
        }
        Request::StepUp { term, last_written } => format!("StepUp, term {term}, log to {}", show(*last_written)),
    }
}

pub fn show_response(response: &Response) -> String {
    match response {
        Response::Heartbeat(heartbeat) => {
            let configuration = heartbeat.configuration.as_ref();
            let sent = configuration.map(|it| format!(", with configuration {}", show_version(it.version)));
            format!("heartbeat: {}{}", show_gossip(&heartbeat.gossip), sent.unwrap_or_default())
        }
        Response::RequestVotes(vote) => {
            let answer = match (vote.granted, vote.dry_run) {
                (true, false) => "granted",
                (true, true) => "would grant",
                (false, false) => "refused",
                (false, true) => "would refuse",
            };
            let why = if vote.reason.is_empty() { String::new() } else { format!(": {}", vote.reason) };
            format!("{answer}, term {}{why}", vote.term)
        }
        Response::UpdatePosition { term } => format!("UpdatePosition answered, term {term}"),
        Response::StepUp { term } => format!("StepUp answered, term {term}"),
    }
}

fn show_gossip(gossip: &Gossip) -> String {
    let primary = match gossip.primary {
        Some(primary) if gossip.state != MemberState::Primary => format!(" under {}", name(primary)),
        _ => String::new(),
    };
    let log = show_position(gossip.position);
    format!(
        "{}{primary}, term {}, log to {log}, committed {}",
        gossip.state.name(),
        gossip.term,
        show(gossip.commit_point)
    )
}

fn show_position(position: Position) -> String {
    let mut line = show(position.written);
    if position.durable != position.written {
        line.push_str(&format!(" (durable {})", show(position.durable)));
    }
    line
}

/// A member at this moment.
pub fn show_member(machine: &Consensus, log: &str) -> String {
    let summary = machine.summary();
    let view = machine.view();
    let log = if log.is_empty() { "empty" } else { log };
    let mut line = format!("{}, term {}, log {log}", summary.state.name(), summary.term);
    line.push_str(&format!(", committed {}", show(summary.commit_point)));
    match (summary.state, view.is_catching_up, summary.is_writable) {
        (MemberState::Primary, true, _) => line.push_str(", catching up"),
        (MemberState::Primary, false, true) => line.push_str(", takes writes"),
        (MemberState::Primary, false, false) => line.push_str(", takes no writes"),
        _ => line
            .push_str(&summary.primary.map_or(", knows no primary".to_owned(), |it| format!(", under {}", name(it)))),
    }
    if let Some(source) = summary.sync_source {
        line.push_str(&format!(", fetches from {}", name(source)));
    }
    line
}
