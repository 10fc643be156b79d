"""What a client can be sent by mistake or in malice: the answer is an error with MongoDB's code or a closed connection,
and others are served meanwhile. One test for each line of the list; wire first, then BSON, then commands.

What it deliberately does not do: wait for the half minute after which half a message times out (net's own tests do,
with a shorter time), or look at allocations (wire's own tests do).
"""

import random
import struct
import time
import zlib

import bson
import pytest
from pymongo.errors import OperationFailure

from raw import Raw, room_for

CHECKSUM, MORE_TO_COME = 1, 2
OP_COMPRESSED, OP_MSG = 2012, 2013


def ping():
    return bson.encode({"ping": 1, "$db": "admin"})


def sequence(name, *documents):
    """A section of kind 1."""
    content = name.encode() + b"\x00" + b"".join(documents)
    return b"\x01" + struct.pack("<i", len(content) + 4) + content


def message(flags, payload, opcode=OP_MSG, request=1):
    """A message with the flags and sections given."""
    return struct.pack("<iiiiI", 20 + len(payload), request, 0, opcode, flags) + payload


def answers(member, data):
    """The reply to the bytes, on a connection that serves on afterwards."""
    with Raw(member) as raw:
        raw.send(data)
        reply = raw.reply()
        assert reply is not None, "the connection was closed"
        raw.message(ping())
        assert raw.reply()["ok"] == 1
        return reply


def closes(member, data):
    """Whether the connection is closed without an answer."""
    with Raw(member) as raw:
        raw.send(data)
        return raw.reply() is None


@pytest.fixture(autouse=True)
def others_are_served(client):
    yield
    started = time.monotonic()
    assert client.admin.command("ping")["ok"] == 1
    assert time.monotonic() - started < 5


# --- wire

@pytest.mark.parametrize("length", [0, 15, -1, 48_000_001, 0x7FFFFFFF])
def test_a_length_that_lies_closes_the_connection(shared_member, length):
    assert closes(shared_member, struct.pack("<iiii", length, 1, 0, OP_MSG) + b"\x00" * 64)


def test_http_is_told_where_it_is(shared_member):
    with Raw(shared_member) as raw:
        raw.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        text = raw.read(15)
        assert text == b"HTTP/1.0 200 OK" or text == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize("opcode", [0, 1, 2001, 2002, 2005, 2006, 2007, 2010, 2011, 9999])
def test_an_opcode_of_another_age_closes_the_connection(shared_member, opcode):
    assert closes(shared_member, message(0, b"\x00" + ping(), opcode))


def test_a_legacy_find_is_told_352(shared_member):
    query = struct.pack("<i", 0) + b"test.c\x00" + struct.pack("<ii", 0, 1) + bson.encode({"a": 1})
    with Raw(shared_member) as raw:
        raw.send(struct.pack("<iiii", 16 + len(query), 1, 0, 2004) + query)
        header = raw.read(16)
        length, _, _, opcode = struct.unpack("<iiii", header)
        reply = raw.read(length - 16)
        flags = struct.unpack("<i", reply[:4])[0]
        assert opcode == 1 and flags & 2, "an OP_REPLY with the flag of failure"
        assert bson.decode(reply[20:])["code"] == 352


def test_an_unknown_required_flag_is_refused_and_an_optional_one_ignored(shared_member):
    assert answers(shared_member, message(1 << 20, b"\x00" + ping()))["ok"] == 1
    with Raw(shared_member) as raw:
        raw.send(message(1 << 10, b"\x00" + ping()))
        assert raw.reply()["code"] == 223


@pytest.mark.parametrize("payload, code", [
    (b"", 40587),
    (b"\x00" + ping() + b"\x00" + ping(), 40430),
    (b"\x07" + ping(), 40432),
    (b"\x00" + bson.encode({"insert": "c", "$db": "test"}) + 2 * sequence("documents", bson.encode({})), 40431),
    (b"\x00" + bson.encode({"insert": "c", "documents": [{}], "$db": "test"}) + sequence("documents", bson.encode({})),
     40433),
], ids=["no body", "two bodies", "section kind 7", "the same sequence twice", "a name in body and sequence"])
def test_sections_in_disorder_are_refused(shared_member, payload, code):
    with Raw(shared_member) as raw:
        raw.send(message(0, payload))
        assert raw.reply()["code"] == code


