"""Bits that flip on a disk. Numbers as in the matrix of faults (docs/testing.md)."""

import random
import shutil

import pymongo
import pytest
from pymongo import ReadPreference, WriteConcern

from replica_set import ReplicaSet

SOON = {"electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 200}
ALL = WriteConcern(3, wtimeout=30_000)
# What a client is told of damage, and what the operator is told to do.
CORRUPTION, REMEDY = 310, "mpty the data directory and start the member again, it copies the set's data"


def flip(path, at):
    """Turns one bit of a file over."""
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0x10]))


def a_secondary(members):
    """The index of a member that is not primary."""
    return members.others(members.primary())[0]


def copied_anew(members, index):
    """Does with a damaged member as it says, and waits until the set is whole."""
    if members.members[index].is_running():
        members.kill(index)
    shutil.rmtree(members.members[index].data)
    members.spawn(index)
    members.await_healthy()


def test_22_a_bit_flips_in_the_middle_of_the_log():
    """What was synced and acknowledged comes after the damage: the member refuses to start and says what to do. Fails if it starts
    with what came before the damage, as RocksDB would. A torn end, which a crash leaves, is no damage."""
    with ReplicaSet(settings=SOON) as members, members.client() as client:
        carts = client.get_database("shop", write_concern=ALL).carts
        for number in range(60):
            carts.insert_one({"_id": number, "mark": f"number {number:04} of many"})
        damaged = a_secondary(members)
        members.kill(damaged)
        member = members.members[damaged]
        [(log, at)] = [(path, place) for path in member.data.rglob("*.log")
                       if (place := path.read_bytes().find(b"number 0030 of many")) >= 0]
        flip(log, at)
        members.spawn(damaged)
        assert member.process.wait(30) != 0
        assert "is damaged in its middle" in member.log() and REMEDY in member.log(), member.log()
        # The same place mended, and the end torn off: what a crash may leave.
        flip(log, at)
        with open(log, "r+b") as file:
            file.truncate(file.read().rfind(b"number 0059 of many") + 3)
        members.spawn(damaged)
        members.await_healthy()
        # And damaged once more, to be copied anew.
        carts.insert_one({"_id": "after"})
        copied_anew(members, damaged)


def test_22_a_bit_flips_in_a_table():
    """Documents are read as they were written, or not at all; and the member does not go on over the damage. Fails if a read gives
    other bytes, or finds nothing where there is a document."""
    with ReplicaSet(settings=SOON) as members, members.client() as client:
        carts = client.get_database("shop", write_concern=ALL).carts
        # Nothing that a table would compress.
        written = {number: random.Random(number).randbytes(200).hex() for number in range(3000)}
        carts.insert_many({"_id": number, "text": text} for number, text in written.items())
        damaged = a_secondary(members)
        with members.direct(damaged) as direct:
            direct.admin.command("fsync")
        members.members[damaged].stop()
        # The oplog's table has them too; a member reads that only for others.
        for path in members.members[damaged].data.rglob("*.sst"):
            content = path.read_bytes()
            for number in (700, 1500):
                if (at := content.find(written[number].encode())) >= 0:
                    flip(path, at + 20)
        members.spawn(damaged)
        members.await_states()
        refused = 0
        try:
            with members.direct(damaged, read_preference=ReadPreference.SECONDARY_PREFERRED) as direct:
                for number, text in written.items():
                    try:
                        assert direct.shop.carts.find_one(number) == {"_id": number, "text": text}
                    except pymongo.errors.OperationFailure as error:
                        assert error.code == CORRUPTION and "copies the set's data" in str(error), error
                        refused += 1
                assert 2 <= refused < 200, refused
                # A scan meets it too, and gives nothing wrong before that.
                with pytest.raises(pymongo.errors.OperationFailure) as met:
                    for document in direct.shop.carts.find():
                        assert document["text"] == written[document["_id"]]
                assert met.value.code == CORRUPTION, met.value
        except pymongo.errors.ConnectionFailure:
            # Or a compaction meets it first: then nothing can be written any more, and the member stops.
            assert members.members[damaged].process.wait(30) != 0
            assert "orruption" in members.members[damaged].log() and REMEDY in members.members[damaged].log()
        copied_anew(members, damaged)
