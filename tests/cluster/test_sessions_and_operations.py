"""Sessions, retryable writes, and operations that others can see and stop."""

import datetime
import threading
import time
import uuid

import pytest
from bson import Binary, Int64, Timestamp
from pymongo import WriteConcern
from pymongo.errors import ExecutionTimeout, OperationFailure
from pymongo.read_concern import ReadConcern

from raw import Raw


def lsid():
    return {"id": Binary(uuid.uuid4().bytes, 4)}


def test_a_retried_write_is_applied_once_and_answers_the_same_also_after_a_restart(own_member):
    # Over a raw connection: a driver would put its own session in the place of this one.
    session, majority = lsid(), {"w": "majority"}
    insert = {"insert": "c", "documents": [{"_id": 1}, {"_id": 2}], "lsid": session, "txnNumber": Int64(1)}
    update = {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}], "lsid": session, "txnNumber": Int64(2),
              "writeConcern": majority}
    modify = {"findAndModify": "c", "query": {"_id": 2}, "update": {"$inc": {"n": 1}}, "new": True, "lsid": session,
              "txnNumber": Int64(3), "writeConcern": majority}
    with Raw(own_member) as raw:
        answers = [raw.command("shop", command) for command in (insert, insert, update, update, modify, modify)]
    own_member.kill()
    own_member.start()
    with Raw(own_member) as raw:
        answers.append(raw.command("shop", modify))
        assert raw.command("shop", update)["code"] == 225
    with own_member.client() as client:
        assert list(client.shop.c.find()) == [{"_id": 1, "n": 1}, {"_id": 2, "n": 1}]
    assert [a["n"] for a in answers[:4]] == [2, 2, 1, 1]
    assert [a["value"] for a in answers[4:]] == [{"_id": 2, "n": 1}] * 3


def test_a_snapshot_session_sees_one_moment_in_every_collection_and_index(client, db):
    db.c.create_index("n")
    db.c.insert_many([{"_id": n, "n": n % 3} for n in range(300)])
    db.other.insert_one({"_id": 1, "state": "before"})
    with client.start_session(snapshot=True) as session:
        cursor = db.c.find({"n": 1}, batch_size=10, session=session)
        first = next(cursor)
        db.c.update_many({}, {"$set": {"n": 1}})
        db.c.delete_many({"_id": {"$lt": 100}})
        db.c.insert_one({"_id": "later", "n": 1})
        db.other.update_one({"_id": 1}, {"$set": {"state": "after"}})
        found = [first["_id"]] + [document["_id"] for document in cursor]
        assert sorted(found) == [n for n in range(300) if n % 3 == 1], "a cursor stays at its moment over its batches"
        assert db.c.count_documents({}, session=session) == 300
        assert db.c.distinct("n", session=session) == [0, 1, 2]
        assert db.c.find_one({"_id": 5}, session=session) == {"_id": 5, "n": 2}
        assert db.other.find_one({"_id": 1}, session=session)["state"] == "before"
        joined = db.c.aggregate([{"$limit": 1}, {"$lookup": {"from": "other", "pipeline": [], "as": "other"}}], session=session)
        assert next(joined)["other"][0]["state"] == "before"
        db.other.drop()
        with pytest.raises(OperationFailure) as gone:
            db.other.find_one({"_id": 1}, session=session)
        assert gone.value.code == 246
    assert db.c.count_documents({}) == 201


