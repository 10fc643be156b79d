"""Documents, from a client's point of view: what is written is read, and what is refused says why."""

import datetime
import time

import pytest
from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from pymongo import ASCENDING, DESCENDING, DeleteOne, InsertOne, ReplaceOne, ReturnDocument, UpdateMany, UpdateOne
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure, WriteError


def test_every_bson_type_comes_back_as_it_went_in(db):
    document = {
        "_id": ObjectId(), "double": 1.5, "text": "grüß", "nested": {"a": [1, {"b": None}]}, "binary": b"\x00\x01",
        "subtype": Binary(b"\x07" * 16, 4), "true": True, "date": datetime.datetime(2024, 2, 29, 12, 0, 0, 123000),
        "null": None, "regex": Regex("^a", "i"), "code": Code("f()"), "int32": 7, "int64": Int64(1 << 40),
        "timestamp": Timestamp(5, 6), "decimal": Decimal128("1.10"), "min": MinKey(), "max": MaxKey(), "empty": {},
        "": "an empty name",
    }
    db.things.insert_one(document)
    assert db.things.find_one() == document
    assert list(db.things.find_one()) == list(document)


def test_a_document_goes_through_its_life(db):
    carts = db.carts
    carts.insert_many([{"_id": n, "user": f"u{n % 3}", "total": n * 10} for n in range(9)])
    assert carts.count_documents({}) == 9 == carts.estimated_document_count()
    assert [d["_id"] for d in carts.find({"user": "u1"}).sort("total", DESCENDING)] == [7, 4, 1]
    changed = carts.update_many({"user": "u1"}, {"$inc": {"total": 1}, "$push": {"log": "inc"}})
    assert (changed.matched_count, changed.modified_count) == (3, 3)
    assert carts.update_one({"_id": 1}, {"$set": {"total": 11}}).modified_count == 0
    assert carts.find_one({"_id": 4}) == {"_id": 4, "user": "u1", "total": 41, "log": ["inc"]}
    assert carts.replace_one({"_id": 4}, {"user": "new"}).modified_count == 1
    assert carts.find_one({"_id": 4}) == {"_id": 4, "user": "new"}
    upserted = carts.update_one({"user": "nobody"}, {"$set": {"total": 0}}, upsert=True)
    assert upserted.upserted_id is not None and upserted.matched_count == 0
    assert carts.find_one_and_update({"_id": 0}, {"$set": {"x": 1}}, return_document=ReturnDocument.AFTER)["x"] == 1
    assert carts.find_one_and_delete({"user": "nobody"})["total"] == 0
    assert carts.delete_many({"user": "u1"}).deleted_count == 2
    assert sorted(carts.distinct("user")) == ["new", "u0", "u2"]
    carts.drop()
    assert carts.count_documents({}) == 0


def test_an_ordered_bulk_write_stops_at_its_first_error_and_an_unordered_one_does_not(db):
    def requests(first):
        return [InsertOne({"_id": first}), InsertOne({"_id": first}), InsertOne({"_id": first + 1})]

    with pytest.raises(BulkWriteError) as ordered:
        db.bulk.bulk_write(requests(1), ordered=True)
    assert ordered.value.details["nInserted"] == 1
    assert [(e["index"], e["code"]) for e in ordered.value.details["writeErrors"]] == [(1, 11000)]
    with pytest.raises(BulkWriteError) as unordered:
        db.bulk.bulk_write(requests(10), ordered=False)
    assert unordered.value.details["nInserted"] == 2
    mixed = db.bulk.bulk_write([
        UpdateOne({"_id": 1}, {"$set": {"a": 1}}), UpdateMany({}, {"$set": {"b": 2}}),
        ReplaceOne({"_id": 99}, {"c": 3}, upsert=True), DeleteOne({"_id": 10})])
    assert (mixed.modified_count, mixed.deleted_count, mixed.upserted_ids) == (4, 1, {2: 99})


def test_array_updates_reach_the_elements_they_name(db):
    db.grades.insert_one({"_id": 1, "marks": [{"n": 1, "v": 50}, {"n": 2, "v": 80}, {"n": 3, "v": 90}]})
    db.grades.update_one({"_id": 1, "marks.n": 2}, {"$set": {"marks.$.v": 81}})
    db.grades.update_one({"_id": 1}, {"$inc": {"marks.$[low].v": 5}}, array_filters=[{"low.v": {"$lt": 60}}])
    db.grades.update_one({"_id": 1}, {"$set": {"marks.$[].seen": True}})
    db.grades.update_one({"_id": 1}, {"$push": {"marks": {"$each": [{"n": 0, "v": 1}], "$sort": {"n": 1}, "$slice": 3}}})
    assert db.grades.find_one()["marks"] == [
        {"n": 0, "v": 1}, {"n": 1, "v": 55, "seen": True}, {"n": 2, "v": 81, "seen": True}]
    db.grades.update_one({"_id": 1}, [{"$set": {"sum": {"$sum": "$marks.v"}}}])
    assert db.grades.find_one()["sum"] == 137
    assert db.grades.find_one({"_id": 1}, {"marks": {"$elemMatch": {"n": 2}}, "_id": 0}) == {
        "marks": [{"n": 2, "v": 81, "seen": True}]}
    assert db.grades.find_one({"_id": 1}, {"marks": {"$slice": -1}, "sum": 1, "_id": 0}) == {
        "marks": [{"n": 2, "v": 81, "seen": True}], "sum": 137}


