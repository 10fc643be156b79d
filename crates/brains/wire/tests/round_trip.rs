//! What one side writes the other reads, whatever the flags and the compression; and no bytes make the decoder panic.

#![allow(clippy::unwrap_used, clippy::panic)]

use baton_wire::client::{decode_reply, encode_command};
use baton_wire::frame::Header;
use baton_wire::{Compressor, Flags, ReplyBuilder, Request, decode};
use bson::{RawDocumentBuf, cstr, rawdoc};
use proptest::prelude::*;

fn any_document() -> impl Strategy<Value = RawDocumentBuf> {
    prop::collection::vec(
        (
            "[a-z]{1,8}",
            prop_oneof!["[a-z ]{0,40}".prop_map(bson::RawBson::String), any::<i64>().prop_map(bson::RawBson::Int64)],
        ),
        0..8,
    )
    .prop_map(|fields| {
        let mut document = rawdoc! { "command": 1 };
        for (key, value) in fields {
            // A prefix keeps clear of the sequence's name.
            document.append(bson::raw::CString::try_from(format!("k{key}")).unwrap(), value);
        }
        document
    })
}

/// The whole message as its OP_COMPRESSED form.
fn compress(message: &[u8], compressor: Compressor) -> Option<Vec<u8>> {
    let header = Header::read(message)?;
    let plain = &message[16..];
    let content = if compressor == Compressor::Noop { plain.to_vec() } else { compressor.deflate(plain)? };
    let mut out = Vec::new();
    Header { message_length: 25 + content.len() as i32, op_code: 2012, ..header }.write(&mut out);
    out.extend_from_slice(&header.op_code.to_le_bytes());
    out.extend_from_slice(&(plain.len() as i32).to_le_bytes());
    out.push(compressor.id());
    out.extend_from_slice(&content);
    Some(out)
}

fn check(request: &Request<'_>, body: &RawDocumentBuf, documents: &[RawDocumentBuf]) {
    assert_eq!(request.body.as_bytes(), body.as_bytes());
    let sequence = request.sequence("documents").unwrap();
    assert_eq!(sequence.len(), documents.len());
    assert!(sequence.iter().map(|d| d.as_bytes()).eq(documents.iter().map(|d| d.as_bytes())));
}

proptest! {
    #[test]
    fn commands_round_trip_plain_checksummed_and_compressed(
        body in any_document(),
        documents in prop::collection::vec(any_document(), 0..20),
        checksum: bool,
        id: i32,
    ) {
        let flags = Flags(u32::from(checksum));
        let mut bytes = Vec::new();
        encode_command(&mut bytes, id, flags, &body, Some(("documents", &mut documents.iter().map(|d| &**d))));
        let mut scratch = Vec::new();
        check(&decode(&bytes, &mut scratch).unwrap(), &body, &documents);
        for compressor in [Compressor::Noop, Compressor::Snappy, Compressor::Zlib, Compressor::Zstd] {
            if let Some(compressed) = compress(&bytes, compressor) {
                let request = decode(&compressed, &mut scratch).unwrap();
                check(&request, &body, &documents);
                prop_assert_eq!(request.compressor, Some(compressor));
                prop_assert_eq!(request.request_id, id);
            }
        }
    }

    #[test]
    fn random_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..400), op in 0..4usize) {
        let mut scratch = Vec::new();
        let _ = decode(&bytes, &mut scratch);
        if bytes.len() >= 16 {
            let length = bytes.len() as i32;
            bytes[..4].copy_from_slice(&length.to_le_bytes());
            bytes[12..16].copy_from_slice(&[1, 2004, 2012, 2013i32][op].to_le_bytes());
            let _ = decode(&bytes, &mut scratch);
            let _ = decode_reply(&bytes);
        }
    }

    #[test]
    fn mutated_messages_never_panic(
        body in any_document(),
        documents in prop::collection::vec(any_document(), 0..4),
        mutations in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        compressor in 0..4u8,
        cut: prop::sample::Index,
    ) {
        let mut bytes = Vec::new();
        encode_command(&mut bytes, 1, Flags(0), &body, Some(("documents", &mut documents.iter().map(|d| &**d))));
        if let Some(compressed) = Compressor::from_id(compressor).and_then(|c| compress(&bytes, c)) {
            bytes = compressed;
        }
        let mut scratch = Vec::new();
        for (at, value) in mutations {
            // Behind the length, so that the message still reaches the decoder.
            let at = 4 + at.index(bytes.len() - 4);
            bytes[at] = value;
        }
        let _ = decode(&bytes, &mut scratch);
        bytes.truncate(4 + cut.index(bytes.len() - 4));
        let length = bytes.len() as i32;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        let _ = decode(&bytes, &mut scratch);
    }
}

/// A request that asks for a reply in a certain way.
fn request(bytes: &mut Vec<u8>, name: &bson::raw::CStr, flags: u32, compressor: Option<Compressor>) {
    let mut body = RawDocumentBuf::new();
    body.append(name, 1);
    body.append(cstr!("padding"), "x".repeat(200));
    encode_command(bytes, 40, Flags(flags), &body, None);
    if let Some(compressor) = compressor {
        *bytes = compress(bytes, compressor).unwrap();
    }
}

