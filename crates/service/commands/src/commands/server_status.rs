//! `serverStatus`: every figure this member has, by section.
//!
//! Invariants: a figure is real or not there; a section is left out by naming it with 0. `uptime` is a whole number,
//! because mongostat reads it as one.

use super::build_info::{BATON_VERSION, VERSION};
use super::top::append_latency;
use crate::call::{Call, Reply};
use crate::commands::replication_figures;
use crate::server::{Server, sessions};
use crate::table::{COMMANDS, CommandSpec, DEFAULT, Flags};
use baton_consensus::MemberState;
use baton_machine::Usage;
use baton_query::spill::Totals;
use baton_request::Kind;
use baton_storage::StorageStatistics;
use baton_storage::tasks::Share;
use baton_types::{Class, Result};
use baton_wire::DocumentWriter;
use bson::raw::{CStr, CString};
use bson::{DateTime, RawBsonRef, cstr};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "serverStatus",
    flags: Flags::NONE,
    help: "Returns every figure the server has; { serverStatus: 1, metrics: 0 } leaves a section out.",
    run,
    ..DEFAULT
};

type Section = (&'static str, fn(&Server, &mut DocumentWriter<'_>));

/// Appends every section.
pub fn append_all(server: &Server, w: &mut DocumentWriter<'_>) {
    append_head(server, w);
    SECTIONS.iter().for_each(|(_, append)| append(server, w));
}

/// The sections, in the order of the answer.
const SECTIONS: &[Section] = &[
    ("asserts", |_, w| {
        // Broken invariants end the process here, so there is never one to count.
        w.begin_document(cstr!("asserts"));
        for key in [cstr!("regular"), cstr!("warning"), cstr!("msg"), cstr!("user"), cstr!("rollovers")] {
            w.append(key, 0);
        }
        w.end();
    }),
    ("connections", |server, w| (server.hooks.append_network_status)(w)),
    ("extra_info", |_, w| append_process(w)),
    ("flowControl", |server, w| {
        let figures = server.storage.flow_figures();
        w.begin_document(cstr!("flowControl"));
        w.append(cstr!("enabled"), figures.is_on);
        w.append(cstr!("timeAcquiringMicros"), figures.wait_micros as i64);
        w.append(cstr!("waits"), figures.waits as i64);
        w.end();
    }),
    ("globalLock", append_global_lock),
    ("logicalSessionRecordCache", |server, w| {
        w.begin_document(cstr!("logicalSessionRecordCache"));
        w.append(cstr!("activeSessionsCount"), server.sessions.count() as i32);
        w.append(cstr!("timeoutMinutes"), sessions::TIMEOUT_MINUTES);
        w.end();
    }),
    ("opLatencies", |server, w| {
        w.begin_document(cstr!("opLatencies"));
        for (key, usage) in
            [cstr!("reads"), cstr!("writes"), cstr!("commands")].into_iter().zip(server.counters.latencies())
        {
            append_latency(w, key, usage);
        }
        w.end();
    }),
    ("opcounters", |server, w| append_opcounters(w, cstr!("opcounters"), |kind| server.counters.operations(kind))),
    ("opcountersRepl", replication_figures::append_operations),
    ("electionMetrics", replication_figures::append_elections),
    ("priority", |server, w| crate::priority::append_status(&server.priority, w)),
    ("repl", append_repl),
    ("restingOperations", |server, w| {
        // Requests that ran for long, and left the processors to others for so long; and for whom one of normal class would now.
        let company = server.storage.company();
        w.begin_document(cstr!("restingOperations"));
        w.append(cstr!("rests"), company.rests() as i64);
        w.append(cstr!("micros"), company.rest_micros() as i64);
        match company.share_beside(Class::Normal, Instant::now()) {
            Some(Share::Eighth | Share::Tenth) => w.append(cstr!("beside"), "clients"),
            Some(Share::Half) => w.append(cstr!("beside"), "clients of the primary"),
            None => w.append(cstr!("beside"), RawBsonRef::Null),
        }
        w.end();
    }),
    ("storageEngine", |_, w| {
        w.begin_document(cstr!("storageEngine"));
        w.append(cstr!("name"), "rocksdb");
        w.append(cstr!("supportsCommittedReads"), true);
        w.append(cstr!("persistent"), true);
        w.append(cstr!("readOnly"), false);
        w.append(cstr!("backupCursorOpen"), false);
        w.end();
    }),
    ("tasks", append_tasks),
    ("rocksdb", |server, w| append_storage(w, &server.storage.statistics())),
    ("mem", |_, w| {
        let usage = Usage::now();
        let mib = |bytes: u64| i32::try_from(bytes / 1024 / 1024).unwrap_or(i32::MAX);
        w.begin_document(cstr!("mem"));
        w.append(cstr!("bits"), usize::BITS as i32);
        w.append(cstr!("resident"), mib(usage.resident_bytes));
        w.append(cstr!("virtual"), mib(usage.virtual_bytes));
        w.append(cstr!("supported"), true);
        w.end();
    }),
    ("metrics", append_metrics),
];

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let server = call.server;
    let wants_mirrored_reads = call.fields.peek("mirroredReads").is_some_and(baton_request::fields::is_truthy);
    append_head(server, reply);
    for (name, append) in SECTIONS {
        let left_out = call.fields.peek(name).is_some_and(|v| !baton_request::fields::is_truthy(v));
        if !left_out {
            append(server, reply);
        }
    }
    if wants_mirrored_reads {
        append_mirrored_reads(server, reply);
    }
    Ok(())
}

