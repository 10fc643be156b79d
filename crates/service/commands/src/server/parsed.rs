//! What large requests are parsed into, and the memory for that.
//!
//! Invariants: a large request holds memory of the pool for parsed requests until it is carried out; the cursor that it leaves open
//! keeps its filter or pipeline, and holds as much of the pool for cursors until it is closed. Each pool has one at a time go on
//! beyond it. Nobody waits for a cursor: its client may leave it for minutes.
//! Not here: waiting for the first pool (the connection's handler).

use baton_types::{Error, ErrorCode, MemoryAccount, MemoryPool, Result};
use baton_wire::Request;
use std::sync::Arc;

/// A smaller request is not worth counting.
const SMALL_REQUEST_BYTES: usize = 64 * 1024;
/// What a byte of a filter becomes once it is parsed and has bounds: a number of six bytes in `$in` is a value in the filter, and
/// two keys in the plan. Measured of what an open cursor keeps of an `$in`: 7 (object ids) and 11 (numbers) where no index serves
/// it, 15 (strings), 22 and 30 where one does.
const PARSED_FACTOR: usize = 20;

/// What a request becomes in memory when it is parsed, in bytes, if that is much. Documents to insert are taken as they come.
pub fn parsed_bytes(request: &Request<'_>) -> Option<usize> {
    let in_sequences: usize = request.sequences.iter().map(|(_, sequence)| sequence.size_bytes()).sum();
    let bytes = request.body.as_bytes().len() + in_sequences;
    if bytes <= SMALL_REQUEST_BYTES {
        return None;
    }
    (!matches!(request.command_name(), "insert" | "getMore")).then_some(bytes.saturating_mul(PARSED_FACTOR))
}

/// Memory of the pool for cursors, for the one that a request leaves open; `None` for a small request.
///
/// `ExceededMemoryLimit` (146) if open cursors of others leave too little.
pub fn hold_for_cursor(request: &Request<'_>, pool: &Arc<MemoryPool>) -> Result<Option<MemoryAccount>> {
    let Some(bytes) = parsed_bytes(request) else { return Ok(None) };
    let mut account = pool.account(usize::MAX);
    if account.set_in_turn(bytes) {
        return Ok(Some(account));
    }
    let message = format!(
        "What this request's filter or pipeline takes ({bytes} bytes) would be kept with its cursor, and open cursors of other large \
         requests leave too little memory for it. Ask for less at a time, or close other cursors first"
    );
    Err(Error::new(ErrorCode::ExceededMemoryLimit, message))
}
