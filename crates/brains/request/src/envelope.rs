//! The part of a command that every command shares: its name, its database, and the generic arguments.
//!
//! Invariants: the body is walked once; what is generic lands here, what is the command's own in [`Fields`]; nothing is
//! copied. An argument of a wrong type or a contradiction among them is refused here, before the command runs.
//! What it deliberately does not do: look at the command's own fields, or touch the server's state.

use crate::concerns::{ReadConcern, WriteConcern};
use crate::fields::{Fields, Truth, wrong_type};
use baton_types::{Class, Error, ErrorCode, Result, Timestamp, check_database};
use baton_wire::Request;
use bson::spec::BinarySubtype;
use bson::{RawArray, RawBsonRef, RawDocument};
use std::fmt;
use std::time::Duration;

/// A logical session's identity: a UUID of the client's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub [u8; 16]);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        bson::Uuid::from_bytes(self.0).fmt(f)
    }
}

/// How far into a transaction the command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionMark {
    /// Whether this command begins it.
    pub start: bool,
}

/// The generic arguments of one command.
#[derive(Debug)]
pub struct Envelope<'a> {
    /// The command's name as the client wrote it.
    pub name: &'a str,
    /// The value of the first field: a collection's name, 1, or what the command defines.
    pub value: RawBsonRef<'a>,
    /// The database.
    pub db: &'a str,
    /// `lsid`.
    pub session: Option<SessionId>,
    /// `txnNumber`.
    pub txn_number: Option<i64>,
    /// `stmtId`.
    pub stmt_id: Option<i32>,
    /// `stmtIds`, one for each statement of a batch.
    pub stmt_ids: Option<&'a RawArray>,
    /// Set by `autocommit: false`: the command belongs to a transaction.
    pub transaction: Option<TransactionMark>,
    /// `maxTimeMS`; 0 is none.
    pub max_time: Option<Duration>,
    /// Whether it was given, be it 0.
    pub max_time_given: bool,
    /// `comment`.
    pub comment: Option<RawBsonRef<'a>>,
    /// `readConcern`.
    pub read_concern: ReadConcern,
    /// `writeConcern`; `None` if the client sent none.
    pub write_concern: Option<WriteConcern>,
    /// `$readPreference`.
    pub read_preference: Option<&'a RawDocument>,
    /// `$clusterTime.clusterTime`: the newest time the client has heard of.
    pub cluster_time: Option<Timestamp>,
    /// Whether `apiVersion` was given.
    pub api_version: bool,
    /// `apiStrict`.
    pub api_strict: bool,
    /// `priority`: a class for this request alone.
    pub class: Option<Class>,
    /// `$oplogQueryData`: the reply is to say how far this member's log and the commit point reach.
    pub oplog_query_data: bool,
    /// A primary has it carried out here for the cache alone.
    pub is_mirrored: bool,
}

/// Generic arguments that are taken and mean nothing to a member that is no shard.
const IGNORED: [&str; 13] = [
    "$audit",
    "$client",
    "$configServerState",
    "$configTime",
    "$topologyTime",
    "$gleStats",
    "$queryOptions",
    "$replData",
    "allowImplicitCollectionCreation",
    "clientOperationKey",
    "maxTimeMSOpOnly",
    "mayBypassWriteBlocking",
    "serialization_context",
];

impl<'a> Envelope<'a> {
    /// Splits `request` into its envelope and the command's own fields, whose messages name the command `path`.
    ///
    /// # Errors
    /// MongoDB's, for an argument that is of a wrong type, out of its range, or at odds with another.
    pub fn parse(request: &Request<'a>, path: &'a str) -> Result<(Self, Fields<'a>)> {
        Self::parse_body(request.body, request.legacy_database.unwrap_or(""), path)
    }

