//! A member's part in its set, from the start of the process on.

use crate::server::{ReplicaSet, Server};
use baton_consensus::Configuration;
use baton_replication::{Order, Parts, Replication};
use baton_types::{Error, ErrorCode, Result};
use bson::oid::ObjectId;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Starts replication with what is on the member's disk. Documents that are rolled back are kept below `rollback_directory`.
pub fn start(server: &Arc<Server>, set: &ReplicaSet, rollback_directory: &Path) -> Result<()> {
    // The server owns its replication, so this must not own the server.
    let (topology, applier) = (Arc::downgrade(server), Arc::downgrade(server));
    let replication = Replication::start(Parts {
        storage: Arc::clone(&server.storage),
        host: set.me.clone(),
        set_name: set.name.clone(),
        apply_command: Box::new(move |entry| match applier.upgrade() {
            Some(server) => crate::apply_command(&server, entry),
            None => Err(Error::new(ErrorCode::ShutdownInProgress, "the member is stopping")),
        }),
        rollback_directory: rollback_directory.to_owned(),
        on_topology: Box::new(move |view| {
            if let Some(server) = topology.upgrade() {
                server.topology.update(Arc::clone(view));
            }
        }),
    })?;
    server.set_replication(replication);
    Ok(())
}

/// Makes a set of this member alone, unless it is in one already, and waits until it takes writes.
pub fn initiate_alone(server: &Arc<Server>, set: &ReplicaSet) -> Result<()> {
    /// A member alone elects itself at once; what takes time is the disk.
    const PATIENCE: Duration = Duration::from_secs(30);
    let Some(replication) = server.replication() else { return Ok(()) };
    if replication.view().configuration.is_none() {
        let configuration = Configuration::initial(&set.name, &set.me, ObjectId::new())?;
        replication.order(Order::Initiate(Box::new(configuration)))?;
    }
    let deadline = Instant::now() + PATIENCE;
    while !server.topology.is_writable_primary() && Instant::now() < deadline {
        let seen = server.topology.version();
        if server.topology.is_writable_primary() {
            break;
        }
        server.topology.wait_for_change(seen, deadline, || Ok::<(), Error>(()))?;
    }
    Ok(())
}
