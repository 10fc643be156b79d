//! `_hashBSONElement`: the hash of a value, with a seed. For tests, and for tools that divide values as hashed indexes do.

use crate::call::{Call, Reply};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_document::hash::{INDEX_SEED, hash};
use baton_types::Result;
use bson::cstr;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "_hashBSONElement",
    flags: Flags::TEST_ONLY.and(Flags::ANY_ROLE),
    help: "{ _hashBSONElement: value, seed: number } returns the hash of the value.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let seed = call.fields.optional::<i32>("seed")?.unwrap_or(INDEX_SEED);
    call.fields.finish()?;
    let value = call.envelope.value;
    reply.append(cstr!("key"), value);
    reply.append(cstr!("seed"), seed);
    reply.append(cstr!("out"), hash(value, seed)?);
    Ok(())
}
