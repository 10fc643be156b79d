"""Small commands that tools send, settings that must do what they say, and the codes and messages that clients read."""

import threading
import time
import uuid

import bson
import pytest
from bson import Binary, Int64, ObjectId
from pymongo import CursorType
from pymongo.errors import DuplicateKeyError, ExecutionTimeout, OperationFailure

from member import Member


def failure(run):
    with pytest.raises(OperationFailure) as caught:
        run()
    return caught.value


def code(run):
    return failure(run).code


# What tools send


def test_under_fsync_lock_writes_wait_and_go_on_after_it(db, client):
    db.c.insert_one({"_id": 0})
    locked = client.admin.command("fsync", lock=True)
    assert locked["lockCount"] == 1 and "fsyncUnlock" in locked["info"]
    done = []
    writers = [
        threading.Thread(target=lambda: done.append(db.c.insert_one({"_id": 1}))),
        threading.Thread(target=lambda: done.append(db.other.create_index("a"))),
        threading.Thread(target=lambda: done.append(db.c.aggregate([{"$out": "copy"}]))),
    ]
    try:
        for writer in writers:
            writer.start()
        time.sleep(0.3)
        assert done == [] and db.c.count_documents({}) == 1 and set(db.list_collection_names()) == {"c"}
        with pytest.raises(ExecutionTimeout):
            db.command("insert", "c", documents=[{"_id": 2}], maxTimeMS=100)
        assert client.admin.command("currentOp")["fsyncLock"] is True
        assert client.admin.command("fsync", lock=True)["lockCount"] == 2
        assert client.admin.command("fsyncUnlock")["lockCount"] == 1
        assert done == []
    finally:
        while client.admin.command("fsyncUnlock")["lockCount"]:
            pass
    for writer in writers:
        writer.join()
    assert len(done) == 3 and db.c.count_documents({}) == 2 and db["copy"].count_documents({}) >= 1
    assert code(lambda: client.admin.command("fsyncUnlock")) == 20
    assert "fsyncLock" not in client.admin.command("currentOp")


def test_the_feature_compatibility_version_is_what_it_is(client):
    parameter = client.admin.command("getParameter", 1, featureCompatibilityVersion=1)
    assert parameter["featureCompatibilityVersion"] == {"version": "7.0"}
    client.admin.command("setFeatureCompatibilityVersion", "7.0", confirm=True)
    assert code(lambda: client.admin.command("setFeatureCompatibilityVersion", "7.0")) == 7369100
    assert code(lambda: client.admin.command("setFeatureCompatibilityVersion", "6.0", confirm=True)) == 238
    assert code(lambda: client.admin.command("setFeatureCompatibilityVersion", "9.9", confirm=True)) == 2
    assert code(lambda: client.admin.command("setFeatureCompatibilityVersion", 7, confirm=True)) == 14


def test_what_tools_ask_for_is_there_or_refused(db, client):
    pools = client.admin.command("connPoolStats")
    assert pools["totalInUse"] == 0 and pools["hosts"] == {}
    data = client.admin.command("getDiagnosticData")["data"]
    assert data["serverStatus"]["uptime"] >= 0 and data["local.oplog.rs.stats"]["ns"] == "local.oplog.rs"
    assert data["start"] <= data["end"]
    db.c.insert_one({})
    for refused in ("planCacheSetFilter",):
        assert code(lambda: db.command(refused, "c", query={}, indexes=[])) == 238
    assert code(lambda: client.admin.command("dropConnections", hostAndPort=[])) == 238
    assert db.command("planCacheListFilters", "c")["filters"] == []


def test_validate_db_metadata_names_the_views_that_api_version_1_does_not_have(db):
    db.create_collection("plain", viewOn="c", pipeline=[{"$match": {}}])
    db.create_collection("strange", viewOn="c", pipeline=[{"$indexStats": {}}])
    strict = {"version": "1", "strict": True, "deprecationErrors": True}
    (error,) = db.command("validateDBMetadata", apiParameters=strict, db=db.name)["apiVersionErrors"]
    assert error["ns"] == f"{db.name}.strange" and error["code"] == 323 and error["codeName"] == "APIStrictError"
    lax = {"version": "1", "strict": False, "deprecationErrors": True}
    assert db.command("validateDBMetadata", apiParameters=lax, db=db.name)["apiVersionErrors"] == []
    assert db.command("validateDBMetadata", apiParameters=strict, db=db.name, collection="plain")["apiVersionErrors"] == []


# Settings


@pytest.fixture
def parameter(client):
    """Sets parameters, and sets them back."""
    before = {}

    def change(name, value):
        before.setdefault(name, client.admin.command("setParameter", 1, **{name: value})["was"])

    yield change
    for name, value in before.items():
        client.admin.command("setParameter", 1, **{name: value})