    /// The same of a command that stands within another, whose database it is if it names none.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn parse_body(body: &'a RawDocument, db: &'a str, path: &'a str) -> Result<(Self, Fields<'a>)> {
        let mut elements = body.iter();
        let (name, value) = match elements.next() {
            Some(first) => {
                let (name, value) = first?;
                (name.as_str(), value)
            }
            None => ("", RawBsonRef::Null),
        };
        let mut envelope = Envelope {
            name,
            value,
            db,
            session: None,
            txn_number: None,
            stmt_id: None,
            stmt_ids: None,
            transaction: None,
            max_time: None,
            max_time_given: false,
            comment: None,
            read_concern: ReadConcern::default(),
            write_concern: None,
            read_preference: None,
            cluster_time: None,
            api_version: false,
            api_strict: false,
            class: None,
            oplog_query_data: false,
            is_mirrored: false,
        };
        let mut fields = Fields::empty(path);
        let mut marks = Marks::default();
        for element in elements {
            let (key, value) = element?;
            let key = key.as_str();
            if !envelope.take(path, key, value, &mut marks)? {
                fields.add(key, value)?;
            }
        }
        envelope.check(&marks, path)?;
        Ok((envelope, fields))
    }

    /// Takes `key` if it is a generic argument; says whether it was.
    fn take(&mut self, path: &'a str, key: &'a str, value: RawBsonRef<'a>, marks: &mut Marks) -> Result<bool> {
        let wrong = |expected: &[&str]| wrong_type(path, key, value, expected);
        match key {
            "$db" => {
                self.db = value.as_str().ok_or_else(|| wrong(&["string"]))?;
            }
            "lsid" => {
                let document = value.as_document().ok_or_else(|| wrong(&["object"]))?;
                self.session = Some(parse_session(document)?);
            }
            "txnNumber" => {
                let number = value.as_i64().or(value.as_i32().map(i64::from)).ok_or_else(|| wrong(&["long"]))?;
                if number < 0 {
                    return Err(Error::new(ErrorCode::InvalidOptions, "Transaction number cannot be negative"));
                }
                self.txn_number = Some(number);
            }
            "stmtId" => self.stmt_id = Some(value.as_i32().ok_or_else(|| wrong(&["int"]))?),
            "stmtIds" => self.stmt_ids = Some(value.as_array().ok_or_else(|| wrong(&["array"]))?),
            "autocommit" => marks.autocommit = Some(value.as_bool().ok_or_else(|| wrong(&["bool"]))?),
            "startTransaction" => marks.start = Some(value.as_bool().ok_or_else(|| wrong(&["bool"]))?),
            "maxTimeMS" => {
                check_max_time(path, value)?;
                self.max_time = parse_max_time(key, value)?;
                self.max_time_given = true;
            }
            "comment" => self.comment = Some(value),
            "readConcern" => {
                let no_object = || Error::failed_to_parse("readConcern field should be an object");
                let document = value.as_document().ok_or_else(no_object)?;
                self.read_concern = ReadConcern::parse(document)?;
            }
            "writeConcern" => {
                let document = value.as_document().ok_or_else(|| wrong(&["object"]))?;
                self.write_concern = Some(WriteConcern::parse(document)?);
            }
            "$readPreference" => {
                self.read_preference = Some(value.as_document().ok_or_else(|| wrong(&["object"]))?);
            }
            "$clusterTime" => {
                let document = value.as_document().ok_or_else(|| wrong(&["object"]))?;
                self.cluster_time = Some(parse_cluster_time(document)?);
            }
            "apiVersion" => {
                let version = value.as_str().ok_or_else(|| wrong(&["string"]))?;
                if version != "1" {
                    return Err(Error::new(ErrorCode::APIVersionError, "API version must be \"1\"".to_owned()));
                }
                self.api_version = true;
            }
            "apiStrict" => {
                self.api_strict = value.as_bool().ok_or_else(|| wrong(&["bool"]))?;
                marks.api_option = Some("apiStrict");
            }
            "apiDeprecationErrors" => {
                value.as_bool().ok_or_else(|| wrong(&["bool"]))?;
                marks.api_option = Some("apiDeprecationErrors");
            }
            // setClientPriority has a field of that name, too, with the same meaning and the same three words.
            "priority" => self.class = Some(parse_class(value.as_str().ok_or_else(|| wrong(&["string"]))?)?),
            "help" => {
                <Truth as crate::fields::FieldType<'a>>::read(value).ok_or_else(|| wrong(&["bool"]))?;
            }
            "mirrored" => self.is_mirrored = value.as_bool().ok_or_else(|| wrong(&["bool"]))?,
            "$oplogQueryData" => self.oplog_query_data = true,
            ignored if IGNORED.contains(&ignored) => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn check(&mut self, marks: &Marks, path: &str) -> Result<()> {
        let invalid = |why: String| Err(Error::new(ErrorCode::InvalidOptions, why));
        if self.db.is_empty() {
            return Err(Error::location(40571, "OP_MSG requests require a $db argument"));
        }
        check_database(self.db)?;
        if let Some(option) = marks.api_option
            && !self.api_version
        {
            return Err(Error::new(
                ErrorCode::APIVersionError,
                format!("Provided {option}: true, but the request has no apiVersion"),
            ));
        }
        if self.txn_number.is_some() && self.session.is_none() {
            return invalid("Transaction number requires a session ID".into());
        }
        if marks.autocommit.is_some() && self.txn_number.is_none() {
            return invalid("'autocommit' field requires a transaction number".into());
        }
        if marks.start.is_some() && marks.autocommit.is_none() {
            return invalid("'startTransaction' field requires 'autocommit' field to also be specified".into());
        }
        match (marks.autocommit, marks.start) {
            (Some(true), _) => return invalid("Specifying autocommit=true is not allowed.".into()),
            (_, Some(false)) => return invalid("Specifying startTransaction=false is not allowed.".into()),
            (Some(false), start) => self.transaction = Some(TransactionMark { start: start.is_some() }),
            (None, _) => {}
        }
        if let (Some(_), Some(_)) = (self.stmt_id, self.stmt_ids) {
            return invalid(format!("{path} may have 'stmtId' or 'stmtIds', not both"));
        }
        Ok(())
    }
}

/// What [`Envelope::check`] needs beyond the envelope.
#[derive(Default)]
struct Marks {
    autocommit: Option<bool>,
    start: Option<bool>,
    api_option: Option<&'static str>,
}

/// The class by the word a client uses for it; `BadValue` (2) names the three there are.
pub fn parse_class(word: &str) -> Result<Class> {
    Class::from_client_name(word)
        .ok_or_else(|| Error::bad_value(format!("'{word}' is no priority; use \"high\", \"normal\" or \"low\"")))
}

/// `lsid` or an element of a list of them.
pub fn parse_session(document: &RawDocument) -> Result<SessionId> {
    let mut fields = Fields::of("OperationSessionInfo.lsid", document)?;
    let Some(id) = fields.take("id") else {
        return Err(Error::location(
            40414,
            "BSON field 'OperationSessionInfo.lsid.id' is missing but a required field",
        ));
    };
    // The digest of the user who owns it; without users it is of no consequence.
    fields.take("uid");
    if fields.take("txnNumber").is_some() || fields.take("txnUUID").is_some() {
        return Err(Error::new(
            ErrorCode::InternalTransactionNotSupported,
            "Internal transactions are not supported by this member",
        ));
    }
    fields.finish()?;
    match id {
        RawBsonRef::Binary(binary) if binary.subtype == BinarySubtype::Uuid => {
            let bytes: [u8; 16] = binary.bytes.try_into().map_err(|_| {
                Error::new(ErrorCode::InvalidUUID, "uuid must be a 16-byte binary field with UUID (4) subtype")
            })?;
            Ok(SessionId(bytes))
        }
        other => Err(wrong_type("OperationSessionInfo.lsid", "id", other, &["binData"])),
    }
}

/// What a command that declares `maxTimeMS` itself says to what it cannot be; the others take it as every command's.
fn check_max_time(path: &str, value: RawBsonRef<'_>) -> Result<()> {
    const DECLARE_IT: [&str; 6] = ["aggregate", "count", "distinct", "find", "findAndModify", "getMore"];
    if matches!(value, RawBsonRef::Null | RawBsonRef::Undefined) {
        return Err(Error::bad_value("maxTimeMS must be a number"));
    }
    if !DECLARE_IT.contains(&path) {
        return Ok(());
    }
    match crate::fields::number_as_i64(value) {
        None => Err(wrong_type(path, "maxTimeMS", value, &["long", "int", "decimal", "double"])),
        Some(ms) if ms < 0 => {
            let message = format!("BSON field 'maxTimeMS' value must be >= 0, actual value '{ms}'");
            Err(Error::location(51024, message))
        }
        Some(_) => Ok(()),
    }
}

/// `maxTimeMS` and its like: a whole number of milliseconds that fits an int; 0 is none.
pub fn parse_max_time(name: &str, value: RawBsonRef<'_>) -> Result<Option<Duration>> {
    let ms = match value {
        RawBsonRef::Null | RawBsonRef::Undefined => return Ok(None),
        RawBsonRef::Double(v) if v.fract() != 0.0 || !v.is_finite() => {
            return Err(Error::bad_value(format!("{name} has non-integral value")));
        }
        other => {
            crate::fields::number_as_i64(other).ok_or_else(|| Error::bad_value(format!("{name} must be a number")))?
        }
    };
    match ms {
        0 => Ok(None),
        1..=0x7fff_ffff => Ok(Some(Duration::from_millis(ms as u64))),
        _ => Err(Error::bad_value(format!("{ms} value for {name} is out of range [0, 2147483647]"))),
    }
}

fn parse_cluster_time(document: &RawDocument) -> Result<Timestamp> {
    let mut fields = Fields::of("$clusterTime", document)?;
    let time = fields.required::<bson::Timestamp>("clusterTime")?;
    // Without keys there is nothing to check a signature with, as in a mongod without authentication.
    fields.optional::<&RawDocument>("signature")?;
    Ok(time.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_wire::Flags;
    use bson::{Binary, Bson, RawDocumentBuf, rawdoc};

    fn parse(body: &RawDocumentBuf) -> Result<(Envelope<'_>, Fields<'_>)> {
        let request = Request {
            request_id: 1,
            reply_id: 2,
            flags: Flags::default(),
            body,
            sequences: Default::default(),
            legacy_database: None,
            compressor: None,
            waited: Duration::ZERO,
        };
        Envelope::parse(&request, "frob")
    }

    fn code_of(body: RawDocumentBuf) -> i32 {
        parse(&body).err().map_or(0, |e| e.code.0)
    }

    fn session() -> RawDocumentBuf {
        rawdoc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] } }
    }

    #[test]
    fn generic_arguments_are_taken_and_the_rest_is_left_to_the_command() {
        let body = rawdoc! {
            "frob": "c", "$db": "test", "lsid": session(), "txnNumber": 5_i64, "maxTimeMS": 100,
            "comment": "x", "priority": "normal", "own": 1,
            "$clusterTime": { "clusterTime": bson::Timestamp { time: 9, increment: 2 }, "signature": {} },
        };
        let (envelope, fields) = parse(&body).unwrap();
        assert_eq!((envelope.name, envelope.db), ("frob", "test"));
        assert_eq!(envelope.value.as_str(), Some("c"));
        assert_eq!(envelope.session, Some(SessionId([7; 16])));
        assert_eq!(envelope.txn_number, Some(5));
        assert_eq!(envelope.max_time, Some(Duration::from_millis(100)));
        assert_eq!(envelope.class, Some(Class::Normal));
        assert_eq!(envelope.cluster_time, Some(Timestamp { seconds: 9, increment: 2 }));
        assert_eq!(fields.rest().map(|(k, _)| k).collect::<Vec<_>>(), ["own"]);
    }

    #[test]
    fn no_database_is_40571_and_a_bad_one_73() {
        assert_eq!(code_of(rawdoc! { "frob": 1 }), 40571);
        assert_eq!(code_of(rawdoc! { "frob": 1, "$db": "a.b" }), 73);
        assert_eq!(code_of(rawdoc! { "frob": 1, "$db": 7 }), 14);
    }

    #[test]
    fn max_time_must_be_a_whole_number_in_range() {
        assert_eq!(code_of(rawdoc! { "frob": 1, "$db": "t", "maxTimeMS": "x" }), 2);
        assert_eq!(code_of(rawdoc! { "frob": 1, "$db": "t", "maxTimeMS": -1 }), 2);
        assert_eq!(code_of(rawdoc! { "frob": 1, "$db": "t", "maxTimeMS": 1.5 }), 2);
        assert_eq!(code_of(rawdoc! { "frob": 1, "$db": "t", "maxTimeMS": 1_i64 << 40 }), 2);
        assert_eq!(code_of(rawdoc! { "frob": 1, "$db": "t", "maxTimeMS": bson::RawBson::Null }), 2);
    }

    #[test]
    fn a_command_that_declares_max_time_says_so_by_type_and_range() {
        let code = |max_time: Bson| {
            let body =
                RawDocumentBuf::try_from(&bson::doc! { "find": "c", "$db": "t", "maxTimeMS": max_time }).unwrap();
            let request = Request {
                request_id: 1,
                reply_id: 2,
                flags: Flags::default(),
                body: &body,
                sequences: Default::default(),
                legacy_database: None,
                compressor: None,
                waited: Duration::ZERO,
            };
            Envelope::parse(&request, "find").err().map_or(0, |error| error.code.0)
        };
        let given: [Bson; 7] =
            ["x".into(), bson::bson!([1]), bson::bson!({}), Bson::Null, (-1).into(), 1.5.into(), 0.into()];
        assert_eq!(given.map(code), [14, 14, 14, 2, 51024, 2, 0]);
    }

    #[test]
    fn a_read_concern_that_is_no_object_is_9_and_a_class_that_nothing_distinguishes_238() {
        assert_eq!(code_of(rawdoc! { "frob": 1, "$db": "t", "readConcern": bson::RawBson::Null }), 9);
        assert_eq!(code_of(rawdoc! { "frob": 1, "$db": "t", "readConcern": 1 }), 9);
        assert_eq!(code_of(rawdoc! { "frob": 1, "$db": "t", "priority": "normal" }), 0);
        assert_eq!(code_of(rawdoc! { "frob": 1, "$db": "t", "priority": "high" }), 0);
        assert_eq!(code_of(rawdoc! { "frob": 1, "$db": "t", "priority": 1 }), 14);
        assert_eq!(code_of(rawdoc! { "frob": 1, "$db": "t", "priority": "urgent" }), 2);
        assert_eq!(code_of(rawdoc! { "frob": 1, "$db": "t", "maxTimeMS": 0 }), 0);
    }

    #[test]
    fn session_arguments_that_contradict_are_refused() {
        assert_eq!(code_of(rawdoc! { "frob": 1, "$db": "t", "txnNumber": 1_i64 }), 72);
        assert_eq!(code_of(rawdoc! { "frob": 1, "$db": "t", "lsid": session(), "autocommit": false }), 72);
        let start = rawdoc! { "frob": 1, "$db": "t", "lsid": session(), "txnNumber": 1_i64, "startTransaction": true };
        assert_eq!(code_of(start), 72);
        assert_eq!(code_of(rawdoc! { "frob": 1, "$db": "t", "lsid": { "id": 5 } }), 14);
        assert_eq!(code_of(rawdoc! { "frob": 1, "$db": "t", "lsid": { "x": 5 } }), 40414);
    }

    #[test]
    fn only_api_version_1_exists() {
        assert_eq!(code_of(rawdoc! { "frob": 1, "$db": "t", "apiVersion": "2" }), 322);
        assert_eq!(code_of(rawdoc! { "frob": 1, "$db": "t", "apiStrict": true }), 322);
        assert_eq!(code_of(rawdoc! { "frob": 1, "$db": "t", "apiVersion": "1", "apiStrict": true }), 0);
    }
}
