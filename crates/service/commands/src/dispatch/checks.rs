//! What is asked of every request before anything is done, by [`baton_request::check`] and of the member itself.

use crate::server::{Client, Server};
use crate::table::{CommandSpec, Flags};
use crate::tail;
use baton_request::{Envelope, Member};
use baton_types::Result;
use std::sync::atomic::Ordering::Relaxed;

/// Gives the request the set's default read concern, refuses what may not be carried out here and now, and takes over the time that the
/// client has heard of.
pub(super) fn check(server: &Server, client: &Client, spec: &CommandSpec, envelope: &mut Envelope<'_>) -> Result<()> {
    if !envelope.read_concern.given && spec.flags.has(Flags::READ_CONCERN) && envelope.db != "local" {
        envelope.read_concern.level = server.defaults.read_level();
    }
    let topology = &server.topology;
    let member = Member {
        is_replicated: topology.is_replicated(),
        is_writable_primary: topology.is_writable_primary(),
        is_readable: topology.is_readable(),
        requires_api_version: server.parameters.require_api_version.load(Relaxed),
        cluster_time: &|| server.cluster_time(),
    };
    baton_request::check(spec, &member, envelope)?;
    if let Some(time) = envelope.cluster_time.filter(|_| member.is_replicated) {
        tail::observe(server, time)?;
    }
    if !spec.flags.has(Flags::ENDS_TASKS) {
        client.check_tasks()?;
    }
    if spec.serves_application(envelope.db) {
        client.note_served();
        if topology.is_stopping() {
            server.note_served_while_stopping();
        }
    }
    Ok(())
}