def test_notablescan_refuses_what_no_index_serves(db, parameter):
    db.c.insert_many([{"_id": n, "a": n} for n in range(5)])
    parameter("notablescan", True)
    for scan in (
        lambda: list(db.c.find({"a": 1})),
        lambda: db.c.count_documents({"a": 1}),
        lambda: db.c.update_one({"a": 1}, {"$set": {"b": 1}}),
        lambda: db.c.delete_many({"a": 1}),
        lambda: list(db.c.aggregate([{"$match": {"a": 1}}])),
    ):
        assert code(scan) == 291
    assert len(list(db.c.find())) == 5 and db.c.find_one({"_id": 1})["a"] == 1
    db.c.create_index("a")
    assert db.c.count_documents({"a": 1}) == 1


def test_a_group_and_a_sort_have_limits_of_their_own(db, parameter):
    db.c.insert_many([{"_id": n, "pad": "x" * 1000} for n in range(300)])
    group = [{"$group": {"_id": "$_id", "pad": {"$first": "$pad"}}}]
    by_pad = [{"$sort": {"pad": 1, "_id": -1}}]
    parameter("internalDocumentSourceGroupMaxMemoryBytes", 50_000)
    error = failure(lambda: list(db.c.aggregate(group, allowDiskUse=False)))
    assert error.code == 292 and "$group" in str(error)
    assert len(list(db.c.aggregate(by_pad, allowDiskUse=False))) == 300
    parameter("internalDocumentSourceGroupMaxMemoryBytes", 100_000_000)
    parameter("internalQueryMaxBlockingSortMemoryUsageBytes", 50_000)
    assert len(list(db.c.aggregate(group, allowDiskUse=False))) == 300
    error = failure(lambda: list(db.c.find().sort([("pad", 1), ("_id", -1)]).allow_disk_use(False)))
    assert error.code == 292 and "Sort exceeded memory limit of 50000 bytes" in str(error)


# Cursors and codes


def test_a_cursor_is_killed_whatever_collection_the_client_names(db, client):
    db.c.insert_many([{} for _ in range(300)])
    for database, collection in ((db, "other"), (client.admin, "$cmd.aggregate")):
        cursor = db.command("find", "c", batchSize=2)["cursor"]["id"]
        assert database.command("killCursors", collection, cursors=[Int64(cursor)])["cursorsKilled"] == [cursor]
        assert code(lambda: db.command("getMore", Int64(cursor), collection="c")) == 43


def test_a_plain_cursor_takes_no_time_not_even_none(db):
    db.c.insert_many([{} for _ in range(300)])
    cursor = db.command("find", "c", batchSize=2)["cursor"]["id"]
    for given in (0, 10):
        assert code(lambda: db.command("getMore", Int64(cursor), collection="c", maxTimeMS=given)) == 2
        cursor = db.command("find", "c", batchSize=2)["cursor"]["id"]


def test_a_tailable_cursor_on_an_empty_capped_collection_is_dead_as_in_mongodb(db):
    db.create_collection("log", capped=True, size=10_000)
    tail = {"find": "log", "tailable": True, "awaitData": True}
    assert db.command(tail)["cursor"] == {"firstBatch": [], "id": 0, "ns": f"{db.name}.log"}
    assert db.command({**tail, "batchSize": 0})["cursor"]["id"] == 0
    db.log.insert_one({"_id": 1})
    assert db.command(tail)["cursor"]["id"] != 0


def test_what_is_asked_for_in_a_wrong_way_is_refused_with_mongodbs_code(db):
    db.c.insert_one({})
    for command, expected in (
        ({"find": "c", "maxTimeMS": "x"}, 14),
        ({"aggregate": "c", "pipeline": [], "cursor": {}, "maxTimeMS": [1]}, 14),
        ({"count": "c", "maxTimeMS": -1}, 51024),
        ({"find": "c", "maxTimeMS": None}, 2),
        ({"find": "c", "maxTimeMS": 1.5}, 2),
        ({"insert": "c", "documents": [{}], "maxTimeMS": "x"}, 2),
        ({"find": "c", "readConcern": None}, 9),
        ({"insert": "c", "documents": [{}], "writeConcern": {"j": "yes"}}, 14),
        ({"explain": {"aggregate": "c", "pipeline": [], "cursor": {}, "writeConcern": {"w": 1}}}, 9),
        ({"explain": {"find": "c"}, "writeConcern": {"w": 1}}, 72),
        ({"create": "v", "viewOn": "c", "pipeline": [{"$currentOp": {}}]}, 73),
        ({"convertToCapped": "c", "size": -1}, 2),
    ):
        assert code(lambda: db.command(command)) == expected, command
    admin = db.client.admin
    for operand in (1, {"idleCursors": 1}, {"allUsers": "yes"}):
        assert code(lambda: admin.command("aggregate", 1, pipeline=[{"$currentOp": operand}], cursor={})) == 14