def test_a_checksum_that_is_wrong_is_told_288(shared_member):
    with Raw(shared_member) as raw:
        raw.send(struct.pack("<iiiiI", 24 + 1 + len(ping()), 1, 0, OP_MSG, CHECKSUM) + b"\x00" + ping() + b"\xde\xad\xbe\xef")
        assert raw.reply()["code"] == 288


def test_a_failing_write_with_more_to_come_gets_no_reply_and_the_stream_stays_in_step(shared_member):
    refused = bson.encode({"insert": "c", "documents": [{"_id": [1]}], "writeConcern": {"w": 0}, "$db": "test"})
    with Raw(shared_member) as raw:
        raw.send(message(MORE_TO_COME, b"\x00" + refused, request=7) + message(0, b"\x00" + ping(), request=8))
        header = raw.read(16)
        assert struct.unpack("<iiii", header)[2] == 8, "the reply is the ping's"
        assert bson.decode(raw.read(struct.unpack("<i", header[:4])[0] - 16)[5:])["ok"] == 1


def compressed(compressor, claimed, content, opcode=OP_MSG):
    payload = struct.pack("<iiB", opcode, claimed, compressor) + content
    return struct.pack("<iiii", 16 + len(payload), 1, 0, OP_COMPRESSED) + payload


def test_an_unknown_compressor_closes_the_connection(shared_member):
    inflated = struct.pack("<I", 0) + b"\x00" + ping()
    assert closes(shared_member, compressed(9, len(inflated), inflated))


@pytest.mark.parametrize("lie", [-2**31, -1, 0, 1, "one less", "one more", "64 more", 47_000_000, 0x7FFFFFFF])
@pytest.mark.parametrize("name", ["none", "snappy", "zlib"])
def test_an_inflated_length_that_lies_never_shows_memory(shared_member, name, lie):
    inflated = struct.pack("<I", 0) + b"\x00" + bson.encode({"echo": "x" * 100, "hello": 1, "$db": "admin"})
    content = {"none": inflated, "snappy": snappy(inflated), "zlib": zlib.compress(inflated)}[name]
    claimed = {"one less": len(inflated) - 1, "one more": len(inflated) + 1, "64 more": len(inflated) + 64}.get(lie, lie)
    compressor = {"none": 0, "snappy": 1, "zlib": 2}[name]
    assert closes(shared_member, compressed(compressor, claimed, content))


def snappy(data):
    """Snappy's format with one literal: its length is said honestly, or also lied about by the message around it."""
    length = bytes([len(data) & 0x7F | 0x80, len(data) >> 7])
    return length + b"\xf0" + bytes([len(data) - 1]) + data


def test_snappy_that_is_honest_is_answered(shared_member):
    """So that the lies above are refused for being lies."""
    inflated = struct.pack("<I", 0) + b"\x00" + ping()
    with Raw(shared_member) as raw:
        raw.send(compressed(1, len(inflated), snappy_short(inflated)))
        assert raw.read(16) is not None


def snappy_short(data):
    return bytes([len(data)]) + bytes([(len(data) - 1) << 2]) + data if len(data) < 60 else snappy(data)


def test_ten_thousand_half_open_connections_hinder_nobody(shared_member, client):
    count = 10_000
    room_for(shared_member, count)
    halves = []
    try:
        slowest = 0.0
        for number in range(count):
            half = Raw(shared_member)
            half.send(b"\x40\x00\x00" if number % 2 else struct.pack("<iiii", 1_000_000, 1, 0, OP_MSG) + b"\x00" * 30)
            halves.append(half)
            if number % 500 == 0:
                started = time.monotonic()
                assert client.admin.command("ping")["ok"] == 1
                slowest = max(slowest, time.monotonic() - started)
        assert slowest < 2
    finally:
        for half in halves:
            half.socket.close()


def test_large_messages_that_stall_keep_no_other_large_message_out(shared_member, client):
    stalled = [Raw(shared_member) for _ in range(3)]
    try:
        for raw in stalled:
            raw.send(struct.pack("<iiii", 48_000_000, 1, 0, OP_MSG) + b"\x00" * 300_000)
        started = time.monotonic()
        client.load.large.insert_one({"_id": 1, "payload": "x" * (1 << 20)})
        assert client.load.large.find_one({"_id": 1})["payload"] == "x" * (1 << 20)
        assert time.monotonic() - started < 10
    finally:
        for raw in stalled:
            raw.socket.close()
        client.drop_database("load")


# --- BSON