/// Only for those who ask for it, as in MongoDB. `dropped` is Baton's own: reads that were not sent because too many were on their way.
fn append_mirrored_reads(server: &Server, w: &mut DocumentWriter<'_>) {
    let sent = server.replication().map(|replication| replication.mirror_figures()).unwrap_or_default();
    w.begin_document(cstr!("mirroredReads"));
    w.append(cstr!("seen"), server.mirroring.seen() as i64);
    w.append(cstr!("sent"), sent.sent as i64);
    w.append(cstr!("erredDuringSend"), sent.erred as i64);
    w.append(cstr!("dropped"), sent.dropped as i64);
    w.append(cstr!("pending"), sent.pending as i64);
    w.append(cstr!("resolved"), sent.resolved as i64);
    w.append(cstr!("succeeded"), sent.succeeded as i64);
    w.append(cstr!("processedAsSecondary"), server.mirroring.processed() as i64);
    w.end();
}

fn append_head(server: &Server, reply: &mut DocumentWriter<'_>) {
    let uptime = server.started.elapsed();
    reply.append(cstr!("host"), server.identity.host.as_str());
    reply.append(cstr!("version"), VERSION);
    reply.append(cstr!("baton"), BATON_VERSION);
    reply.append(cstr!("process"), "mongod");
    reply.append(cstr!("pid"), i64::from(std::process::id()));
    reply.append(cstr!("uptime"), uptime.as_secs() as f64);
    reply.append(cstr!("uptimeMillis"), uptime.as_millis() as i64);
    reply.append(cstr!("uptimeEstimate"), uptime.as_secs() as i64);
    reply.append(cstr!("localTime"), DateTime::now());
}

fn append_process(w: &mut DocumentWriter<'_>) {
    let usage = Usage::now();
    w.begin_document(cstr!("extra_info"));
    w.append(cstr!("note"), "fields vary by platform");
    w.append(cstr!("user_time_us"), usage.cpu_user.as_micros() as i64);
    w.append(cstr!("system_time_us"), usage.cpu_system.as_micros() as i64);
    w.append(cstr!("page_faults"), usage.major_faults as i64);
    w.append(cstr!("threads"), usage.threads as i64);
    w.append(cstr!("openFiles"), usage.open_files as i64);
    w.end();
}

/// What mongostat reads as active readers and writers. Nobody queues: there is no global lock.
fn append_global_lock(server: &Server, w: &mut DocumentWriter<'_>) {
    let running = server.operations.running();
    let writers = running.iter().filter(|(_, s)| matches!(s.kind, "insert" | "update" | "remove")).count();
    w.begin_document(cstr!("globalLock"));
    w.append(cstr!("totalTime"), server.started.elapsed().as_micros() as i64);
    for (key, readers, writers) in
        [(cstr!("currentQueue"), 0, 0), (cstr!("activeClients"), running.len() - writers, writers)]
    {
        w.begin_document(key);
        w.append(cstr!("total"), (readers + writers) as i32);
        w.append(cstr!("readers"), readers as i32);
        w.append(cstr!("writers"), writers as i32);
        w.end();
    }
    w.end();
}

fn append_opcounters(w: &mut DocumentWriter<'_>, key: &CStr, count: impl Fn(Kind) -> u64) {
    w.begin_document(key);
    for (key, kind) in [
        (cstr!("insert"), Kind::Insert),
        (cstr!("query"), Kind::Query),
        (cstr!("update"), Kind::Update),
        (cstr!("delete"), Kind::Delete),
        (cstr!("getmore"), Kind::GetMore),
        (cstr!("command"), Kind::Command),
    ] {
        w.append(key, count(kind) as i64);
    }
    w.end();
}

