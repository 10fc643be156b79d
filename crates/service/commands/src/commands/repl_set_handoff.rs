//! `replSetHandoff`: the primary hands leadership to another member, or says to whom it would, and why. Not a command of MongoDB's.
//!
//! Unless the operator names a member it is the one that leadership would move to by itself. If heavy work keeps all from it, but
//! somebody can be elected, the operator is obeyed.

use crate::call::{Call, Reply};
use crate::commands::repl_set_get_config::not_initiated;
use crate::commands::{leadership_report, replication};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_consensus::configuration::HostAndPort;
use baton_consensus::{Candidate, Configuration, Member, MemberId, StepDownRequest};
use baton_leadership::{Candidate as Ranked, Decision};
use baton_replication::{LeadershipStatus, Replication, Trigger};
use baton_types::{Error, ErrorCode, Result};
use baton_wire::DocumentWriter;
use bson::{Timestamp, cstr};
use std::time::{Duration, Instant};

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "replSetHandoff",
    flags: Flags::ADMIN_ONLY,
    help: "{ replSetHandoff: 1, to: 'host:port', dryRun: false } makes another member primary, or says which it would be and \
           why each stands where it does.",
    run,
    ..DEFAULT
};

/// How long a member may take to catch up.
const CATCH_UP: Duration = Duration::from_secs(10);

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let to = call.fields.optional::<&str>("to")?;
    let dry_run = call.fields.truth("dryRun")?;
    call.fields.finish()?;
    let began = Instant::now();
    let replication = replication::of(call)?;
    let view = replication.view();
    let configuration = view.configuration.as_ref().ok_or_else(not_initiated)?;
    if view.me.is_none() || view.primary != view.me {
        return Err(Error::new(ErrorCode::NotWritablePrimary, "not primary so can't hand over"));
    }
    let to = to.map(|host| target(configuration, host)).transpose()?;
    let decision = replication.explain_move();
    let status = replication.leadership();
    let places = rank(&view.succession, decision.as_ref());
    let chosen = choose(&places, to);
    if !dry_run {
        let request = StepDownRequest {
            force: false,
            catch_up: CATCH_UP,
            // Long enough for the other to be elected; then priorities decide again.
            freeze: configuration.settings.election_timeout,
            to: chosen
                .filter(|place| to.is_some() || place.is_free())
                .map(Place::member)
                .or(to.map(|member| member.id)),
            hand_off: true,
        };
        replication.step_down(request, Trigger::Handoff, || call.operation.check_interrupt())?;
        await_primary(call, replication, configuration.settings.election_timeout)?;
    }
    let after = if dry_run { None } else { replication.handoffs().pop() };
    let host_of = |id: MemberId| configuration.member(id).map_or("", |member| member.host.as_str());
    reply.append(cstr!("dryRun"), dry_run);
    reply.append(cstr!("from"), view.me.map_or("", host_of));
    match (&after, chosen) {
        (Some(handoff), _) => {
            if let Some(to) = &handoff.to {
                reply.append(cstr!("to"), to.as_str());
            }
            reply.append(cstr!("waitedMs"), began.elapsed().as_millis() as i64);
            if let Some(gap) = handoff.write_gap {
                reply.append(cstr!("writeGapMs"), gap.as_secs_f64() * 1000.0);
            }
        }
        (None, Some(chosen)) => reply.append(cstr!("to"), host_of(chosen.member())),
        (None, None) => reply.append(cstr!("reason"), "no member can be elected now"),
    }
    if let Some(decision) = &decision {
        reply.append(cstr!("mode"), decision.mode.name());
        reply.append(cstr!("rankedBy"), decision.ranking.name());
        reply.append(cstr!("predictedGapMs"), decision.gap_secs * 1000.0);
    }
    append_ranking(reply, &places, chosen, &host_of, &status);
    Ok(())
}

/// The member that is to follow; `NodeNotElectable` (104) if it never can.
fn target<'c>(configuration: &'c Configuration, host: &str) -> Result<&'c Member> {
    let host = HostAndPort::parse(host)?.to_string();
    let Some(member) = configuration.member_at(&host) else {
        let message = format!("Could not find member \"{host}\" in replica set");
        return Err(Error::new(ErrorCode::NodeNotFound, message));
    };
    if !member.is_electable() {
        let message = format!("The member that 'to' names, {host}, with _id {}, is not electable", member.id);
        return Err(Error::new(ErrorCode::NodeNotElectable, message));
    }
    Ok(member)
}