@pytest.mark.parametrize("body, code", [
    (b"\x05\x00\x00\x00\x01", 22),
    (struct.pack("<i", 100) + ping()[4:], 22),
    (struct.pack("<i", 4) + ping()[4:], 22),
    (struct.pack("<i", -1) + ping()[4:], 22),
    (ping()[:4] + b"\x7e" + ping()[5:], 22),
    (bson.encode({"ping": 1}), 40571),
], ids=["no terminator", "too long", "too short", "negative", "unknown type", "no database"])
def test_a_body_that_lies_is_refused(shared_member, body, code):
    with Raw(shared_member) as raw:
        raw.message(body)
        assert raw.reply()["code"] == code


ELEMENTS = {
    "text longer than it is": b"\x02a\x00\xff\x00\x00\x00x\x00",
    "text of length 0": b"\x02a\x00\x00\x00\x00\x00",
    "negative text": b"\x02a\x00\xff\xff\xff\xffx\x00",
    "text without its end": b"\x02a\x00\x02\x00\x00\x00xy",
    "a document longer than its parent": b"\x03a\x00\x7f\x00\x00\x00\x00",
    "a document of length 4": b"\x03a\x00\x04\x00\x00\x00\x00",
    "an array without its end": b"\x04a\x00\x05\x00\x00\x00\x01",
    "binary longer than it is": b"\x05a\x00\xff\xff\x00\x00\x00x",
    "negative binary": b"\x05a\x00\xff\xff\xff\xff\x00",
    "old binary whose lengths disagree": b"\x05a\x00\x05\x00\x00\x00\x02\x09\x00\x00\x00x",
    "half an ObjectId": b"\x07a\x00abcdef",
    "a boolean of 2": b"\x08a\x00\x02",
    "a pattern without its end": b"\x0ba\x00^x",
    "code with a scope that is longer": b"\x0fa\x00\x16\x00\x00\x00\x02\x00\x00\x00x\x00\x7f\x00\x00\x00\x00",
    "half a decimal": b"\x13a\x00\x01\x02\x03",
    "a name without its end": b"\x10abc",
}


@pytest.mark.parametrize("name", ELEMENTS)
def test_an_element_that_lies_is_invalid_bson(shared_member, name):
    inner = ELEMENTS[name] + b"\x00"
    document = struct.pack("<i", len(inner) + 4) + inner
    body = bson.encode({"insert": "lies", "$db": "test", "ordered": True})
    with Raw(shared_member) as raw:
        raw.message(body, sections=sequence("documents", document))
        reply = raw.reply()
        assert reply is not None and reply["ok"] == 0 and reply["code"] == 22, reply


def test_invalid_utf_8_is_refused_or_kept_and_never_panics(shared_member, client):
    inner = b"\x07_id\x00abcdefabcdef" + b"\x02a\x00\x03\x00\x00\x00\xc3\x28\x00" + b"\x00"
    document = struct.pack("<i", len(inner) + 4) + inner
    with Raw(shared_member) as raw:
        raw.message(bson.encode({"insert": "lies", "$db": "test"}), sections=sequence("documents", document))
        assert raw.reply()["code"] == 22


def test_a_byte_changed_anywhere_is_answered_or_closes(shared_member):
    draw = random.Random(5)
    document = {"_id": 1, "s": "text", "d": 1.5, "a": [1, {"b": None}], "bin": bson.Binary(b"xyz", 2), "t": bson.Timestamp(1, 2),
                "r": bson.Regex("a", "i"), "c": bson.Code("x", {"y": 1}), "n": bson.Decimal128("1.5"), "i": bson.Int64(5)}
    data = message(0, b"\x00" + bson.encode({"find": "c", "filter": document, "$db": "test"}))
    for place in range(16, len(data)):
        changed = bytearray(data)
        changed[place] = draw.choice([0, 1, 0x7F, 0x80, 0xFF, changed[place] ^ 1])
        with Raw(shared_member) as raw:
            raw.send(bytes(changed) + message(0, b"\x00" + ping()))
            raw.reply()


@pytest.mark.parametrize("kind", [b"\x03", b"\x04"], ids=["documents", "arrays"])
def test_nesting_beyond_200_is_told_15(shared_member, kind):
    for depth in (250, 5000):
        inner = b"\x05\x00\x00\x00\x00"
        for _ in range(depth):
            inner = struct.pack("<i", len(inner) + 8) + kind + b"0\x00" + inner + b"\x00"
        body = b"\x02find\x00\x02\x00\x00\x00c\x00" + b"\x03filter\x00" + inner + b"\x02$db\x00\x02\x00\x00\x00d\x00"
        with Raw(shared_member) as raw:
            raw.message(struct.pack("<i", len(body) + 5) + body + b"\x00")
            assert raw.reply()["code"] == 15


