"""Requests that are small and ask for much: they end with an error, within the member's memory, and can be killed."""

import threading
import time

import bson
import pymongo
import pytest
from member import Member

# Of an otherwise idle member with a small cache; without bounds one of the requests below takes several times as much.
RESIDENT_BYTES_MAX = 900 * 1024 * 1024


@pytest.fixture(scope="module")
def small_member():
    """A member whose cache, and so what all stages together may hold, is small."""
    with Member(arguments=["--wiredTigerCacheSizeGB", "0.25"]) as member:
        yield member


@pytest.fixture
def small_db(small_member):
    with small_member.client() as client:
        yield client.evaluation
        client.drop_database("evaluation")
    assert small_member.is_running(), f"the member died:\n{small_member.log()}"


def peak_bytes(member):
    """The most memory that the member ever had."""
    with open(f"/proc/{member.pid}/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    return int(lines["VmHWM"].split()[0]) * 1024


def code_of(work):
    with pytest.raises(pymongo.errors.OperationFailure) as failed:
        work()
    return failed.value.code


def test_a_small_request_that_multiplies_its_input_fails_within_the_memory(small_member, small_db):
    collection = small_db.c
    collection.insert_one({"_id": 1, "b": list(range(16_000)), "s": "," * 4_000_000})
    doubled = {"$size": "$$v30"}
    for level in reversed(range(30)):
        value = {"$concatArrays": [f"$$v{level}", f"$$v{level}"]}
        doubled = {"$let": {"vars": {f"v{level + 1}": value}, "in": doubled}}
    grids = {"$map": {"input": {"$range": [0, 30_000]}, "in": {"$range": [0, 30_000]}}}
    for stage, codes in [
        ({"$set": {"b.c": "$b"}}, {10334}),
        ({"$project": {"a": grids}}, {146}),
        ({"$project": {"a": {"$let": {"vars": {"v0": "$b"}, "in": doubled}}}}, {146}),
        ({"$project": {"a": {"$split": ["$s", ","]}}}, {146}),
        ({"$project": {f"f{n}": "$b" for n in range(1_000)}}, {10334}),
    ]:
        assert code_of(lambda: list(collection.aggregate([stage]))) in codes, stage
    assert code_of(lambda: collection.update_one({"_id": 1}, [{"$set": {"b.c": "$b"}}])) == 10334
    assert code_of(lambda: collection.find_one({"_id": 1}, {"b.c": "$b"})) == 10334
    each = {"$push": {"c.$[].d": {"$each": ["x" * 100_000] * 10}}}
    small_db.d.insert_one({"_id": 1, "c": [{"d": []}] * 10_000})
    assert code_of(lambda: small_db.d.update_one({"_id": 1}, each)) == 17419
    assert peak_bytes(small_member) < RESIDENT_BYTES_MAX
    # What was refused has changed nothing, and what fits still goes.
    assert collection.find_one({"$expr": {"$eq": [{"$size": "$b"}, 16_000]}}, {"_id": 1}) == {"_id": 1}


def test_a_path_through_every_element_of_a_long_array_is_as_long_as_the_array(db):
    db.c.insert_one({"_id": 1, "b": list(range(70_000))})
    started = time.monotonic()
    (found,) = db.c.aggregate([{"$set": {"b.1.c": "$b.0"}}, {"$project": {"n": {"$size": "$b"}, "x": {"$last": "$b"}}}])
    assert found == {"_id": 1, "n": 70_000, "x": {"1": {"c": []}}}
    assert time.monotonic() - started < 20, "it took as long as the square of the array"


def kill(client, namespace):
    """Kills the operation on that collection."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        running = client.admin.aggregate([{"$currentOp": {}}, {"$match": {"ns": namespace}}]).to_list()
        if running:
            client.admin.command("killOp", op=running[0]["opid"])
            return
        time.sleep(0.01)
    raise AssertionError(f"nothing on {namespace} showed in currentOp")


@pytest.mark.parametrize("work", ["expression", "filter", "update", "pipeline", "variables"])
def test_work_within_one_document_is_killed(client, db, work):
    db.c.insert_one({"_id": 1, "b": [{"x": n, "y": [n]} for n in range(20_000)]})
    loop = {"$map": {"input": {"$range": [0, 1_000_000]}, "as": "i",
                     "in": {"$size": {"$filter": {"input": "$b.x", "cond": {"$eq": ["$$this", -1]}}}}}}
    command = {
        "expression": {"find": "c", "projection": {"a": loop}},
        "filter": {"find": "c", "filter": {"$or": [{f"b.y{n}.z": 1} for n in range(5_000)]}},
        "update": {"update": "c", "updates": [{"q": {}, "u": [{"$set": {"a": loop}}]}]},
        "pipeline": {"aggregate": "c", "cursor": {}, "pipeline": [
            {"$unwind": "$b"}, {"$set": {"c": {"$range": [0, 20_000]}}}, {"$unwind": "$c"}, {"$match": {"c": -1}}]},
        "variables": {"aggregate": "c", "cursor": {}, "pipeline": [], "let": {"v": {"$map": {
            "input": {"$range": [0, 3_000]}, "in": {"$size": {"$filter": {"input": {"$range": [0, 100_000]}, "cond": False}}}}}}},
    }[work]
    outcome = []

    def run():
        try:
            outcome.append(db.command(command))
        except pymongo.errors.OperationFailure as error:
            outcome.append(error.code)

    thread = threading.Thread(target=run)
    thread.start()
    kill(client, db.c.full_name)
    killed = time.monotonic()
    thread.join(30)
    assert outcome == [11601]
    assert time.monotonic() - killed < 10


def test_the_time_limit_ends_work_within_one_document(db):
    db.c.insert_one({"_id": 1, "b": list(range(10_000))})
    each = {"$map": {"input": "$b", "in": {"$in": [-1, "$b"]}}}
    started = time.monotonic()
    with pytest.raises(pymongo.errors.ExecutionTimeout):
        db.c.find_one({"$expr": {"$eq": [each, 1]}}, max_time_ms=300)
    assert time.monotonic() - started < 10


def test_a_getmore_is_not_ended_by_a_time_that_passed_between(db):
    """Evaluation asks the operation that runs the cursor now: the deadline of the one before is over."""
    db.c.insert_many([{"_id": n, "b": list(range(50))} for n in range(40)])
    slow = {"$size": {"$filter": {"input": "$b", "cond": {"$in": [-1, "$b"]}}}}
    pipeline = [{"$project": {"n": slow}}]
    reply = db.command("aggregate", "c", pipeline=pipeline, cursor={"batchSize": 1})
    cursor = reply["cursor"]["id"]
    # Another operation of the same connection, with a time limit that is over soon.
    with pytest.raises(pymongo.errors.ExecutionTimeout):
        db.command("find", "c", filter={"$expr": {"$eq": [{"$map": {"input": {"$range": [0, 3_000_000]}, "in": 1}}, 1]}}, maxTimeMS=20)
    more = db.command("getMore", bson.Int64(cursor), collection="c")
    assert [document["n"] for document in more["cursor"]["nextBatch"]] == [0] * 39


def test_current_may_be_bound_for_a_command_and_in_a_lookup(db):
    db.c.insert_one({"_id": 1, "a": 1, "k": {"a": 7}})
    found = db.command({"aggregate": "c", "cursor": {}, "let": {"CURRENT": {"a": 5}},
                        "pipeline": [{"$project": {"x": "$a", "y": "$$ROOT.a"}}]})
    assert found["cursor"]["firstBatch"] == [{"_id": 1, "x": 5, "y": 1}]
    lookup = {"from": "c", "let": {"CURRENT": "$k"}, "pipeline": [{"$project": {"_id": 0, "z": "$a"}}], "as": "o"}
    (joined,) = db.c.aggregate([{"$lookup": lookup}])
    assert joined["o"] == [{"z": 7}]
    with pytest.raises(pymongo.errors.OperationFailure) as refused:
        db.command({"find": "c", "let": {"ROOT": 1}})
    assert refused.value.code == 9


def test_decimal_options_round_half_to_even(db):
    db.c.insert_many([{"_id": n} for n in range(10)])
    half = bson.Decimal128("2.5")
    assert [d["_id"] for d in db.command("find", "c", skip=half, sort={"_id": 1})["cursor"]["firstBatch"]] == list(range(2, 10))
    assert len(db.command("find", "c", batchSize=bson.Decimal128("3.5"))["cursor"]["firstBatch"]) == 4
    assert len(db.command("find", "c", batchSize=2.9)["cursor"]["firstBatch"]) == 2
    with pytest.raises(pymongo.errors.OperationFailure) as refused:
        list(db.c.aggregate([{"$sample": {"size": 0}}]))
    assert refused.value.code == 28747


def test_a_search_of_many_attempts_is_killed_in_a_filter_a_schema_and_a_validator(client, db):
    """PCRE2's own limit is one of each place where a match could begin: a text of some thousand letters has it take hours."""
    text = "a" * 4_000
    endless = "[ab]*[ab]*[bc]"
    db.c.insert_one({"_id": 1, "s": text})
    db.command("create", "v", validator={"$jsonSchema": {"properties": {"s": {"pattern": endless}}}})
    for collection, command in [
        ("c", {"find": "c", "filter": {"s": {"$regex": endless}}}),
        ("c", {"find": "c", "filter": {"s": {"$in": [bson.Regex(endless)]}}}),
        ("c", {"find": "c", "filter": {"$jsonSchema": {"properties": {"s": {"pattern": endless}}}}}),
        ("c", {"find": "c", "filter": {}, "projection": {"a": {"$regexFindAll": {"input": "$s", "regex": endless}}}}),
        ("v", {"insert": "v", "documents": [{"_id": 1, "s": text}]}),
    ]:
        outcome = []

        def run(command=command, outcome=outcome):
            try:
                outcome.append(db.command(command))
            except pymongo.errors.OperationFailure as error:
                outcome.append(error.code)

        thread = threading.Thread(target=run)
        thread.start()
        kill(client, db[collection].full_name)
        killed = time.monotonic()
        thread.join(30)
        assert outcome == [11601], command
        assert time.monotonic() - killed < 10
        with pytest.raises(pymongo.errors.OperationFailure) as late:
            db.command({**command, "maxTimeMS": 200})
        assert late.value.code == 50, command
    assert db.v.count_documents({}) == 0


def test_keys_of_one_document_are_interrupted_and_bounded(small_member, small_db):
    """Thirty indexes of thirty paths each through one long array: minutes, and gigabytes of keys."""
    for index in range(30):
        small_db.c.create_index([(f"b.f{index}_{n}", 1) for n in range(30)])
    document = {"_id": 1, "b": [{"x": n} for n in range(200_000)]}
    with pytest.raises(pymongo.errors.PyMongoError) as late:
        small_db.command("insert", "c", documents=[document], maxTimeMS=1_000)
    assert late.value.code == 50
    with pytest.raises(pymongo.errors.PyMongoError) as refused:
        small_db.d.create_index([("s", 1), ("b", 1)])
        small_db.d.insert_one({"_id": 1, "s": "x" * 60_000, "b": list(range(20_000))})
    assert refused.value.code == 201
    assert small_db.c.count_documents({}) == small_db.d.count_documents({}) == 0
    assert peak_bytes(small_member) < RESIDENT_BYTES_MAX


LONG = 15_000_000


def errors_of_long_values(db):
    """What fails on a value of 15 MB, and tells of it."""
    value = "x" * LONG
    # For what is said several times.
    part = "x" * (LONG // 4)
    db.c.insert_one({"_id": value})
    db.n.insert_one({"_id": 1, "a": value})
    db.command("create", "v", validator={"$jsonSchema": {"properties": {"a": {"bsonType": "int"}, "b": {"bsonType": "int"}}}})
    return {
        "E11000": lambda: db.c.insert_one({"_id": value}),
        "many E11000": lambda: db.c.insert_many([{"_id": value}, {"_id": value}, {"_id": value}], ordered=False),
        "findAndModify": lambda: db.c.find_one_and_update({"_id": value, "a": 1}, {"$set": {"b": 1}}, upsert=True),
        "$inc": lambda: db.n.update_one({"_id": 1}, {"$inc": {"a": 1}}),
        "$inc of a long _id": lambda: db.c.update_one({}, [{"$set": {"a": {"$add": ["$_id", 1]}}}]),
        "$toInt": lambda: db.n.aggregate([{"$project": {"b": {"$toInt": "$a"}}}]).to_list(),
        "$toDate": lambda: db.n.aggregate([{"$project": {"b": {"$toDate": "$a"}}}]).to_list(),
        "$toObjectId": lambda: db.n.aggregate([{"$project": {"b": {"$toObjectId": "$a"}}}]).to_list(),
        "a path conflict": lambda: db.n.update_one({}, {"$set": {part: 1, f"{part}.b": 1}}),
        "a path collision": lambda: db.n.find_one({}, {part: 1, f"{part}.b": 1}),
        "an unknown operator": lambda: db.n.find_one({"a": {f"${value}": 1}}),
        "an unknown expression": lambda: db.n.aggregate([{"$project": {"a": {f"${value}": 1}}}]).to_list(),
        "an unknown stage": lambda: db.n.aggregate([{f"${value}": 1}]).to_list(),
        "an unknown modifier": lambda: db.n.update_one({}, {f"${value}": {"a": 1}}),
        "an unknown field": lambda: db.command("find", "n", **{value: 1}),
        "an unknown command": lambda: db.command(value),
        "an unknown variable": lambda: db.n.aggregate([{"$project": {"a": f"$${value}"}}]).to_list(),
        "an unknown time zone": lambda: db.n.aggregate([{"$project": {"b": {"$hour": {"date": "$$NOW", "timezone": "$a"}}}}]).to_list(),
        "a validator": lambda: db.v.insert_one({"a": value}),
        "many that a validator refuses": lambda: db.v.insert_many([{"a": value}, {"a": value}, {"a": value}], ordered=False),
        "a collection's name": lambda: db.command("create", value),
        "an index": lambda: db.n.create_index([("b", part)]),
        "a sort": lambda: db.n.find_one({}, sort=[(part, 1), (f"{part}.b", 1), (part, 2)]),
    }


def test_an_error_about_fifteen_megabytes_is_one_that_a_driver_reads(client, db):
    for what, work in errors_of_long_values(db).items():
        with pytest.raises(pymongo.errors.OperationFailure) as failed:
            work()
        details = failed.value.details
        assert details, what
        for error in details.get("writeErrors", []):
            # The driver's own: the document that it sent.
            error.pop("op", None)
        assert len(bson.encode(details)) < 16 * 1024 * 1024, what
        for error in details.get("writeErrors", [details]):
            assert error["code"] > 0 and len(error["errmsg"]) < 64 * 1024, what
            assert error["errmsg"], what
    # Each error of many has its place and its code, if not all of its details.
    with pytest.raises(pymongo.errors.BulkWriteError) as failed:
        db.c.insert_many([{"_id": "x" * LONG}] * 3, ordered=False)
    assert [error["code"] for error in failed.value.details["writeErrors"]] == [11000] * 3
    assert client.admin.command("ping")["ok"] == 1
