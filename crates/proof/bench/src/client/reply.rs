//! Reads from a reply only what tells success from failure, stepping over the rest by its length.
//!
//! Invariant: no byte sequence makes it panic or read out of bounds; what it cannot follow is an error that shows the
//! reply. What it deliberately does not do: validate documents, or look into records.

use bson::Document;

use super::message::PREFIX_BYTES;
use crate::Failure;

/// What the load generator wants to know of a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// `ok` was 1.
    pub ok: bool,
    /// `n`, of a write.
    pub n: Option<i64>,
    /// How many documents `cursor.firstBatch` holds.
    pub first_batch: Option<u64>,
    /// There were `writeErrors` or a `writeConcernError`.
    pub write_error: bool,
}

/// Sums up a whole OP_MSG reply.
///
/// # Errors
/// If it is not an OP_MSG whose first section is a body.
pub fn summarize(message: &[u8]) -> Result<Summary, Failure> {
    let mut summary = Summary::default();
    let body = message
        .get(PREFIX_BYTES..)
        .filter(|rest| rest.first() == Some(&0))
        .and_then(|rest| rest.get(1..))
        .ok_or("the reply is not an OP_MSG with a body first")?;
    each(body, |kind, name, value| {
        match (name, kind) {
            (b"ok", _) => summary.ok = integer(kind, value) == Some(1),
            (b"n", _) => summary.n = integer(kind, value),
            (b"cursor", 0x03) => {
                each(value, |kind, name, batch| {
                    if name == b"firstBatch" && kind == 0x04 {
                        let mut count = 0;
                        each(batch, |_, _, _| {
                            count += 1;
                            Some(())
                        })?;
                        summary.first_batch = Some(count);
                    }
                    Some(())
                })?;
            }
            (b"writeErrors" | b"writeConcernError", _) => summary.write_error = true,
            _ => {}
        }
        Some(())
    })
    .ok_or("the reply's body is not BSON")?;
    Ok(summary)
}

/// The body of a reply, decoded for an error text or for a rare command.
///
/// # Errors
/// If it is not an OP_MSG with a valid body.
pub fn body(message: &[u8]) -> Result<Document, Failure> {
    let rest = message.get(PREFIX_BYTES + 1..).ok_or("the reply is cut short")?;
    Ok(Document::from_reader(rest)?)
}

/// Calls `f` with type, name and value of every element of a document; `None` if it cannot be followed.
fn each(document: &[u8], mut f: impl FnMut(u8, &[u8], &[u8]) -> Option<()>) -> Option<()> {
    let end = length_at(document, 0)?.checked_sub(1)?;
    if document.get(end) != Some(&0) {
        return None;
    }
    let mut rest = document.get(4..end)?;
    while let Some((&kind, after)) = rest.split_first() {
        let end = after.iter().position(|&byte| byte == 0)?;
        let value = &after[end + 1..];
        let size = size_of(kind, value)?;
        f(kind, &after[..end], value.get(..size)?)?;
        rest = &value[size..];
    }
    Some(())
}

fn length_at(bytes: &[u8], offset: usize) -> Option<usize> {
    let four: [u8; 4] = bytes.get(offset..offset + 4)?.try_into().ok()?;
    usize::try_from(i32::from_le_bytes(four)).ok()
}

fn size_of(kind: u8, value: &[u8]) -> Option<usize> {
    match kind {
        0x01 | 0x09 | 0x11 | 0x12 => Some(8),
        0x02 | 0x0D | 0x0E => Some(4 + length_at(value, 0)?),
        0x03 | 0x04 | 0x0F => length_at(value, 0),
        0x05 => Some(5 + length_at(value, 0)?),
        0x06 | 0x0A | 0x7F | 0xFF => Some(0),
        0x07 => Some(12),
        0x08 => Some(1),
        0x10 => Some(4),
        0x13 => Some(16),
        _ => None,
    }
}

fn integer(kind: u8, value: &[u8]) -> Option<i64> {
    match kind {
        0x01 => Some(f64::from_le_bytes(value.try_into().ok()?) as i64),
        0x08 => Some(i64::from(value[0])),
        0x10 => Some(i64::from(i32::from_le_bytes(value.try_into().ok()?))),
        0x12 => Some(i64::from_le_bytes(value.try_into().ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::Template;
    use super::*;
    use bson::doc;

    fn of(body: Document) -> Summary {
        summarize(&Template::new(&body, None).expect("encodes").bytes).expect("follows")
    }

    #[test]
    fn a_find_reply_is_counted_wherever_the_batch_stands() {
        let batch = || vec![doc! { "_id": "a", "x": vec![1, 2] }, doc! { "_id": "b" }];
        for cursor in [
            doc! { "firstBatch": batch(), "id": 0i64, "ns": "a.b" },
            doc! { "id": 0i64, "ns": "a.b", "partialResultsReturned": false, "firstBatch": batch() },
        ] {
            let summary = of(doc! { "cursor": cursor, "ok": 1.0 });
            assert_eq!(summary, Summary { ok: true, first_batch: Some(2), ..Summary::default() });
        }
    }

    #[test]
    fn a_write_that_failed_inside_an_ok_reply_is_seen() {
        let summary = of(doc! { "n": 0, "writeErrors": [ { "index": 0, "code": 11000 } ], "ok": 1.0 });
        assert_eq!(summary, Summary { ok: true, n: Some(0), write_error: true, ..Summary::default() });
        assert!(!of(doc! { "ok": 0.0, "code": 13 }).ok);
    }

    #[test]
    fn no_prefix_of_a_reply_makes_it_panic() {
        let body = doc! { "cursor": { "firstBatch": [ { "_id": "a" } ], "id": 0i64 }, "n": 1, "ok": 1.0 };
        let whole = Template::new(&body, None).expect("encodes").bytes;
        for end in 0..whole.len() {
            assert!(summarize(&whole[..end]).is_err(), "a reply cut at {end} was accepted");
        }
    }
}
