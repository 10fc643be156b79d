//! What the tests serve that measure the process, and not what is answered.

use baton_net::{After, ConnectionInfo, Handler, Service};
use baton_wire::{ReplyBuilder, Request};
use bson::rawdoc;

/// Answers `{ok: 1}` to everything.
pub struct Ok1;

impl Service for Ok1 {
    type Handler = Self;

    fn opened(&self, _connection: ConnectionInfo) -> Self {
        Self
    }
}

impl Handler for Ok1 {
    fn handle(&mut self, request: &Request<'_>, out: &mut Vec<u8>) -> After {
        let mut builder = ReplyBuilder::new(out, request);
        builder.document(&rawdoc! { "ok": 1.0 });
        builder.finish();
        After::Reply
    }
}
