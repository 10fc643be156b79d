//! A member's part in its set, from the start of the process to its stop.

use crate::server::{ReplicaSet, Server};
use crate::table::{self, Flags};
use baton_consensus::{Configuration, Input, Obstacle, StepDownRequest};
use baton_replication::{InitialSyncHooks, InitialSyncOptions, Order, Parts, Replication, Trigger};
use baton_types::{Error, ErrorCode, Result};
use bson::oid::ObjectId;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Starts replication with what is on the member's disk.
pub fn start(server: &Arc<Server>, set: &ReplicaSet, data_directory: &Path) -> Result<()> {
    // The server owns its replication, so this must not own the server.
    let (topology, applier, builds) = (Arc::downgrade(server), Arc::downgrade(server), Arc::downgrade(server));
    let replication = Replication::start(Parts {
        storage: Arc::clone(&server.storage),
        host: set.me.clone(),
        process_id: server.topology.version().process_id,
        set_name: set.name.clone(),
        protocol_version: server.parameters.protocol_version(),
        apply_command: Box::new(move |writer, entry| match applier.upgrade() {
            Some(server) => crate::apply_command(&server, writer, entry),
            None => Err(Error::new(ErrorCode::ShutdownInProgress, "the member is stopping")),
        }),
        data_directory: data_directory.to_owned(),
        initial_sync_hooks: initial_sync_hooks(server),
        on_topology: Box::new(move |view| {
            if let Some(server) = topology.upgrade() {
                if view.is_writable_primary && !server.topology.is_writable_primary() {
                    server.defaults.reload(&server.storage);
                }
                if let Some(configuration) = &view.configuration {
                    server.priority.configure(&configuration.settings.priority);
                }
                server.topology.update(Arc::clone(view));
            }
        }),
        index_builds: Box::new(move |patience| {
            builds.upgrade().map_or_else(Vec::new, |server| server.index_builds.recordings(patience))
        }),
    })?;
    server.set_replication(replication);
    Ok(())
}

/// Has a thread write what the step machines did to a file; says so in the log.
pub fn write_steps(server: &Arc<Server>) {
    let (start_thread, server) = (server.hooks.start_thread, Arc::clone(server));
    let work = move || match server.replication().map(Replication::write_steps) {
        Some(Ok(file)) => {
            tracing::info!(target: "REPL", file = %file.path.display(), steps = file.steps, "What the step machines did is written down");
        }
        Some(Err(error)) => {
            tracing::warn!(target: "REPL", error = %error, "What the step machines did cannot be written down");
        }
        None => tracing::info!(target: "REPL", "A member of no set has no steps to write down"),
    };
    if let Err(error) = start_thread("steps", Box::new(work)) {
        tracing::warn!(target: "REPL", error = %error, "No thread to write down what the step machines did");
    }
}

/// What parameters and fail points say of initial syncs.
fn initial_sync_hooks(server: &Arc<Server>) -> InitialSyncHooks {
    let (settings, tests) = (Arc::downgrade(server), Arc::downgrade(server));
    InitialSyncHooks {
        options: Box::new(move || match settings.upgrade() {
            Some(server) => server.parameters.initial_sync(),
            None => InitialSyncOptions::default(),
        }),
        holds: Box::new(move |point| tests.upgrade().is_some_and(|server| server.fail_points.fires(point).is_some())),
        restart: server.hooks.restart.map(|restart| Box::new(restart) as Box<dyn Fn() + Send + Sync>),
        // What is here is of no use to anybody, and who looks after the member should look after it.
        give_up: Box::new(server.hooks.give_up),
    }
}

