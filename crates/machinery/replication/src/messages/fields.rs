//! Fields of a message, read as MongoDB's `bson_extract` reads them and with its errors, and written likewise.
//!
//! Invariant: numbers that are counted with are within bounds: a term below 2^31, as in a configuration, a member's id in one
//! byte.
//! What it does not do: look for fields that nobody knows.

use baton_consensus::MemberId;
use baton_consensus::configuration::type_name;
use baton_document::Number;
use baton_types::{Error, ErrorCode, OpTime, Result, Term};
use bson::oid::ObjectId;
use bson::raw::CStr;
use bson::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf, cstr, rawdoc};

/// One more than the largest term.
const TERM_END: Term = 1 << 31;
/// A member that is none, where MongoDB has a number for it.
pub(super) const NO_MEMBER: i64 = -1;
const MEMBER_ID_MAX: i64 = 255;

/// The field, or `NoSuchKey`.
fn required<'a>(document: &'a RawDocument, name: &str) -> Result<RawBsonRef<'a>> {
    let missing = || Error::new(ErrorCode::NoSuchKey, format!("Missing expected field \"{name}\""));
    document.get(name)?.ok_or_else(missing)
}

fn typed<'a, T>(
    document: &'a RawDocument,
    name: &str,
    expected: &str,
    read: impl FnOnce(RawBsonRef<'a>) -> Option<T>,
) -> Result<T> {
    let value = required(document, name)?;
    read(value).ok_or_else(|| {
        let found = type_name(value);
        Error::type_mismatch(format!("\"{name}\" had the wrong type. Expected {expected}, found {found}"))
    })
}

pub(super) fn text<'a>(document: &'a RawDocument, name: &str) -> Result<&'a str> {
    typed(document, name, "string", RawBsonRef::as_str)
}

pub(super) fn boolean(document: &RawDocument, name: &str) -> Result<bool> {
    typed(document, name, "bool", |value| value.as_bool())
}

/// A truth value that may be written as a number, and is false where there is none.
pub(super) fn truth(document: &RawDocument, name: &str) -> Result<bool> {
    let Some(value) = document.get(name)? else { return Ok(false) };
    let number = || Number::from_raw(value).map(|number| !number.is_zero());
    value.as_bool().or_else(number).ok_or_else(|| {
        let found = type_name(value);
        Error::type_mismatch(format!("Expected boolean or number type for field \"{name}\", found {found}"))
    })
}

pub(super) fn object<'a>(document: &'a RawDocument, name: &str) -> Result<&'a RawDocument> {
    typed(document, name, "object", RawBsonRef::as_document)
}

pub(super) fn array<'a>(document: &'a RawDocument, name: &str) -> Result<&'a RawArray> {
    typed(document, name, "array", RawBsonRef::as_array)
}

/// A whole number of any numeric type.
pub(super) fn integer(document: &RawDocument, name: &str) -> Result<i64> {
    let value = required(document, name)?;
    let Some(number) = Number::from_raw(value) else {
        let found = type_name(value);
        let message = format!("Expected field \"{name}\" to have numeric type, but found {found}");
        return Err(Error::type_mismatch(message));
    };
    number.to_i64_exact().ok_or_else(|| {
        Error::bad_value(format!(
            "Expected field \"{name}\" to have a value exactly representable as a 64-bit integer, but found {name}: {}",
            number.to_bson()
        ))
    })
}

/// The same, if it is there.
pub(super) fn integer_if_any(document: &RawDocument, name: &str) -> Result<Option<i64>> {
    document.get(name)?.map(|_| integer(document, name)).transpose()
}

pub(super) fn term(document: &RawDocument, name: &str) -> Result<Term> {
    integer(document, name).and_then(|term| check_term(name, term))
}

pub(super) fn term_if_any(document: &RawDocument, name: &str) -> Result<Option<Term>> {
    integer_if_any(document, name)?.map(|term| check_term(name, term)).transpose()
}

fn check_term(name: &str, term: Term) -> Result<Term> {
    let complain = |relation: &str, limit: Term| {
        Err(Error::location(
            51024,
            format!("BSON field '{name}' value must be {relation} {limit}, actual value '{term}'"),
        ))
    };
    match term {
        ..-1 => complain(">=", -1),
        TERM_END.. => complain("<", TERM_END),
        _ => Ok(term),
    }
}

pub(super) fn optime(document: &RawDocument, name: &str) -> Result<OpTime> {
    let optime = object(document, name)?;
    let timestamp = typed(optime, "ts", "timestamp", |value| value.as_timestamp())?;
    Ok(OpTime { timestamp: timestamp.into(), term: term(optime, "t")? })
}

pub(super) fn optime_if_any(document: &RawDocument, name: &str) -> Result<Option<OpTime>> {
    document.get(name)?.map(|_| optime(document, name)).transpose()
}

pub(super) fn object_id_if_any(document: &RawDocument, name: &str) -> Result<Option<ObjectId>> {
    match document.get(name)? {
        None => Ok(None),
        Some(RawBsonRef::ObjectId(id)) => Ok(Some(id)),
        Some(other) => {
            let found = type_name(other);
            Err(Error::type_mismatch(format!("Expected {name} to be an ObjectId, but found type {found}")))
        }
    }
}

pub(super) fn member(document: &RawDocument, name: &str) -> Result<MemberId> {
    integer(document, name).and_then(|id| check_member(name, id))
}

/// A member, if the field is there and names one.
pub(super) fn member_if_any(document: &RawDocument, name: &str) -> Result<Option<MemberId>> {
    let id = integer_if_any(document, name)?.filter(|id| *id != NO_MEMBER);
    id.map(|id| check_member(name, id)).transpose()
}

fn check_member(name: &str, id: i64) -> Result<MemberId> {
    match i32::try_from(id) {
        Ok(number) if (0..=MEMBER_ID_MAX).contains(&id) => Ok(MemberId(number)),
        _ => Err(Error::bad_value(format!("{name} field value of {id} is out of range."))),
    }
}

/// 32 bits where they suffice.
pub(super) fn append_integer(document: &mut RawDocumentBuf, name: &CStr, number: i64) {
    match i32::try_from(number) {
        Ok(number) => document.append(name, number),
        Err(_) => document.append(name, number),
    }
}

pub(super) fn append_optime(document: &mut RawDocumentBuf, name: &CStr, optime: OpTime) {
    document.append(name, rawdoc! { "ts": bson::Timestamp::from(optime.timestamp), "t": optime.term });
}

/// What a response has that only carries the term back.
pub(super) fn term_alone(term: Term) -> RawDocumentBuf {
    let mut response = RawDocumentBuf::new();
    response.append(cstr!("term"), term);
    response
}
