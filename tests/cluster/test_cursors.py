"""Cursors: batches, their end, tailing, and what outlives what."""

import threading
import time

import pytest
from bson import Int64
from pymongo import CursorType
from pymongo.errors import CursorNotFound, OperationFailure


def test_batches_give_every_document_once(db):
    db.many.insert_many([{"_id": n} for n in range(1000)])
    first = db.command("find", "many", batchSize=100, sort={"_id": 1})["cursor"]
    assert len(first["firstBatch"]) == 100 and first["id"] != 0 and first["ns"] == f"{db.name}.many"
    seen, cursor_id = [d["_id"] for d in first["firstBatch"]], first["id"]
    while cursor_id:
        more = db.command("getMore", Int64(cursor_id), collection="many", batchSize=77)["cursor"]
        seen += [d["_id"] for d in more["nextBatch"]]
        cursor_id = more["id"]
    assert seen == list(range(1000))
    assert [d["_id"] for d in db.many.find().sort("_id", -1).skip(10).limit(5)] == [989, 988, 987, 986, 985]


def test_a_batch_ends_at_16_megabytes(db):
    db.big.insert_many([{"_id": n, "pad": "x" * 3_000_000} for n in range(7)])
    first = db.command("find", "big", batchSize=1000)["cursor"]
    assert 1 <= len(first["firstBatch"]) <= 6 and first["id"] != 0
    assert sum(1 for _ in db.big.find()) == 7


def test_a_killed_cursor_is_gone(db):
    db.many.insert_many([{"_id": n} for n in range(300)])
    cursor_id = db.command("find", "many", batchSize=2)["cursor"]["id"]
    killed = db.command("killCursors", "many", cursors=[Int64(cursor_id), Int64(77)])
    assert killed["cursorsKilled"] == [cursor_id] and killed["cursorsNotFound"] == [77]
    with pytest.raises(CursorNotFound):
        db.command("getMore", Int64(cursor_id), collection="many")


def test_a_cursor_goes_on_while_others_write_and_delete(db):
    db.many.insert_many([{"_id": n} for n in range(1000)])
    cursor = db.many.find(batch_size=50).sort("_id", 1)
    seen = [next(cursor)["_id"] for _ in range(60)]
    db.many.delete_many({"_id": {"$mod": [2, 0], "$gt": 500}})
    db.many.insert_many([{"_id": n + 0.5} for n in range(600, 700)])
    seen += [d["_id"] for d in cursor]
    assert len(seen) == len(set(seen)) and seen == sorted(seen)
    assert {n for n in range(1000) if n % 2 or n < 500} <= set(seen)


def test_a_cursor_of_a_dropped_collection_ends_with_an_error_and_never_with_others_documents(db):
    db.many.insert_many([{"_id": n, "old": True} for n in range(500)])
    cursor = db.many.find(batch_size=10)
    next(cursor)
    db.many.drop()
    db.many.insert_many([{"_id": n, "old": False} for n in range(500)])
    with pytest.raises(OperationFailure) as refused:
        for document in cursor:
            assert document["old"]
    assert refused.value.code == 175


def test_a_cursor_over_an_index_that_is_dropped_ends_with_an_error(db):
    db.many.insert_many([{"_id": n, "a": n} for n in range(500)])
    db.many.create_index("a")
    cursor = db.many.find({"a": {"$gte": 0}}, batch_size=10).hint("a_1")
    next(cursor)
    db.many.drop_index("a_1")
    db.many.delete_many({"a": {"$gt": 100}})
    with pytest.raises(OperationFailure) as refused:
        list(cursor)
    assert refused.value.code == 175


def test_a_tailable_cursor_of_a_dropped_collection_ends_with_an_error(db):
    capped = db.create_collection("log", capped=True, size=1_000_000)
    capped.insert_one({"_id": 1})
    cursor = db.command("find", "log", tailable=True)["cursor"]
    assert cursor["firstBatch"] == [{"_id": 1}]
    capped.drop()
    with pytest.raises(OperationFailure) as refused:
        db.command("getMore", Int64(cursor["id"]), collection="log")
    assert refused.value.code == 175


def test_a_capped_collection_keeps_the_newest_in_order(db):
    capped = db.create_collection("log", capped=True, size=1_000_000, max=10)
    capped.insert_many([{"_id": n} for n in range(25)])
    assert [d["_id"] for d in capped.find()] == list(range(15, 25))
    assert [d["_id"] for d in capped.find().sort("$natural", -1).limit(2)] == [24, 23]
    assert capped.options()["capped"] is True


