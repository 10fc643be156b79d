//! Oplog entries in MongoDB's format (version 2), built before their OpTime is known.
//!
//! Layout: everything the request determines comes first; `ts`, `t`, `v` and `wall` come last, so that they lie at
//! fixed distances from the end and the commit queue can fill them in without another pass. A `prevOpTime` of a
//! retryable write, where there is one, is among the first part: it names an earlier entry. The class of whoever wrote it, if that is
//! not the usual one, is the first field of all: whoever carries entries on finds it there without reading them.
//!
//! Invariant: entries are idempotent. Applying one to a document that already has its effect changes nothing.

use baton_types::{Class, Namespace, OpTime, Timestamp};
use bson::RawDocument;

/// What an entry does to a document. Those of commands are [`encode_command`]'s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OplogKind {
    /// `i`: `o` is the document.
    Insert,
    /// `u`: `o` is a diff or a replacement, `o2` the `_id`.
    Update,
    /// `d`: `o` is the `_id`.
    Delete,
    /// `n`: a message for readers of the oplog.
    Noop,
}

impl OplogKind {
    /// The value of the entry's `op` field.
    pub fn code(self) -> &'static str {
        match self {
            Self::Insert => "i",
            Self::Update => "u",
            Self::Delete => "d",
            Self::Noop => "n",
        }
    }
}

/// What makes an entry part of a retryable write.
pub struct RetryableFields<'a> {
    /// The logical session (`lsid`), as replicated: `{id, uid}`.
    pub lsid: &'a RawDocument,
    /// The session's write number.
    pub txn_number: i64,
    /// The statement's number within the write.
    pub stmt_id: i32,
    /// The session's entry before this one.
    pub prev: OpTime,
    /// Which state of the document the statement's answer holds.
    pub image: Option<RetryImage>,
}

/// A state of the document that a findAndModify answers with, as its entry says it (`needsRetryImage`): so that a member
/// that applies the entry can answer the statement again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryImage {
    /// As it was.
    Before,
    /// As it became.
    After,
}

impl RetryImage {
    /// The value of the entry's field.
    pub fn code(self) -> &'static str {
        match self {
            Self::Before => "preImage",
            Self::After => "postImage",
        }
    }

    /// The inverse of [`Self::code`].
    pub fn from_code(code: &str) -> Option<Self> {
        match code {
            "preImage" => Some(Self::Before),
            "postImage" => Some(Self::After),
            _ => None,
        }
    }
}

/// Everything about an entry but its OpTime.
pub struct OplogEntry<'a> {
    /// What it does.
    pub kind: OplogKind,
    /// On which collection.
    pub namespace: &'a Namespace,
    /// The collection's UUID.
    pub uuid: Option<[u8; 16]>,
    /// `o`.
    pub o: &'a RawDocument,
    /// `o2`, for updates: the document's element `_id`, encoded.
    pub o2: Option<&'a [u8]>,
    /// Session fields of a retryable write.
    pub retryable: Option<RetryableFields<'a>>,
    /// Of whoever writes it: how urgently others are to have it.
    pub class: Class,
}

/// The entry (`c`) of a command `o` in a database, as [`OplogEntry::encode`] gives it of a document. `before` is what it changed
/// (`o2`).
pub(crate) fn encode_command(
    db: &str,
    uuid: Option<[u8; 16]>,
    o: &RawDocument,
    before: Option<&RawDocument>,
) -> Vec<u8> {
    let Ok(namespace) = Namespace::new(db, "$cmd") else { unreachable!("the database's name is valid") };
    let entry = OplogEntry {
        kind: OplogKind::Noop,
        namespace: &namespace,
        uuid,
        o,
        o2: None,
        retryable: None,
        class: Class::Normal,
    };
    entry.encode_as("c", before.map(elements_of))
}

/// Bytes of a document beside its elements: its length and its end.
const EMPTY_DOCUMENT_BYTES: i32 = 4 + 1;

/// A document's elements, encoded.
fn elements_of(document: &RawDocument) -> &[u8] {
    let bytes = document.as_bytes();
    &bytes[4..bytes.len() - 1]
}

/// The name of the field with the class, as BSON has it.
const CLASS: &[u8] = b"class\0";

/// Bytes from the `ts` value to the end of an entry: `ts`, `t`, `v`, `wall`, terminator.
const TS_FROM_END: usize = 8 + T_FROM_ELEMENT;
const T_FROM_ELEMENT: usize = 1 + 2 + 8 + V_ELEMENT;
const V_ELEMENT: usize = 1 + 2 + 8 + WALL_ELEMENT;
const WALL_ELEMENT: usize = 1 + 5 + 8 + 1;

