//! The statements of an update or a delete: carried out one after the other, each with its retry, its profile and its error.
//!
//! Invariants:
//! - A statement that was carried out by an earlier request is not carried out again: what that one was answered with counts.
//! - What fails a statement is its own error, and ends an ordered batch; what is the member's failure ends the command.
//! - Of several statements only the end waits for the disk: one sync covers them all. A single one of one document waits for nothing, if the
//!   command does not have to ([`Call::leave`]).

use crate::aftermath::{self, StatementFigures};
use crate::call::Call;
use crate::crud::errors::{WriteErrors, ends_command};
use crate::crud::retry::{self, RetrySession, Statements};
use crate::crud::{durability, settle};
use baton_execution::SystemDraw;
use baton_execution::write::{Retry, Work, Written};
use baton_query::Context;
use baton_storage::{Durability, Throttle};
use baton_types::{Error, ErrorCode, Namespace, Result};
use bson::RawDocument;
use std::cell::Cell;
use std::sync::Arc;

/// One element of `updates` or `deletes`, its fields checked.
pub trait Statement {
    /// What its fields hold, and the surroundings in which they do.
    type Parsed;

    /// What makes it one of many documents, as in MongoDB's message.
    const OF_MANY: &'static str;

    /// As the client wrote it.
    fn document(&self) -> &RawDocument;

    /// Whether it is of many documents.
    fn is_of_many(&self) -> bool;

    /// What fails here fails this statement alone.
    fn parse(&self, context: &Arc<Context>) -> Result<Self::Parsed>;

    /// Carries it out.
    fn write(
        parsed: &Self::Parsed,
        work: &Work<'_>,
        namespace: &Namespace,
        retry: Option<&mut Retry<'_>>,
    ) -> Result<Written>;

    /// What it did.
    fn figures(written: &Written) -> StatementFigures;
}

/// What all statements of a command did.
pub trait Sums {
    /// One more was carried out.
    fn add(&mut self, index: usize, written: Written);

    /// One more had been, and was answered with this.
    fn add_repeated(&mut self, index: usize, reply: &RawDocument) -> Result<()>;
}

/// Carries them all out; gives the errors of those that failed.
pub fn carry_out<S: Statement>(
    call: &mut Call<'_>,
    namespace: &Namespace,
    statements: &[S],
    ordered: bool,
    context: &Arc<Context>,
    sums: &mut impl Sums,
) -> Result<WriteErrors> {
    let session = retry::session(call)?;
    let is_single = statements.len() == 1;
    let is_of_one = is_single && !statements[0].is_of_many();
    let (throttle, author, left) = (Throttle::default(), Arc::clone(&call.author), Cell::default());
    let work = Work {
        storage: &call.server.storage,
        draw: &SystemDraw,
        interruption: &context.interruption,
        durability: if is_single { durability(call) } else { Durability::Applied },
        throttle: &throttle,
        author: &author,
        left: is_of_one.then_some(&left),
    };
    let mut errors = WriteErrors::default();
    // What was done before may not be on disk yet.
    let mut is_repeated = false;
    let mut all = |mut record: Option<&mut Statements<'_>>| -> Result<()> {
        for (index, statement) in statements.iter().enumerate() {
            let number = retry::statement_id(call, index);
            if let Some(done) = record.as_ref().and_then(|record| record.executed(number)) {
                sums.add_repeated(index, &done)?;
                is_repeated = true;
                continue;
            }
            let retry = record.as_deref_mut().map(|record| record.retry(number));
            let carry_out = || one(call, &work, namespace, statement, context, retry);
            match aftermath::profiled(call, namespace, statement.document(), S::figures, carry_out) {
                Ok(written) => sums.add(index, written),
                // Not the statement's failure but the member's: drivers look for it at the top of a reply.
                Err(error) if ends_command(error.code) => return Err(error),
                Err(error) => {
                    errors.push(index, error);
                    if ordered {
                        break;
                    }
                }
            }
        }
        Ok(())
    };
    match &session {
        None => all(None)?,
        Some(session) => session.with(|record| all(Some(record)))?,
    }
    if !is_single || is_repeated {
        settle(call, is_repeated);
    } else if is_of_one {
        call.wrote_one();
        call.leave(&left, session.as_ref().map(RetrySession::handle));
    }
    Ok(errors)
}

fn one<S: Statement>(
    call: &Call<'_>,
    work: &Work<'_>,
    namespace: &Namespace,
    statement: &S,
    context: &Arc<Context>,
    mut retry: Option<Retry<'_>>,
) -> Result<Written> {
    let parsed = statement.parse(context)?;
    if retry.is_some() {
        if statement.is_of_many() {
            let message = format!("Cannot use retryable writes with {}", S::OF_MANY);
            return Err(Error::new(ErrorCode::InvalidOptions, message));
        }
        retry::fail_before(call)?;
    }
    let written = S::write(&parsed, work, namespace, retry.as_mut())?;
    if retry.is_some() {
        let StatementFigures { modified, upserted, deleted, .. } = S::figures(&written);
        retry::fail_after(call, modified + upserted + deleted);
    }
    Ok(written)
}
