"""Sets of several members: real processes, real fail-overs."""

import time

import pymongo
import pytest
from pymongo import ReadPreference, WriteConcern

from replica_set import ReplicaSet

SOON = {"electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 200}


def majority(client):
    """A collection whose writes a majority acknowledges."""
    return client.get_database("shop", write_concern=WriteConcern("majority", wtimeout=20_000)).carts


def test_what_the_primary_writes_every_member_has():
    """Documents, indexes, updates and deletions of the primary are on every member soon."""
    with ReplicaSet(settings=SOON) as members, members.client() as client:
        carts = majority(client)
        carts.create_index("owner")
        carts.insert_many({"_id": i, "owner": i % 7, "items": []} for i in range(500))
        carts.update_many({"owner": 3}, {"$push": {"items": "book"}, "$inc": {"n": 1}})
        carts.delete_many({"owner": 5})
        client.shop.other.insert_one({"_id": 1})
        client.shop.other.rename("renamed")
        members.await_equal()
        for index in range(3):
            with members.direct(index, read_preference=ReadPreference.SECONDARY_PREFERRED) as direct:
                assert direct.shop.carts.count_documents({}) == carts.count_documents({})
                assert direct.shop.command("validate", "carts")["valid"]


def test_a_killed_primary_is_replaced_and_returns():
    """After SIGKILL another member takes writes, nothing acknowledged by a majority is lost, and the killed one catches up."""
    with ReplicaSet(settings=SOON) as members, members.client() as client:
        carts = majority(client)
        carts.insert_many({"_id": i} for i in range(100))
        killed = members.primary()
        members.members[killed].kill()
        began = time.monotonic()
        carts.insert_one({"_id": "after"})
        print(f"first majority write after {time.monotonic() - began:.3f} s")
        assert members.primary() != killed
        assert carts.count_documents({}) == 101
        members.members[killed].spawn()
        members.await_states()
        members.await_equal()


def test_a_step_down_hands_over_to_another_member():
    """replSetStepDown makes another member primary at once; retryable writes see no error."""
    with ReplicaSet(settings=SOON) as members, members.client() as client:
        carts = majority(client)
        carts.insert_one({"_id": 0})
        before = members.primary()
        with members.direct(before) as direct:
            direct.admin.command("replSetStepDown", 30)
        began = time.monotonic()
        for i in range(1, 20):
            carts.insert_one({"_id": i})
        print(f"twenty majority writes after a step-down took {time.monotonic() - began:.3f} s")
        assert members.primary() != before
        members.await_equal()


def test_a_secondary_refuses_writes_and_reads_that_are_not_meant_for_it():
    """10107 for a write, 13435 for a read without a read preference."""
    with ReplicaSet(settings=SOON) as members:
        secondary = next(i for i in range(3) if i != members.primary())
        with members.direct(secondary) as direct:
            with pytest.raises(pymongo.errors.NotPrimaryError) as refused:
                direct.shop.command("insert", "carts", documents=[{"_id": 1}])
            assert refused.value.details["code"] == 10107
            with pytest.raises(pymongo.errors.NotPrimaryError) as refused:
                direct.shop.command({"find": "carts", "$readPreference": {"mode": "primary"}})
            assert refused.value.details["code"] == 13435


def test_a_majority_is_needed_and_a_time_limit_says_so():
    """With both secondaries gone a majority write times out with 64, and the primary steps down."""
    with ReplicaSet(settings=SOON) as members, members.client() as client:
        carts = majority(client)
        carts.insert_one({"_id": 0})
        primary = members.primary()
        others = [i for i in range(3) if i != primary]
        for index in others:
            members.members[index].kill()
        with members.direct(primary) as direct:
            reply = direct.shop.command("insert", "carts", documents=[{"_id": 1}],
                                        writeConcern={"w": "majority", "wtimeout": 300}, check=False)
            assert reply["n"] == 1
            assert reply["writeConcernError"]["code"] in (64, 189)
        deadline = time.monotonic() + 20
        while members.hello(primary).get("isWritablePrimary"):
            assert time.monotonic() < deadline, "a primary without a majority did not step down"
            time.sleep(0.05)
        for index in others:
            members.members[index].spawn()
        members.await_states()
        members.await_equal()
