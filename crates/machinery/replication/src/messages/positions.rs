//! `replSetUpdatePosition`.
//!
//! Beyond MongoDB's: the sender's `term`, and with each member its `writtenOpTime` and `ageMicros`, the time since that
//! member itself said so. Ages are rounded up: a sign of life is not made younger by being passed on.
//!
//! Invariant: an update has one position of each member.
//! What it does not do: merge.

use super::fields;
use baton_consensus::configuration::type_name;
use baton_consensus::{MemberId, Position, PositionUpdate};
use baton_types::{Error, Result};
use bson::{RawArrayBuf, RawDocument, RawDocumentBuf, cstr};
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) fn encode_request(update: &PositionUpdate) -> RawDocumentBuf {
    let mut optimes = RawArrayBuf::new();
    for (member, (position, age)) in &update.positions {
        optimes.push(encode_position(*member, position, *age));
    }
    let mut command = RawDocumentBuf::new();
    command.append(cstr!("replSetUpdatePosition"), 1);
    command.append(cstr!("optimes"), optimes);
    command.append(cstr!("term"), update.term);
    command
}

pub(super) fn decode_request(command: &RawDocument) -> Result<PositionUpdate> {
    let mut positions = BTreeMap::new();
    for entry in fields::array(command, "optimes")? {
        let entry = entry?;
        let Some(entry) = entry.as_document() else {
            let found = type_name(entry);
            return Err(Error::type_mismatch(format!("Expected \"optimes\" to hold objects, but found {found}")));
        };
        let (member, position, age) = decode_position(entry)?;
        if positions.insert(member, (position, age)).is_some() {
            return Err(Error::bad_value(format!("Found two positions of member {member} in \"optimes\"")));
        }
    }
    Ok(PositionUpdate { term: fields::term(command, "term")?, positions })
}

fn encode_position(member: MemberId, position: &Position, age: Duration) -> RawDocumentBuf {
    let mut entry = RawDocumentBuf::new();
    fields::append_optime(&mut entry, cstr!("durableOpTime"), position.durable);
    fields::append_optime(&mut entry, cstr!("appliedOpTime"), position.applied);
    fields::append_optime(&mut entry, cstr!("writtenOpTime"), position.written);
    fields::append_integer(&mut entry, cstr!("memberId"), i64::from(member.0));
    entry.append(cstr!("ageMicros"), i64::try_from(age.as_nanos().div_ceil(1000)).unwrap_or(i64::MAX));
    entry
}

fn decode_position(entry: &RawDocument) -> Result<(MemberId, Position, Duration)> {
    let position = Position {
        durable: fields::optime(entry, "durableOpTime")?,
        applied: fields::optime(entry, "appliedOpTime")?,
        written: fields::optime(entry, "writtenOpTime")?,
    };
    let micros = fields::integer(entry, "ageMicros")?;
    let age = u64::try_from(micros).map_err(|_| {
        Error::location(51024, format!("BSON field 'ageMicros' value must be >= 0, actual value '{micros}'"))
    })?;
    Ok((fields::member(entry, "memberId")?, position, Duration::from_micros(age)))
}
