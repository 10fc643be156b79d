//! Every malformed message has its answer: one named test for each.

#![allow(clippy::unwrap_used, clippy::panic)]

use baton_wire::client::{decode_reply, encode_command};
use baton_wire::frame::{Header, MESSAGE_SIZE_MAX_BYTES};
use baton_wire::{Compressor, Failure, Flags, Frame, Rejection, decode, frame};
use bson::{RawDocumentBuf, rawdoc};

fn ping() -> RawDocumentBuf {
    rawdoc! { "ping": 1, "$db": "admin" }
}

/// A message of raw parts: the opcode and what follows the header.
fn message(op_code: i32, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Header { message_length: 16 + content.len() as i32, request_id: 77, response_to: 0, op_code }.write(&mut out);
    out.extend_from_slice(content);
    out
}

/// An OP_MSG of flag bits and sections.
fn op_msg(flags: u32, sections: &[Vec<u8>]) -> Vec<u8> {
    let mut content = flags.to_le_bytes().to_vec();
    sections.iter().for_each(|section| content.extend_from_slice(section));
    message(2013, &content)
}

fn body(document: &RawDocumentBuf) -> Vec<u8> {
    [&[0], document.as_bytes()].concat()
}

fn sequence(name: &str, documents: &[RawDocumentBuf]) -> Vec<u8> {
    let documents: Vec<u8> = documents.iter().flat_map(|d| d.as_bytes().to_vec()).collect();
    let size = 4 + name.len() + 1 + documents.len();
    [&[1], &(size as i32).to_le_bytes()[..], name.as_bytes(), &[0], &documents].concat()
}

fn failure(message: &[u8]) -> Failure {
    let mut scratch = Vec::new();
    match decode(message, &mut scratch) {
        Ok(request) => panic!("decoded to {request:?}"),
        Err(failure) => failure,
    }
}

fn rejection(message: &[u8]) -> Rejection {
    match failure(message) {
        Failure::Reject(rejection) => rejection,
        Failure::Close(reason) => panic!("closed: {reason}"),
    }
}

fn closed(message: &[u8]) -> bool {
    matches!(failure(message), Failure::Close(_))
}

fn code(message: &[u8]) -> i32 {
    rejection(message).error.code.0
}

fn compressed(id: u8, claimed_size: i32, content: &[u8]) -> Vec<u8> {
    compressed_around(2013, id, claimed_size, content)
}

fn compressed_around(op_code: i32, id: u8, claimed_size: i32, content: &[u8]) -> Vec<u8> {
    message(2012, &[&op_code.to_le_bytes()[..], &claimed_size.to_le_bytes(), &[id], content].concat())
}

#[test]
fn length_15_negative_or_above_48_million_closes_and_nothing_is_allocated() {
    for length in [15i32, 0, -1, i32::MIN, MESSAGE_SIZE_MAX_BYTES as i32 + 1, i32::MAX] {
        assert_eq!(frame::inspect(&length.to_le_bytes()), Frame::Malformed { claimed_length: length });
        let mut whole = op_msg(0, &[body(&ping())]);
        whole[..4].copy_from_slice(&length.to_le_bytes());
        assert!(closed(&whole));
    }
}

#[test]
fn http_is_recognised() {
    assert_eq!(frame::inspect(b"GET / HTTP/1.1"), Frame::Http);
}

#[test]
fn unknown_and_removed_opcodes_close() {
    for op_code in [0, 1, 1000, 2001, 2002, 2005, 2006, 2007, 2010, 2011, 9999, -1] {
        assert!(closed(&message(op_code, &[0; 64])), "{op_code}");
    }
}

#[test]
fn unknown_required_flag_bit_answers_223_and_closes() {
    for bit in 2..16 {
        let refused = rejection(&op_msg(1 << bit, &[body(&ping())]));
        assert_eq!((refused.error.code.0, refused.close, refused.request_id), (223, true, 77));
    }
}

#[test]
fn unknown_optional_flag_bits_are_ignored() {
    let bytes = op_msg(0xfffe_0000, &[body(&ping())]);
    let mut scratch = Vec::new();
    let request = decode(&bytes, &mut scratch).unwrap();
    assert_eq!(request.command_name(), "ping");
    assert!(!request.flags.exhaust_allowed());
}

#[test]
fn no_body_answers_40587() {
    assert_eq!(code(&op_msg(0, &[])), 40587);
    assert_eq!(code(&op_msg(0, &[sequence("documents", &[rawdoc! { "a": 1 }])])), 40587);
}

