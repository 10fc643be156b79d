//! serverStatus's figures of replication: `electionMetrics`, `metrics.repl`, `opcountersRepl`. Source: MongoDB manual, "serverStatus".
//!
//! Invariant: a field is here only if it is counted.

use crate::server::Server;
use baton_consensus::ElectionReason;
use baton_wire::DocumentWriter;
use bson::cstr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

fn figure(counter: &AtomicU64) -> i64 {
    counter.load(Relaxed) as i64
}

/// Elections by what made this member stand, and step-downs by what caused them.
pub fn append_elections(server: &Server, writer: &mut DocumentWriter<'_>) {
    let Some(replication) = server.replication() else { return };
    let counts = replication.figures().elections();
    writer.begin_document(cstr!("electionMetrics"));
    for (key, reasons) in [
        (cstr!("stepUpCmd"), &[ElectionReason::StepUpRequest, ElectionReason::Handoff][..]),
        (cstr!("priorityTakeover"), &[ElectionReason::PriorityTakeover][..]),
        (cstr!("catchUpTakeover"), &[ElectionReason::CatchUpTakeover][..]),
        (cstr!("electionTimeout"), &[ElectionReason::ElectionTimeout][..]),
        (cstr!("singleNodePromptElection"), &[ElectionReason::SingleMember][..]),
    ] {
        let sum = |of: &std::collections::BTreeMap<ElectionReason, u64>| -> u64 {
            reasons.iter().filter_map(|reason| of.get(reason)).sum()
        };
        writer.begin_document(key);
        writer.append(cstr!("called"), sum(&counts.called) as i64);
        writer.append(cstr!("successful"), sum(&counts.won) as i64);
        writer.end();
    }
    let step_downs = |cause: &str| counts.step_downs.get(cause).copied().unwrap_or_default() as i64;
    writer.append(cstr!("numStepDownsCausedByHigherTerm"), step_downs("higherTerm"));
    writer.append(cstr!("numStepDownsCausedByNoMajority"), step_downs("noMajority"));
    writer.append(cstr!("numStepDownsCausedByRequest"), step_downs("request"));
    writer.append(cstr!("numStepDownsCausedByConfiguration"), step_downs("configuration"));
    writer.end();
}

/// What this member applied that others wrote.
pub fn append_operations(server: &Server, writer: &mut DocumentWriter<'_>) {
    let of = |kind: usize| server.replication().map_or(0, |r| figure(&r.figures().applied_by_kind[kind]));
    writer.begin_document(cstr!("opcountersRepl"));
    writer.append(cstr!("insert"), of(0));
    writer.append(cstr!("query"), 0_i64);
    writer.append(cstr!("update"), of(1));
    writer.append(cstr!("delete"), of(2));
    writer.append(cstr!("getmore"), 0_i64);
    writer.append(cstr!("command"), of(3));
    writer.end();
}

/// `metrics.repl`.
pub fn append_metrics(server: &Server, writer: &mut DocumentWriter<'_>) {
    let Some(replication) = server.replication() else { return };
    let figures = replication.figures();
    writer.begin_document(cstr!("repl"));
    writer.begin_document(cstr!("apply"));
    writer.begin_document(cstr!("batches"));
    writer.append(cstr!("num"), figure(&figures.applied_batches));
    writer.append(cstr!("totalMillis"), figure(&figures.apply_micros) / 1000);
    writer.end();
    writer.append(cstr!("ops"), figure(&figures.applied_entries));
    writer.append(cstr!("refused"), figure(&figures.refused_entries));
    writer.end();
    writer.begin_document(cstr!("network"));
    writer.append(cstr!("bytes"), figure(&figures.fetched_bytes));
    writer.begin_document(cstr!("getmores"));
    writer.append(cstr!("num"), figure(&figures.fetched_batches));
    writer.append(cstr!("numEmptyBatches"), figure(&figures.fetched_empty));
    writer.end();
    writer.append(cstr!("ops"), figure(&figures.fetched_entries));
    writer.end();
    writer.begin_document(cstr!("syncSource"));
    writer.append(cstr!("numSelections"), figure(&figures.sources_chosen));
    writer.append(cstr!("numTimesCouldNotFind"), figure(&figures.sources_lacking));
    writer.end();
    writer.append(cstr!("rollbacks"), figure(&figures.rollbacks));
    let [waits, micros] = &server.counters.majority_waits;
    writer.begin_document(cstr!("majorityWaits"));
    writer.append(cstr!("num"), figure(waits));
    writer.append(cstr!("totalMicros"), figure(micros));
    writer.end();
    writer.end();
}
