"""Upserts whose key is taken: they end, in an update where MongoDB updates, in E11000 where MongoDB refuses.

An attempt that fails on a duplicate key is worth another only where the filter is nothing but that key. Else the document in
the way may not match, and the next attempt would fail as the first did.
"""

import datetime
import threading

import pymongo
import pytest
from pymongo import ReplaceOne, ReturnDocument, UpdateOne
from pymongo.errors import BulkWriteError, DuplicateKeyError


@pytest.fixture(autouse=True)
def _in_time():
    """Every statement here is a matter of milliseconds."""
    with pymongo.timeout(8):
        yield


def refused(upsert):
    """Runs an upsert that must fail with E11000."""
    with pytest.raises(DuplicateKeyError) as caught:
        upsert()
    return caught.value.details


def test_an_upsert_that_asks_for_more_than_the_id_in_its_way_is_refused(db):
    db.c.insert_one({"_id": 1, "a": 1})
    details = refused(lambda: db.c.update_one({"_id": 1, "a": 2}, {"$set": {"b": 1}}, upsert=True))
    assert details["keyPattern"] == {"_id": 1} and details["keyValue"] == {"_id": 1}
    refused(lambda: db.c.update_many({"_id": 1, "a": 2}, {"$set": {"b": 1}}, upsert=True))
    refused(lambda: db.c.replace_one({"_id": 1, "a": 2}, {"b": 1}, upsert=True))
    refused(lambda: db.c.update_one({"_id": 1, "a": 2}, [{"$set": {"b": 1}}], upsert=True))
    refused(lambda: db.c.find_one_and_update({"_id": 1, "a": 2}, {"$set": {"b": 1}}, upsert=True))
    refused(lambda: db.c.find_one_and_replace({"_id": 1, "a": 2}, {"b": 1}, upsert=True))
    assert list(db.c.find()) == [{"_id": 1, "a": 1}]


def test_a_lock_document_is_taken_by_one_and_refused_to_others_until_it_runs_out(db):
    now = datetime.datetime(2026, 11, 22)

    def take(owner, at):
        until = at + datetime.timedelta(seconds=30)
        filter = {"_id": "lock", "until": {"$lt": at}}
        return db.locks.find_one_and_update(
            filter, {"$set": {"owner": owner, "until": until}}, upsert=True, return_document=ReturnDocument.AFTER
        )

    assert take("a", now)["owner"] == "a"
    refused(lambda: take("b", now + datetime.timedelta(seconds=1)))
    assert take("b", now + datetime.timedelta(seconds=31))["owner"] == "b"


def test_an_optimistic_version_that_is_behind_is_refused(db):
    db.c.insert_one({"_id": 1, "version": 5})
    refused(lambda: db.c.update_one({"_id": 1, "version": {"$lt": 5}}, {"$set": {"version": 5}}, upsert=True))
    refused(lambda: db.c.update_one({"_id": 1, "version": 4}, {"$inc": {"version": 1}}, upsert=True))
    assert db.c.update_one({"_id": 1, "version": 5}, {"$inc": {"version": 1}}, upsert=True).modified_count == 1


def test_a_soft_deleted_document_keeps_its_key(db):
    db.c.create_index("name", unique=True)
    db.c.insert_one({"name": "x", "deleted": True})
    refused(lambda: db.c.update_one({"name": "x", "deleted": {"$ne": True}}, {"$set": {"n": 1}}, upsert=True))
    refused(lambda: db.c.update_one({"name": "x", "deleted": None}, {"$set": {"n": 1}}, upsert=True))


def test_any_unique_index_refuses_what_its_key_does_not_answer(db):
    db.c.create_index("k", unique=True)
    db.c.insert_one({"_id": 1, "k": 1, "s": "x"})
    details = refused(lambda: db.c.update_one({"k": 1, "s": "y"}, {"$set": {"b": 1}}, upsert=True))
    assert details["keyPattern"] == {"k": 1} and details["keyValue"] == {"k": 1}
    # The update makes the key what is taken; the filter is nothing but a key, but another one.
    refused(lambda: db.c.update_one({"k": 2}, {"$set": {"k": 1}}, upsert=True))
    refused(lambda: db.c.update_one({"_id": 2}, {"$set": {"k": 1}}, upsert=True))
    refused(lambda: db.c.update_one({"_id": 2}, {"$setOnInsert": {"k": 1}}, upsert=True))


@pytest.mark.parametrize("options", [{}, {"partialFilterExpression": {"live": True}}, {"sparse": True}])
def test_compound_partial_and_sparse_unique_indexes_refuse_too(db, options):
    db.c.create_index([("a", 1), ("b", -1)], unique=True, **options)
    db.c.insert_one({"a": 1, "b": 2, "live": True, "n": 1})
    for filter in ({"a": 1, "b": 2, "n": 2}, {"a": 1, "b": 2, "n": {"$gt": 1}}, {"a": 1, "n": 2}):
        refused(lambda: db.c.update_one(filter, {"$set": {"b": 2, "live": True}}, upsert=True))
    assert db.c.count_documents({}) == 1


def test_a_partial_index_does_not_count_what_it_does_not_hold(db):
    db.c.create_index("k", unique=True, partialFilterExpression={"live": True})
    db.c.insert_one({"k": 1, "live": False})
    assert db.c.update_one({"k": 1, "live": True}, {"$set": {"n": 1}}, upsert=True).upserted_id is not None
    refused(lambda: db.c.update_one({"k": 1, "live": True, "n": 2}, {"$set": {"m": 1}}, upsert=True))


def test_in_a_bulk_write_the_statement_that_is_refused_is_named_and_the_others_are_carried_out(db):
    db.c.insert_one({"_id": 1, "a": 1})
    statements = [
        UpdateOne({"_id": 2}, {"$set": {"a": 2}}, upsert=True),
        UpdateOne({"_id": 1, "a": 2}, {"$set": {"b": 1}}, upsert=True),
        ReplaceOne({"_id": 1, "a": 3}, {"b": 1}, upsert=True),
        UpdateOne({"_id": 3}, {"$set": {"a": 3}}, upsert=True),
    ]
    with pytest.raises(BulkWriteError) as caught:
        db.c.bulk_write(statements, ordered=False)
    errors = caught.value.details["writeErrors"]
    assert [(error["index"], error["code"]) for error in errors] == [(1, 11000), (2, 11000)]
    assert sorted(d["_id"] for d in db.c.find()) == [1, 2, 3]


@pytest.mark.parametrize("key", [["_id"], ["k"], ["k", "l"]])
def test_of_upserts_that_race_for_one_key_one_inserts_and_the_others_update(db, key):
    if key != ["_id"]:
        db.c.create_index([(name, 1) for name in key], unique=True)
    failures = []

    def race():
        try:
            with pymongo.timeout(20):
                for round in range(40):
                    db.c.update_one({name: round for name in key}, {"$inc": {"n": 1}}, upsert=True)
        except Exception as error:  # noqa: BLE001 - a thread tells of whatever it met
            failures.append(error)

    racers = [threading.Thread(target=race) for _ in range(6)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert failures == []
    assert [d["n"] for d in db.c.find()] == [6] * 40
