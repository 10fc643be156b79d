//! `replSetStepUp` as a primary sends it that has stepped down in the receiver's favour.
//!
//! Beyond MongoDB's: the `term` that the sender was primary of. An operator's `replSetStepUp` has none; it is another request,
//! and not read here.
//!
//! What it does not do: stand for election.

use super::fields;
use baton_types::{Error, Result, Term};
use bson::{RawDocument, RawDocumentBuf, cstr};

pub(super) fn encode_request(term: Term) -> RawDocumentBuf {
    let mut command = RawDocumentBuf::new();
    command.append(cstr!("replSetStepUp"), 1);
    command.append(cstr!("skipDryRun"), true);
    command.append(cstr!("term"), term);
    command
}

pub(super) fn decode_request(command: &RawDocument) -> Result<Term> {
    let term = fields::term(command, "term")?;
    if !fields::truth(command, "skipDryRun")? {
        return Err(Error::bad_value("replSetStepUp with a term must have skipDryRun: true"));
    }
    Ok(term)
}
