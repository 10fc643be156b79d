//! Another member's oplog as a stream: an exhaust cursor from an entry on, batch by batch.
//!
//! What it deliberately does not do: judge what comes, or keep it.

use baton_consensus::SourceState;
use baton_net::{CallError, Outgoing};
use baton_storage::{class_of, optime_of};
use baton_types::{Class, Error, ErrorCode, OpTime, Result, Timestamp};
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use std::time::Duration;

/// How long a source lets a fetch wait for new entries.
const AWAIT: Duration = Duration::from_secs(5);
/// How long it may take to ask for more.
const ASK_WITHIN: Duration = Duration::from_secs(5);

/// Opens a stream that begins with the entry at `from`, if the source has that; gives the first reply.
pub(crate) fn open(connection: &mut Outgoing, from: Timestamp, within: Duration) -> Result<RawDocumentBuf, CallError> {
    let find = rawdoc! {
        "find": "oplog.rs", "filter": { "ts": { "$gte": bson::Timestamp::from(from) } },
        "tailable": true, "awaitData": true, "maxTimeMS": AWAIT.as_millis() as i64,
        "$db": "local", "$oplogQueryData": 1, "$readPreference": { "mode": "secondaryPreferred" },
    };
    connection.call(&find, within)
}

/// Asks for all that follows; [`next`] waits for it.
pub(crate) fn go_on(connection: &mut Outgoing, cursor_id: i64) -> Result<(), CallError> {
    let more = rawdoc! {
        "getMore": cursor_id, "collection": "oplog.rs", "$db": "local",
        "maxTimeMS": AWAIT.as_millis() as i64, "$oplogQueryData": 1,
    };
    connection.begin_stream(&more, ASK_WITHIN)
}

/// The next reply, within more than the five seconds after which a source without news says so; `None` if it ended the stream.
pub(crate) fn next(connection: &mut Outgoing, within: Duration) -> Result<Option<RawDocumentBuf>, CallError> {
    connection.next(within)
}

/// The next reply, if that is here already.
pub(crate) fn next_if_there(connection: &mut Outgoing) -> Result<Option<RawDocumentBuf>, CallError> {
    connection.next_if_there()
}

/// A batch of entries, and what the source says of itself.
pub(crate) struct Batch<'a> {
    pub cursor_id: i64,
    pub entries: Vec<(OpTime, &'a RawDocument)>,
    pub source: SourceState,
    pub commit_point: OpTime,
    /// Whether one of the entries is urgent.
    pub is_urgent: bool,
}

impl<'a> Batch<'a> {
    /// Reads a reply whose batch has this name.
    pub fn read(reply: &'a RawDocument, name: &str) -> Result<Self> {
        if !matches!(reply.get_f64("ok"), Ok(ok) if ok == 1.0) {
            let message = reply.get_str("errmsg").unwrap_or("the source refused without saying why");
            return Err(Error::new(ErrorCode::OperationFailed, message));
        }
        let malformed = |what: String| Error::failed_to_parse(format!("a batch of the oplog: {what}"));
        let cursor = reply.get_document("cursor").map_err(|error| malformed(error.to_string()))?;
        let cursor_id = cursor.get_i64("id").map_err(|error| malformed(error.to_string()))?;
        let (mut entries, mut is_urgent) = (Vec::new(), false);
        for entry in cursor.get_array(name).map_err(|error| malformed(error.to_string()))? {
            let entry = entry?.as_document().ok_or_else(|| malformed("an entry is no document".to_owned()))?;
            let optime = optime_of(entry).ok_or_else(|| malformed("an entry has no OpTime".to_owned()))?;
            is_urgent |= class_of(entry.as_bytes()) == Class::High;
            entries.push((optime, entry));
        }
        let data = reply.get_document("$oplogQueryData").map_err(|error| malformed(error.to_string()))?;
        let position = |name: &str| -> Result<OpTime> {
            let document = data.get_document(name).map_err(|error| malformed(error.to_string()))?;
            optime_of(document).ok_or_else(|| malformed(format!("{name} is no OpTime")))
        };
        Ok(Self {
            cursor_id,
            entries,
            source: SourceState {
                term: data.get_i64("term").map_err(|error| malformed(error.to_string()))?,
                last: position("lastOpApplied")?,
                oldest: data.get_timestamp("oldestOp").map_err(|error| malformed(error.to_string()))?.into(),
            },
            commit_point: position("lastOpCommitted")?,
            is_urgent,
        })
    }
}