def test_index_stats_of_what_is_not_there_are_empty_and_a_view_may_begin_with_them(db):
    assert list(db.nothing.aggregate([{"$indexStats": {}}])) == []
    db.c.create_index("a")
    db.create_collection("v", viewOn="c", pipeline=[{"$indexStats": {}}])
    assert {row["name"] for row in db.v.aggregate([])} == {"_id_", "a_1"}


def test_a_view_that_begins_with_a_stage_of_the_members_own_is_read_by_every_command(db):
    """All but aggregate said that the stage is only valid as the first of a pipeline (40602)."""
    db.c.insert_many([{"a": n} for n in range(3)])
    db.c.create_index("a")
    db.create_collection("indexes", viewOn="c", pipeline=[{"$indexStats": {}}])
    db.create_collection("figures", viewOn="c", pipeline=[{"$collStats": {"count": {}}}])
    db.create_collection("plans", viewOn="c", pipeline=[{"$planCacheStats": {}}])
    assert {row["name"] for row in db.indexes.find()} == {"_id_", "a_1"}
    assert db.indexes.distinct("name", {"name": {"$ne": "a_1"}}) == ["_id_"]
    assert db.command("count", "indexes", query={"name": "a_1"})["n"] == 1
    assert [row["count"] for row in db.figures.find({"ns": f"{db.name}.c"})] == [3]
    assert list(db.plans.find()) == [] and db.command("count", "plans")["n"] == 0
    one = [{"$limit": 1}]
    assert len(list(db.c.aggregate([*one, {"$unionWith": "indexes"}]))) == 3
    assert len(list(db.c.aggregate([*one, {"$unionWith": {"coll": "c", "pipeline": [{"$indexStats": {}}]}}]))) == 3
    (joined,) = db.c.aggregate([*one, {"$lookup": {"from": "figures", "pipeline": [], "as": "found"}}])
    assert [row["count"] for row in joined["found"]] == [3]
    explained = db.command("explain", {"find": "indexes", "filter": {"name": "a_1"}}, verbosity="executionStats")
    assert "$indexStats" in explained["stages"][0] and explained["stages"][-1]["nReturned"] == 1
    for pipeline in ([{"$currentOp": {}}], [{"$listLocalSessions": {}}]):
        assert code(lambda: db.create_collection("v", viewOn="c", pipeline=pipeline)) == 73
        assert code(lambda: list(db.c.aggregate([{"$unionWith": {"coll": "c", "pipeline": pipeline}}]))) == 73


def test_system_views_is_what_its_listing_says(db):
    """It was listed, and to be found nowhere else."""
    for command in ("listIndexes", "validate"):
        assert code(lambda: db.command(command, "system.views")) == 26
    assert db.command("collStats", "system.views")["nindexes"] == 0 and list(db["system.views"].find()) == []
    db.create_collection("v", viewOn="c", pipeline=[{"$match": {"a": 1}}])
    db.create_collection("w", viewOn="v", pipeline=[])
    (index,) = db.command("listIndexes", "system.views")["cursor"]["firstBatch"]
    assert index["name"] == "_id_" and index["key"] == {"_id": 1}
    stored = {"_id": f"{db.name}.v", "viewOn": "c", "pipeline": [{"$match": {"a": 1}}]}
    views = db["system.views"]
    assert list(views.find({"viewOn": "c"})) == [stored] and views.distinct("viewOn") == ["c", "v"]
    assert db.command("count", "system.views")["n"] == 2
    assert list(views.aggregate([{"$group": {"_id": None, "n": {"$sum": 1}}}])) == [{"_id": None, "n": 2}]
    (listed,) = db.list_collections(filter={"name": "system.views"})
    validated = db.command("validate", "system.views")
    assert validated["valid"] and validated["nrecords"] == 2 and validated["keysPerIndex"] == {"_id_": 2}
    assert validated["uuid"] == listed["info"]["uuid"]
    size = sum(len(bson.encode(view)) for view in views.find())
    figures = db.command("collStats", "system.views")
    assert (figures["count"], figures["size"], figures["nindexes"]) == (2, size, 1)
    (row,) = views.aggregate([{"$collStats": {"count": {}, "storageStats": {}}}])
    assert (row["count"], row["storageStats"]["size"]) == (2, size)
    assert [row["name"] for row in views.aggregate([{"$indexStats": {}}])] == ["_id_"]
    assert code(lambda: views.insert_one({})) == 73 and db.list_collection_names(filter={"name": "v"}) == ["v"]


