//! Inserts, many of them in one transaction.

use super::{Retry, Work, fill_timestamps, prepare, refuse_view, validate};
use baton_storage::{Durability, Inserted};
use baton_types::{Error, Namespace, OpTime, Result};
use bson::{RawDocument, rawdoc};

/// Documents inserted together reach the commit queue together, up to this many.
const INSERT_BATCH_DOCUMENTS: usize = 128;
const INSERT_BATCH_BYTES: usize = 256 * 1024;

/// How documents are inserted.
#[derive(Clone, Copy, Debug, Default)]
pub struct InsertRules {
    /// Whether the first failure ends it.
    pub ordered: bool,
    /// Whether the validator is not asked.
    pub bypass_validation: bool,
    /// Whether empty timestamps stay empty.
    pub keeps_empty_timestamps: bool,
}

/// Inserts documents in order. Each failure is reported with its place; the first ends it if they are ordered.
///
/// `first_stmt` gives the number of each document's statement, for a retryable write. Returns how many were inserted and
/// the last OpTime.
pub fn insert_many(
    work: &Work<'_>,
    namespace: &Namespace,
    documents: &mut dyn Iterator<Item = (usize, &RawDocument, i32)>,
    rules: InsertRules,
    mut retry: Option<Retry<'_>>,
    failed: &mut dyn FnMut(usize, Error),
) -> Result<(u64, OpTime)> {
    let Work { storage, draw, interruption, durability, throttle, .. } = *work;
    let collection = work.writer().collection_or_create(namespace, || draw.uuid())?;
    refuse_view(&collection)?;
    let mut inserted = 0;
    let mut last = OpTime::ZERO;
    let mut documents = documents.peekable();
    while documents.peek().is_some() {
        interruption.look()?;
        work.keep_pace()?;
        // The collection may be dropped between two batches; then it is made anew.
        work.writer().collection_or_create(namespace, || draw.uuid())?;
        let outcome = storage.with_collection(namespace, |collection| -> Result<bool> {
            let Some(collection) = collection else { return Ok(true) };
            // What was a collection before the last batch may be a view by now.
            if let Err(error) = refuse_view(collection) {
                let Some((at, ..)) = documents.next() else { return Ok(false) };
                failed(at, error);
                return Ok(!rules.ordered);
            }
            let bytes_max = throttle.transaction_bytes(storage).min(INSERT_BATCH_BYTES);
            let mut transaction = work.transaction();
            let mut count = 0;
            let mut stop = false;
            while let Some((at, document, stmt_id)) = documents.peek().copied() {
                if count == INSERT_BATCH_DOCUMENTS || transaction.bytes() > bytes_max {
                    break;
                }
                if let Some(retry) = &mut retry {
                    retry.stmt_id = stmt_id;
                }
                let added = prepare(document, draw).and_then(|mut prepared| {
                    if !rules.keeps_empty_timestamps {
                        prepared = fill_timestamps(prepared, draw)?;
                    }
                    if !rules.bypass_validation {
                        validate(collection, &prepared, None, interruption)?;
                    }
                    storage.insert(&mut transaction, collection, &prepared, retry.as_ref().map(Retry::statement))
                });
                match added {
                    Ok(Inserted::Added) => {
                        count += 1;
                        documents.next();
                        if let Some(retry) = &mut retry {
                            retry.done(&mut transaction, rawdoc! { "n": 1 });
                        }
                    }
                    Ok(Inserted::CommitFirst) => break,
                    Err(_) if interruption.look().is_err() => {
                        stop = true;
                        break;
                    }
                    Err(error) => {
                        documents.next();
                        failed(at, error);
                        stop = rules.ordered;
                        if stop {
                            break;
                        }
                    }
                }
            }
            if transaction.is_empty() {
                storage.abandon(transaction);
            } else {
                // With more to come only the last batch waits for the disk; a sync covers all before it.
                let is_last = documents.peek().is_none() || stop;
                let outcome = match is_last {
                    true => work.commit_last(transaction, durability),
                    false => work.commit(transaction, Durability::Applied),
                };
                last = match &mut retry {
                    Some(retry) => retry.committed(storage, outcome),
                    None => outcome,
                }?;
            }
            inserted += count as u64;
            if stop {
                // It is not the document that failed.
                interruption.look()?;
            }
            Ok(!stop)
        })?;
        if !outcome {
            break;
        }
    }
    Ok((inserted, last))
}

/// Inserts one document.
pub fn insert_one(work: &Work<'_>, namespace: &Namespace, document: &RawDocument) -> Result<OpTime> {
    let mut failure = None;
    let mut documents = std::iter::once((0, document, 0));
    let (_, optime) = insert_many(
        work,
        namespace,
        &mut documents,
        InsertRules { ordered: true, keeps_empty_timestamps: true, ..InsertRules::default() },
        None,
        &mut |_, error| failure = Some(error),
    )?;
    failure.map_or(Ok(optime), Err)
}
