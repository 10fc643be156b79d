//! `replSetStepDown`: the primary hands over, and does not stand for election for a while.

use crate::call::{Call, Reply};
use crate::commands::replication;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_consensus::StepDownRequest;
use baton_replication::Trigger;
use baton_request::fields::{number_as_i64, wrong_type};
use baton_types::{Error, Result};
use bson::RawBsonRef;
use std::time::Duration;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "replSetStepDown",
    flags: Flags::ADMIN_ONLY,
    help: "{ replSetStepDown: 60, secondaryCatchUpPeriodSecs: 10, force: false } makes the primary a secondary for so long.",
    run,
    ..DEFAULT
};

const PERIOD_DEFAULT_SECS: i64 = 60;
const CATCH_UP_DEFAULT_SECS: i64 = 10;

fn run(call: &mut Call<'_>, _: &mut Reply<'_>) -> Result<()> {
    let force = call.fields.truth("force")?;
    let catch_up = call.fields.take("secondaryCatchUpPeriodSecs");
    call.fields.finish()?;
    let replication = replication::of(call)?;
    // What is no number stands for no period, as in mongod.
    let period_secs = match call.envelope.value {
        RawBsonRef::Boolean(_) => None,
        value => number_as_i64(value).filter(|secs| *secs != 0),
    }
    .unwrap_or(PERIOD_DEFAULT_SECS);
    if period_secs < 0 {
        return Err(Error::bad_value("stepdown period must be a positive integer"));
    }
    let catch_up_secs = match catch_up {
        None => {
            if force {
                0
            } else {
                CATCH_UP_DEFAULT_SECS
            }
        }
        Some(value) => number_as_i64(value).ok_or_else(|| {
            wrong_type("replSetStepDown", "secondaryCatchUpPeriodSecs", value, &["int", "long", "double", "decimal"])
        })?,
    };
    if catch_up_secs < 0 {
        return Err(Error::bad_value("secondaryCatchUpPeriodSecs period must be a positive or absent"));
    }
    if catch_up_secs > period_secs {
        return Err(Error::bad_value("stepdown period must be longer than secondaryCatchUpPeriodSecs"));
    }
    let request = StepDownRequest {
        force,
        catch_up: Duration::from_secs(catch_up_secs as u64),
        freeze: Duration::from_secs(period_secs as u64),
        to: None,
        hand_off: true,
    };
    replication.step_down(request, Trigger::StepDown, || call.operation.check_interrupt())
}