fn append_repl(server: &Server, w: &mut DocumentWriter<'_>) {
    let Some(set) = server.topology.set() else { return };
    let primary = server.topology.is_writable_primary();
    w.begin_document(cstr!("repl"));
    crate::tail::append_topology_version(server.topology.version(), w);
    let configuration = set.configuration();
    w.begin_array(cstr!("hosts"));
    for member in configuration.iter().flat_map(|c| &c.members).filter(|m| m.bears_data() && !m.hidden) {
        w.push(member.host.as_str());
    }
    w.end();
    w.append(cstr!("setName"), set.name.as_str());
    let version = configuration.map_or(0, |c| c.version.version);
    w.append(cstr!("setVersion"), i32::try_from(version).unwrap_or(i32::MAX));
    w.append(cstr!("isWritablePrimary"), primary);
    // mongostat asks for the old name alone.
    w.append(cstr!("ismaster"), primary);
    w.append(cstr!("secondary"), set.view.state == MemberState::Secondary);
    // Not among MongoDB's: there one learns it from the log.
    w.append(cstr!("tooStale"), set.view.is_too_stale);
    if let Some(host) = set.view.primary.and_then(|id| set.host_of(id)) {
        w.append(cstr!("primary"), host);
    }
    w.append(cstr!("me"), set.me.as_str());
    if let Some(id) = server.topology.election_id() {
        w.append(cstr!("electionId"), id);
    }
    w.end();
}

fn append_tasks(server: &Server, w: &mut DocumentWriter<'_>) {
    let tasks = server.storage.tasks();
    w.begin_document(cstr!("tasks"));
    w.begin_array(cstr!("running"));
    for task in tasks.running() {
        let progress = task.progress();
        let (done, total) = progress.counts();
        w.push_document();
        w.append(cstr!("kind"), task.kind.name());
        w.append(cstr!("name"), task.name.as_str());
        w.append(cstr!("sinceMs"), task.started.elapsed().as_millis() as i64);
        w.append(cstr!("done"), done as i64);
        w.append(cstr!("total"), total as i64);
        if let Some(eta) = progress.eta_secs() {
            w.append(cstr!("etaSecs"), eta.ceil());
        }
        w.end();
    }
    w.end();
    w.begin_array(cstr!("waiting"));
    for task in tasks.waiting() {
        w.push_document();
        w.append(cstr!("kind"), task.kind.name());
        w.append(cstr!("name"), task.name.as_str());
        w.append(cstr!("sinceMs"), task.started.elapsed().as_millis() as i64);
        w.append(cstr!("why"), task.waits_for.unwrap_or_default());
        w.end();
    }
    w.end();
    w.begin_document(cstr!("finished"));
    for (kind, totals) in tasks.totals() {
        let Ok(name) = CString::try_from(kind.name()) else { continue };
        w.begin_document(&name);
        w.append(cstr!("count"), totals.count as i64);
        w.append(cstr!("durationMs"), totals.duration.as_millis() as i64);
        w.append(cstr!("cpuMs"), totals.spent.cpu.unwrap_or_default().as_millis() as i64);
        w.append(cstr!("readBytes"), totals.spent.read_bytes.unwrap_or_default() as i64);
        w.append(cstr!("writtenBytes"), totals.spent.written_bytes.unwrap_or_default() as i64);
        w.end();
    }
    w.end();
    w.end();
}

fn append_storage(w: &mut DocumentWriter<'_>, s: &StorageStatistics) {
    let groups: [(&CStr, &[(&CStr, u64)]); 4] = [
        (
            cstr!("cache"),
            &[
                (cstr!("maxBytes"), s.cache_bytes_max),
                (cstr!("usedBytes"), s.cache_bytes),
                (cstr!("pinnedBytes"), s.cache_pinned_bytes),
                (cstr!("memtableBytes"), s.memtable_bytes),
                (cstr!("recordBytes"), s.record_cache.bytes),
                (cstr!("records"), s.record_cache.documents),
                (cstr!("recordHits"), s.record_cache.hits),
                (cstr!("recordMisses"), s.record_cache.misses),
            ],
        ),
        (
            cstr!("files"),
            &[
                (cstr!("bytes"), s.sst_bytes),
                (cstr!("droppedBytes"), s.dropped_bytes),
                (cstr!("removedBytes"), s.removed_bytes),
                (cstr!("level0Files"), s.level0_files),
                (cstr!("pendingCompactionBytes"), s.pending_compaction_bytes),
                (cstr!("runningFlushes"), s.running_flushes),
                (cstr!("runningCompactions"), s.running_compactions),
                (cstr!("delayedWriteBytesPerSec"), s.delayed_write_rate),
            ],
        ),
        (
            cstr!("commitQueue"),
            &[
                (cstr!("batches"), s.commit_batches),
                (cstr!("transactions"), s.commit_transactions),
                (cstr!("writeMicros"), s.commit_write_micros),
                (cstr!("syncs"), s.log_syncs),
                (cstr!("syncMicros"), s.log_sync_micros),
            ],
        ),
        (
            cstr!("oplog"),
            &[
                (cstr!("bytes"), s.oplog_bytes),
                (cstr!("maxBytes"), s.oplog_bytes_max),
                (cstr!("minRetentionSecs"), s.oplog_retention_secs_min),
            ],
        ),
    ];
    w.begin_document(cstr!("rocksdb"));
    w.append(cstr!("writeStopped"), s.write_stopped);
    for (name, figures) in groups {
        w.begin_document(name);
        for (key, figure) in figures {
            w.append(key, *figure as i64);
        }
        w.end();
    }
    w.end();
}

