//! `replSetGetStatus`: the set as this member sees it, which is itself; with its background tasks.

use super::repl_set_get_config::set_of;
use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::{OpTime, Result};
use baton_wire::DocumentWriter;
use bson::raw::CStr;
use bson::{DateTime, cstr};

/// MongoDB's number for a primary.
const STATE_PRIMARY: i32 = 1;

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

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let set = set_of(call)?;
    call.fields.take("initialSync");
    call.fields.finish()?;
    let queue = call.server.storage.queue();
    let (applied, durable) = (queue.applied(), queue.durable());
    reply.append(cstr!("set"), set.name.as_str());
    reply.append(cstr!("date"), DateTime::now());
    reply.append(cstr!("myState"), STATE_PRIMARY);
    reply.append(cstr!("term"), set.term);
    reply.append(cstr!("syncSourceHost"), "");
    reply.append(cstr!("syncSourceId"), -1);
    reply.append(cstr!("heartbeatIntervalMillis"), 2000_i64);
    reply.append(cstr!("majorityVoteCount"), 1);
    reply.append(cstr!("writeMajorityCount"), 1);
    reply.append(cstr!("votingMembersCount"), 1);
    reply.append(cstr!("writableVotingMembersCount"), 1);
    reply.begin_document(cstr!("optimes"));
    optime(reply, cstr!("lastCommittedOpTime"), durable);
    reply.append(cstr!("lastCommittedWallTime"), date(durable));
    optime(reply, cstr!("readConcernMajorityOpTime"), durable);
    optime(reply, cstr!("appliedOpTime"), applied);
    optime(reply, cstr!("durableOpTime"), durable);
    reply.append(cstr!("lastAppliedWallTime"), date(applied));
    reply.append(cstr!("lastDurableWallTime"), date(durable));
    reply.end();
    reply.begin_array(cstr!("members"));
    reply.push_document();
    append_self(call, reply, applied, durable);
    reply.end();
    reply.end();
    reply.begin_array(cstr!("handoffs"));
    reply.end();
    Ok(())
}

fn append_self(call: &Call<'_>, writer: &mut DocumentWriter<'_>, applied: OpTime, durable: OpTime) {
    let Some(set) = call.server.topology.set() else { return };
    let started = DateTime::from_system_time(call.server.started_wall);
    let started_secs = (started.timestamp_millis() / 1000) as u32;
    let uptime_secs = call.server.started.elapsed().as_secs();
    writer.append(cstr!("_id"), 0);
    writer.append(cstr!("name"), set.me.as_str());
    writer.append(cstr!("health"), 1.0);
    writer.append(cstr!("state"), STATE_PRIMARY);
    writer.append(cstr!("stateStr"), "PRIMARY");
    writer.append(cstr!("uptime"), i32::try_from(uptime_secs).unwrap_or(i32::MAX));
    optime(writer, cstr!("optime"), applied);
    writer.append(cstr!("optimeDate"), date(applied));
    writer.append(cstr!("lastAppliedWallTime"), date(applied));
    writer.append(cstr!("lastDurableWallTime"), date(durable));
    writer.append(cstr!("syncSourceHost"), "");
    writer.append(cstr!("syncSourceId"), -1);
    writer.append(cstr!("infoMessage"), "");
    writer.append(cstr!("electionTime"), bson::Timestamp { time: started_secs, increment: 1 });
    writer.append(cstr!("electionDate"), started);
    writer.append(cstr!("configVersion"), i32::try_from(set.config_version).unwrap_or(i32::MAX));
    writer.append(cstr!("configTerm"), set.term);
    writer.append(cstr!("self"), true);
    writer.append(cstr!("lastHeartbeatMessage"), "");
    writer.begin_array(cstr!("tasks"));
    for task in call.server.storage.tasks().running() {
        writer.push_document();
        writer.append(cstr!("kind"), task.kind.name());
        writer.append(cstr!("state"), "running");
        writer.append(cstr!("sinceMs"), task.started.elapsed().as_millis() as i64);
        writer.end();
    }
    writer.end();
    writer.append(cstr!("compactionDebtBytes"), call.server.storage.statistics().pending_compaction_bytes as i64);
    writer.append(cstr!("servedAsPrimarySecs"), uptime_secs as i64);
}
