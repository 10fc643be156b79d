//! The wire decoder: any bytes give a request or a failure; what a request holds is valid; a failure can be answered.

use baton_wire::client::{decode_reply, encode_command};
use baton_wire::frame::{self, Header, MESSAGE_SIZE_MAX_BYTES};
use baton_wire::{Compressor, Failure, Flags, Frame, ReplyBuilder, decode};
use bson::rawdoc;

/// Runs the input as a message: as it is, and with the header's length made true.
pub fn run(data: &[u8]) {
    if let Frame::Message { length_bytes } = frame::inspect(data) {
        assert!((16..=MESSAGE_SIZE_MAX_BYTES).contains(&length_bytes));
    }
    message(data);
    if data.len() >= 16 {
        let mut honest = data.to_vec();
        honest[..4].copy_from_slice(&(data.len() as i32).to_le_bytes());
        message(&honest);
    }
}

fn message(bytes: &[u8]) {
    let _ = decode_reply(bytes);
    let (mut scratch, mut out) = (Vec::new(), Vec::new());
    match decode(bytes, &mut scratch) {
        Ok(request) => {
            for (name, sequence) in &request.sequences {
                assert_eq!(sequence.iter().count(), sequence.len(), "every document of {name} is there");
                for document in sequence.iter() {
                    assert!(document.iter().all(|element| element.is_ok()));
                }
            }
            assert!(request.body.iter().all(|element| element.is_ok()));
            let mut reply = ReplyBuilder::new(&mut out, &request);
            reply.document(&rawdoc! { "ok": 1.0 });
            reply.finish();
        }
        Err(Failure::Reject(rejection)) => {
            rejection.write(1, &mut out);
            if rejection.silent {
                assert!(out.is_empty(), "nobody waits for this answer");
                return;
            }
        }
        Err(Failure::Close(_)) => return,
    }
    // Whatever was answered can be read: another decode undoes the compression.
    let mut scratch = Vec::new();
    let plain = decode_reply(&out).is_ok();
    assert!(plain || decode(&out, &mut scratch).is_ok(), "the answer cannot be read");
}

/// A message of each kind.
pub fn seeds() -> Vec<Vec<u8>> {
    let body = rawdoc! { "insert": "c", "$db": "d", "padding": "x".repeat(100) };
    let documents = [rawdoc! { "_id": 1 }, rawdoc! { "_id": 2, "a": [1, { "b": null }] }];
    let mut seeds = Vec::new();
    for flags in [0, Flags::CHECKSUM_PRESENT, Flags::MORE_TO_COME, Flags::EXHAUST_ALLOWED] {
        let mut bytes = Vec::new();
        encode_command(&mut bytes, 7, Flags(flags), &body, Some(("documents", &mut documents.iter().map(|d| &**d))));
        seeds.push(bytes);
    }
    let plain = seeds[0].clone();
    for compressor in [Compressor::Snappy, Compressor::Zlib, Compressor::Zstd] {
        let Some(content) = compressor.deflate(&plain[16..]) else { continue };
        let mut bytes = Vec::new();
        let message_length = 25 + content.len() as i32;
        Header { message_length, request_id: 7, response_to: 0, op_code: 2012 }.write(&mut bytes);
        bytes.extend_from_slice(&2013i32.to_le_bytes());
        bytes.extend_from_slice(&(plain.len() as i32 - 16).to_le_bytes());
        bytes.push(compressor.id());
        bytes.extend_from_slice(&content);
        seeds.push(bytes);
    }
    let mut legacy = Vec::new();
    Header { message_length: 0, request_id: 7, response_to: 0, op_code: 2004 }.write(&mut legacy);
    legacy.extend_from_slice(b"\0\0\0\0admin.$cmd\0\0\0\0\0\xff\xff\xff\xff");
    legacy.extend_from_slice(rawdoc! { "isMaster": 1, "helloOk": true }.as_bytes());
    let length = legacy.len() as i32;
    legacy[..4].copy_from_slice(&length.to_le_bytes());
    seeds.push(legacy);
    seeds.push(b"GET / HTTP/1.1\r\n\r\n".to_vec());
    seeds
}
