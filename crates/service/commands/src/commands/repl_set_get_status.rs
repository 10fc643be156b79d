//! `replSetGetStatus`: the set as this member sees it, with its background tasks.

use crate::call::{Call, Reply};
use crate::commands::repl_set_get_config::{not_initiated, set_of};
use crate::commands::{initial_sync_status, leadership_report, replication};
use crate::server::ReplicaSet;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_consensus::{Configuration, Member, MemberState, PeerView, Position, View};
use baton_replication::{Figures, LeadershipStatus, RefusedEntry, Replication};
use baton_types::{OpTime, Result};
use baton_wire::DocumentWriter;
use bson::raw::CStr;
use bson::{DateTime, cstr};

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "replSetGetStatus",
    flags: Flags::ADMIN_ONLY,
    help: "Returns the replica set's status, with every member's background tasks.",
    run,
    ..DEFAULT
};

fn optime(writer: &mut DocumentWriter<'_>, key: &CStr, position: OpTime) {
    writer.begin_document(key);
    writer.append(cstr!("ts"), bson::Timestamp::from(position.timestamp));
    writer.append(cstr!("t"), position.term);
    writer.end();
}

fn date(position: OpTime) -> DateTime {
    DateTime::from_millis(i64::from(position.timestamp.seconds) * 1000)
}

fn count(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let set = set_of(call)?;
    let with_initial_sync = call.fields.optional::<i32>("initialSync")?.unwrap_or(1) != 0;
    call.fields.finish()?;
    let replication = replication::of(call)?;
    let view = replication.view();
    let initial_sync = replication.initial_sync().filter(|_| with_initial_sync);
    let configuration = view.configuration.as_ref().ok_or_else(not_initiated)?;
    let source = view.sync_source.and_then(|id| configuration.member(id));
    let leadership = replication.leadership();
    reply.append(cstr!("set"), set.name.as_str());
    reply.append(cstr!("date"), DateTime::now());
    reply.append(cstr!("myState"), view.state as i32);
    reply.append(cstr!("term"), view.term);
    if let Some(info) = set.foreign_configuration() {
        reply.append(cstr!("infoMessage"), info.as_str());
    }
    reply.append(cstr!("syncSourceHost"), source.map_or("", |member| member.host.as_str()));
    reply.append(cstr!("syncSourceId"), source.map_or(-1, |member| member.id.0));
    reply.append(cstr!("heartbeatIntervalMillis"), configuration.settings.heartbeat_interval.as_millis() as i64);
    reply.append(cstr!("majorityVoteCount"), count(configuration.majority_of_votes()));
    reply.append(cstr!("writeMajorityCount"), count(configuration.majority_of_writes()));
    reply.append(cstr!("votingMembersCount"), count(configuration.voters().count()));
    reply.append(
        cstr!("writableVotingMembersCount"),
        count(configuration.voters().filter(|member| member.bears_data()).count()),
    );
    append_optimes(reply, &view);
    if let Some(status) = initial_sync.filter(|_| view.state == MemberState::Startup2) {
        initial_sync_status::append(reply, &status)?;
    }
    append_elections(reply, &view, replication.figures());
    reply.begin_array(cstr!("members"));
    for member in &configuration.members {
        reply.push_document();
        match view.peers.get(&member.id) {
            Some(peer) => {
                append_peer(reply, configuration, member, peer);
                leadership_report::append_peer(reply, &leadership, member.id);
            }
            None => append_self(call, reply, &set, member, &view, &leadership),
        }
        reply.end();
    }
    reply.end();
    leadership_report::append_handoffs(reply, configuration, &replication.handoffs(), &leadership);
    leadership_report::append_stays(reply, configuration, &leadership);
    Ok(())
}

