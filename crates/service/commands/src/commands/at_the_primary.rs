//! A command that a secondary was asked for and that writes: the primary carries it out, `$out` and `$merge` whole.
//!
//! Invariant: when it is answered, this member has applied what the primary had when it answered, so that whoever reads here next
//! finds what was written.
//! What it deliberately does not do: read here, as MongoDB does; what the primary reads is no older.

use crate::call::{Call, Reply};
use crate::tail;
use baton_request::fields::number_as_i64;
use baton_types::{Error, ErrorCode, Result, Timestamp};
use bson::{RawDocument, RawDocumentBuf, cstr, rawdoc};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// How long the primary may take, unless the client says.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Fields of a reply that are the answering member's own.
const OWN: [&str; 5] = ["ok", "$clusterTime", "operationTime", "topologyVersion", "errorLabels"];

/// Has the primary carry this command out, and answers what it answers.
pub fn carry_out(call: &Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let mut command = RawDocumentBuf::new();
    for element in call.request.body.iter() {
        let (key, value) = element?;
        if key.as_str() != "$readPreference" {
            command.append(key, value);
        }
    }
    // Whoever turns out to be no primary refuses it, and does not hand it on again.
    command.append(cstr!("$readPreference"), rawdoc! { "mode": "primary" });
    let timeout = call.operation.deadline().map_or(TIMEOUT, |at| at.saturating_duration_since(Instant::now()));
    let answer = ask(call, command, timeout)?;
    if answer.get("ok")?.and_then(number_as_i64).is_none_or(|ok| ok != 1) {
        let code = answer.get("code")?.and_then(number_as_i64).and_then(|code| i32::try_from(code).ok());
        let message = answer.get_str("errmsg").unwrap_or("the primary refused without saying why");
        return Err(Error::new(code.map_or(ErrorCode::OperationFailed, ErrorCode), message));
    }
    await_entry(call, &answer)?;
    for element in answer.iter() {
        let (key, value) = element?;
        if !OWN.contains(&key.as_str()) {
            reply.append(key, value);
        }
    }
    reply.is_settled = true;
    Ok(())
}

/// Asks the primary, and goes on asking whether to wait: a deadline or a kill ends the waiting here, not the work there.
fn ask(call: &Call<'_>, command: RawDocumentBuf, timeout: Duration) -> Result<RawDocumentBuf> {
    const SLICE: Duration = Duration::from_millis(100);
    let server = Arc::clone(call.server);
    let (answered, answer) = mpsc::channel();
    let asks = move || {
        let answer = match server.replication() {
            Some(replication) => replication.ask_primary(&command, timeout),
            None => Err(Error::new(ErrorCode::NotWritablePrimary, "not primary")),
        };
        // Who asked may be gone.
        let _ = answered.send(answer);
    };
    (call.server.hooks.start_thread)("ask-primary", Box::new(asks))
        .map_err(|error| Error::new(ErrorCode::OperationFailed, format!("cannot ask the primary: {error}")))?;
    loop {
        match answer.recv_timeout(SLICE) {
            Ok(answer) => return answer,
            Err(mpsc::RecvTimeoutError::Timeout) => call.operation.check_interrupt()?,
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err(Error::new(ErrorCode::OperationFailed, "nobody asked the primary"));
            }
        }
    }
}

/// Waits until this member has applied everything up to the answer's `operationTime`.
fn await_entry(call: &Call<'_>, answer: &RawDocument) -> Result<()> {
    const SLICE: Duration = Duration::from_millis(100);
    let Ok(time) = answer.get_timestamp("operationTime") else { return Ok(()) };
    let time = Timestamp::from(time);
    tail::observe(call.server, time)?;
    let queue = call.server.storage.queue();
    while queue.applied().timestamp < time {
        queue.wait_applied_beyond(Timestamp::from_u64(time.as_u64().saturating_sub(1)), SLICE);
        call.operation.check_interrupt()?;
    }
    call.server.storage.settle_catalog();
    Ok(())
}