def test_a_snapshot_that_is_too_old_or_in_the_future_or_of_a_write_or_a_count_is_refused(client, db):
    db.c.insert_one({"_id": 1})

    def find(concern):
        return db.command("find", "c", readConcern={"level": "snapshot", **concern})

    answer = find({})
    assert answer["cursor"]["atClusterTime"] == answer["operationTime"]
    with pytest.raises(OperationFailure) as old:
        find({"atClusterTime": Timestamp(1, 1)})
    assert old.value.code in (239, 246)
    with pytest.raises(OperationFailure) as future:
        find({"atClusterTime": Timestamp(2**31, 1)})
    assert future.value.code == 72
    snapshot = {"readConcern": {"level": "snapshot"}}
    for command in (
        {"insert": "c", "documents": [{"_id": 2}]},
        {"update": "c", "updates": [{"q": {}, "u": {"$set": {"n": 1}}}]},
        {"delete": "c", "deletes": [{"q": {}, "limit": 0}]},
        {"findAndModify": "c", "remove": True},
        {"count": "c"},
    ):
        with pytest.raises(OperationFailure) as refused:
            db.command({**command, **snapshot})
        assert refused.value.code == 72, command
    assert list(db.c.find()) == [{"_id": 1}]


def test_replies_carry_the_cluster_time_and_causal_reads_see_own_writes(client, db):
    reply = db.command("insert", "c", documents=[{"_id": 1}])
    assert reply["operationTime"] and reply["$clusterTime"]["clusterTime"] >= reply["operationTime"]
    with client.start_session(causal_consistency=True) as session:
        majority = db.get_collection("c", write_concern=WriteConcern("majority"), read_concern=ReadConcern("majority"))
        majority.insert_one({"_id": 2}, session=session)
        assert majority.find_one({"_id": 2}, session=session) == {"_id": 2}
        assert session.operation_time is not None
    for level in ("local", "available", "majority", "linearizable"):
        assert db.get_collection("c", read_concern=ReadConcern(level)).find_one({"_id": 1}) == {"_id": 1}
    with pytest.raises(OperationFailure) as refused:
        db.command("find", "c", readConcern={"level": "wishful"})
    assert refused.value.code in (2, 9)


def test_unacknowledged_writes_get_no_reply_and_the_stream_stays_in_step(db):
    silent = db.get_collection("c", write_concern=WriteConcern(w=0))
    for n in range(100):
        silent.insert_one({"_id": n})
        silent.insert_one({"_id": n})
    deadline = time.monotonic() + 10
    while db.c.count_documents({}) < 100:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_running_operation_is_seen_and_killed(client, db):
    db.many.insert_many([{"_id": n, "a": n} for n in range(3000)])
    outcome = []

    def endless():
        pipeline = [{"$lookup": {"from": "many", "as": "o", "pipeline": [{"$match": {"$expr": {"$lt": ["$a", 0]}}}],
                                 "let": {"x": "$a"}}}, {"$match": {"o.a": 5}}]
        try:
            list(db.many.aggregate(pipeline, comment="find me"))
            outcome.append("finished")
        except OperationFailure as error:
            outcome.append(error.code)

    thread = threading.Thread(target=endless)
    thread.start()
    deadline = time.monotonic() + 15
    while not outcome:
        assert time.monotonic() < deadline, "the operation never showed in currentOp"
        found = [op for op in client.admin.command("currentOp")["inprog"]
                 if op.get("command", {}).get("comment") == "find me"]
        if found:
            client.admin.command("killOp", op=found[0]["opid"])
            break
        time.sleep(0.01)
    thread.join(15)
    assert outcome == [11601]


def test_max_time_ends_an_operation(db):
    db.many.insert_many([{"_id": n, "a": n} for n in range(3000)])
    pipeline = [{"$lookup": {"from": "many", "as": "o", "pipeline": [{"$match": {"$expr": {"$lt": ["$a", 0]}}}],
                             "let": {"x": "$a"}}}]
    started = time.monotonic()
    with pytest.raises(ExecutionTimeout) as ended:
        list(db.many.aggregate(pipeline, maxTimeMS=200))
    assert ended.value.code == 50 and time.monotonic() - started < 5


