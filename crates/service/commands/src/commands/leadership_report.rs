//! Tasks and moves of leadership as documents: for `replSetGetStatus` and `replSetHandoff`.
//!
//! Invariant: what is not known is absent.

use baton_consensus::{Configuration, MemberId};
use baton_leadership::{Candidate, Decision, Outcome, Trigger};
use baton_replication::{Handoff, LeadershipStatus};
use baton_wire::DocumentWriter;
use bson::raw::CStr;
use bson::{DateTime, cstr};
use std::time::{Duration, SystemTime};

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn append_date(writer: &mut DocumentWriter<'_>, key: &CStr, date: SystemTime) {
    writer.append(key, DateTime::from_system_time(date));
}

fn host_of(configuration: &Configuration, member: i32) -> &str {
    configuration.member(MemberId(member)).map_or("", |member| &member.host)
}

/// What another member said of its tasks: `tasks`, `lastTaskEnd`, `compactionDebtBytes`, `servedAsPrimarySecs`, and how old that is.
pub fn append_peer(writer: &mut DocumentWriter<'_>, status: &LeadershipStatus, member: MemberId) {
    let Some((gossip, age)) = status.members.get(&member.0) else { return };
    writer.begin_array(cstr!("tasks"));
    for task in &gossip.tasks {
        writer.push_document();
        writer.append(cstr!("kind"), task.kind.name());
        writer.append(cstr!("state"), if task.is_running { "running" } else { "waiting" });
        writer.append(cstr!("sinceMs"), millis(task.age + *age));
        if let Some(ends_in) = task.ends_in {
            writer.append(cstr!("etaSecs"), ends_in.saturating_sub(*age).as_secs_f64().ceil());
        }
        writer.end();
    }
    writer.end();
    append_figures(writer, status, member);
    writer.append(cstr!("tasksHeardMs"), millis(*age));
}

/// Of any member, this one too: `lastTaskEnd`, `compactionDebtBytes`, `servedAsPrimarySecs`, `cacheHitRatio`, `load`, `processors`,
/// `diskBytesPerSec`.
pub fn append_figures(writer: &mut DocumentWriter<'_>, status: &LeadershipStatus, member: MemberId) {
    let Some((gossip, age)) = status.members.get(&member.0) else { return };
    if let Some(ago) = gossip.last_task_end {
        let ended = SystemTime::now().checked_sub(ago.saturating_add(*age)).unwrap_or(SystemTime::UNIX_EPOCH);
        append_date(writer, cstr!("lastTaskEnd"), ended);
    }
    let debt_bytes = i64::try_from(gossip.figures.debt_bytes).unwrap_or(i64::MAX);
    writer.append(cstr!("compactionDebtBytes"), debt_bytes);
    let served_secs = i64::try_from(gossip.served_as_primary.as_secs()).unwrap_or(i64::MAX);
    writer.append(cstr!("servedAsPrimarySecs"), served_secs);
    writer.append(cstr!("cacheHitRatio"), gossip.figures.cache_hit_ratio);
    writer.append(cstr!("load"), gossip.figures.load);
    writer.append(cstr!("processors"), gossip.figures.cpus);
    writer.append(cstr!("diskBytesPerSec"), gossip.figures.disk_bytes_per_sec);
}