def test_sixteen_megabytes_of_nested_arrays_are_refused_soon(shared_member):
    # Each level ends with its own zero; built from the two sides, because building it inside out is quadratic.
    depth = 1_900_000
    opening = bytearray()
    total = 5 + 8 * depth
    for level in range(depth):
        opening += struct.pack("<i", total - 8 * level) + b"\x040\x00"
    inner = bytes(opening) + b"\x05\x00\x00\x00\x00" + b"\x00" * depth
    body = b"\x02find\x00\x02\x00\x00\x00c\x00" + b"\x03filter\x00" + inner + b"\x02$db\x00\x02\x00\x00\x00d\x00"
    started = time.monotonic()
    with Raw(shared_member) as raw:
        raw.message(struct.pack("<i", len(body) + 5) + body + b"\x00")
        assert raw.reply()["code"] == 15
    assert time.monotonic() - started < 5


def test_sixteen_megabytes_of_flat_arrays_are_answered(db):
    arrays = [[] for _ in range(1_000_000)]
    document = {"_id": 1, "a": arrays}
    assert 7_000_000 < len(bson.encode(document)) < 16_777_216
    db.c.insert_one(document)
    assert db.c.count_documents({"a": {"$size": 1_000_000}}) == 1
    assert list(db.c.aggregate([{"$unwind": "$a"}, {"$count": "n"}])) == [{"n": 1_000_000}]


def test_binary_that_holds_bson_that_holds_binary_is_bytes(db):
    """CVE-2026-9740: whatever a binary value claims to hold, nobody follows it down."""
    inner = b"end"
    for _ in range(2000):
        inner = bson.encode({"b": bson.Binary(inner, 7)})
    for subtype in (0, 6, 7, 8, 128):
        db.c.replace_one({"_id": subtype}, {"b": bson.Binary(inner, subtype)}, upsert=True)
        assert bytes(db.c.find_one({"_id": subtype})["b"]) == inner
        db.c.create_index("b")
        assert db.c.count_documents({"b": bson.Binary(inner, subtype)}) == 1


def test_a_document_over_16_mebibytes_is_refused(shared_member, db):
    db.c.insert_one({"_id": 1, "pad": "x" * 16_000_000})
    with pytest.raises(OperationFailure) as refused:
        db.c.update_one({"_id": 1}, {"$set": {"more": "y" * 1_000_000}})
    assert refused.value.code == 17419
    # A driver would not send it; one of those that can, is told by the member.
    document = bson.encode({"_id": 2, "pad": "x" * (16 * 1024 * 1024)})
    with Raw(shared_member) as raw:
        raw.message(bson.encode({"insert": "c", "$db": db.name}), sections=sequence("documents", document))
        assert raw.reply()["writeErrors"][0]["code"] == 10334
    assert db.c.count_documents({"_id": 2}) == 0


# --- commands

@pytest.mark.parametrize("command, code", [
    ({"nosuchcommand": 1}, 59),
    ({"find": "c", "nosuchfield": 1}, 40415),
    ({"insert": "c"}, 40414),
    ({"find": "", "filter": {}}, 73),
    ({"find": "c\x00d", "filter": {}}, 73),
    ({"find": "c", "filter": {"a": {"$nothing": 1}}}, 2),
    ({"find": "c", "filter": {"$nothing": 1}}, 2),
    ({"find": "c", "filter": {"a": {"$regex": "(("}}}, 51091),
    ({"find": "c", "filter": {"$where": "true"}}, 2),
    ({"find": "c", "filter": {"$expr": {"$function": {"body": "x", "args": [], "lang": "js"}}}}, 238),
    ({"aggregate": "c", "pipeline": [{"$nothing": {}}], "cursor": {}}, 40324),
    ({"getMore": bson.Int64(123456789), "collection": "c"}, 43),
], ids=lambda value: str(value)[:40] if isinstance(value, dict) else str(value))
def test_a_command_in_error_carries_mongodbs_code(shared_member, db, command, code):
    with Raw(shared_member) as raw:
        reply = raw.command(db.name, command)
        assert reply["ok"] == 0 and reply["code"] == code, reply


def test_a_command_without_a_database_is_told_40571(shared_member):
    assert answers(shared_member, message(0, b"\x00" + bson.encode({"ping": 1})))["code"] == 40571