/// What blocking stages did: MongoDB's names, and `spill`, which is what lies on the disk for them now, and `indexBulkBuilder`, which
/// is what lies there for index builds.
fn append_spills(server: &Server, w: &mut DocumentWriter<'_>) {
    let totals = &server.spill_totals;
    let (files, bytes) = server.storage.spills().figures();
    let spills = |of: &Totals| {
        [
            (cstr!("spills"), of.spills.load(Relaxed)),
            (cstr!("spilledBytes"), of.bytes.load(Relaxed)),
            (cstr!("spilledRecords"), of.records.load(Relaxed)),
            (cstr!("spilledDataStorageSize"), of.stored_bytes.load(Relaxed)),
        ]
    };
    let sort = [
        (cstr!("spillToDisk"), totals.sort.spills.load(Relaxed)),
        (cstr!("spillToDiskBytes"), totals.sort.stored_bytes.load(Relaxed)),
        (cstr!("totalKeysSorted"), totals.sort.taken.load(Relaxed)),
        (cstr!("totalBytesSorted"), totals.sort.taken_bytes.load(Relaxed)),
    ];
    w.begin_document(cstr!("query"));
    for (name, figures) in [
        (cstr!("bucketAuto"), spills(&totals.bucket_auto)),
        (cstr!("group"), spills(&totals.group)),
        (cstr!("sort"), sort),
    ] {
        w.begin_document(name);
        figures.into_iter().for_each(|(key, figure)| w.append(key, figure as i64));
        w.end();
    }
    w.begin_document(cstr!("spill"));
    w.append(cstr!("files"), files as i64);
    w.append(cstr!("bytes"), bytes as i64);
    w.end();
    w.end();
    let (files, bytes) = server.storage.build_file_figures();
    w.begin_document(cstr!("indexBulkBuilder"));
    w.append(cstr!("files"), files as i64);
    w.append(cstr!("bytes"), bytes as i64);
    w.end();
}

fn append_metrics(server: &Server, w: &mut DocumentWriter<'_>) {
    w.begin_document(cstr!("metrics"));
    w.begin_document(cstr!("commands"));
    w.append(cstr!("<UNKNOWN>"), server.counters.unknown_commands.load(Relaxed) as i64);
    for (index, spec) in COMMANDS.iter().enumerate() {
        let Ok(name) = CString::try_from(spec.name) else { continue };
        let (total, failed) = server.counters.command(index);
        w.begin_document(&name);
        w.append(cstr!("failed"), failed as i64);
        w.append(cstr!("total"), total as i64);
        w.end();
    }
    w.end();
    let cursors = server.cursors.figures();
    w.begin_document(cstr!("cursor"));
    w.append(cstr!("timedOut"), cursors.timed_out);
    w.append(cstr!("totalOpened"), cursors.total_opened);
    w.begin_document(cstr!("open"));
    w.append(cstr!("noTimeout"), cursors.no_timeout);
    w.append(cstr!("pinned"), cursors.pinned);
    w.append(cstr!("total"), cursors.open);
    w.end();
    w.end();
    w.begin_document(cstr!("document"));
    for (key, counter) in [cstr!("inserted"), cstr!("updated"), cstr!("deleted"), cstr!("returned")]
        .into_iter()
        .zip(server.counters.documents())
    {
        w.append(key, counter as i64);
    }
    w.end();
    w.begin_document(cstr!("operation"));
    w.append(cstr!("panicked"), server.counters.panics.load(Relaxed) as i64);
    w.end();
    append_spills(server, w);
    replication_figures::append_metrics(server, w);
    w.begin_document(cstr!("ttl"));
    w.append(cstr!("deletedDocuments"), server.ttl.deleted_documents.load(Relaxed) as i64);
    w.append(cstr!("passes"), server.ttl.passes.load(Relaxed) as i64);
    w.end();
    w.end();
}