/// Makes a set of this member alone, unless it is in one already, and waits until it takes writes.
pub fn initiate_alone(server: &Arc<Server>, set: &ReplicaSet) -> Result<()> {
    /// A member alone elects itself at once; what takes time is the disk.
    const PATIENCE: Duration = Duration::from_secs(30);
    let Some(replication) = server.replication() else { return Ok(()) };
    match &replication.view().configuration {
        None => {
            let configuration = Configuration::initial(&set.name, &set.me, ObjectId::new())?;
            replication.order(Order::Initiate(Box::new(configuration)))?;
        }
        Some(configuration) => check_alone(configuration, &set.me)?,
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

/// Whether `me` is the one member of the set: no other becomes primary by itself.
fn check_alone(configuration: &Configuration, me: &str) -> Result<()> {
    let hosts: Vec<&str> = configuration.members.iter().map(|member| member.host.as_str()).collect();
    let advice = match hosts.as_slice() {
        [host] if *host == me => return Ok(()),
        [host] => {
            let port = host.rsplit_once(':').map_or("?", |(_, port)| port);
            format!("start it with --port {port}, or another set in another directory")
        }
        _ => "start each of its members with 'baton serve --replSet', or another set in another directory".to_owned(),
    };
    let message = format!(
        "The data are those of a member of the set {} of {}; this would be {me} alone: {advice}",
        configuration.set_name,
        hosts.join(", ")
    );
    Err(Error::new(ErrorCode::InvalidReplicaSetConfig, message))
}

/// For how long a member that stops does not stand for election: longer than it takes.
const FREEZE: Duration = Duration::from_secs(24 * 60 * 60);

/// Has a primary that is about to stop hand over, which may take `patience`; returns at once from any other member, and from one
/// that is alone in its set. `forced`, it does not wait where nobody could take over, and resigns in any case.
///
/// # Errors
/// `ExceededTimeLimit` (262) if nobody caught up in time; what `interrupted` says. The member is primary then as before.
pub fn hand_over(
    server: &Server,
    patience: Duration,
    forced: bool,
    interrupted: &dyn Fn() -> Result<()>,
) -> Result<()> {
    let Some(replication) = server.replication() else { return Ok(()) };
    let view = replication.view();
    let is_alone = view.configuration.as_ref().is_none_or(|configuration| configuration.members.len() == 1);
    if is_alone || view.primary.is_none() || view.primary != view.me {
        return Ok(());
    }
    let request = StepDownRequest { force: forced, catch_up: patience, freeze: FREEZE, to: None, hand_off: true };
    let outcome = replication.step_down(request, Trigger::Shutdown, || {
        interrupted()?;
        let candidates = replication.view().succession;
        if forced && candidates.iter().all(|candidate| candidate.obstacle.is_some_and(is_lasting)) {
            return Err(Error::new(ErrorCode::ExceededTimeLimit, "nobody could take over"));
        }
        Ok(())
    });
    match outcome {
        Err(error) if error.code == ErrorCode::NotWritablePrimary => Ok(()),
        other => other,
    }
}

/// Whether there is no use in waiting for the member to overcome it.
fn is_lasting(obstacle: Obstacle) -> bool {
    match obstacle {
        Obstacle::Arbiter | Obstacle::NoPriority | Obstacle::NoVote | Obstacle::Unreachable => true,
        Obstacle::NotSecondary(_) => false,
    }
}

/// Tells drivers that this member stops, and serves what it is asked meanwhile (writes aside), until clients have been quiet for a
/// moment or `patience` is over. Nobody is waited for who has asked for nothing, and a member that is alone in its set, which
/// nobody could replace, does not wait at all.
pub fn quiesce(server: &Server, patience: Duration) {
    const LOOK_INTERVAL: Duration = Duration::from_millis(20);
    let Some(replication) = server.replication() else { return };
    if server.topology.is_alone() {
        return;
    }
    replication.tell(Input::Freeze(FREEZE));
    let began = Instant::now();
    let until = began + patience;
    server.topology.quiesce(until);
    tracing::info!(target: "REPL", id = 4695000, millis = patience.as_millis() as u64, "Entering quiesce mode for shutdown");
    while Instant::now() < until && is_asked(server, began) {
        std::thread::sleep(LOOK_INTERVAL);
    }
    tracing::info!(target: "REPL", id = 4695001, millis = began.elapsed().as_millis() as u64, "Exiting quiesce mode for shutdown");
}

/// Whether a client has something running here, or had a moment ago.
fn is_asked(server: &Server, began: Instant) -> bool {
    /// A client that asks nothing for so long has turned to another member.
    const QUIET: Duration = Duration::from_millis(500);
    if !server.clients.all().iter().any(|client| client.was_served()) {
        return false;
    }
    let last = server.served_while_stopping().unwrap_or(began);
    last.elapsed() < QUIET
        || server.operations.running().iter().any(|(_, state)| {
            state.db != "local"
                && table::find(state.name).is_some_and(|(_, spec)| {
                    spec.flags.has(Flags::ON_COLLECTION) || spec.kind == baton_request::Kind::GetMore
                })
        })
}