def test_more_than_a_hundred_thousand_writes_are_told_16(shared_member, db):
    for command, name, one in [("insert", "documents", {}), ("delete", "deletes", {"q": {}, "limit": 0}),
                               ("update", "updates", {"q": {}, "u": {"$set": {"a": 1}}})]:
        with Raw(shared_member) as raw:
            raw.message(bson.encode({command: "c", "$db": db.name}), sections=sequence(name, *[bson.encode(one)] * 100_001))
            assert raw.reply()["code"] == 16
    assert db.c.count_documents({}) == 0


@pytest.mark.parametrize("update, code", [
    ({"$set": {"a": 1}, "$inc": {"a": 1}}, 40),
    ({"$set": {"a.b": 1, "a": 1}}, 40),
    ({"$set": {"_id": 9}}, 66),
    ({"_id": 9, "a": 1}, 66),
], ids=str)
def test_an_update_that_cannot_be_is_refused_whole(shared_member, db, update, code):
    db.c.insert_one({"_id": 1, "a": 0})
    with Raw(shared_member) as raw:
        reply = raw.command(db.name, {"update": "c", "updates": [{"q": {"_id": 1}, "u": update}]})
        assert reply["writeErrors"][0]["code"] == code, reply
    assert db.c.find_one() == {"_id": 1, "a": 0}


def test_an_array_for_an_id_is_told_53_and_a_key_that_is_taken_11000(shared_member, db):
    with Raw(shared_member) as raw:
        reply = raw.command(db.name, {"insert": "c", "documents": [{"_id": [1]}]})
        assert reply["writeErrors"][0]["code"] == 53
        raw.command(db.name, {"insert": "c", "documents": [{"_id": 1}]})
        reply = raw.command(db.name, {"insert": "c", "documents": [{"_id": 1.0}]})
        assert reply["writeErrors"][0]["code"] == 11000


def test_a_pattern_that_backtracks_finishes_or_is_stopped(db):
    db.c.insert_one({"text": "a" * 40 + "!"})
    for pattern in ("^(a+)+$", "(a|aa)+$", "^(([a-z])+.)+[A-Z]([a-z])+$", "(?=(a+))*b", "(a*)*\\1b"):
        started = time.monotonic()
        try:
            assert list(db.c.find({"text": {"$regex": pattern}})) == []
        except OperationFailure as error:
            assert error.code in (50, 51075, 51091, 51156), error
        assert time.monotonic() - started < 10


def test_a_number_of_a_retryable_write_that_is_past_is_told_225(shared_member, db):
    session = {"id": bson.Binary(b"\x07" * 16, 4)}
    write = {"insert": "c", "documents": [{}], "lsid": session}
    with Raw(shared_member) as raw:
        assert raw.command(db.name, write | {"txnNumber": bson.Int64(5)})["ok"] == 1
        assert raw.command(db.name, write | {"txnNumber": bson.Int64(4)})["code"] == 225


def test_a_cluster_time_far_in_the_future_is_told_205(shared_member, client):
    def at(seconds):
        return {"clusterTime": bson.Timestamp(seconds, 1), "signature": {"hash": bson.Binary(b"\x00" * 20), "keyId": bson.Int64(0)}}
    with Raw(shared_member) as raw:
        reply = raw.command("admin", {"ping": 1, "$clusterTime": at(int(time.time()) + 10 * 365 * 86400)})
        assert reply["code"] == 205
        assert raw.command("admin", {"ping": 1, "$clusterTime": at(int(time.time()))})["ok"] == 1


def test_a_write_concern_that_no_set_of_one_can_meet_is_told_100_beside_the_write(shared_member, db):
    with Raw(shared_member) as raw:
        reply = raw.command(db.name, {"insert": "c", "documents": [{"_id": 1}], "writeConcern": {"w": 50, "wtimeout": 100}})
        assert reply["ok"] == 1 and reply["n"] == 1 and reply["writeConcernError"]["code"] == 100


def test_whoever_brings_a_user_is_told_334_by_whatever_mechanism(shared_member):
    with Raw(shared_member) as raw:
        for mechanism in ("NOTHING-1", "SCRAM-SHA-1", "SCRAM-SHA-256"):
            start = {"saslStart": 1, "mechanism": mechanism, "payload": bson.Binary(b"n,,n=alice,r=fyko+d2lbbFgONRv9qkxdawL")}
            reply = raw.command("admin", start)
            assert (reply["ok"], reply["code"]) == (0, 334) and "users are not implemented yet" in reply["errmsg"], reply