def test_sorting_more_than_the_memory_allows_says_so(client, db):
    client.admin.command("setParameter", 1, internalQueryMaxBlockingSortMemoryUsageBytes=1_000_000)
    try:
        db.many.insert_many([{"_id": n, "pad": "x" * 10_000} for n in range(500)])
        with pytest.raises(OperationFailure) as refused:
            list(db.many.find(allow_disk_use=False).sort("pad", 1))
        assert refused.value.code == 292
    finally:
        client.admin.command("setParameter", 1, internalQueryMaxBlockingSortMemoryUsageBytes=104857600)


def test_the_administration_that_shells_and_tools_call_answers(client, db):
    db.c.insert_many([{"_id": n} for n in range(10)])
    admin = client.admin
    hello = admin.command("hello")
    assert hello["setName"] == "rs0" and hello["maxWireVersion"] == 21 and hello["logicalSessionTimeoutMinutes"] == 30
    assert admin.command("buildInfo")["versionArray"][0] == 7
    status = admin.command("serverStatus")
    assert isinstance(status["metrics"]["cursor"]["open"]["total"], Int64) and status["opcounters"]["insert"] > 0
    assert admin.command("replSetGetStatus")["members"][0]["stateStr"] == "PRIMARY"
    assert admin.command("getLog", "startupWarnings")["log"] is not None
    assert admin.command("hostInfo")["system"]["numCores"] > 0
    assert "argv" in admin.command("getCmdLineOpts")
    assert admin.command({"getParameter": "*"})["enableTestCommands"]
    assert "totals" in admin.command("top")
    assert "find" in admin.command("listCommands")["commands"]
    assert admin.command("connectionStatus")["authInfo"]["authenticatedUsers"] == []
    assert db.command("dbStats")["objects"] == 10
    assert db.command("collStats", "c")["count"] == 10
    assert db.name in client.list_database_names() and db.list_collection_names() == ["c"]
    assert db.command("profile", -1)["was"] == 0
    db.c.rename("d")
    assert db.list_collection_names() == ["d"]
    assert next(db.d.aggregate([{"$collStats": {"count": {}}}]))["count"] == 10
    assert [i["name"] for i in db.d.aggregate([{"$indexStats": {}}])] == ["_id_"]


def test_expired_documents_go(own_member):
    with own_member.client() as client:
        client.admin.command("setParameter", 1, ttlMonitorSleepSecs=1)
        old = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=1)
        client.t.c.create_index("at", expireAfterSeconds=60)
        client.t.c.insert_many([{"_id": 1, "at": old}, {"_id": 2, "at": old + datetime.timedelta(hours=1)}, {"_id": 3}])
        deadline = time.monotonic() + 70
        while client.t.c.count_documents({}) != 2:
            assert time.monotonic() < deadline, "the expired document stayed"
            time.sleep(0.2)
        assert [d["_id"] for d in client.t.c.find()] == [2, 3]


def test_a_deadline_and_a_kill_reach_the_inner_pipeline_of_a_lookup(client, db):
    db.c.insert_many([{"_id": n} for n in range(3000)])
    endless = [{"$lookup": {"from": "c", "let": {"a": "$_id"}, "as": "found",
                            "pipeline": [{"$match": {"$expr": {"$lt": [{"$add": ["$_id", "$$a"]}, -1]}}}]}},
               {"$match": {"found.0": {"$exists": True}}}]
    with pytest.raises(ExecutionTimeout):
        list(db.c.aggregate(endless, maxTimeMS=200))
    failure = []

    def run():
        try:
            list(db.c.aggregate(endless, comment="endless"))
        except OperationFailure as error:
            failure.append(error.code)

    thread = threading.Thread(target=run)
    thread.start()
    deadline = time.monotonic() + 10
    running = []
    while not running and time.monotonic() < deadline:
        running = [op for op in client.admin.command("currentOp")["inprog"] if op.get("command", {}).get("comment") == "endless"]
    client.admin.command("killOp", op=running[0]["opid"])
    thread.join(10)
    assert failure == [11601]