/// `handoffs`: the last times that this member handed leadership over, and those that came to nothing; by date.
pub fn append_handoffs(
    writer: &mut DocumentWriter<'_>,
    configuration: &Configuration,
    handoffs: &[Handoff],
    status: &LeadershipStatus,
) {
    enum Told<'a> {
        Resigned(&'a Handoff),
        Failed(&'a Decision),
    }
    let failed = status.moves.iter().filter(|decision| matches!(decision.outcome, Outcome::Failed { .. }));
    let mut told: Vec<(SystemTime, Told<'_>)> = handoffs
        .iter()
        .map(|handoff| (handoff.asked, Told::Resigned(handoff)))
        .chain(failed.map(|decision| (status.date(decision.at), Told::Failed(decision))))
        .collect();
    told.sort_by_key(|(date, _)| *date);
    writer.begin_array(cstr!("handoffs"));
    for (date, told) in &told {
        writer.push_document();
        append_date(writer, cstr!("date"), *date);
        match told {
            Told::Resigned(handoff) => {
                writer.append(cstr!("trigger"), handoff.trigger.name());
                if let Some(to) = &handoff.to {
                    writer.append(cstr!("to"), to.as_str());
                }
                writer.append(cstr!("waitedMs"), handoff.waited.as_secs_f64() * 1000.0);
                if let Some(gap) = handoff.write_gap {
                    writer.append(cstr!("writeGapMs"), gap.as_secs_f64() * 1000.0);
                }
                if let Some(decision) = &handoff.decision {
                    append_decision(writer, configuration, decision, status);
                }
            }
            Told::Failed(decision) => {
                writer.append(cstr!("trigger"), decision.trigger.name());
                if let Outcome::Failed { to, why } = &decision.outcome {
                    writer.append(cstr!("failedTo"), host_of(configuration, *to));
                    writer.append(cstr!("error"), why.as_str());
                }
                append_decision(writer, configuration, decision, status);
            }
        }
        writer.end();
    }
    writer.end();
}

/// `stays`: the last decisions against a move.
pub fn append_stays(writer: &mut DocumentWriter<'_>, configuration: &Configuration, status: &LeadershipStatus) {
    writer.begin_array(cstr!("stays"));
    for decision in &status.stays {
        writer.push_document();
        append_date(writer, cstr!("date"), status.date(decision.at));
        append_date(writer, cstr!("lastDate"), status.date(decision.last_at));
        writer.append(cstr!("count"), i64::try_from(decision.count).unwrap_or(i64::MAX));
        writer.append(cstr!("trigger"), decision.trigger.name());
        if let Trigger::Task { task, .. } = decision.trigger {
            writer.append(cstr!("taskId"), i64::try_from(task).unwrap_or(i64::MAX));
        }
        match decision.outcome {
            Outcome::Postponed { until } => {
                writer.append(cstr!("outcome"), "postponed");
                if until != Duration::MAX {
                    append_date(writer, cstr!("until"), status.date(until));
                }
            }
            Outcome::Stayed
            | Outcome::WouldMove { .. }
            | Outcome::Moving { .. }
            | Outcome::Moved { .. }
            | Outcome::Failed { .. } => writer.append(cstr!("outcome"), "begun"),
        }
        append_decision(writer, configuration, decision, status);
        writer.end();
    }
    writer.end();
}

/// The rule that decided, what was predicted, and how each other member stood.
pub fn append_decision(
    writer: &mut DocumentWriter<'_>,
    configuration: &Configuration,
    decision: &Decision,
    status: &LeadershipStatus,
) {
    writer.append(cstr!("rule"), decision.rule.name());
    writer.append(cstr!("why"), decision.rule.sentence());
    writer.append(cstr!("mode"), decision.mode.name());
    writer.append(cstr!("rankedBy"), decision.ranking.name());
    if let Some(staying_secs) = decision.staying_secs {
        writer.append(cstr!("stayingCostSecs"), staying_secs);
    }
    if let Some(moving_secs) = decision.moving_secs {
        writer.append(cstr!("movingCostSecs"), moving_secs);
    }
    writer.append(cstr!("predictedGapMs"), decision.gap_secs * 1000.0);
    let chosen = match decision.outcome {
        Outcome::WouldMove { to } => to,
        Outcome::Moving { to } | Outcome::Moved { to, .. } | Outcome::Failed { to, .. } => Some(to),
        Outcome::Stayed | Outcome::Postponed { .. } => None,
    };
    writer.begin_array(cstr!("ranking"));
    for candidate in &decision.candidates {
        writer.push_document();
        writer.append(cstr!("host"), host_of(configuration, candidate.member));
        writer.append(cstr!("chosen"), chosen == Some(candidate.member));
        append_candidate(writer, candidate, status);
        writer.end();
    }
    writer.end();
}

/// How one member stood.
pub fn append_candidate(writer: &mut DocumentWriter<'_>, candidate: &Candidate, status: &LeadershipStatus) {
    writer.append(cstr!("priority"), candidate.priority);
    writer.append(cstr!("eligible"), candidate.obstacle.is_none());
    if let Some(obstacle) = candidate.obstacle {
        writer.append(cstr!("obstacle"), obstacle.to_string().as_str());
    }
    if candidate.lag != Duration::MAX {
        writer.append(cstr!("lagMs"), millis(candidate.lag));
    }
    if let Some(age) = candidate.gossip_age {
        writer.append(cstr!("tasksHeardMs"), millis(age));
    }
    if let Some(ended) = status.last_task_ended(candidate) {
        append_date(writer, cstr!("lastTaskEnd"), ended);
    }
    let served_secs = i64::try_from(candidate.served_as_primary.as_secs()).unwrap_or(i64::MAX);
    writer.append(cstr!("servedAsPrimarySecs"), served_secs);
    writer.append(cstr!("preferred"), candidate.is_preferred);
    writer.append(cstr!("score"), candidate.score);
    writer.append(cstr!("movingCostSecs"), candidate.moving_secs);
    if let Some(figures) = candidate.figures {
        writer.append(cstr!("compactionDebtBytes"), i64::try_from(figures.debt_bytes).unwrap_or(i64::MAX));
        writer.append(cstr!("cacheHitRatio"), figures.cache_hit_ratio);
        writer.append(cstr!("load"), figures.load);
        writer.append(cstr!("syncMs"), figures.sync_latency.as_secs_f64() * 1000.0);
        writer.append(cstr!("diskFree"), figures.disk_free);
    }
}
