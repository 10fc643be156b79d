//! The `writeErrors` of insert, update and delete.

use baton_types::{Error, ErrorCode};
use baton_wire::DocumentWriter;
use bson::cstr;

/// Whether it is not the statement that failed but the member, or the whole command: drivers look for that at the top of a reply.
pub fn ends_command(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::NotWritablePrimary
            | ErrorCode::PrimarySteppedDown
            | ErrorCode::InterruptedDueToReplStateChange
            | ErrorCode::InterruptedAtShutdown
            | ErrorCode::ShutdownInProgress
            | ErrorCode::Interrupted
            | ErrorCode::MaxTimeMSExpired
            | ErrorCode::ClientDisconnect
    )
}

/// What the details of errors (`keyValue`, `errInfo`) may take in one reply, in bytes: MongoDB's bound of one `errInfo`.
pub const DETAILS_BYTES_MAX: usize = 12 * 1024 * 1024;

/// The same where there are many errors, each of which takes its place too.
const DETAILS_OF_MANY_BYTES_MAX: usize = 4 * 1024 * 1024;
const ERRORS_MANY: usize = 10_000;

/// What the messages of one reply's errors may take, as in MongoDB: beyond, they are empty.
const MESSAGES_BYTES_MAX: usize = 1024 * 1024;

/// Failures of single statements, in their order. Together they are a reply that a driver can read: what would make it too
/// large is left out of the later ones.
#[derive(Default)]
pub struct WriteErrors {
    errors: Vec<(usize, Error)>,
    details_bytes: usize,
    messages_bytes: usize,
}

impl WriteErrors {
    /// Adds the failure of the statement at that place.
    pub fn push(&mut self, index: usize, mut error: Error) {
        let details = error.info.as_ref().map_or(0, |info| info.as_bytes().len());
        if self.details_bytes + details > DETAILS_BYTES_MAX {
            error.info = None;
        } else {
            self.details_bytes += details;
        }
        if self.messages_bytes + error.message.len() > MESSAGES_BYTES_MAX {
            error.message = String::new();
        }
        self.messages_bytes += error.message.len();
        self.errors.push((index, error));
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// Appends `writeErrors`, if there are any.
    pub fn append(&self, reply: &mut DocumentWriter<'_>) {
        if self.errors.is_empty() {
            return;
        }
        let details_max = if self.errors.len() < ERRORS_MANY { DETAILS_BYTES_MAX } else { DETAILS_OF_MANY_BYTES_MAX };
        let mut details = 0;
        reply.begin_array(cstr!("writeErrors"));
        for (index, error) in &self.errors {
            reply.push_document();
            reply.append(cstr!("index"), *index as i32);
            reply.append(cstr!("code"), error.code.0);
            reply.append(cstr!("errmsg"), error.message.as_str());
            if let Some(info) = &error.info
                && details + info.as_bytes().len() <= details_max
            {
                details += info.as_bytes().len();
                reply.extend(info);
            }
            reply.end();
        }
        reply.end();
    }
}