@pytest.mark.parametrize("filter_, update, code", [
    ({}, {"$set": {"_id": 9}}, 66),
    ({}, {"$set": {"a": 1}, "$inc": {"a": 1}}, 40),
    ({}, {"$inc": {"text": 1}}, 14),
    ({}, {"$nothing": {"a": 1}}, 9),
    ({}, {"$push": {"text": 1}}, 2),
    ({"a": {"$nothing": 1}}, {"$set": {"a": 1}}, 2),
    ({"a": {"$regex": "("}}, {"$set": {"a": 1}}, 51091),
])
def test_a_refused_update_carries_mongodbs_code(db, filter_, update, code):
    db.refused.insert_one({"_id": 1, "text": "x"})
    with pytest.raises(WriteError) as refused:
        db.refused.update_one(filter_, update)
    assert refused.value.code == code
    assert db.refused.find_one() == {"_id": 1, "text": "x"}


@pytest.mark.parametrize("command, code", [
    ({"nosuchcommand": 1}, 59),
    ({"find": "c", "nosuchfield": 1}, 40415),
    ({"insert": "c"}, 40414),
    ({"find": "", "filter": {}}, 73),
    ({"aggregate": "c", "pipeline": [{"$nothing": {}}], "cursor": {}}, 40324),
    ({"getMore": Int64(123456789), "collection": "c"}, 43),
    ({"find": "c", "filter": {"$where": "true"}}, 2),
    ({"create": "c", "capped": True}, 72),
    ({"find": "c", "sort": {"a": 2}}, 15975),
    ({"listIndexes": "nosuchcollection"}, 26),
])
def test_a_refused_command_carries_mongodbs_code(db, command, code):
    with pytest.raises(OperationFailure) as refused:
        db.command(command)
    assert refused.value.code == code


def test_a_write_concern_that_no_member_can_meet_is_told_after_the_write(db):
    reply = db.command("insert", "c", documents=[{"_id": 1}], writeConcern={"w": 50})
    assert reply["n"] == 1 and reply["writeConcernError"]["code"] == 100
    assert reply["writeConcernError"]["codeName"] == "UnsatisfiableWriteConcern"


def test_a_unique_index_refuses_the_second_and_names_the_key(db):
    db.users.create_index("mail", unique=True)
    db.users.insert_one({"_id": 1, "mail": "a@b"})
    with pytest.raises(DuplicateKeyError) as refused:
        db.users.insert_one({"_id": 2, "mail": "a@b"})
    assert refused.value.details["keyPattern"] == {"mail": 1}
    assert refused.value.details["keyValue"] == {"mail": "a@b"}
    db.users.insert_one({"_id": 3})
    with pytest.raises(DuplicateKeyError):
        db.users.insert_one({"_id": 4})
    with pytest.raises(DuplicateKeyError):
        db.users.update_one({"_id": 3}, {"$set": {"mail": "a@b"}})


def test_indexes_of_every_kind_answer_the_same_as_a_scan(db):
    db.things.insert_many([
        {"_id": n, "a": n % 10, "b": {"c": -n}, "tags": [n % 4, "t"], **({"s": n} if n % 2 else {})} for n in range(200)])
    queries = [{"a": 3}, {"a": {"$gt": 7}}, {"b.c": {"$lte": -190}}, {"tags": 2}, {"s": {"$lt": 9}},
               {"a": {"$in": [1, 2]}, "b.c": {"$gt": -50}}, {"$or": [{"a": 1}, {"tags": 3}]}]
    before = [sorted(d["_id"] for d in db.things.find(q)) for q in queries]
    db.things.create_index([("a", ASCENDING), ("b.c", DESCENDING)])
    db.things.create_index("tags")
    db.things.create_index("s", sparse=True)
    db.things.create_index([("b.c", "hashed")])
    db.things.create_index("a", name="big", partialFilterExpression={"a": {"$gt": 5}})
    assert [sorted(d["_id"] for d in db.things.find(q)) for q in queries] == before
    assert set(db.things.index_information()) == {"_id_", "a_1_b.c_-1", "tags_1", "s_1", "b.c_hashed", "big"}
    plan = db.things.find({"tags": 2}).explain()["queryPlanner"]["winningPlan"]
    assert "IXSCAN" in str(plan) and "tags_1" in str(plan)
    assert db.command("validate", "things")["valid"]
    db.things.drop_index("tags_1")
    assert [d["_id"] for d in db.things.find({"a": 9}).sort("b.c", ASCENDING).limit(2)] == [199, 189]


def test_a_covered_query_reads_no_document(db):
    db.things.insert_many([{"_id": n, "a": n, "pad": "x" * 100} for n in range(50)])
    db.things.create_index("a")
    explained = db.command(
        "explain", {"find": "things", "filter": {"a": {"$lt": 5}}, "projection": {"a": 1, "_id": 0}}, verbosity="executionStats")
    assert explained["executionStats"]["nReturned"] == 5
    assert explained["executionStats"]["totalKeysExamined"] in (5, 6)
    assert explained["executionStats"]["totalDocsExamined"] == 0


def test_an_empty_timestamp_becomes_the_time_of_now_unless_told_otherwise(db):
    empty = Timestamp(0, 0)
    db.c.insert_one({"_id": 1, "at": empty, "inner": {"at": empty}})
    db.c.replace_one({"_id": 2}, {"at": empty}, upsert=True)
    db.c.find_one_and_replace({"_id": 3}, {"at": empty}, upsert=True)
    db.c.update_one({"_id": 4}, {"$set": {"at": empty}}, upsert=True)
    db.command("insert", "c", documents=[{"_id": 5, "at": empty}], bypassEmptyTsReplacement=True)
    found = {document["_id"]: document for document in db.c.find()}
    assert abs(found[1]["at"].time - time.time()) < 60 and found[1]["inner"]["at"] == empty
    assert found[1]["at"] < found[2]["at"] < found[3]["at"]
    assert found[4]["at"] == found[5]["at"] == empty
