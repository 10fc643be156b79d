//! `getParameter`: parameters by name, or all of them.

use crate::call::{Call, Reply};
use crate::server::parameters::{PARAMETERS, Parameter, find};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_types::{Error, ErrorCode, Result};
use bson::raw::CString;
use bson::{RawBson, RawBsonRef, RawDocument, cstr};

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "getParameter",
    flags: Flags::ADMIN_ONLY,
    help: "{ getParameter: 1, notablescan: 1 } returns one parameter, { getParameter: '*' } all.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let (all, details) = match call.envelope.value {
        RawBsonRef::String("*") => (true, false),
        RawBsonRef::Document(how) => options_of(how)?,
        _ => (false, false),
    };
    let mut found = false;
    if all {
        for parameter in PARAMETERS {
            append(call, reply, parameter, details)?;
        }
        found = true;
    } else {
        for (name, _) in call.fields.rest() {
            if let Some(parameter) = find(name) {
                append(call, reply, parameter, details)?;
                found = true;
            }
        }
    }
    if found { Ok(()) } else { Err(Error::new(ErrorCode::InvalidOptions, "no option found to get")) }
}

/// Whether all are wanted, and whether with details.
fn options_of(how: &RawDocument) -> Result<(bool, bool)> {
    let mut fields = baton_request::Fields::of("getParameter", how)?;
    let options = (fields.truth("allParameters")?, fields.truth("showDetails")?);
    fields.take("setAt");
    fields.finish()?;
    Ok(options)
}

fn append(call: &Call<'_>, reply: &mut Reply<'_>, parameter: &Parameter, details: bool) -> Result<()> {
    let name = CString::try_from(parameter.name)?;
    let value = RawBson::try_from((parameter.get)(call.server))?;
    if !details {
        reply.append(&name, value.as_raw_bson_ref());
        return Ok(());
    }
    reply.begin_document(&name);
    reply.append(cstr!("value"), value.as_raw_bson_ref());
    reply.append(cstr!("settableAtRuntime"), parameter.set.is_some() && parameter.at_runtime);
    reply.append(cstr!("settableAtStartup"), parameter.set.is_some());
    reply.end();
    Ok(())
}
