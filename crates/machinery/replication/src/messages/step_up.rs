//! `replSetStepUp` as a primary sends it that has stepped down in the receiver's favour.
//!
//! Beyond MongoDB's: the `term` that the sender was primary of, and the end of its log, `lastWrittenOpTime`. An operator's
//! `replSetStepUp` has neither; it is another request, and not read here.
//!
//! What it does not do: stand for election.

use super::fields;
use baton_types::{Error, OpTime, Result, Term};
use bson::{RawDocument, RawDocumentBuf, cstr};

pub(super) fn encode_request(term: Term, last_written: OpTime) -> RawDocumentBuf {
    let mut command = RawDocumentBuf::new();
    command.append(cstr!("replSetStepUp"), 1);
    command.append(cstr!("skipDryRun"), true);
    command.append(cstr!("term"), term);
    fields::append_optime(&mut command, cstr!("lastWrittenOpTime"), last_written);
    command
}

pub(super) fn decode_request(command: &RawDocument) -> Result<(Term, OpTime)> {
    let term = fields::term(command, "term")?;
    if !fields::truth(command, "skipDryRun")? {
        return Err(Error::bad_value("replSetStepUp with a term must have skipDryRun: true"));
    }
    Ok((term, fields::optime(command, "lastWrittenOpTime")?))
}
