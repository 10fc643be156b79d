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

/// Failures of single statements, in their order.
#[derive(Default)]
pub struct WriteErrors {
    errors: Vec<(usize, Error)>,
}

impl WriteErrors {
    /// Adds the failure of the statement at that place.
    pub fn push(&mut self, index: usize, error: Error) {
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
        reply.begin_array(cstr!("writeErrors"));
        for (index, error) in &self.errors {
            reply.push_document();
            reply.append(cstr!("index"), *index as i32);
            reply.append(cstr!("code"), error.code.0);
            reply.append(cstr!("errmsg"), error.message.as_str());
            if let Some(info) = &error.info {
                reply.extend(info);
            }
            reply.end();
        }
        reply.end();
    }
}
