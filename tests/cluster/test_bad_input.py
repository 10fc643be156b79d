"""What a socket can be fed: the answer is an error or a closed connection, and others are served meanwhile."""

import struct
import time

import bson
import pytest

from raw import Raw


def ping():
    return bson.encode({"ping": 1, "$db": "admin"})


@pytest.fixture(autouse=True)
def others_are_served(client):
    yield
    started = time.monotonic()
    assert client.admin.command("ping")["ok"] == 1
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("length", [0, 15, -1, 48_000_001, 0x7FFFFFFF])
def test_a_length_that_lies_closes_the_connection(shared_member, length):
    with Raw(shared_member) as raw:
        raw.send(struct.pack("<iiii", length, 1, 0, 2013) + b"\x00" * 64)
        assert raw.reply() is None


@pytest.mark.parametrize("opcode", [0, 2002, 2006, 9999])
def test_an_opcode_of_another_age_closes_the_connection(shared_member, opcode):
    with Raw(shared_member) as raw:
        raw.message(ping(), opcode=opcode)
        assert raw.reply() is None


def test_http_is_told_where_it_is(shared_member):
    with Raw(shared_member) as raw:
        raw.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        text = raw.read(15)
        assert text == b"HTTP/1.0 200 OK" or text == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize("body, code", [
    (b"\x05\x00\x00\x00\x01", 22),
    (struct.pack("<i", 100) + ping()[4:], 22),
    (ping()[:4] + b"\x7f" + ping()[5:], 22),
    (bson.encode({"ping": 1}), 40571),
], ids=["no terminator", "length lies", "unknown type", "no database"])
def test_a_body_that_lies_is_refused(shared_member, body, code):
    with Raw(shared_member) as raw:
        raw.message(body)
        reply = raw.reply()
        assert reply is None or (reply["ok"] == 0 and reply["code"] == code), reply


@pytest.mark.parametrize("payload, code", [
    (b"", 40587),
    (b"\x00" + ping() + b"\x00" + ping(), 40430),
    (b"\x07" + ping(), 40432),
], ids=["no body", "two bodies", "section kind 7"])
def test_sections_in_disorder_are_refused(shared_member, payload, code):
    with Raw(shared_member) as raw:
        raw.send(struct.pack("<iiiiI", 20 + len(payload), 1, 0, 2013, 0) + payload)
        reply = raw.reply()
        assert reply is None or reply["code"] == code, reply


def test_nesting_without_end_is_refused(shared_member):
    depth = 5000
    inner = b"\x05\x00\x00\x00\x00"
    for _ in range(depth):
        inner = struct.pack("<i", len(inner) + 8) + b"\x03a\x00" + inner + b"\x00"
    body = b"\x02find\x00\x02\x00\x00\x00c\x00" + b"\x03filter\x00" + inner + b"\x02$db\x00\x02\x00\x00\x00d\x00"
    with Raw(shared_member) as raw:
        raw.message(struct.pack("<i", len(body) + 5) + body + b"\x00")
        reply = raw.reply()
        assert reply is None or reply["code"] in (15, 22), reply


def test_an_unknown_required_flag_is_refused_and_an_optional_one_ignored(shared_member):
    with Raw(shared_member) as raw:
        raw.message(ping(), flags=1 << 20)
        assert raw.reply()["ok"] == 1
        raw.message(ping(), flags=1 << 10)
        reply = raw.reply()
        assert reply is None or reply["code"] == 223, reply


@pytest.mark.parametrize("claimed", [-1, 0, 1, 0x7FFFFFFF])
def test_an_inflated_length_that_lies_never_shows_memory(shared_member, claimed):
    import zlib
    inflated = struct.pack("<I", 0) + b"\x00" + ping()
    payload = struct.pack("<iiB", 2013, claimed, 2) + zlib.compress(inflated)
    with Raw(shared_member) as raw:
        raw.send(struct.pack("<iiii", 16 + len(payload), 1, 0, 2012) + payload)
        reply = raw.reply()
        assert reply is None or reply["ok"] == 0, reply


def test_a_hundred_half_open_connections_hinder_nobody(shared_member, client):
    halves = [Raw(shared_member) for _ in range(100)]
    try:
        for half in halves:
            half.send(b"\x40\x00\x00")
        for _ in range(20):
            assert client.admin.command("ping")["ok"] == 1
    finally:
        for half in halves:
            half.socket.close()


def test_a_document_over_16_mebibytes_is_refused(db):
    from pymongo.errors import OperationFailure
    db.c.insert_one({"_id": 1, "pad": "x" * 16_000_000})
    with pytest.raises(OperationFailure) as refused:
        db.c.update_one({"_id": 1}, {"$set": {"more": "y" * 1_000_000}})
    assert refused.value.code in (10334, 17419)


def test_a_pattern_that_backtracks_finishes_or_is_stopped(db):
    from pymongo.errors import OperationFailure
    db.c.insert_one({"text": "a" * 40 + "!"})
    started = time.monotonic()
    try:
        assert list(db.c.find({"text": {"$regex": "^(a+)+$"}})) == []
    except OperationFailure as error:
        assert error.code in (50, 51075, 51091)
    assert time.monotonic() - started < 10