/// The election that made this member primary, or the last vote it cast for another.
fn append_elections(writer: &mut DocumentWriter<'_>, view: &View, figures: &Figures) {
    if let Some(won) = figures.last_won().filter(|won| view.state == MemberState::Primary && won.term == view.term) {
        writer.begin_document(cstr!("electionCandidateMetrics"));
        writer.append(cstr!("lastElectionReason"), won.reason.name());
        writer.append(cstr!("lastElectionDate"), DateTime::from_system_time(won.date));
        writer.append(cstr!("electionTerm"), won.term);
        optime(writer, cstr!("lastCommittedOpTimeAtElection"), won.committed);
        optime(writer, cstr!("lastSeenOpTimeAtElection"), won.last_seen);
        writer.append(cstr!("numVotesNeeded"), count(won.votes_needed));
        writer.append(cstr!("priorityAtElection"), won.priority);
        writer.append(cstr!("electionTimeoutMillis"), won.election_timeout.as_millis() as i64);
        if let Some(began) = won.term_began {
            writer.append(cstr!("newTermStartDate"), DateTime::from_system_time(began));
        }
        if let Some(available) = won.majority_available {
            writer.append(cstr!("wMajorityWriteAvailabilityDate"), DateTime::from_system_time(available));
        }
        writer.end();
    }
    if let Some(vote) = figures.last_vote().filter(|_| view.state != MemberState::Primary) {
        writer.begin_document(cstr!("electionParticipantMetrics"));
        writer.append(cstr!("votedForCandidate"), true);
        writer.append(cstr!("electionTerm"), vote.term);
        writer.append(cstr!("lastVoteDate"), DateTime::from_system_time(vote.date));
        writer.append(cstr!("electionCandidateMemberId"), vote.candidate.0);
        writer.append(cstr!("voteReason"), "");
        optime(writer, cstr!("lastAppliedOpTimeAtElection"), vote.last_applied);
        writer.append(cstr!("priorityAtElection"), vote.priority);
        writer.end();
    }
}

fn append_optimes(reply: &mut DocumentWriter<'_>, view: &View) {
    let Position { applied, durable, .. } = view.position;
    reply.begin_document(cstr!("optimes"));
    optime(reply, cstr!("lastCommittedOpTime"), view.commit_point);
    reply.append(cstr!("lastCommittedWallTime"), date(view.commit_point));
    optime(reply, cstr!("readConcernMajorityOpTime"), view.commit_point);
    optime(reply, cstr!("appliedOpTime"), applied);
    optime(reply, cstr!("durableOpTime"), durable);
    reply.append(cstr!("lastAppliedWallTime"), date(applied));
    reply.append(cstr!("lastDurableWallTime"), date(durable));
    reply.end();
}

fn append_identity(writer: &mut DocumentWriter<'_>, member: &Member, state: MemberState) {
    let health = !matches!(state, MemberState::Down | MemberState::Unknown);
    writer.append(cstr!("_id"), member.id.0);
    writer.append(cstr!("name"), member.host.as_str());
    writer.append(cstr!("health"), if health { 1.0 } else { 0.0 });
    writer.append(cstr!("state"), state as i32);
    writer.append(cstr!("stateStr"), if state == MemberState::Down { "(not reachable/healthy)" } else { state.name() });
}

fn append_position(writer: &mut DocumentWriter<'_>, member: &Member, position: Position) {
    if member.arbiter {
        return;
    }
    optime(writer, cstr!("optime"), position.applied);
    optime(writer, cstr!("optimeDurable"), position.durable);
    writer.append(cstr!("optimeDate"), date(position.applied));
    writer.append(cstr!("optimeDurableDate"), date(position.durable));
    writer.append(cstr!("lastAppliedWallTime"), date(position.applied));
    writer.append(cstr!("lastDurableWallTime"), date(position.durable));
}

/// Why a member does not do what one expects of it.
fn info_of(refused: Option<&RefusedEntry>, view: &View) -> String {
    if let Some(refused) = refused {
        return refused.message();
    }
    let text = if view.is_too_stale {
        "too stale: no member that could be fetched from has what follows this member's oplog; it is RECOVERING until one \
         does. Or stop it, empty its data folder and start it again: it copies the set's data"
    } else {
        ""
    };
    text.to_owned()
}

