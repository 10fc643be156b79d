//! Deleting documents that have expired by a TTL index. Source: MongoDB manual, "TTL Indexes".
//!
//! Invariants: a pass is registered as an operation and, for each index, as a task that asks the gate, both of the class
//! background; documents go in batches, each found again and locked by itself, through the one path every delete takes;
//! an index that fails is logged and does not keep the others waiting.
//! What it deliberately does not do: run by itself. [`crate::duties`] has it done.

use crate::server::{Begin, Operation, Server};
use baton_admission::Source;
use baton_execution::Hint;
use baton_execution::SystemDraw;
use baton_execution::write::{self, DeleteStatement, Image, Work};
use baton_query::Context;
use baton_query::matcher::Matcher;
use baton_storage::tasks::{Asked, TaskKind, WaitingTask};
use baton_storage::{Author, Collection, CollectionKind, Durability, Index, IndexFieldKind, IndexState, Throttle};
use baton_types::{Class, ErrorCode, Result};
use bson::raw::CString;
use bson::{DateTime, RawDocumentBuf, cstr, rawdoc};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What deletion has done since the start: serverStatus's `metrics.ttl`.
#[derive(Default)]
pub struct Figures {
    /// Passes over all TTL indexes.
    pub passes: AtomicU64,
    /// Documents deleted.
    pub deleted_documents: AtomicU64,
    /// Deletions that the gate let wait, by what they are of.
    waiting: Mutex<HashMap<String, WaitingTask>>,
}

impl Figures {
    /// Asks for a deletion, or asks again.
    fn ask(&self, server: &Server, name: &str) -> Asked {
        match self.waiting.lock().remove(name) {
            Some(waiting) => waiting.ask_again(),
            None => server.storage.tasks().admit(TaskKind::TtlDeletion, name, 0),
        }
    }
}

/// One pass over all TTL indexes; returns how many documents it deleted. Ends early if it is killed or the member stops.
pub fn run_once(server: &Arc<Server>) -> u64 {
    let slot = server.operations.register("TTLMonitor");
    let operation = server.operations.begin(
        slot.slot(),
        &Begin {
            kind: "none",
            name: "ttl",
            db: "admin",
            collection: "",
            command: None,
            session: None,
            class: Class::Background,
            source: Source::Default,
            max_time: None,
            waited: Duration::ZERO,
        },
    );
    let catalog = server.storage.catalog();
    // What is gone waits no more.
    let names: HashSet<String> = catalog
        .iter()
        .flat_map(|collection| collection.indexes().iter().map(|index| name_of(collection, index)).collect::<Vec<_>>())
        .collect();
    server.ttl.waiting.lock().retain(|name, _| names.contains(name));
    let mut deleted = 0;
    for collection in catalog.iter().filter(|collection| collection.kind == CollectionKind::Clustered) {
        for index in collection.indexes().iter() {
            let Some(secs) = index.definition.expire_after_secs.filter(|_| index.state() == IndexState::Ready) else {
                continue;
            };
            if operation.check_interrupt().is_err() {
                return deleted;
            }
            match delete_expired(server, &operation, collection, index, secs) {
                Ok(count) => deleted += count,
                Err(error) if interrupts(error.code) => return deleted,
                // Nothing is left to expire.
                Err(error) if error.code == ErrorCode::QueryPlanKilled => {}
                Err(error) => tracing::warn!(
                    target: "INDEX",
                    id = 5_400_703,
                    ns = %collection.namespace,
                    index = index.definition.name,
                    error = %error,
                    "Error running TTL job on collection"
                ),
            }
        }
    }
    server.ttl.passes.fetch_add(1, Relaxed);
    deleted
}

fn name_of(collection: &Collection, index: &Index) -> String {
    format!("{} {}", collection.namespace, index.definition.name)
}

fn interrupts(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::Interrupted | ErrorCode::InterruptedAtShutdown)
}

fn delete_expired(
    server: &Server,
    operation: &Operation,
    collection: &Arc<Collection>,
    index: &Arc<Index>,
    secs: i64,
) -> Result<u64> {
    let storage = &server.storage;
    let name = name_of(collection, index);
    let now = DateTime::now();
    let Some(filter) = expired(index, secs, now)? else { return Ok(0) };
    let task = match server.ttl.ask(server, &name) {
        Asked::Admitted(task) => task,
        // It asks again with the next pass.
        Asked::Waits(waiting) => {
            server.ttl.waiting.lock().insert(name, waiting);
            return Ok(0);
        }
    };
    let context = Arc::new(Context::new(now, 0));
    let statement = DeleteStatement {
        filter: Arc::new(Matcher::parse(&filter, &context)?),
        multi: true,
        hint: Some(Hint::EvenHidden(index.definition.name.clone())),
        sort: None,
        image: Image::None,
    };
    let mut deleted = 0;
    // As long as documents expire by this index as they do now. Of what is left after a gate's no the next pass asks.
    let goes_on = |collection: &Collection| {
        if !task.may_go_on() {
            return Ok(false);
        }
        let indexes = collection.indexes();
        let Some(index) = indexes.iter().find(|now| now.id == index.id) else { return Ok(false) };
        let Some(secs) = index.definition.expire_after_secs else { return Ok(false) };
        Ok(expired(index, secs, now)?.is_some_and(|now| *now == *filter))
    };
    let interruption = operation.interruption();
    let throttle = Throttle::of_member();
    let work = Work {
        storage,
        draw: &SystemDraw,
        interruption: &interruption,
        durability: Durability::Applied,
        throttle: &throttle,
        author: &Author::default(),
        left: None,
    };
    let namespace = &collection.namespace;
    write::delete_while(
        &work,
        namespace,
        &statement,
        &goes_on,
        &mut |documents| {
            deleted += documents;
            server.ttl.deleted_documents.fetch_add(documents, Relaxed);
            task.progress(deleted, 0);
            task.rest();
            operation.set_progress(format!("Deleting expired documents of {namespace}"), deleted, 0);
        },
        &context,
    )?;
    Ok(deleted)
}

/// What has expired by `now`: dates before the threshold, among the documents that the index covers. `None` for an index
/// that MongoDB would not expire by either.
fn expired(index: &Index, secs: i64, now: DateTime) -> Result<Option<RawDocumentBuf>> {
    let [(path, IndexFieldKind::Ascending | IndexFieldKind::Descending)] = index.definition.fields.as_slice() else {
        return Ok(None);
    };
    let threshold = now.timestamp_millis().saturating_sub(secs.saturating_mul(1000));
    let mut date = RawDocumentBuf::new();
    date.append(CString::try_from(path.as_str())?, rawdoc! { "$lt": DateTime::from_millis(threshold) });
    match index.definition.document.get("partialFilterExpression")?.and_then(|filter| filter.as_document()) {
        None => Ok(Some(date)),
        Some(partial) => {
            let mut both = RawDocumentBuf::new();
            let mut all = bson::RawArrayBuf::new();
            all.push(partial.to_owned());
            all.push(date);
            both.append(cstr!("$and"), all);
            Ok(Some(both))
        }
    }
}