def test_a_tailable_cursor_sees_what_comes_later(db):
    capped = db.create_collection("log", capped=True, size=1_000_000)
    capped.insert_one({"_id": 0})
    cursor = capped.find(cursor_type=CursorType.TAILABLE_AWAIT).max_await_time_ms(5000)
    assert next(cursor)["_id"] == 0
    writer = threading.Timer(0.3, lambda: capped.insert_one({"_id": 1}))
    writer.start()
    started = time.monotonic()
    assert next(cursor)["_id"] == 1
    assert time.monotonic() - started < 4, "the wait ended by its time-out, not by the insert"
    assert cursor.alive
    cursor.close()
    writer.join()


def test_a_tailable_cursor_on_a_plain_collection_is_refused(db):
    db.plain.insert_one({})
    with pytest.raises(OperationFailure) as refused:
        next(db.plain.find(cursor_type=CursorType.TAILABLE))
    assert refused.value.code == 2


def test_the_oplog_can_be_tailed_by_any_client(client, db):
    oplog = client.local["oplog.rs"]
    last = oplog.find().sort("$natural", -1).limit(1).next()["ts"]
    db.watched.insert_one({"_id": 1, "n": 1, "pad": "x" * 200})
    db.watched.update_one({"_id": 1}, {"$inc": {"n": 5}})
    db.watched.delete_one({"_id": 1})
    entries = [e for e in oplog.find({"ts": {"$gt": last}, "ns": f"{db.name}.watched"}) if e["op"] in "iud"]
    assert [e["op"] for e in entries] == ["i", "u", "d"]
    assert entries[0]["o"]["n"] == 1 and entries[1]["o2"] == {"_id": 1}
    assert entries[1]["o"]["diff"] == {"u": {"n": 6}}, "an increment becomes an assignment"
    assert sorted(e["ts"] for e in entries) == [e["ts"] for e in entries]


def test_a_cursor_dies_with_its_session(client, db):
    db.many.insert_many([{"_id": n} for n in range(100)])
    with client.start_session() as session:
        first = db.command("find", "many", batchSize=2, session=session)["cursor"]
        db.command("killSessions", [{"id": session.session_id["id"]}])
    deadline = time.monotonic() + 5
    while True:
        try:
            db.command("getMore", Int64(first["id"]), collection="many", batchSize=1)
        except OperationFailure as error:
            # Without its session a getMore may also be told that the cursor belongs to another.
            assert error.code in (43, 50738, 13)
            break
        assert time.monotonic() < deadline, "the cursor outlived its session"


def test_a_first_batch_of_nothing_leaves_the_document_to_the_next(db):
    """A find by `_id` alone takes the shortest way, and lost its document."""
    db.many.insert_one({"_id": 1})
    first = db.command("find", "many", filter={"_id": 1}, batchSize=0)["cursor"]
    assert first["firstBatch"] == [] and first["id"] != 0
    more = db.command("getMore", Int64(first["id"]), collection="many")["cursor"]
    assert more["nextBatch"] == [{"_id": 1}] and more["id"] == 0


@pytest.mark.parametrize("options", [{}, {"tailable": True}, {"tailable": True, "awaitData": True}])
def test_a_cursor_on_a_collection_that_is_not_there_is_closed_at_once(db, options):
    """Drivers send `maxTimeMS` with the getMore of a cursor that awaits data: this one took it for another's, and refused."""
    assert db.command("find", "nothing", batchSize=0, **options)["cursor"]["id"] == 0


def test_lists_name_their_cursor_before_what_they_list(db):
    """As MongoDB's do, while a find's batch is first."""
    for number in range(3):
        db.create_collection(f"c{number}")
    for command in ({"listCollections": 1}, {"listIndexes": "c0"}):
        assert list(db.command(command)["cursor"]) == ["id", "ns", "firstBatch"]
    assert list(db.command("find", "c0")["cursor"]) == ["firstBatch", "id", "ns"]
    first = db.command("listCollections", cursor={"batchSize": 1})["cursor"]
    more = db.command("getMore", Int64(first["id"]), collection="$cmd.listCollections")["cursor"]
    names = {each["name"] for each in first["firstBatch"] + more["nextBatch"]}
    assert len(first["firstBatch"]) == 1 and names == {"c0", "c1", "c2"}


@pytest.mark.parametrize("command", [
    {"insert": None, "documents": [{"_id": 1}]}, {"update": None, "updates": [{"q": {}, "u": {"a": 1}, "upsert": True}]},
    {"delete": None, "deletes": [{"q": {}, "limit": 1}]}, {"findAndModify": None, "query": {}, "remove": True}])
def test_what_is_the_servers_own_is_not_written_to(db, command):
    name = next(iter(command))
    for collection, why in (("system.own", "Invalid system namespace: "), ("system.views", "cannot write to "),
                            ("system.profile", "cannot write to ")):
        with pytest.raises(OperationFailure, match=why) as refused:
            db.command({**command, name: collection})
        assert refused.value.code == 73
    for collection in ("system.js", "system.users"):
        db.command({**command, name: collection})
