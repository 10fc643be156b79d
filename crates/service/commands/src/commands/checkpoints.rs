//! `batonBeginCheckpoint`, `batonReadCheckpoint`, `batonEndCheckpoint`: a member's files as of one moment, for another member
//! that begins with a copy of them.
//!
//! What it deliberately does not do: let a client name a file that is not the checkpoint's.

use crate::call::{Call, Reply};
use crate::commands::repl_set_get_config::set_of;
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_request::fields::{number_as_i64, wrong_type};
use baton_storage::optime_document;
use baton_types::{Error, ErrorCode, Result};
use bson::spec::BinarySubtype;
use bson::{RawBinaryRef, cstr};

/// Bytes of a file in one reply, at the most.
const CHUNK_BYTES_MAX: i64 = 8 << 20;

/// `batonBeginCheckpoint`'s row in the table.
pub const BEGIN: CommandSpec = CommandSpec {
    name: "batonBeginCheckpoint",
    flags: Flags::ADMIN_ONLY,
    help: "Makes a checkpoint of this member's files. For members.",
    run: begin,
    ..DEFAULT
};

/// `batonReadCheckpoint`'s row in the table.
pub const READ: CommandSpec = CommandSpec {
    name: "batonReadCheckpoint",
    flags: Flags::ADMIN_ONLY,
    help: "{ batonReadCheckpoint: id, file: 'name', offset: 0 } reads a part of a checkpoint's file. For members.",
    run: read,
    ..DEFAULT
};

/// `batonEndCheckpoint`'s row in the table.
pub const END: CommandSpec = CommandSpec {
    name: "batonEndCheckpoint",
    flags: Flags::ADMIN_ONLY,
    help: "{ batonEndCheckpoint: id } removes a checkpoint. For members.",
    run: end,
    ..DEFAULT
};

fn begin(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    set_of(call)?;
    let reader = call.fields.optional::<&str>("for")?.unwrap_or("").to_owned();
    call.fields.finish()?;
    // What is not whole is no beginning for anybody.
    if !call.server.topology.is_writable_primary() && !call.server.topology.is_readable() {
        let message = "node is not in primary or recovering state";
        return Err(Error::new(ErrorCode::NotPrimaryOrSecondary, message));
    }
    let checkpoint = call.server.storage.begin_checkpoint(&reader)?;
    reply.append(cstr!("checkpoint"), checkpoint.id);
    reply.append(cstr!("newest"), &*optime_document(checkpoint.newest));
    reply.begin_array(cstr!("files"));
    for (name, size) in &checkpoint.files {
        reply.push_document();
        reply.append(cstr!("name"), name.as_str());
        reply.append(cstr!("size"), *size as i64);
        reply.end();
    }
    reply.end();
    Ok(())
}

fn id(call: &Call<'_>) -> Result<i64> {
    let value = call.envelope.value;
    number_as_i64(value).ok_or_else(|| wrong_type(call.spec.name, call.spec.name, value, &["number"]))
}

fn read(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    set_of(call)?;
    let (id, file) = (id(call)?, call.fields.required::<&str>("file")?);
    let offset = call.fields.required::<i64>("offset")?;
    let bytes_max = call.fields.optional::<i64>("bytes")?.unwrap_or(CHUNK_BYTES_MAX).clamp(1, CHUNK_BYTES_MAX);
    call.fields.finish()?;
    let offset = u64::try_from(offset).map_err(|_| Error::bad_value("'offset' must not be negative"))?;
    let bytes = call.server.storage.read_checkpoint(id, file, offset, bytes_max as usize)?;
    reply.append(cstr!("crc32c"), i64::from(crc32c::crc32c(&bytes)));
    reply.append(cstr!("data"), RawBinaryRef { subtype: BinarySubtype::Generic, bytes: &bytes });
    Ok(())
}

fn end(call: &mut Call<'_>, _: &mut Reply<'_>) -> Result<()> {
    set_of(call)?;
    let id = id(call)?;
    call.fields.finish()?;
    call.server.storage.end_checkpoint(id);
    Ok(())
}
