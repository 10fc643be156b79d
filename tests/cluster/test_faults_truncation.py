"""A log that was truncated too early for somebody. Numbers as in the matrix of faults (docs/testing.md)."""

import itertools
import time

import pymongo
import pytest
from pymongo import ReadPreference, WriteConcern

from replica_set import ReplicaSet

SOON = {"electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 200}


def carts_of(client, w=1):
    """The collection that these tests write to."""
    return client.get_database("shop", write_concern=WriteConcern(w, wtimeout=30_000)).carts


def newest(direct):
    """The timestamp of the newest entry of a member's log."""
    return direct.local["oplog.rs"].find_one({}, {"ts": 1}, sort=[("$natural", -1)])["ts"]


def truncate_log(members, index, past):
    """Has a member's log begin behind a timestamp. What is dropped is whole files, so it fills some and has them written out."""
    deadline = time.monotonic() + 60
    with members.direct(index) as direct:
        for number in itertools.count():
            assert time.monotonic() < deadline, "the log was not truncated"
            carts_of(direct).replace_one({"_id": "large"}, {"payload": b"x" * 300_000, "n": number}, upsert=True)
            if number % 8 == 7:
                direct.admin.command("fsync")
                direct.admin.command("replSetResizeOplog", 1, minRetentionHours=0.0)
                if direct.local["oplog.rs"].find_one({}, {"ts": 1}, sort=[("$natural", 1)])["ts"] > past:
                    return


def test_12_a_log_truncated_below_where_a_member_is():
    """A member returns when the log of the only source begins behind the end of its own: it is RECOVERING, says why, refuses
    reads, and takes no entry. When another returns whose log reaches back, it catches up by itself. Fails if it takes the log
    with the gap, passes itself off as a secondary, or stays as it is."""
    members = ReplicaSet(settings=SOON)
    members.members[0].arguments += ["--oplogSize", "1"]
    with members, members.client() as client:
        members.stand(0)
        carts_of(client, w=3).insert_many({"_id": number} for number in range(20))
        stale, keeper = 1, 2
        with members.direct(stale) as direct:
            end = newest(direct)
        members.members[stale].stop()
        carts_of(client, w=2).insert_many({"_id": f"missed-{number}"} for number in range(20))
        truncate_log(members, 0, past=end)
        carts_of(client, w=2).insert_one({"_id": "all of it"})
        members.kill(keeper)
        members.spawn(stale)

        def myself():
            with members.direct(stale) as direct:
                status = direct.admin.command("replSetGetStatus")
            return next(member for member in status["members"] if member.get("self"))

        members.await_that(lambda: members.hello(stale) and myself()["stateStr"] == "RECOVERING", "the stale one RECOVERING")
        assert "too stale" in myself()["infoMessage"] and "copies the set's data" in myself()["infoMessage"]
        hello = members.hello(stale)
        assert not hello["secondary"] and not hello["isWritablePrimary"], hello
        with members.direct(stale, read_preference=ReadPreference.SECONDARY_PREFERRED) as direct:
            assert direct.admin.command("serverStatus")["repl"]["tooStale"]
            with pytest.raises(pymongo.errors.PyMongoError) as refused:
                carts_of(direct).find_one("missed-0")
            assert refused.value.details["code"] == 13436, refused.value
            assert newest(direct) == end
        # It has a vote all the same: what it has is no less true.
        members.await_primary_among([0])
        members.spawn(keeper)
        members.await_healthy()
        assert myself()["infoMessage"] == ""
        assert carts_of(client).count_documents({"_id": {"$regex": "^missed"}}) == 20
