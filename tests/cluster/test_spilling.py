"""Queries that hold more than they may in memory: what they answer, what lies on the disk meanwhile, and when it goes."""

import os
import pathlib
import random
import re
import threading
import time

import pytest
from pymongo.errors import ExecutionTimeout, OperationFailure

from member import Member

MEGABYTE = 1 << 20
SORT, GROUP = "internalQueryMaxBlockingSortMemoryUsageBytes", "internalDocumentSourceGroupMaxMemoryBytes"


@pytest.fixture
def parameter(client):
    """Sets parameters, and sets them back."""
    before = {}

    def change(name, value):
        before.setdefault(name, client.admin.command("setParameter", 1, **{name: value})["was"])

    yield change
    for name, value in before.items():
        client.admin.command("setParameter", 1, **{name: value})


@pytest.fixture
def folder(shared_member):
    """What lies in the folder of what is spilled: names, and a name's bytes."""
    path = pathlib.Path(shared_member.data) / "rocksdb.spill"
    return lambda: sorted(os.listdir(path)) if path.exists() else []


def fill(db, documents=3000, bytes_each=4000):
    """Documents with a field to sort by, whose order is another than their `_id`'s."""
    numbers = list(range(documents))
    random.Random(3).shuffle(numbers)
    pad = "x" * bytes_each
    db.c.insert_many([{"_id": n, "n": number, "few": number % 7, "pad": pad} for n, number in enumerate(numbers)])


def code(call):
    with pytest.raises(OperationFailure) as failed:
        call()
    return failed.value.code


def await_empty(folder, seconds):
    deadline = time.monotonic() + seconds
    while folder():
        assert time.monotonic() < deadline, folder()
        time.sleep(0.02)


def test_a_sort_of_ten_times_its_memory_is_right_and_leaves_nothing(db, parameter, folder):
    """Fails if the order is another than from memory, if equal keys are mixed up, or if a file is left."""
    fill(db)
    in_memory = {key: [d["_id"] for d in db.c.find({}, {"_id": 1}).sort(key, 1)] for key in ("n", "few")}
    parameter(SORT, MEGABYTE)
    for key, expected in in_memory.items():
        assert [d["_id"] for d in db.c.find({}, {"_id": 1}).sort(key, 1)] == expected
        assert [d["_id"] for d in db.c.aggregate([{"$sort": {key: 1}}])] == expected
        assert [d["_id"] for d in db.c.find({}, {"_id": 1}).sort(key, 1).skip(400).limit(900)] == expected[400:1300]
        unwound = [{"$unwind": "$n"}, {"$sort": {key: 1}}, {"$skip": 400}, {"$limit": 900}]
        assert [d["_id"] for d in db.c.aggregate(unwound)] == expected[400:1300]
        assert not folder()
    sizes = [d["_id"]["min"] for d in db.c.aggregate([{"$bucketAuto": {"groupBy": "$n", "buckets": 3}}])]
    assert sizes == [0, 1000, 2000] and not folder()


def test_a_group_of_more_than_its_memory_is_right_and_leaves_nothing(db, parameter, folder):
    """Fails if what was spilled is lost or counted twice, or if the order within a group is another than that of the input."""
    fill(db)
    pipeline = [
        {"$sort": {"_id": 1}},
        {"$group": {"_id": {"$mod": ["$n", 900]}, "count": {"$sum": 1}, "all": {"$push": "$n"}, "first": {"$first": "$_id"},
                    "last": {"$last": "$_id"}, "some": {"$push": "$pad"}}},
        {"$project": {"some": 0}}, {"$sort": {"_id": 1}},
    ]
    expected = list(db.c.aggregate(pipeline))
    parameter(GROUP, MEGABYTE)
    assert list(db.c.aggregate(pipeline)) == expected and len(expected) == 900
    assert not folder()