def test_the_oplog_says_how_many_entries_it_has_and_how_large_they_are(client, db):
    """Both were 0, and mongosh's rs.printReplicationInfo() divides by them."""
    db.c.insert_many([{"text": "x" * (n % 500)} for n in range(1000)])
    local = client.local
    figures = local.command("collStats", "oplog.rs")
    entries = list(local["oplog.rs"].find(batch_size=0, cursor_type=CursorType.NON_TAILABLE))
    size = sum(len(bson.encode(entry)) for entry in entries)
    assert abs(figures["count"] - len(entries)) <= 10, (figures["count"], len(entries))
    assert 0.5 * size < figures["size"] < 2 * size, (figures["size"], size)
    assert figures["avgObjSize"] == figures["size"] // figures["count"]
    (row,) = local["oplog.rs"].aggregate([{"$collStats": {"count": {}, "storageStats": {}}}])
    assert row["count"] >= figures["count"] and row["storageStats"]["size"] >= figures["size"] / 2
    assert local.command("dataSize", "local.oplog.rs")["numObjects"] >= figures["count"]
    assert local.command("dbStats")["objects"] >= figures["count"]


def test_the_oplogs_size_is_listed_as_it_was_set_last(own_member):
    """It was that of the start."""
    with own_member.client() as client:
        for megabytes in (1500, 1000):
            client.admin.command("replSetResizeOplog", 1, size=float(megabytes))
            (listed,) = client.local.list_collections(filter={"name": "oplog.rs"})
            assert listed["options"]["size"] == megabytes << 20 and listed["options"]["capped"]
            assert client.local.command("collStats", "oplog.rs")["maxSize"] == megabytes << 20


# Messages that clients parse


def test_e11000_prints_values_as_mongodb_does(db):
    db.c.create_index("k", unique=True)
    for value, shown in (
        (1, "1"),
        (1.0, "1.0"),
        ("x", '"x"'),
        (uuid.UUID(int=0x1234), 'UUID("00000000-0000-0000-0000-000000001234")'),
        (Binary(b"\x00\xab", 0), "BinData(0, 00AB)"),
        (ObjectId("0123456789ab0123456789ab"), "ObjectId('0123456789ab0123456789ab')"),
        ({"x": 1, "y": "z"}, '{ x: 1, y: "z" }'),
        (None, "null"),
    ):
        value = Binary.from_uuid(value) if isinstance(value, uuid.UUID) else value
        db.c.delete_many({})
        db.c.insert_one({"k": value})
        with pytest.raises(DuplicateKeyError) as caught:
            db.c.insert_one({"k": value})
        message = caught.value.details["errmsg"]
        assert message == f"E11000 duplicate key error collection: {db.name}.c index: k_1 dup key: {{ k: {shown} }}"


def test_a_failed_build_names_itself_and_its_collection(db):
    db.c.insert_many([{"a": 1}, {"a": 1}])
    collection = next(iter(db.list_collections(filter={"name": "c"})))["info"]["uuid"].as_uuid()
    with pytest.raises(DuplicateKeyError) as caught:
        db.c.create_index("a", unique=True)
    message = caught.value.details["errmsg"]
    prefix, _, cause = message.partition(" :: caused by :: ")
    build = prefix.removeprefix("Index build failed: ").split(":")[0]
    assert prefix == f"Index build failed: {uuid.UUID(build)}: Collection {db.name}.c ( {collection} )"
    assert cause.startswith("E11000 duplicate key error")


def test_failures_of_an_execution_say_of_which(db):
    db.c.insert_one({"_id": 1, "a": "x"})
    error = failure(lambda: db.c.find_one_and_update({"_id": 1}, {"$inc": {"a": 1}}))
    assert error.code == 14 and error.details["errmsg"].startswith(
        "Plan executor error during findAndModify :: caused by :: Cannot apply $inc")
    error = failure(lambda: list(db.c.find({"$expr": {"$divide": [1, {"$strLenCP": "$b"}]}})))
    assert error.details["errmsg"].startswith(f"Executor error during find command: {db.name}.c :: caused by :: ")


# Waiting is no work


def test_followers_that_wait_are_no_slow_queries_and_take_no_time():
    with Member(arguments=["--slowms", "20"]) as member, member.client() as client:
        def reads():
            return client.admin.command("serverStatus")["opLatencies"]["reads"]

        last = client.local["oplog.rs"].find().sort("$natural", -1).limit(1).next()
        before = reads()
        cursor = client.local.command("find", "oplog.rs", filter={"ts": {"$gt": last["ts"]}}, tailable=True,
                                      awaitData=True)["cursor"]["id"]
        for _ in range(2):
            client.local.command("getMore", Int64(cursor), collection="oplog.rs", maxTimeMS=300)
        after = reads()
        waited = [line for line in member.log(200).splitlines() if "Slow query" in line and "getMore" in line]
        assert waited == []
        assert after["ops"] >= before["ops"] + 2
        assert after["latency"] - before["latency"] < 300_000