fn reply_to(bytes: &[u8], build: impl FnOnce(&mut ReplyBuilder<'_>)) -> Vec<u8> {
    let (mut scratch, mut out) = (Vec::new(), Vec::new());
    let mut request = decode(bytes, &mut scratch).unwrap();
    request.reply_id = 41;
    let mut builder = ReplyBuilder::new(&mut out, &request);
    build(&mut builder);
    let size = builder.finish();
    assert_eq!(size, out.len());
    out
}

#[test]
fn a_reply_is_compressed_as_its_request_was_but_never_the_handshakes() {
    for compressor in Compressor::ANNOUNCED {
        for (name, expected) in [(cstr!("find"), 2012), (cstr!("hello"), 2013), (cstr!("saslStart"), 2013)] {
            let mut bytes = Vec::new();
            request(&mut bytes, name, 0, Some(compressor));
            let large = "y".repeat(1000);
            let out = reply_to(&bytes, |b| b.body().append(cstr!("large"), large.as_str()));
            let header = Header::read(&out).unwrap();
            assert_eq!((header.op_code, header.request_id, header.response_to), (expected, 41, 40));
            // What comes out of it is the reply again.
            let mut scratch = Vec::new();
            assert_eq!(decode(&out, &mut scratch).unwrap().body.get_str("large").unwrap(), large);
        }
    }
}

#[test]
fn a_reply_is_checksummed_when_its_request_was() {
    let mut bytes = Vec::new();
    request(&mut bytes, cstr!("find"), Flags::CHECKSUM_PRESENT, None);
    let mut out = reply_to(&bytes, |b| b.document(&rawdoc! { "ok": 1.0 }));
    let reply = decode_reply(&out).unwrap();
    assert!(reply.flags.checksum_present());
    assert_eq!(reply.body.get_f64("ok").unwrap(), 1.0);
    let last = out.len() - 1;
    out[last] ^= 1;
    assert!(decode_reply(&out).is_err(), "the checksum is checked");
}

#[test]
fn an_exhaust_reply_says_that_more_is_to_come_and_an_empty_body_is_a_document() {
    let mut bytes = Vec::new();
    request(&mut bytes, cstr!("hello"), Flags::EXHAUST_ALLOWED, None);
    let out = reply_to(&bytes, |b| b.more_to_come());
    let reply = decode_reply(&out).unwrap();
    assert!(reply.flags.more_to_come() && reply.body.is_empty());
}

#[test]
fn a_body_begun_gives_way_to_an_error_and_fields_can_be_added_at_its_end() {
    let mut bytes = Vec::new();
    request(&mut bytes, cstr!("find"), 0, None);
    let out = reply_to(&bytes, |b| {
        b.body().append(cstr!("half"), "done");
        b.error(
            &baton_types::Error::bad_value("no").with_info(rawdoc! { "extra": 1 }).with_label("RetryableWriteError"),
        );
        b.resume_body().append(cstr!("operationTime"), bson::Timestamp { time: 1, increment: 2 });
    });
    let body = bson::Document::try_from(decode_reply(&out).unwrap().body).unwrap();
    assert_eq!(
        body,
        bson::doc! {
            "ok": 0.0, "errmsg": "no", "code": 2, "codeName": "BadValue", "extra": 1,
            "errorLabels": ["RetryableWriteError"], "operationTime": bson::Timestamp { time: 1, increment: 2 },
        }
    );
}

#[test]
fn a_reply_too_large_for_the_protocol_becomes_an_error_reply() {
    let mut bytes = Vec::new();
    request(&mut bytes, cstr!("find"), 0, None);
    let part = "z".repeat(1 << 20);
    let out = reply_to(&bytes, |b| {
        let mut body = b.body();
        body.begin_array(cstr!("batch"));
        (0..17).for_each(|_| body.push(part.as_str()));
    });
    assert!(out.len() < 1000);
    assert_eq!(decode_reply(&out).unwrap().body.get_i32("code").unwrap(), 10334);
}

#[test]
fn the_answer_to_op_query_is_an_op_reply() {
    let query = rawdoc! { "isMaster": 1 };
    let mut bytes = Vec::new();
    Header { message_length: 0, request_id: 40, response_to: 0, op_code: 2004 }.write(&mut bytes);
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(b"admin.$cmd\0\0\0\0\0\xff\xff\xff\xff");
    bytes.extend_from_slice(query.as_bytes());
    let length = bytes.len() as i32;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    let out = reply_to(&bytes, |b| b.document(&rawdoc! { "ok": 1.0 }));
    assert_eq!(Header::read(&out).map(|h| (h.op_code, h.response_to)), Some((1, 40)));
    assert_eq!(decode_reply(&out).unwrap().body.get_f64("ok").unwrap(), 1.0);
}
