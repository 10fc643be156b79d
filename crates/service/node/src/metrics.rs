//! `/metrics`: what serverStatus has, for Prometheus.
//!
//! Invariant: names are `baton_<what>_<unit>`, counters end in `_total`; none is ever renamed.
//! What it deliberately does not do: the process's own figures, which telemetry has.

use baton_commands::Server;
use baton_commands::table::COMMANDS;
use baton_net::CountersSnapshot;
use baton_request::Kind;
use std::fmt::{Display, Write};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Appends the text form.
pub fn render(server: &Server, network: &CountersSnapshot, text: &mut String) {
    append_network(network, text);
    append_operations(server, text);
    append_storage(server, text);
    append_replication(server, text);
    append_leadership(server, text);
    server.priority.append_metrics(text);
}

fn family(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn gauge(text: &mut String, name: &str, help: &str, value: impl Display) {
    family(text, name, "gauge", help);
    let _ = writeln!(text, "{name} {value}");
}

fn counter(text: &mut String, name: &str, help: &str, value: impl Display) {
    family(text, name, "counter", help);
    let _ = writeln!(text, "{name} {value}");
}

fn append_network(network: &CountersSnapshot, text: &mut String) {
    gauge(text, "baton_connections", "Connections open.", network.current);
    gauge(text, "baton_connections_resting", "Connections without a thread: the client is silent.", network.resting);
    gauge(text, "baton_connections_active", "Connections with a request being carried out.", network.active);
    counter(text, "baton_connections_total", "Connections accepted.", network.total_created);
    counter(text, "baton_connections_rejected_total", "Connections turned away.", network.rejected);
    counter(text, "baton_network_received_bytes_total", "Bytes received.", network.bytes_in);
    counter(text, "baton_network_sent_bytes_total", "Bytes sent.", network.bytes_out);
    counter(text, "baton_network_requests_total", "Requests received.", network.requests);
    counter(text, "baton_network_malformed_total", "Messages that were none.", network.malformed);
}

fn append_operations(server: &Server, text: &mut String) {
    family(text, "baton_operations_total", "counter", "Operations by kind; statements for writes.");
    for kind in [Kind::Insert, Kind::Query, Kind::Update, Kind::Delete, Kind::GetMore, Kind::Command] {
        let _ =
            writeln!(text, "baton_operations_total{{kind=\"{}\"}} {}", kind.name(), server.counters.operations(kind));
    }
    for (name, help) in
        [("baton_commands_total", "Commands asked for."), ("baton_commands_failed_total", "Commands that failed.")]
    {
        family(text, name, "counter", help);
        for (index, spec) in COMMANDS.iter().enumerate() {
            let (total, failed) = server.counters.command(index);
            let value = if name.contains("failed") { failed } else { total };
            // Most commands are never asked for; a series for each would only be noise.
            if total > 0 {
                let _ = writeln!(text, "{name}{{command=\"{}\"}} {value}", spec.name);
            }
        }
    }
    for (name, help, of) in [
        ("baton_operation_seconds_total", "Time spent on operations.", true),
        ("baton_operation_count_total", "Operations that the time was spent on.", false),
    ] {
        family(text, name, "counter", help);
        for (class, usage) in ["reads", "writes", "commands"].into_iter().zip(server.counters.latencies()) {
            let value = if of { usage.time_us as f64 / 1e6 } else { usage.count as f64 };
            let _ = writeln!(text, "{name}{{class=\"{class}\"}} {value}");
        }
    }
    counter(
        text,
        "baton_requests_panicked_total",
        "Requests given up because they broke an invariant.",
        server.counters.panics.load(Relaxed),
    );
    let cursors = server.cursors.figures();
    gauge(text, "baton_cursors_open", "Cursors open.", cursors.open);
    counter(text, "baton_cursors_timed_out_total", "Cursors closed because nobody asked for them.", cursors.timed_out);
    gauge(text, "baton_sessions", "Logical sessions known.", server.sessions.count());
}

fn append_storage(server: &Server, text: &mut String) {
    let s = server.storage.statistics();
    gauge(text, "baton_cache_max_bytes", "Memory for blocks and memtables.", s.cache_bytes_max);
    gauge(text, "baton_cache_used_bytes", "Of that, in use.", s.cache_bytes);
    gauge(text, "baton_memtable_bytes", "Memtables.", s.memtable_bytes);
    gauge(text, "baton_sst_bytes", "Files on disk.", s.sst_bytes);
    gauge(text, "baton_dropped_bytes", "Of what was dropped and still takes space.", s.dropped_bytes);
    gauge(text, "baton_removed_bytes", "Of files that go piece by piece.", s.removed_bytes);
    gauge(
        text,
        "baton_compaction_pending_bytes",
        "Bytes that compaction has yet to rewrite.",
        s.pending_compaction_bytes,
    );
    gauge(text, "baton_level0_files", "Files in level 0.", s.level0_files);
    gauge(text, "baton_write_stopped", "Whether writes wait for compaction.", u8::from(s.write_stopped));
    gauge(text, "baton_oplog_bytes", "The oplog's size.", s.oplog_bytes);
    counter(text, "baton_commit_transactions_total", "Transactions committed.", s.commit_transactions);
    counter(text, "baton_commit_batches_total", "Batches they were written in.", s.commit_batches);
    counter(text, "baton_log_syncs_total", "Syncs of the log.", s.log_syncs);
    counter(text, "baton_log_sync_seconds_total", "Time in syncs of the log.", s.log_sync_micros as f64 / 1e6);
    let (files, bytes) = server.storage.spills().figures();
    gauge(text, "baton_spill_files", "Files of queries that hold more than they may in memory.", files);
    gauge(text, "baton_spill_bytes", "Their bytes.", bytes);
    let (files, bytes) = server.storage.build_file_figures();
    gauge(text, "baton_index_build_files", "Files of what index builds have sorted.", files);
    gauge(text, "baton_index_build_bytes", "Their bytes.", bytes);
    family(text, "baton_spills_total", "counter", "Times a stage wrote what it held to the disk, by stage.");
    let totals = &server.spill_totals;
    for (stage, of) in [("bucketAuto", &totals.bucket_auto), ("group", &totals.group), ("sort", &totals.sort)] {
        let _ = writeln!(text, "baton_spills_total{{stage=\"{stage}\"}} {}", of.spills.load(Relaxed));
    }
    let tasks = server.storage.tasks();
    for (name, help, tasks) in [
        ("baton_tasks_running", "Background tasks by kind.", tasks.running()),
        ("baton_tasks_waiting", "Background tasks that may not begin yet, by kind.", tasks.waiting()),
    ] {
        family(text, name, "gauge", help);
        let mut kinds: Vec<_> = tasks.iter().map(|t| t.kind.name()).collect();
        kinds.sort_unstable();
        for group in kinds.chunk_by(|a, b| a == b) {
            let _ = writeln!(text, "{name}{{kind=\"{}\"}} {}", group[0], group.len());
        }
    }
}

/// Of a set's member: which tasks were let begin or told to wait, and which moves of leadership that made.
fn append_leadership(server: &Server, text: &mut String) {
    let Some(replication) = server.replication() else { return };
    let counts = replication.leadership_counts();
    for (name, help, label, of) in [
        (
            "baton_leadership_orders_total",
            "Handoffs that were begun to move heavy work off the primary, by trigger.",
            "trigger",
            &counts.moves,
        ),
        (
            "baton_leadership_admitted_total",
            "Tasks that could wait and were let begin, by rule.",
            "rule",
            &counts.admitted,
        ),
        ("baton_leadership_deferred_total", "Times a task was told to wait, by rule.", "rule", &counts.deferred),
    ] {
        family(text, name, "counter", help);
        for (value, count) in of {
            let _ = writeln!(text, "{name}{{{label}=\"{value}\"}} {count}");
        }
    }
    counter(
        text,
        "baton_leadership_moved_total",
        "Handoffs, an operator's too, after which another member led.",
        counts.moved,
    );
    counter(text, "baton_leadership_failed_total", "Handoffs that came to nothing.", counts.failed);
    counter(
        text,
        "baton_leadership_gap_seconds_total",
        "Time without a primary in those handoffs.",
        counts.gaps.as_secs_f64(),
    );
}

/// Of a set's member: who is how far, elections and their causes, what was fetched and applied, and how long a majority took.
fn append_replication(server: &Server, text: &mut String) {
    let Some(replication) = server.replication() else { return };
    let (view, figures) = (replication.view(), replication.figures());
    gauge(text, "baton_member_state", "What this member is doing, by MongoDB's myState.", view.state as i32);
    gauge(text, "baton_term", "The term.", view.term);
    let Some(configuration) = &view.configuration else { return };
    let newest = view.peers.values().map(|peer| peer.position.applied).chain([view.position.applied]).max();
    let newest_secs = newest.unwrap_or_default().timestamp.seconds;
    family(
        text,
        "baton_member_lag_seconds",
        "gauge",
        "How far a member's log is behind the longest known one, in its time.",
    );
    for member in configuration.members.iter().filter(|member| member.bears_data()) {
        let position = view.peers.get(&member.id).map_or(view.position, |peer| peer.position);
        let lag_secs = newest_secs.saturating_sub(position.applied.timestamp.seconds);
        let _ = writeln!(text, "baton_member_lag_seconds{{member=\"{}\"}} {lag_secs}", member.host);
    }
    let uncommitted = view.position.applied.timestamp.seconds.saturating_sub(view.commit_point.timestamp.seconds);
    gauge(text, "baton_commit_lag_seconds", "How far the commit point is behind this member's log.", uncommitted);
    let counts = figures.elections();
    for (name, help, of) in [
        ("baton_elections_called_total", "Elections this member stood in, by reason.", &counts.called),
        ("baton_elections_won_total", "Elections this member won, by reason.", &counts.won),
    ] {
        family(text, name, "counter", help);
        for (reason, count) in of {
            let _ = writeln!(text, "{name}{{reason=\"{reason}\"}} {count}");
        }
    }
    family(text, "baton_step_downs_total", "counter", "Times this member ceased to be primary, by cause.");
    for (cause, count) in &counts.step_downs {
        let _ = writeln!(text, "baton_step_downs_total{{cause=\"{cause}\"}} {count}");
    }
    for (name, help, value) in [
        ("baton_applied_entries_total", "Entries of other members' logs applied.", &figures.applied_entries),
        ("baton_applied_batches_total", "Batches they were applied in.", &figures.applied_batches),
        ("baton_fetched_bytes_total", "Bytes fetched from sync sources.", &figures.fetched_bytes),
        ("baton_fetched_batches_total", "Batches fetched, empty ones included.", &figures.fetched_batches),
        ("baton_sync_sources_chosen_total", "Times a sync source was chosen.", &figures.sources_chosen),
        ("baton_rollbacks_total", "Rollbacks.", &figures.rollbacks),
        ("baton_refused_entries_total", "Attempts to apply an entry that failed.", &figures.refused_entries),
    ] {
        counter(text, name, help, value.load(Relaxed));
    }
    let seconds = |micros: &AtomicU64| micros.load(Relaxed) as f64 / 1e6;
    counter(text, "baton_apply_seconds_total", "Time spent applying, syncs included.", seconds(&figures.apply_micros));
    let [waits, micros] = &server.counters.majority_waits;
    counter(text, "baton_majority_waits_total", "Writes that waited for a majority.", waits.load(Relaxed));
    counter(text, "baton_majority_wait_seconds_total", "Time they waited once applied here.", seconds(micros));
}
