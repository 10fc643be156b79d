//! `replSetReconfig`: the set's next configuration.

use crate::call::{Call, Reply};
use crate::commands::repl_set_get_config::{not_initiated, set_of};
use crate::commands::replication;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_consensus::Configuration;
use baton_replication::{Order, Probe, probe};
use baton_types::{Error, ErrorCode, Result};
use bson::oid::ObjectId;
use bson::{RawBsonRef, RawDocument};
use std::time::Duration;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "replSetReconfig",
    flags: Flags::ADMIN_ONLY,
    help: "{ replSetReconfig: { … }, force: false } replaces the replica set's configuration.",
    run,
    ..DEFAULT
};

/// How often it is looked whether the present configuration has spread.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

fn run(call: &mut Call<'_>, _: &mut Reply<'_>) -> Result<()> {
    let set = set_of(call)?;
    let force = call.fields.truth("force")?;
    call.fields.finish()?;
    let RawBsonRef::Document(document) = call.envelope.value else {
        return Err(baton_request::fields::wrong_type(
            "replSetReconfig",
            "replSetReconfig",
            call.envelope.value,
            &["object"],
        ));
    };
    let current = set.configuration().ok_or_else(not_initiated)?;
    let configuration = parse(document, current)?;
    let replication = replication::of(call)?;
    if !force {
        check_newcomers(&configuration, current)?;
    }
    loop {
        let order = Order::Reconfigure(Box::new(configuration.clone()), force);
        match replication.order(order) {
            Ok(()) => break,
            // What stands in the way is on its way: wait for it as long as the client does.
            Err(error) if error.code == ErrorCode::CurrentConfigNotCommittedYet => {
                wait(call).map_err(|over| if over.code == ErrorCode::MaxTimeMSExpired { error } else { over })?;
            }
            Err(error) => return Err(error),
        }
    }
    while !force && !replication.view().configuration_is_committed {
        wait(call)?;
    }
    Ok(())
}

fn wait(call: &Call<'_>) -> Result<()> {
    call.operation.check_interrupt()?;
    std::thread::sleep(LOOK_INTERVAL);
    Ok(())
}

/// A host that is to be added must not be in another set. One that does not answer is taken: it may be started later.
fn check_newcomers(configuration: &Configuration, current: &Configuration) -> Result<()> {
    for member in configuration.members.iter().filter(|member| current.member_at(&member.host).is_none()) {
        let incompatible = |why: String| Err(Error::new(ErrorCode::NewReplicaSetConfigurationIncompatible, why));
        match probe(&member.host, &configuration.set_name) {
            Ok(Probe::Initiated(theirs)) if theirs != configuration.settings.set_id => {
                let show = |id: Option<ObjectId>| id.map_or_else(|| "none".to_owned(), |id| id.to_string());
                return incompatible(format!(
                    "Our set ID did not match that of {}, ours: {}, theirs: {}",
                    member.host,
                    show(configuration.settings.set_id),
                    show(theirs)
                ));
            }
            Err(error) if error.code == ErrorCode::InconsistentReplicaSetNames => {
                return incompatible(format!("Our set name did not match that of {}: {}", member.host, error.message));
            }
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

fn parse(document: &RawDocument, current: &Configuration) -> Result<Configuration> {
    let incompatible = |error: Error| Error::new(ErrorCode::NewReplicaSetConfigurationIncompatible, error.message);
    let mut configuration = Configuration::parse(document)?;
    configuration.validate().map_err(incompatible)?;
    // A client that leaves the set's id out means to keep it.
    if configuration.settings.set_id.is_none() {
        configuration.settings.set_id = current.settings.set_id;
    }
    if configuration.settings.set_id != current.settings.set_id {
        return Err(incompatible(Error::bad_value(format!(
            "New and old configurations differ in replica set ID; old was {:?}, and new is {:?}",
            current.settings.set_id, configuration.settings.set_id
        ))));
    }
    Ok(configuration)
}
