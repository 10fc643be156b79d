//! `initialSyncStatus` of `replSetGetStatus`: how far the member's initial sync is. Source: MongoDB manual,
//! "replSetGetStatus".

use baton_replication::{ATTEMPTS_MAX, CollectionProgress, InitialSyncStatus};
use baton_types::Result;
use baton_wire::DocumentWriter;
use bson::raw::{CStr, CString};
use bson::{DateTime, cstr};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

fn count(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

fn bytes(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Appends the field.
pub fn append(writer: &mut DocumentWriter<'_>, status: &InitialSyncStatus) -> Result<()> {
    writer.begin_document(cstr!("initialSyncStatus"));
    writer.append(cstr!("method"), status.method);
    writer.append(cstr!("failedInitialSyncAttempts"), count(status.failed_attempts.len()));
    writer.append(cstr!("maxFailedInitialSyncAttempts"), count(ATTEMPTS_MAX));
    writer.append(cstr!("initialSyncStart"), DateTime::from_system_time(status.began));
    if let Some(ended) = status.ended {
        writer.append(cstr!("initialSyncEnd"), DateTime::from_system_time(ended));
    }
    let elapsed = match status.ended {
        Some(ended) => ended.duration_since(status.began).unwrap_or_default(),
        None => status.began_instant.elapsed(),
    };
    writer.append(cstr!("totalInitialSyncElapsedMillis"), millis(elapsed));
    if let Some(remaining) = status.remaining() {
        writer.append(cstr!("remainingInitialSyncEstimatedMillis"), millis(remaining));
    }
    writer.append(cstr!("approxTotalDataSize"), bytes(status.bytes()));
    writer.append(cstr!("approxTotalBytesCopied"), bytes(status.bytes_done()));
    for (name, optime) in [(cstr!("initialSyncOplogStart"), status.from), (cstr!("initialSyncOplogEnd"), status.until)]
    {
        if optime != baton_types::OpTime::ZERO {
            writer.append(name, bson::Timestamp::from(optime.timestamp));
        }
    }
    writer.append(cstr!("appliedOps"), bytes(status.entries_applied));
    writer.append(cstr!("syncSource"), status.source.as_str());
    writer.append(cstr!("rollBackId"), status.rollback_id);
    writer.append(cstr!("operationsRetried"), bytes(status.retried));
    writer.begin_array(cstr!("initialSyncAttempts"));
    for attempt in &status.failed_attempts {
        writer.push_document();
        writer.append(cstr!("durationMillis"), millis(attempt.duration));
        writer.append(cstr!("status"), attempt.reason.as_str());
        writer.append(cstr!("syncSource"), attempt.source.as_str());
        writer.append(cstr!("rollBackId"), attempt.rollback_id);
        writer.end();
    }
    writer.end();
    append_databases(writer, status)?;
    writer.end();
    Ok(())
}

fn append_databases(writer: &mut DocumentWriter<'_>, status: &InitialSyncStatus) -> Result<()> {
    let mut databases: BTreeMap<&str, Vec<&CollectionProgress>> = BTreeMap::new();
    for collection in &status.collections {
        databases.entry(collection.namespace.db()).or_default().push(collection);
    }
    let is_done = |collections: &[&CollectionProgress]| collections.iter().all(|one| one.ended.is_some());
    let done = databases.values().filter(|collections| is_done(collections)).count();
    writer.begin_document(cstr!("databases"));
    writer.append(cstr!("databasesToClone"), count(databases.len() - done));
    writer.append(cstr!("databasesCloned"), count(done));
    for (name, collections) in databases {
        writer.begin_document(&CString::try_from(name)?);
        writer.append(cstr!("collections"), count(collections.len()));
        writer.append(cstr!("clonedCollections"), count(collections.iter().filter(|one| one.ended.is_some()).count()));
        append_time(
            writer,
            collections.iter().filter_map(|one| one.began).min(),
            collections.iter().filter_map(|one| one.ended).max().filter(|_| is_done(&collections)),
        );
        for collection in collections {
            writer.begin_document(&CString::try_from(collection.namespace.as_str())?);
            writer.append(cstr!("documentsToCopy"), bytes(collection.documents));
            writer.append(cstr!("documentsCopied"), bytes(collection.documents_done));
            writer.append(cstr!("indexes"), count(collection.indexes as usize));
            writer.append(cstr!("fetchedBatches"), bytes(collection.batches));
            writer.append(cstr!("bytesToCopy"), bytes(collection.bytes));
            writer.append(cstr!("approxBytesCopied"), bytes(collection.bytes_done));
            append_time(writer, collection.began, collection.ended);
            writer.append(cstr!("receivedBatches"), bytes(collection.batches));
            writer.end();
        }
        writer.end();
    }
    writer.end();
    Ok(())
}

fn append_time(writer: &mut DocumentWriter<'_>, began: Option<SystemTime>, ended: Option<SystemTime>) {
    let Some(began) = began else { return };
    let append = |writer: &mut DocumentWriter<'_>, name: &CStr, time| {
        writer.append(name, DateTime::from_system_time(time));
    };
    append(writer, cstr!("start"), began);
    if let Some(ended) = ended {
        append(writer, cstr!("end"), ended);
    }
    let elapsed = ended.unwrap_or_else(SystemTime::now).duration_since(began).unwrap_or_default();
    writer.append(cstr!("elapsedMillis"), millis(elapsed));
}
