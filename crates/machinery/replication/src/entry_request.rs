//! What a secondary asks the primary to do for its clients: to write an entry that changes nothing, where one waits for a time that
//! the set's log has not reached; to carry a command out that writes.

use baton_net::{CallError, Outgoing};
use baton_types::{Error, ErrorCode, Result, Timestamp};
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use std::time::Duration;

/// How long the primary may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Has the member at `host` carry a command out; returns its reply, whatever it says.
pub(crate) fn ask(host: &str, command: &RawDocument, timeout: Duration) -> Result<RawDocumentBuf> {
    Outgoing::connect(host, TIMEOUT)
        .map_err(CallError::from)
        .and_then(|mut connection| connection.call(command, timeout))
        .map_err(|error| {
            Error::new(ErrorCode::HostUnreachable, format!("the primary, {host}, does not answer: {error}"))
        })
}

/// Asks the member at `host` for an entry of that time or later, and does not wait for the answer: the entry comes by the log.
pub(crate) fn ask_for_entry(host: String, time: Timestamp) {
    let asked = std::thread::Builder::new().name("entry-request".into()).spawn(move || {
        let time = bson::Timestamp::from(time);
        let request = rawdoc! {
            "appendOplogNote": 1, "maxClusterTime": time, "data": { "msg": "noop write for reads of a secondary" },
            "writeConcern": { "w": 1 }, "$clusterTime": { "clusterTime": time }, "$db": "admin",
        };
        let answer = Outgoing::connect(&host, TIMEOUT)
            .map_err(CallError::from)
            .and_then(|mut connection| connection.call(&request, TIMEOUT));
        if let Err(error) = answer {
            tracing::info!(target: "REPL", host, error = %error, "The primary did not answer a request for an entry");
        }
    });
    if let Err(error) = asked {
        tracing::warn!(target: "REPL", error = %error, "No thread to ask the primary for an entry");
    }
}
