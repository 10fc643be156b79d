//! What every reply of a replica set's member ends with: `$clusterTime` and `operationTime`.
//!
//! Invariant: a standalone's replies end without them, as mongod's do.
//! What it deliberately does not do: sign. Without keys mongod answers with a signature of zeros, and so does this.

use crate::server::Server;
use crate::server::topology::TopologyVersion;
use baton_types::{Error, ErrorCode, Result, Timestamp};
use baton_wire::DocumentWriter;
use bson::spec::BinarySubtype;
use bson::{Binary, RawDocument, cstr, rawdoc};
use smallvec::SmallVec;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// How far ahead of this member's clock a client's cluster time may be.
const AHEAD_SECONDS_MAX: u64 = 365 * 24 * 60 * 60;

/// Seconds since 1970, by the wall clock.
fn now_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// The two fields with times to be filled in, and where in the bytes: built once, since every reply has them.
struct Template {
    bytes: Vec<u8>,
    cluster_time_at: usize,
    operation_time_at: usize,
}

static TEMPLATE: LazyLock<Template> = LazyLock::new(|| {
    let mark = |increment| bson::Timestamp { time: u32::MAX, increment };
    let document = rawdoc! {
        "$clusterTime": {
            "clusterTime": mark(1),
            "signature": {
                "hash": Binary { subtype: BinarySubtype::Generic, bytes: vec![0; 20] },
                "keyId": 0_i64,
            },
        },
        "operationTime": mark(2),
    };
    let bytes = document.into_bytes();
    let find = |increment: u32| {
        let mut mark = increment.to_le_bytes().to_vec();
        mark.extend_from_slice(&u32::MAX.to_le_bytes());
        bytes.windows(8).position(|w| w == mark).unwrap_or_else(|| unreachable!("the mark was written just now"))
    };
    Template { cluster_time_at: find(1), operation_time_at: find(2), bytes }
});

/// Appends the set's times.
pub fn append(server: &Server, body: &mut DocumentWriter<'_>) {
    if !server.topology.is_replicated() {
        return;
    }
    let operation_time = server.operation_time();
    let cluster_time = server.cluster_time().max(operation_time);
    append_times(body, cluster_time, operation_time);
}

fn append_times(body: &mut DocumentWriter<'_>, cluster_time: Timestamp, operation_time: Timestamp) {
    let template = &*TEMPLATE;
    let mut bytes: SmallVec<[u8; 256]> = SmallVec::from_slice(&template.bytes);
    for (at, time) in [(template.cluster_time_at, cluster_time), (template.operation_time_at, operation_time)] {
        bytes[at..at + 8].copy_from_slice(&time.as_u64().to_le_bytes());
    }
    if let Ok(document) = RawDocument::from_bytes(&bytes) {
        body.extend(document);
    }
}

/// Appends `topologyVersion`.
pub fn append_topology_version(version: TopologyVersion, body: &mut DocumentWriter<'_>) {
    body.begin_document(cstr!("topologyVersion"));
    body.append(cstr!("processId"), version.process_id);
    body.append(cstr!("counter"), version.counter);
    body.end();
}

/// Appends what a member that fetches the oplog wants to know of its source, beside the entries.
pub fn append_oplog_query_data(server: &Server, body: &mut DocumentWriter<'_>) {
    let Some(set) = server.topology.set() else { return };
    body.begin_document(cstr!("$oplogQueryData"));
    for (key, position) in
        [(cstr!("lastOpCommitted"), server.commit_point()), (cstr!("lastOpApplied"), server.storage.queue().applied())]
    {
        body.begin_document(key);
        body.append(cstr!("ts"), bson::Timestamp::from(position.timestamp));
        body.append(cstr!("t"), position.term);
        body.end();
    }
    // Whoever cannot tell how far back it reaches is of no use to one that is far behind.
    let oldest = server
        .storage
        .oplog()
        .oldest_entry()
        .ok()
        .flatten()
        .map_or(Timestamp::from_u64(u64::MAX), |oldest| oldest.timestamp);
    body.append(cstr!("oldestOp"), bson::Timestamp::from(oldest));
    body.append(cstr!("term"), set.term());
    body.end();
}

/// Takes over a time that a client speaks of; `ClusterTimeFailsRateLimiter` (205) if it is too far in the future.
pub fn observe(server: &Server, time: Timestamp) -> Result<()> {
    if time <= server.cluster_time() {
        return Ok(());
    }
    check_clock(time)?;
    server.storage.queue().advance_floor(time);
    Ok(())
}

/// `ClusterTimeFailsRateLimiter` (205) if a time is so far in the future that no clock of a set can have been there.
pub fn check_clock(time: Timestamp) -> Result<()> {
    let now = now_seconds();
    if u64::from(time.seconds) > now + AHEAD_SECONDS_MAX {
        return Err(Error::new(
            ErrorCode::ClusterTimeFailsRateLimiter,
            format!("New cluster time, {}, is too far from this node's wall clock time, {now}.", time.seconds),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_are_those_given() {
        let mut out = Vec::new();
        let (a, b) = (Timestamp { seconds: 7, increment: 3 }, Timestamp { seconds: 6, increment: 9 });
        append_times(&mut DocumentWriter::new(&mut out), a, b);
        let document = RawDocument::from_bytes(&out).unwrap();
        let cluster_time = document.get_document("$clusterTime").unwrap();
        assert_eq!(Timestamp::from(cluster_time.get_timestamp("clusterTime").unwrap()), a);
        let signature = cluster_time.get_document("signature").unwrap();
        assert_eq!(signature.get_binary("hash").unwrap().bytes, [0; 20]);
        assert_eq!(signature.get_i64("keyId").unwrap(), 0);
        assert_eq!(Timestamp::from(document.get_timestamp("operationTime").unwrap()), b);
    }
}
