//! What the commands about sessions share: reading lists of them.

use baton_request::SessionId;
use baton_request::envelope::parse_session;
use baton_request::fields::wrong_type;
use baton_types::{Error, Result};
use bson::{RawArray, RawBsonRef, RawDocument};

/// The array that is the first field's value.
pub fn array_of<'a>(command: &str, value: RawBsonRef<'a>) -> Result<&'a RawArray> {
    value.as_array().ok_or_else(|| wrong_type(command, command, value, &["array"]))
}

/// The documents of an array.
pub fn documents_of<'a>(command: &str, array: &'a RawArray) -> Result<Vec<&'a RawDocument>> {
    let mut documents = Vec::new();
    for (i, value) in array.into_iter().enumerate() {
        let value = value?;
        documents.push(
            value.as_document().ok_or_else(|| wrong_type(command, &format!("{command}.{i}"), value, &["object"]))?,
        );
    }
    Ok(documents)
}

/// The sessions that the first field lists.
pub fn sessions_of(command: &str, value: RawBsonRef<'_>) -> Result<Vec<SessionId>> {
    const COUNT_MAX: usize = 10_000;
    let documents = documents_of(command, array_of(command, value)?)?;
    if documents.len() > COUNT_MAX {
        return Err(Error::bad_value(format!("{command} takes at most {COUNT_MAX} sessions")));
    }
    documents.into_iter().map(parse_session).collect()
}