impl OplogEntry<'_> {
    /// The entry as BSON with zeros for `ts`, `t` and `wall`; [`stamp`] fills them in.
    pub fn encode(&self) -> Vec<u8> {
        self.encode_as(self.kind.code(), self.o2)
    }

    /// `o2`: the elements of that field.
    fn encode_as(&self, kind: &str, o2: Option<&[u8]>) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.o.as_bytes().len() + 192);
        out.extend_from_slice(&[0; 4]);
        if matches!(self.class, Class::High | Class::Low) {
            string(&mut out, CLASS, self.class.name());
        }
        if let Some(retryable) = &self.retryable {
            element(&mut out, 0x03, b"lsid\0", retryable.lsid.as_bytes());
            element(&mut out, 0x12, b"txnNumber\0", &retryable.txn_number.to_le_bytes());
        }
        string(&mut out, b"op\0", kind);
        string(&mut out, b"ns\0", self.namespace.as_str());
        if let Some(uuid) = self.uuid {
            out.extend_from_slice(b"\x05ui\0\x10\0\0\0\x04");
            out.extend_from_slice(&uuid);
        }
        element(&mut out, 0x03, b"o\0", self.o.as_bytes());
        if let Some(elements) = o2 {
            out.extend_from_slice(b"\x03o2\0");
            out.extend_from_slice(&(elements.len() as i32 + EMPTY_DOCUMENT_BYTES).to_le_bytes());
            out.extend_from_slice(elements);
            out.push(0);
        }
        if let Some(retryable) = &self.retryable {
            element(&mut out, 0x10, b"stmtId\0", &retryable.stmt_id.to_le_bytes());
            out.extend_from_slice(b"\x03prevOpTime\0");
            out.extend_from_slice(optime_document(retryable.prev).as_bytes());
            if let Some(image) = retryable.image {
                string(&mut out, b"needsRetryImage\0", image.code());
            }
        }
        element(&mut out, 0x11, b"ts\0", &[0; 8]);
        element(&mut out, 0x12, b"t\0", &[0; 8]);
        element(&mut out, 0x12, b"v\0", &2_i64.to_le_bytes());
        element(&mut out, 0x09, b"wall\0", &[0; 8]);
        out.push(0);
        let length = out.len() as i32;
        out[..4].copy_from_slice(&length.to_le_bytes());
        out
    }
}

/// Fills OpTime and wall-clock time (milliseconds since 1970) into an entry made by [`OplogEntry::encode`].
pub fn stamp(entry: &mut [u8], optime: OpTime, wall_ms: i64) {
    let end = entry.len();
    let mut patch = |from_end: usize, bytes: [u8; 8]| entry[end - from_end..end - from_end + 8].copy_from_slice(&bytes);
    patch(TS_FROM_END, optime.timestamp.as_u64().to_le_bytes());
    patch(8 + V_ELEMENT, optime.term.to_le_bytes());
    patch(9, wall_ms.to_le_bytes());
}

/// `{ts, t}`, as in `prevOpTime` and in replies.
pub fn optime_document(optime: OpTime) -> bson::RawDocumentBuf {
    bson::rawdoc! { "ts": bson::Timestamp::from(optime.timestamp), "t": optime.term }
}

/// The OpTime of an entry, or of anything else with `ts` and `t`. An entry as [`OplogEntry::encode`] writes it is read from its
/// end, where these are.
pub fn optime_of(entry: &RawDocument) -> Option<OpTime> {
    if let Some(optime) = optime_at_end(entry.as_bytes()) {
        return Some(optime);
    }
    let timestamp: Timestamp = entry.get_timestamp("ts").ok()?.into();
    Some(OpTime { term: entry.get_i64("t").ok()?, timestamp })
}

/// The class of whoever wrote an entry.
pub fn class_of(entry: &[u8]) -> Class {
    const LENGTH: usize = 4;
    let Some(value) = entry.get(LENGTH..).and_then(|entry| entry.strip_prefix(b"\x02")?.strip_prefix(CLASS)) else {
        return Class::Normal;
    };
    let name = value.get(LENGTH..).and_then(|text| text.split(|byte| *byte == 0).next());
    name.and_then(|name| Class::from_client_name(std::str::from_utf8(name).ok()?)).unwrap_or_default()
}