/// A member as consensus sees it, and as its tasks and figures have it.
struct Place<'a> {
    candidate: &'a Candidate,
    ranked: Option<&'a Ranked>,
}

impl Place<'_> {
    fn member(&self) -> MemberId {
        self.candidate.member
    }

    /// Nothing at all keeps it from leading.
    fn is_free(&self) -> bool {
        self.candidate.obstacle.is_none() && self.ranked.is_some_and(|ranked| ranked.obstacle.is_none())
    }

    fn why(&self) -> String {
        let Candidate { priority, lag_secs, is_level, obstacle, .. } = self.candidate;
        match (obstacle, self.ranked.and_then(|ranked| ranked.obstacle)) {
            (Some(obstacle), _) => obstacle.to_string(),
            (None, Some(obstacle)) => obstacle.to_string(),
            (None, None) if *is_level => format!("priority {priority}, and it has every entry"),
            (None, None) => format!("priority {priority}, and its log is {lag_secs} s behind"),
        }
    }
}

/// The best first.
fn rank<'a>(succession: &'a [Candidate], decision: Option<&'a Decision>) -> Vec<Place<'a>> {
    let ranking = decision.map_or(&[][..], |decision| &decision.candidates);
    let place_of = |member: MemberId| ranking.iter().position(|ranked| ranked.member == member.0);
    let mut places: Vec<Place<'a>> = succession
        .iter()
        .map(|candidate| Place { candidate, ranked: place_of(candidate.member).map(|at| &ranking[at]) })
        .collect();
    // What consensus knows of obstacles it has learnt since.
    places.sort_by_key(|place| {
        (place.candidate.obstacle.is_some(), place_of(place.candidate.member).unwrap_or(usize::MAX))
    });
    places
}

fn choose<'p, 'a>(places: &'p [Place<'a>], to: Option<&Member>) -> Option<&'p Place<'a>> {
    let named = |place: &&Place<'_>| to.is_none_or(|member| member.id == place.member());
    let free = places.iter().filter(named).find(|place| place.is_free());
    free.or_else(|| places.iter().filter(named).find(|place| place.candidate.obstacle.is_none()))
}

/// Waits until this member knows who is primary now, or that long.
fn await_primary(call: &Call<'_>, replication: &Replication, patience: Duration) -> Result<()> {
    let topology = &call.server.topology;
    let deadline = Instant::now() + patience;
    loop {
        let seen = topology.version();
        // What the topology says may still be from before the resignation.
        let has_primary = replication.handoffs().last().is_some_and(|handoff| handoff.to.is_some());
        if has_primary || Instant::now() >= deadline {
            return Ok(());
        }
        topology.wait_for_change(seen, deadline, || call.operation.check_interrupt())?;
    }
}

fn append_ranking<'h>(
    reply: &mut DocumentWriter<'_>,
    places: &[Place<'_>],
    chosen: Option<&Place<'_>>,
    host_of: &dyn Fn(MemberId) -> &'h str,
    status: &LeadershipStatus,
) {
    reply.begin_array(cstr!("ranking"));
    for place in places {
        let candidate = place.candidate;
        reply.push_document();
        reply.append(cstr!("host"), host_of(candidate.member));
        reply.append(cstr!("chosen"), chosen.is_some_and(|chosen| chosen.member() == candidate.member));
        reply.append(cstr!("lastWritten"), Timestamp::from(candidate.written.timestamp));
        reply.append(cstr!("lagSecs"), i64::from(candidate.lag_secs));
        reply.append(cstr!("electable"), candidate.obstacle.is_none());
        reply.append(cstr!("why"), place.why().as_str());
        match place.ranked {
            Some(ranked) => leadership_report::append_candidate(reply, ranked, status),
            None => reply.append(cstr!("priority"), candidate.priority),
        }
        reply.end();
    }
    reply.end();
}