def test_what_must_not_use_the_disk_is_refused(db, client, parameter):
    """Fails if a query spills although it was told not to, or is refused where the default or the query itself allows it."""
    fill(db, 500)
    parameter(SORT, MEGABYTE // 4)
    parameter(GROUP, MEGABYTE // 4)
    group = [{"$group": {"_id": "$n", "pad": {"$first": "$pad"}}}]
    queries = [
        lambda **allow: len(list(db.c.find().sort("n", 1).allow_disk_use(allow["allowDiskUse"]) if allow
                                 else db.c.find().sort("n", 1))),
        lambda **allow: len(list(db.c.aggregate(group, **allow))),
        lambda **allow: len(list(db.c.aggregate([{"$sort": {"pad": 1}}], **allow))),
        lambda **allow: len(list(db.c.aggregate([{"$sample": {"size": 499}}], **allow))) + 1,
    ]
    for query in queries:
        assert query() == query(allowDiskUse=True) == 500
        assert code(lambda: query(allowDiskUse=False)) == 292
    parameter("allowDiskUseByDefault", False)
    for query in queries:
        assert code(query) == code(lambda: query(allowDiskUse=False)) == 292
        assert query(allowDiskUse=True) == 500
    with pytest.raises(OperationFailure, match="Sort exceeded memory limit of 262144 bytes, but did not opt in"):
        list(db.c.find().sort("n", 1))
    with pytest.raises(OperationFailure, match="Exceeded memory limit for .group, but didn't allow external sort"):
        list(db.c.aggregate(group))
    assert code(lambda: db.command("find", "c", allowDiskUse="yes")) == 14
    assert client.admin.command("getParameter", 1, allowDiskUseByDefault=1)["allowDiskUseByDefault"] is False


def test_a_cursor_that_ends_gives_its_files_back_at_once(db, client, parameter, folder):
    """Fails if closing, killing, exhausting, or the time limit of a cursor leaves what it has spilled."""
    fill(db, 1000)
    parameter(SORT, MEGABYTE // 4)
    find = {"find": "c", "sort": {"n": 1}, "batchSize": 10}
    group = {"aggregate": "c", "pipeline": [{"$group": {"_id": "$n", "pad": {"$first": "$pad"}}}], "cursor": {"batchSize": 10}}
    parameter(GROUP, MEGABYTE // 4)
    for command in (find, group):
        cursor = db.command(command)["cursor"]["id"]
        assert len(folder()) == 1
        db.command("killCursors", "c", cursors=[cursor])
        assert not folder()
    cursor = db.command(find)["cursor"]
    status = client.admin.command("serverStatus")["metrics"]["query"]["spill"]
    assert status["files"] == 1 and status["bytes"] > 3 * MEGABYTE // 100
    got = cursor["firstBatch"]
    while cursor["id"]:
        cursor = db.command("getMore", cursor["id"], collection="c", batchSize=300)["cursor"]
        got += cursor["nextBatch"]
    assert [d["n"] for d in got] == list(range(1000)) and not folder()
    db.command(find)
    parameter("cursorTimeoutMillis", 100)
    assert len(folder()) == 1
    await_empty(folder, 15)
    with client.start_session() as session:
        parameter("cursorTimeoutMillis", 600_000)
        db.command(find, session=session)
        assert len(folder()) == 1
        client.admin.command("killSessions", [session.session_id])
        assert not folder()


def test_a_spilling_query_is_stopped_promptly_by_its_time_limit_and_by_kill_op(db, client, parameter, folder):
    """Fails if a spill or a merge goes on for seconds after that, or leaves its file."""
    fill(db, 6000, 2000)
    parameter(SORT, 20_000)
    whole = time.monotonic()
    pipeline = [{"$set": {"copies": list(range(12))}}, {"$unwind": "$copies"}, {"$sort": {"pad": 1, "n": 1, "copies": -1}},
                {"$count": "n"}]
    for limit_ms in (100, 700, 2000):
        began = time.monotonic()
        with pytest.raises(ExecutionTimeout):
            list(db.c.aggregate(pipeline, maxTimeMS=limit_ms))
        assert time.monotonic() - began < limit_ms / 1000 + 2 and not folder()
    outcome = []

    def sort():
        outcome.append(code(lambda: list(db.c.aggregate(pipeline, comment="to be killed"))))

    thread = threading.Thread(target=sort)
    thread.start()
    while not folder():
        assert time.monotonic() < whole + 60
        time.sleep(0.01)
    running = client.admin.command("currentOp")["inprog"]
    killed = [op["opid"] for op in running if op.get("command", {}).get("comment") == "to be killed"]
    client.admin.command("killOp", op=killed[0])
    thread.join(5)
    assert outcome == [11601] and not folder()


def test_explain_the_profile_the_log_and_server_status_say_that_the_disk_was_used(shared_member, db, client, parameter):
    fill(db, 1000)
    before = client.admin.command("serverStatus")["metrics"]["query"]
    parameter(SORT, MEGABYTE // 4)
    parameter(GROUP, MEGABYTE // 4)
    group = {"$group": {"_id": "$n", "pad": {"$first": "$pad"}}}

    def explained(**command):
        return db.command("explain", command, verbosity="executionStats")

    sort = explained(find="c", sort={"n": 1})["executionStats"]["executionStages"]
    assert sort["usedDisk"] is True and sort["memLimit"] == MEGABYTE // 4, sort
    assert sort["spills"] >= 15 and sort["spilledRecords"] == 1000 and sort["spilledBytes"] > 4_000_000
    assert 0 < sort["spilledDataStorageSize"] < sort["spilledBytes"], "a text of one letter is stored short"
    fits = explained(find="c", sort={"n": 1}, limit=3)["executionStats"]["executionStages"]
    assert fits["usedDisk"] is False and fits["spills"] == fits["spilledDataStorageSize"] == 0
    stages = explained(aggregate="c", pipeline=[{"$unwind": "$n"}, group, {"$sort": {"pad": 1}}], cursor={})["stages"]
    by_name = {next(iter(stage)): stage for stage in stages}
    for name in ("$group", "$sort"):
        assert by_name[name]["usedDisk"] is True and by_name[name]["spilledRecords"] == 1000, by_name[name]
    assert by_name["$group"]["totalOutputDataSizeBytes"] > 4_000_000
    assert by_name["$sort"]["totalDataSizeSortedBytesEstimate"] > 4_000_000
    list(db.c.aggregate([{"$bucketAuto": {"groupBy": "$n", "buckets": 3}}]))
    after = client.admin.command("serverStatus")["metrics"]["query"]
    assert after["sort"]["spillToDisk"] - before["sort"]["spillToDisk"] >= 30
    assert after["sort"]["totalKeysSorted"] - before["sort"]["totalKeysSorted"] >= 2000
    assert after["group"]["spills"] - before["group"]["spills"] >= 15
    assert after["group"]["spilledRecords"] - before["group"]["spilledRecords"] == 1000
    assert after["bucketAuto"]["spills"] > before["bucketAuto"]["spills"]
    assert after["spill"] == {"files": 0, "bytes": 0}
    db.command("profile", 2, slowms=0)
    try:
        cursor = db.command("find", "c", sort={"n": 1}, batchSize=5, comment="spills")["cursor"]["id"]
        db.command("getMore", cursor, collection="c", batchSize=5)
        db.command("find", "c", sort={"n": 1}, limit=2, comment="fits")
    finally:
        db.command("profile", 0, slowms=100)
    entries = list(db["system.profile"].find({"ns": db.c.full_name}).sort("ts", 1))
    used = [(entry["op"], entry["command"].get("comment"), entry.get("usedDisk")) for entry in entries]
    assert used == [("query", "spills", True), ("getmore", None, True), ("query", "fits", None)]
    slow = [line for line in shared_member.log(200).splitlines() if "Slow query" in line and db.c.full_name in line]
    assert any(re.search(r'"?usedDisk"?\W+true', line) for line in slow), slow[-3:]


def test_what_a_killed_member_had_spilled_goes_at_its_next_start(own_member):
    """Fails if the files of a process that ended without a word stay."""
    with own_member.client() as client:
        client.admin.command("setParameter", 1, **{SORT: MEGABYTE // 4})
        fill(client.story, 1000)
        client.story.command("find", "c", sort={"n": 1}, batchSize=10)
        folder = pathlib.Path(own_member.data) / "rocksdb.spill"
        assert os.listdir(folder)
        own_member.kill()
        assert os.listdir(folder)
    own_member.start()
    assert not folder.exists()
    with own_member.client() as client:
        assert client.story.c.count_documents({}) == 1000


def test_many_sorts_at_once_share_the_memory_and_the_files():
    """Sixty cursors that spill at once, in a member that may open few files and has little memory. Fails if one is refused, mixed
    up with another, or if the member runs out of files."""
    with Member(arguments=["--cacheSizeGB", "0.0625"]) as member, member.client(maxPoolSize=None) as client:
        fill(client.story, 2000)
        db = client.story
        outcome = []

        def sort(number):
            direction = 1 if number % 2 else -1
            cursor = db.c.find({"n": {"$gte": number}}, batch_size=50).sort("n", direction)
            outcome.append([d["n"] for d in cursor][::direction] == list(range(number, 2000)))

        threads = [threading.Thread(target=sort, args=(number,)) for number in range(60)]
        for thread in threads:
            thread.start()
        most = 0
        while any(thread.is_alive() for thread in threads):
            most = max(most, client.admin.command("serverStatus")["metrics"]["query"]["spill"]["files"])
            time.sleep(0.05)
        assert outcome == [True] * 60 and most > 0