#[test]
fn two_bodies_answer_40430_and_the_connection_lives() {
    let refused = rejection(&op_msg(0, &[body(&ping()), body(&ping())]));
    assert_eq!((refused.error.code.0, refused.close), (40430, false));
}

#[test]
fn section_kind_7_answers_40432() {
    assert_eq!(code(&op_msg(0, &[body(&ping()), vec![7, 1, 2, 3]])), 40432);
}

#[test]
fn the_same_sequence_name_twice_answers_40431() {
    let documents = sequence("documents", &[rawdoc! {}]);
    assert_eq!(code(&op_msg(0, &[body(&ping()), documents.clone(), documents])), 40431);
}

#[test]
fn a_name_in_body_and_sequence_answers_40433() {
    let insert = rawdoc! { "insert": "c", "documents": [], "$db": "d" };
    // Whichever comes first.
    assert_eq!(code(&op_msg(0, &[body(&insert), sequence("documents", &[])])), 40433);
    assert_eq!(code(&op_msg(0, &[sequence("documents", &[]), body(&insert)])), 40433);
}

#[test]
fn many_sequences_are_refused_before_they_cost_quadratic_time() {
    let sections: Vec<_> =
        std::iter::once(body(&ping())).chain((0..100).map(|i| sequence(&format!("s{i}"), &[]))).collect();
    assert_eq!(code(&op_msg(0, &sections)), 17);
}

#[test]
fn a_bad_crc32c_answers_288_and_a_good_one_passes() {
    let mut bytes = Vec::new();
    encode_command(&mut bytes, 5, Flags(Flags::CHECKSUM_PRESENT), &ping(), None);
    let mut scratch = Vec::new();
    assert!(decode(&bytes, &mut scratch).is_ok());
    for at in [4, 16 + 6, bytes.len() - 1] {
        let mut broken = bytes.clone();
        broken[at] ^= 0x40;
        let refused = rejection(&broken);
        assert_eq!((refused.error.code.0, refused.close), (288, true));
    }
    // Announced, but the message ends before it.
    assert_eq!(code(&op_msg(Flags::CHECKSUM_PRESENT, &[])), 288);
}

#[test]
fn a_failing_request_with_more_to_come_gets_no_reply() {
    let refused = rejection(&op_msg(Flags::MORE_TO_COME, &[body(&ping()), body(&ping())]));
    let mut out = Vec::new();
    refused.write(9, &mut out);
    assert!(refused.silent && out.is_empty());
}

#[test]
fn sequence_sizes_that_lie_answer_17_and_close() {
    let honest = sequence("documents", &[rawdoc! { "a": 1 }]);
    for lie in [-1i32, 0, 3, 4, 5, honest.len() as i32, i32::MAX] {
        let mut section = honest.clone();
        section[1..5].copy_from_slice(&lie.to_le_bytes());
        let refused = rejection(&op_msg(0, &[body(&ping()), section]));
        assert_eq!((refused.error.code.0, refused.close), (17, true), "{lie}");
    }
}

#[test]
fn document_lengths_that_lie_answer_22() {
    for lie in [-1i32, 0, 4, 6, 1000, 16 * 1024 * 1024] {
        let mut section = body(&ping());
        section[1..5].copy_from_slice(&lie.to_le_bytes());
        assert_eq!(code(&op_msg(0, &[section])), 22, "{lie}");
    }
    assert_eq!(code(&op_msg(0, &[vec![0, 1, 2]])), 22);
}

#[test]
fn a_document_beyond_16_mib_and_its_wrapping_answers_10334() {
    let mut section = body(&ping());
    section[1..5].copy_from_slice(&(16 * 1024 * 1024 + 16 * 1024 + 1i32).to_le_bytes());
    assert_eq!(code(&op_msg(0, &[section])), 10334);
}

#[test]
fn nesting_beyond_200_answers_15_also_in_a_sequence() {
    let mut deep = rawdoc! {};
    for _ in 0..250 {
        deep = rawdoc! { "a": deep };
    }
    assert_eq!(code(&op_msg(0, &[body(&deep)])), 15);
    assert_eq!(code(&op_msg(0, &[body(&ping()), sequence("documents", &[deep])])), 15);
}

#[test]
fn invalid_utf8_answers_22_and_never_panics() {
    let mut section = body(&rawdoc! { "ping": "xxxx" });
    let at = section.windows(4).position(|w| w == b"xxxx").unwrap();
    section[at] = 0xff;
    assert_eq!(code(&op_msg(0, &[section])), 22);
}

