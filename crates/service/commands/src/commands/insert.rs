//! `insert`: new documents. Source: MongoDB manual, "insert".

use crate::call::{Call, Reply};
use crate::crud::errors::WriteErrors;
use crate::crud::retry::{self, RetrySession, Statements};
use crate::crud::{self, check_batch_length, durability};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_execution::write::{InsertRules, Work};
use baton_execution::{SystemDraw, write};
use baton_request::Kind;
use baton_storage::Throttle;
use baton_types::Result;
use bson::{RawDocument, cstr};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "insert",
    kind: Kind::Insert,
    flags: Flags::ADMITTED
        .and(Flags::WRITE_CONCERN)
        .and(Flags::RETRYABLE)
        .and(Flags::API_V1)
        .and(Flags::WRITES)
        .and(Flags::ON_COLLECTION),
    sequences: &["documents"],
    help: "insert documents",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = call.namespace()?;
    super::create::check_writable(&namespace)?;
    let documents = call.documents("documents")?;
    let rules = InsertRules {
        ordered: call.fields.optional::<bool>("ordered")?.unwrap_or(true),
        bypass_validation: call.fields.truth("bypassDocumentValidation")?,
        keeps_empty_timestamps: call.fields.truth("bypassEmptyTsReplacement")?,
    };
    call.fields.finish()?;
    check_batch_length(documents.len())?;
    call.server.counters.count_operations(Kind::Insert, documents.len() as u64);
    let storage = &call.server.storage;
    let mut errors = WriteErrors::default();
    let repeated = AtomicU64::new(0);
    let session = retry::session(call)?;
    let ids: Vec<i32> = if session.is_some() {
        (0..documents.len()).map(|i| retry::statement_id(call, i)).collect()
    } else {
        Vec::new()
    };
    let numbered = documents.iter().enumerate().map(|(i, document)| (i, document, ids.get(i).copied().unwrap_or(0)));
    let (throttle, author, left) = (Throttle::default(), Arc::clone(&call.author), Cell::default());
    let interruption = call.operation.interruption();
    let work = Work {
        storage,
        draw: &SystemDraw,
        interruption: &interruption,
        durability: durability(call),
        throttle: &throttle,
        author: &author,
        left: Some(&left),
    };
    let inserted = match &session {
        None => {
            let mut numbered = numbered;
            write::insert_many(&work, &namespace, &mut numbered, rules, None, &mut |i, e| errors.push(i, e))?.0
        }
        Some(session) => session.with(|statements: &mut Statements<'_>| {
            let done: Vec<bool> = ids.iter().map(|id| statements.executed(*id).is_some()).collect();
            repeated.store(done.iter().filter(|done| **done).count() as u64, Ordering::Relaxed);
            let mut failure = None;
            let mut fresh =
                numbered.filter(|(i, _, _): &(usize, &RawDocument, i32)| !done[*i]).take_while(|(i, _, _)| {
                    failure = retry::fail_before(call).err().map(|error| (*i, error));
                    failure.is_none()
                });
            let retry = statements.retry(0);
            let failed = &mut |i, e| errors.push(i, e);
            let (inserted, _) = write::insert_many(&work, &namespace, &mut fresh, rules, Some(retry), failed)?;
            retry::fail_after(call, inserted);
            if let Some((i, error)) = failure {
                errors.push(i, error);
            }
            Ok(inserted)
        })?,
    };
    let repeated = repeated.load(Ordering::Relaxed);
    call.leave(&left, session.as_ref().map(RetrySession::handle));
    if repeated > 0 || !errors.is_empty() {
        call.await_left();
    } else {
        call.wrote_all();
    }
    if repeated > 0 {
        crud::settle(call, true);
    }
    reply.append(cstr!("n"), (inserted + repeated) as i32);
    errors.append(reply);
    Ok(())
}