fn optime_at_end(entry: &[u8]) -> Option<OpTime> {
    const HEAD: usize = 1 + 3;
    let tail = entry.get(entry.len().checked_sub(HEAD + TS_FROM_END)?..)?;
    let number = |at: usize| Some(u64::from_le_bytes(tail.get(at..at + 8)?.try_into().ok()?));
    let (t, v, wall) = (HEAD + 8, HEAD + 8 + 11, HEAD + 8 + 11 + 11);
    // Only members write entries, and none of theirs ends with a value that looks like these four elements.
    let is_ours = tail.starts_with(b"\x11ts\0")
        && tail[t..].starts_with(b"\x12t\0")
        && tail[v..].starts_with(b"\x12v\0\x02\0\0\0\0\0\0\0")
        && tail[wall..].starts_with(b"\x09wall\0");
    if !is_ours {
        return None;
    }
    Some(OpTime { term: number(t + 3)? as i64, timestamp: Timestamp::from_u64(number(HEAD)?) })
}

fn element(out: &mut Vec<u8>, kind: u8, name: &[u8], value: &[u8]) {
    out.push(kind);
    out.extend_from_slice(name);
    out.extend_from_slice(value);
}

fn string(out: &mut Vec<u8>, name: &[u8], value: &str) {
    out.push(0x02);
    out.extend_from_slice(name);
    out.extend_from_slice(&(value.len() as i32 + 1).to_le_bytes());
    out.extend_from_slice(value.as_bytes());
    out.push(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_valid_bson_and_its_optime_reads_back() {
        let namespace = Namespace::new("shop", "carts").expect("a valid name");
        let o = bson::rawdoc! { "_id": 1, "items": ["a", "b"] };
        let lsid = bson::rawdoc! { "id": 7 };
        let prev = OpTime { term: 1, timestamp: Timestamp { seconds: 5, increment: 6 } };
        let retryable =
            Some(RetryableFields { lsid: &lsid, txn_number: 3, stmt_id: 4, prev, image: Some(RetryImage::After) });
        let entry = OplogEntry {
            kind: OplogKind::Update,
            namespace: &namespace,
            uuid: Some([9; 16]),
            o: &o,
            o2: Some(b"\x10_id\0\x01\0\0\0"),
            retryable,
            class: Class::Low,
        };
        let mut bytes = entry.encode();
        let optime = OpTime { term: 8, timestamp: Timestamp { seconds: 1_700_000_000, increment: 42 } };
        stamp(&mut bytes, optime, 1_700_000_000_123);
        let read = RawDocument::from_bytes(&bytes).expect("well-formed");
        assert_eq!(optime_at_end(&bytes), Some(optime));
        assert_eq!(optime_of(read), Some(optime));
        // In another order it is read as any document is.
        let other = bson::rawdoc! { "v": 2_i64, "ts": bson::Timestamp::from(optime.timestamp), "t": 8_i64, "op": "n" };
        assert_eq!(optime_at_end(other.as_bytes()), None);
        assert_eq!(optime_of(&other), Some(optime));
        assert_eq!(optime_of(&bson::rawdoc! { "ts": 1 }), None);
        assert_eq!(read.get_str("op").expect("op"), "u");
        assert_eq!(read.get_document("o").expect("o"), &*o);
        assert_eq!(read.get_document("o2").expect("o2").get_i32("_id").expect("_id"), 1);
        assert_eq!(read.get_i64("v").expect("v"), 2);
        assert_eq!(read.get_datetime("wall").expect("wall").timestamp_millis(), 1_700_000_000_123);
        assert_eq!(read.get_document("prevOpTime").map(optime_of).expect("prevOpTime"), Some(prev));
        assert_eq!(read.get_str("needsRetryImage").ok().and_then(RetryImage::from_code), Some(RetryImage::After));
        assert_eq!(read.iter().filter(|element| element.is_err()).count(), 0);
        assert_eq!((read.get_str("class").expect("class"), class_of(&bytes)), ("low", Class::Low));
    }

    #[test]
    fn the_class_of_an_entry_is_its_first_field_or_the_usual_one() {
        for (entry, class) in [
            (bson::rawdoc! { "class": "high", "op": "n" }, Class::High),
            (bson::rawdoc! { "class": "low", "op": "n" }, Class::Low),
            (bson::rawdoc! { "op": "n", "class": "high" }, Class::Normal),
            (bson::rawdoc! { "class": "urgent" }, Class::Normal),
            (bson::rawdoc! { "class": "" }, Class::Normal),
            (bson::rawdoc! { "class": 1 }, Class::Normal),
            (bson::rawdoc! {}, Class::Normal),
        ] {
            assert_eq!(class_of(entry.as_bytes()), class, "{entry:?}");
            for end in 0..entry.as_bytes().len() {
                // However much of it is there.
                let _ = class_of(&entry.as_bytes()[..end]);
            }
        }
    }
}