fn append_source(writer: &mut DocumentWriter<'_>, source: Option<&Member>, info: &str) {
    writer.append(cstr!("syncSourceHost"), source.map_or("", |member| member.host.as_str()));
    writer.append(cstr!("syncSourceId"), source.map_or(-1, |member| member.id.0));
    writer.append(cstr!("infoMessage"), info);
}

fn append_peer(writer: &mut DocumentWriter<'_>, configuration: &Configuration, member: &Member, peer: &PeerView) {
    append_identity(writer, member, peer.state);
    writer.append(cstr!("uptime"), count(peer.up.as_secs() as usize));
    append_position(writer, member, peer.position);
    if let Some(silence) = peer.silence {
        let heard = DateTime::from_millis(DateTime::now().timestamp_millis() - silence.as_millis() as i64);
        writer.append(cstr!("lastHeartbeat"), heard);
        writer.append(cstr!("lastHeartbeatRecv"), heard);
    }
    writer.append(cstr!("pingMs"), peer.round_trip.map_or(0, |time| time.as_millis() as i64));
    let silence = if peer.state == MemberState::Down { "no answer" } else { "" };
    writer.append(cstr!("lastHeartbeatMessage"), peer.refusal.as_deref().unwrap_or(silence));
    append_source(writer, peer.sync_source.and_then(|id| configuration.member(id)), "");
    if let Some(version) = peer.configuration_version {
        writer.append(cstr!("configVersion"), count(usize::try_from(version.version).unwrap_or_default()));
        writer.append(cstr!("configTerm"), version.term);
    }
}

fn append_self(
    call: &Call<'_>,
    writer: &mut DocumentWriter<'_>,
    set: &ReplicaSet,
    member: &Member,
    view: &View,
    leadership: &LeadershipStatus,
) {
    let uptime_secs = call.server.started.elapsed().as_secs();
    append_identity(writer, member, view.state);
    writer.append(cstr!("uptime"), count(uptime_secs as usize));
    append_position(writer, member, view.position);
    let refused = call.server.replication().and_then(Replication::refused_entry);
    let info = info_of(refused.as_ref(), view);
    append_source(writer, view.sync_source.and_then(|id| view.configuration.as_ref()?.member(id)), &info);
    let won = call.server.replication().and_then(|replication| replication.figures().last_won());
    let won = won.filter(|_| view.state == MemberState::Primary);
    if let Some(won) = &won {
        let date = DateTime::from_system_time(won.date);
        let time = u32::try_from(date.timestamp_millis() / 1000).unwrap_or(u32::MAX);
        writer.append(cstr!("electionTime"), bson::Timestamp { time, increment: 1 });
        writer.append(cstr!("electionDate"), date);
    }
    if let Some(configuration) = set.configuration() {
        writer
            .append(cstr!("configVersion"), count(usize::try_from(configuration.version.version).unwrap_or_default()));
        writer.append(cstr!("configTerm"), configuration.version.term);
    }
    writer.append(cstr!("self"), true);
    writer.append(cstr!("lastHeartbeatMessage"), "");
    writer.begin_array(cstr!("tasks"));
    let tasks = call.server.storage.tasks();
    for task in tasks.running().into_iter().chain(tasks.waiting()) {
        writer.push_document();
        writer.append(cstr!("kind"), task.kind.name());
        writer.append(cstr!("state"), if task.waits_for.is_some() { "waiting" } else { "running" });
        writer.append(cstr!("sinceMs"), task.started.elapsed().as_millis() as i64);
        if let Some(why) = task.waits_for {
            writer.append(cstr!("why"), why);
        }
        let progress = task.progress();
        let (done, total) = progress.counts();
        writer.append(cstr!("done"), done as i64);
        writer.append(cstr!("total"), total as i64);
        if let Some(eta) = progress.eta_secs() {
            writer.append(cstr!("etaSecs"), eta.ceil());
        }
        writer.end();
    }
    writer.end();
    leadership_report::append_figures(writer, leadership, member.id);
}
