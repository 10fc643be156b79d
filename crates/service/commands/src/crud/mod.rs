//! What the commands on documents share: the surroundings of a query, hints and sorts, retryable statements, the lists
//! of write errors, and cursors over queries.
//!
//! What it deliberately does not do: find or change documents. That is `baton-execution`.

pub mod cursor;
pub mod errors;
pub mod own_documents;
pub mod retry;
pub mod statements;
#[cfg(test)]
mod waiting_tests;

use crate::call::Call;
use crate::mutant::{self, Mutant};
use baton_document::keys::Direction;
use baton_execution::Hint;
use baton_query::Context;
use baton_query::expression::{Expression, check_variable_name};
use baton_query::matcher::Matcher;
use baton_query::sort::{SortPattern, natural_direction};
use baton_request::Acknowledgement;
use baton_request::fields::number_as_i64;
use baton_storage::{Durability, Order};
use baton_types::{Error, ErrorCode, Interruption, Namespace, Result};
use bson::{Bson, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// The surroundings of a command's queries, with the values of its `let`.
pub fn context(call: &Call<'_>, variables: Option<&RawDocument>) -> Result<Arc<Context>> {
    context_with(call, variables, None)
}

/// The same for a command that may say whether it uses the disk.
pub fn context_with(
    call: &Call<'_>,
    variables: Option<&RawDocument>,
    allow_disk_use: Option<bool>,
) -> Result<Arc<Context>> {
    let interruption = call.client.interruption.share(Interruption::default());
    interruption.set(&call.operation.check());
    let effort = Arc::clone(call.effort());
    let mut context = Context::of_request(bson::DateTime::now(), rand::random(), interruption, effort);
    let parameters = &call.server.parameters;
    let bytes = |parameter: &AtomicI64| usize::try_from(parameter.load(Relaxed)).unwrap_or(usize::MAX);
    context.memory_bytes_max = bytes(&parameters.sort_memory_bytes_max);
    context.group_memory_bytes_max = bytes(&parameters.group_memory_bytes_max);
    context.refuses_collection_scans = parameters.notablescan.load(Relaxed);
    context.cluster_time = call.server.topology.is_replicated().then(|| call.server.cluster_time());
    context.read_at = call.read_at;
    context.class = call.reads_as();
    context.memory = Arc::clone(&call.server.stage_memory);
    if allow_disk_use.unwrap_or_else(|| parameters.allow_disk_use_by_default.load(Relaxed)) {
        context.spill = Some(Arc::clone(&call.server.spill_space));
    }
    context.spill_totals = Arc::clone(&call.server.spill_totals);
    for element in variables.into_iter().flat_map(RawDocument::iter) {
        let (name, value) = element?;
        check_variable_name(name.as_str())?;
        let empty = RawDocumentBuf::new();
        let value = Expression::parse(value, &context)?.evaluate(&empty, &context)?;
        context.set_variable(name.as_str(), value.unwrap_or(Bson::Undefined))?;
    }
    Ok(Arc::new(context))
}

/// A filter, parsed; absent is all.
pub fn matcher(filter: Option<&RawDocument>, context: &Context) -> Result<Arc<Matcher>> {
    Ok(Arc::new(match filter {
        Some(filter) if !filter.is_empty() => Matcher::parse(filter, context)?,
        _ => Matcher::always(),
    }))
}

/// A sort: a pattern, or the natural order, which is a way to walk the collection.
pub fn sort(sort: Option<&RawDocument>) -> Result<(Option<Arc<SortPattern>>, Option<Hint>)> {
    let Some(sort) = sort.filter(|sort| !sort.is_empty()) else { return Ok((None, None)) };
    match natural_direction(sort)? {
        Some(direction) => {
            let order = match direction {
                Direction::Ascending => Order::Forward,
                Direction::Descending => Order::Backward,
            };
            Ok((None, Some(Hint::Natural(order))))
        }
        None => Ok((Some(Arc::new(SortPattern::parse(sort)?)), None)),
    }
}

/// A hint: an index's name, its key pattern, or `$natural`.
pub fn hint(value: Option<RawBsonRef<'_>>) -> Result<Option<Hint>> {
    match value {
        None => Ok(None),
        Some(RawBsonRef::String(name)) => Ok(Some(Hint::Name(name.to_owned()))),
        Some(RawBsonRef::Document(pattern)) if pattern.is_empty() => Ok(None),
        Some(RawBsonRef::Document(pattern)) => match pattern.get("$natural")? {
            Some(direction) => {
                let forward = number_as_i64(direction).is_none_or(|n| n >= 0);
                Ok(Some(Hint::Natural(if forward { Order::Forward } else { Order::Backward })))
            }
            None => Ok(Some(Hint::Pattern(pattern.to_owned()))),
        },
        Some(_) => Err(Error::failed_to_parse("Hint must be a string or an object")),
    }
}

/// Refuses every collation but the simple one, which is how strings compare anyway.
pub fn check_collation(collation: Option<&RawDocument>) -> Result<()> {
    match collation {
        Some(collation) if !collation.is_empty() && collation.get_str("locale").ok() != Some("simple") => {
            Err(Error::not_implemented("collation"))
        }
        _ => Ok(()),
    }
}

/// How long the command's writes have to wait.
pub fn durability(call: &Call<'_>) -> Durability {
    let concern = call.write_concern();
    if !concern.wants_sync() {
        Durability::Applied
    } else if concern.w == Acknowledgement::Majority && !call.standing.is_own_majority {
        Durability::Wanted
    } else {
        Durability::Synced
    }
}

/// Makes what a command's statements have written as safe as it is to be. `repeated`: some were carried out by an earlier request,
/// whose transaction may still stand in the queue.
pub fn settle(call: &Call<'_>, repeated: bool) {
    let queue = call.server.storage.queue();
    if repeated {
        queue.drain();
    }
    queue.settle(durability(call));
}

/// Ends a read at majority or stronger: waits until everything it can have seen is committed, and on this member's disk if the set
/// counts disks. A linearizable read writes first, and
/// after it has read: once that entry is committed, this member was still primary when it read.
pub fn settle_read(call: &Call<'_>) -> Result<()> {
    use baton_request::ReadLevel;
    let server = call.server;
    match call.envelope.read_concern.level {
        ReadLevel::Local | ReadLevel::Available => return Ok(()),
        ReadLevel::Majority | ReadLevel::Snapshot => {}
        ReadLevel::Linearizable => {
            if !server.topology.is_writable_primary() {
                let message = "cannot satisfy linearizable read concern on non-primary node";
                return Err(Error::new(ErrorCode::NotWritablePrimary, message));
            }
            if !server.topology.is_own_majority() && !mutant::is(Mutant::LinearizableUnproved) {
                let _writing = server.write_lock.enter(&|| call.operation.check_interrupt())?;
                note(call, "linearizable read")?;
            }
        }
    }
    let seen = server.storage.queue().applied();
    match server.replication() {
        Some(replication) if !server.topology.is_own_majority() => {
            let interrupted = || call.operation.check_interrupt();
            replication.waiters().await_majority(call.standing.era, seen, None, interrupted)?;
            // A majority's disks have it, and perhaps not this one's: after a loss of power here the next answer would be older.
            if replication.topology().configuration.as_ref().is_none_or(|set| set.majority_is_durable) {
                server.storage.queue().sync_until(seen);
            }
            Ok(())
        }
        _ => {
            server.storage.sync();
            Ok(())
        }
    }
}

/// Writes an entry that changes nothing, to wait for a majority to have it: once it is committed, this member was primary when it was
/// written. This member's disk may be one of the majority.
pub(crate) fn note(call: &Call<'_>, message: &str) -> Result<()> {
    call.writer().note_durably(&Namespace::new("admin", "$cmd")?, &rawdoc! { "msg": message }, Durability::Wanted)?;
    Ok(())
}

/// A batch's size: absent is the default, negative is refused.
pub fn batch_size(value: Option<i64>, field: &str) -> Result<Option<usize>> {
    match value {
        None => Ok(None),
        Some(size) if size < 0 => {
            Err(Error::location(51024, format!("BSON field '{field}' value must be >= 0, actual value '{size}'")))
        }
        Some(size) => Ok(Some(usize::try_from(size).unwrap_or(usize::MAX))),
    }
}

/// The one statement of a batch that is explained.
pub fn sole_statement(batch: &bson::RawArray) -> Result<&RawDocument> {
    let mut statements = batch.into_iter();
    match (statements.next().transpose()?, statements.next()) {
        (Some(RawBsonRef::Document(statement)), None) => Ok(statement),
        _ => Err(Error::failed_to_parse("explained write batches must be of size 1")),
    }
}

/// Writes per command, at the most.
const WRITES_MAX: usize = 100_000;

/// Refuses batches that are empty or too long (`InvalidLength`, 16).
pub fn check_batch_length(length: usize) -> Result<()> {
    if length == 0 || length > WRITES_MAX {
        return Err(Error::new(
            ErrorCode::InvalidLength,
            format!("Write batch sizes must be between 1 and {WRITES_MAX}. Got {length} operations."),
        ));
    }
    Ok(())
}
