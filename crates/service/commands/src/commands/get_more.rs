//! `getMore`: the next batch of a cursor. Source: MongoDB manual, "getMore".

use crate::call::{Call, Reply};
use crate::crud::{self, batch_size};
use crate::server::{BatchBuilder, BatchEnd};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_request::Kind;
use baton_types::{Error, ErrorCode, Namespace, Result};
use bson::cstr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "getMore",
    kind: Kind::GetMore,
    flags: Flags::ADMITTED.and(Flags::READ_CONCERN).and(Flags::SNAPSHOT).and(Flags::API_V1).and(Flags::ANY_ROLE),
    help: "retrieve more results from an existing cursor",
    run,
    ..DEFAULT
};

/// How long a tailable cursor waits for data when the client names no time.
const AWAIT_DEFAULT: Duration = Duration::from_secs(1);

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let id = call.envelope.value.as_i64().or_else(|| call.envelope.value.as_i32().map(i64::from));
    let Some(id) = id else {
        return Err(Error::type_mismatch("BSON field 'getMore.getMore' is the wrong type, expected type 'long'"));
    };
    let collection: &str = call.fields.required("collection")?;
    let namespace = if collection.starts_with("$cmd") {
        format!("{}.{collection}", call.envelope.db)
    } else {
        Namespace::new(call.envelope.db, collection)?.as_str().to_owned()
    };
    let size = batch_size(call.fields.optional("batchSize")?, "batchSize")?;
    for ignored in ["term", "lastKnownCommittedOpTime"] {
        call.fields.take(ignored);
    }
    call.fields.finish()?;
    let mut pinned = call.server.cursors.pin(id, &namespace, call.envelope.session, &call.operation)?;
    let _ = call.effort.set(Arc::clone(&pinned.info.effort));
    if let Some(fault) = call.server.fail_points.fires("failGetMoreAfterCursorCheckout") {
        let code = fault.get("errorCode")?.and_then(baton_request::fields::number_as_i64).unwrap_or(1);
        let code = ErrorCode(i32::try_from(code).unwrap_or(1));
        return Err(Error::new(code, "Hit the 'failGetMoreAfterCursorCheckout' failpoint"));
    }
    let await_until = if pinned.cursor().awaits_data() {
        let wait = call.envelope.max_time.unwrap_or(AWAIT_DEFAULT);
        Some(call.operation.started + wait)
    } else {
        if call.envelope.max_time_given {
            return Err(Error::bad_value("cannot set maxTimeMS on getMore command for a non-awaitData cursor"));
        }
        if let Some(left) = pinned.info.time_left {
            call.operation.limit_deadline(Instant::now() + left);
            call.expire_on_demand();
            call.operation.check_interrupt()?;
        }
        None
    };
    let begun = Instant::now();
    reply.begin_document(cstr!("cursor"));
    reply.begin_array(cstr!("nextBatch"));
    // The first batch's size is not this one's: without a size of its own a batch is as large as a message may be.
    let wanted = size.filter(|size| *size > 0);
    let mut batch = BatchBuilder::new(reply, wanted, &call.server.reply_memory);
    let end = match pinned.cursor().next_batch(&mut batch, &call.operation, await_until) {
        // An awaiting cursor that ran out of time answers with what it has: nothing.
        Err(error) if error.code == ErrorCode::MaxTimeMSExpired && await_until.is_some() => BatchEnd::More,
        end => end.map_err(|error| error.in_context("Executor error during getMore"))?,
    };
    call.returned.set(Some(batch.count() as u64));
    call.client.hold_reply(batch.into_memory());
    reply.end();
    let open = match end {
        BatchEnd::Exhausted => 0,
        BatchEnd::More => id,
    };
    reply.append(cstr!("id"), open);
    reply.append(cstr!("ns"), namespace.as_str());
    pinned.cursor().append_extra(reply);
    reply.end();
    if open != 0 {
        pinned.info.time_left = pinned.info.time_left.map(|left| left.saturating_sub(begun.elapsed()));
        pinned.put_back();
        if call.request.flags.exhaust_allowed() {
            reply.stream(call.request.body.to_owned());
        }
    }
    crud::settle_read(call)
}