#[test]
fn an_unknown_compressor_closes() {
    for id in [4, 5, 200, 255] {
        assert!(closed(&compressed(id, 10, &[0; 32])));
    }
}

#[test]
fn an_inflated_length_that_lies_closes_before_a_byte_is_handed_on() {
    let plain = op_msg(0, &[body(&ping())])[16..].to_vec();
    let long = [plain.clone(), vec![0; 4096]].concat();
    for compressor in [Compressor::Snappy, Compressor::Zlib, Compressor::Zstd] {
        let content = compressor.deflate(&long).unwrap();
        let honest = long.len() as i32;
        for lie in [honest - 1, honest + 1, 0, 1, -1, i32::MIN, i32::MAX, 47_999_985, 40_000_000] {
            let mut scratch = Vec::new();
            let bytes = compressed(compressor.id(), lie, &content);
            assert!(matches!(decode(&bytes, &mut scratch), Err(Failure::Close(_))), "{compressor:?} {lie}");
            assert!(scratch.is_empty(), "{compressor:?} {lie} left bytes behind");
        }
    }
    assert!(closed(&compressed(0, plain.len() as i32 + 1, &plain)));
    assert!(closed(&compressed(0, plain.len() as i32 - 1, &plain)));
}

#[test]
fn an_impossible_inflated_length_allocates_nothing() {
    for (compressor, content) in
        [(Compressor::Snappy, vec![0; 100]), (Compressor::Zlib, vec![0; 100]), (Compressor::Zstd, vec![0; 100])]
    {
        let mut scratch = Vec::new();
        let bytes = compressed(compressor.id(), 47_000_000, &content);
        assert!(matches!(decode(&bytes, &mut scratch), Err(Failure::Close(_))));
        assert_eq!(scratch.capacity(), 0, "{compressor:?}");
    }
}

#[test]
fn compressed_within_compressed_closes() {
    let inner = message(2012, &[0; 64])[16..].to_vec();
    assert!(closed(&compressed_around(2012, 0, inner.len() as i32, &inner)));
}

#[test]
fn compressed_legacy_opcode_closes() {
    assert!(closed(&compressed_around(2002, 0, 4, &[0; 4])));
}

fn op_query(namespace: &str, query: &RawDocumentBuf) -> Vec<u8> {
    let content = [&[0; 4], namespace.as_bytes(), &[0], &[0; 4], &(-1i32).to_le_bytes(), query.as_bytes()].concat();
    message(2004, &content)
}

#[test]
fn op_query_find_answers_352_in_an_op_reply_with_the_failure_flag() {
    for bytes in [
        op_query("db.coll", &rawdoc! { "a": 1 }),
        op_query("db.$cmd", &rawdoc! { "find": "coll" }),
        op_query("admin.$cmd", &rawdoc! {}),
    ] {
        let refused = rejection(&bytes);
        assert_eq!((refused.error.code.0, refused.legacy, refused.close), (352, true, false));
        let mut out = Vec::new();
        refused.write(3, &mut out);
        assert_eq!(Header::read(&out).map(|h| (h.op_code, h.response_to, h.request_id)), Some((1, 77, 3)));
        assert_eq!(out[16] & 2, 2, "the queryFailure flag");
        let reply = decode_reply(&out).unwrap();
        assert_eq!(reply.body.get_i32("code").unwrap(), 352);
        assert!(reply.body.get_str("$err").is_ok());
    }
}

#[test]
fn a_malformed_op_query_closes() {
    assert!(closed(&message(2004, &[])));
    assert!(closed(&message(2004, &[0; 4])));
    assert!(closed(&message(2004, b"\0\0\0\0admin.$cmd")));
    assert!(closed(&message(2004, b"\0\0\0\0admin.$cmd\0\0\0\0\0")));
}

#[test]
fn op_query_handshake_is_a_request_with_its_database() {
    for query in
        [rawdoc! { "isMaster": 1, "helloOk": true }, rawdoc! { "$query": { "isMaster": 1 }, "$readPreference": {} }]
    {
        let bytes = op_query("admin.$cmd", &query);
        let mut scratch = Vec::new();
        let request = decode(&bytes, &mut scratch).unwrap();
        assert_eq!((request.command_name(), request.legacy_database), ("isMaster", Some("admin")));
    }
}
