"""explain with counters for each stage, and the profiler."""

import pytest
from pymongo.errors import OperationFailure


def stats(db, command, **more):
    return db.command("explain", command, verbosity="executionStats", **more)["executionStats"]


def stages(stage):
    """The stages from the top down, one line where there is one."""
    listed = [stage]
    while "inputStage" in stage:
        stage = stage["inputStage"]
        listed.append(stage)
    return listed


@pytest.fixture
def things(db):
    db.things.insert_many([{"_id": n, "a": n % 10, "b": n % 3, "c": n} for n in range(100)])
    db.things.create_index("a")
    return db.things


def test_each_stage_says_what_it_looked_at_and_what_it_returned(db, things):
    found = stats(db, {"find": "things", "filter": {"a": 3, "b": 1}, "sort": {"c": -1}, "skip": 1, "limit": 1})
    assert (found["nReturned"], found["totalKeysExamined"], found["totalDocsExamined"]) == (1, 10, 10)
    by_name = {stage["stage"]: stage for stage in stages(found["executionStages"])}
    assert list(by_name) == ["SKIP", "SORT", "FETCH", "IXSCAN"]
    scan, fetch, sort, skip = (by_name[name] for name in ("IXSCAN", "FETCH", "SORT", "SKIP"))
    assert (scan["keysExamined"], scan["nReturned"], scan["seeks"], scan["dupsDropped"]) == (10, 10, 1, 0)
    matching = db.things.count_documents({"a": 3, "b": 1})
    assert (fetch["docsExamined"], fetch["nReturned"]) == (10, matching)
    assert sort["nReturned"] == 2 and sort["totalDataSizeSorted"] > 0 and sort["usedDisk"] is False
    assert skip["nReturned"] == 1
    for stage in by_name.values():
        assert stage["works"] >= stage["advanced"] == stage["nReturned"] and stage["isEOF"] == 1
        assert {"needTime", "executionTimeMillisEstimate"} <= set(stage)


def test_a_collection_scan_says_how_many_documents_it_read(db, things):
    found = stats(db, {"find": "things", "filter": {"b": 1}, "limit": 5})
    limit, scan = stages(found["executionStages"])
    assert limit["stage"] == "LIMIT" and limit["nReturned"] == 5
    assert scan["stage"] == "COLLSCAN" and scan["docsExamined"] == found["totalDocsExamined"] < 20
    assert scan["nReturned"] == 5 and scan["isEOF"] == 0


def test_documents_found_by_several_keys_are_counted_as_duplicates(db):
    db.many.create_index("tags")
    db.many.insert_many([{"tags": [1, 2, 3]} for _ in range(5)])
    found = stats(db, {"find": "many", "filter": {"tags": {"$gte": 1}}, "hint": "tags_1"})
    scan = stages(found["executionStages"])[-1]
    assert (scan["keysExamined"], scan["nReturned"], scan["dupsTested"], scan["dupsDropped"]) == (15, 5, 15, 10)


def test_each_branch_of_an_or_has_its_own_counters(db, things):
    things.create_index("b")
    found = stats(db, {"find": "things", "filter": {"$or": [{"a": 3}, {"b": 1}]}})
    top = found["executionStages"]
    while "inputStage" in top:
        top = top["inputStage"]
    leaves = [stages(branch)[-1] for branch in top["inputStages"]]
    assert sorted(leaf["keysExamined"] for leaf in leaves) == [10, 33]
    assert found["totalKeysExamined"] == 43 and found["nReturned"] == things.count_documents(
        {"$or": [{"a": 3}, {"b": 1}]})


def test_ids_are_looked_up_with_counters_and_their_projection_shown(db, things):
    found = stats(db, {"find": "things", "filter": {"_id": 5}})
    assert found["executionStages"]["stage"] == "IDHACK"
    assert (found["totalKeysExamined"], found["totalDocsExamined"], found["nReturned"]) == (1, 1, 1)
    for projection, name in (({"a": 1}, "PROJECTION_SIMPLE"), ({"x": {"$add": ["$a", 1]}}, "PROJECTION_DEFAULT")):
        found = stats(db, {"find": "things", "filter": {"_id": 5}, "projection": projection})
        top, below = stages(found["executionStages"])
        assert (top["stage"], below["stage"]) == (name, "IDHACK")
        assert top["nReturned"] == below["keysExamined"] == below["docsExamined"] == 1
    several = stats(db, {"find": "things", "filter": {"_id": {"$gte": 10, "$lt": 20}}})
    fetch, scan = stages(several["executionStages"])
    assert (fetch["docsExamined"], scan["keysExamined"]) == (10, 10) and "keysExamined" not in fetch
    assert (several["totalKeysExamined"], several["totalDocsExamined"]) == (10, 10)


def test_a_count_returns_no_document_and_says_what_it_counted(db, things):
    found = stats(db, {"count": "things", "query": {"a": 3}})
    top = found["executionStages"]
    assert found["nReturned"] == 0 and top["stage"] == "COUNT" and top["nCounted"] == 10
    assert stages(top)[-1]["keysExamined"] == 10


@pytest.fixture
def profile(db):
    db.c.insert_many([{"_id": n, "a": n} for n in range(3)])
    db.command("profile", 2)
    yield db.system.profile
    db.command("profile", 0)


def test_each_statement_of_a_write_is_profiled_with_its_q_and_u(db, profile):
    statements = [{"q": {"_id": 0}, "u": {"$set": {"a": 7}}}, {"q": {"a": 1}, "u": {"$set": {"a": 8}}, "multi": True}]
    db.command("update", "c", updates=statements)
    db.command("update", "c", updates=[{"q": {"_id": 9}, "u": {"$set": {"a": 9}}, "upsert": True}])
    db.command("delete", "c", deletes=[{"q": {"_id": 0}, "limit": 1}, {"q": {"_id": "none"}, "limit": 1}])
    updates = list(profile.find({"op": "update"}).sort("$natural", 1))
    assert [(entry["ns"], entry["command"]["q"]) for entry in updates] == [
        (f"{db.name}.c", {"_id": 0}), (f"{db.name}.c", {"a": 1}), (f"{db.name}.c", {"_id": 9})]
    assert updates[0]["command"]["u"] == {"$set": {"a": 7}} and updates[1]["command"]["multi"] is True
    assert [(entry["nMatched"], entry["nModified"]) for entry in updates] == [(1, 1), (1, 1), (0, 0)]
    assert updates[2]["nUpserted"] == 1
    removals = list(profile.find({"op": "remove"}).sort("$natural", 1))
    assert [(entry["command"], entry["ndeleted"]) for entry in removals] == [
        ({"q": {"_id": 0}, "limit": 1}, 1), ({"q": {"_id": "none"}, "limit": 1}, 0)]


def test_a_statement_that_fails_is_profiled_with_its_error(db, profile):
    reply = db.command("update", "c", updates=[{"q": {"_id": 0}, "u": {"$inc": {"_id": 1}}}])
    assert reply["writeErrors"][0]["code"] == 66
    (entry,) = profile.find({"op": "update"})
    assert entry["errCode"] == 66 and entry["errName"] == "ImmutableField"


def test_a_batch_of_a_cursor_is_profiled_with_how_many_documents_it_gave(db, profile):
    db.c.insert_many([{"_id": i, "of": "mine"} for i in range(100, 105)])
    list(db.c.find({"of": "mine"}, batch_size=3))
    list(db.c.aggregate([{"$match": {"of": "mine"}}, {"$limit": 4}]))
    assert [(entry["op"], entry["nreturned"]) for entry in profile.find({"nreturned": {"$exists": True}}).sort("$natural", 1)] == [
        ("query", 3), ("getmore", 2), ("command", 4)]
    assert "nreturned" not in profile.find_one({"op": "insert"})


def test_the_profiler_does_not_watch_itself_and_watches_whoever_reads_the_profile(db, profile):
    list(profile.find())
    list(db.c.find({"a": 1}))
    list(profile.find())
    db.command("profile", 2)
    entries = list(profile.find())
    assert not [entry for entry in entries if "profile" in entry.get("command", {})]
    reads = [(entry["op"], entry["ns"].removeprefix(f"{db.name}.")) for entry in entries if entry["op"] == "query"]
    assert reads == [("query", "system.profile"), ("query", "c"), ("query", "system.profile")]


def test_each_stage_of_a_pipeline_says_how_many_documents_it_gave(db, things):
    pipeline = [
        {"$match": {"a": {"$lt": 5}}},
        {"$group": {"_id": "$b", "n": {"$sum": 1}}},
        {"$match": {"n": {"$gt": 16}}},
    ]
    explained = db.command(
        "explain", {"aggregate": "things", "pipeline": pipeline, "cursor": {}, "hint": "a_1"},
        verbosity="executionStats")
    cursor, group, match = explained["stages"]
    executed = cursor["$cursor"]["executionStats"]
    assert executed["nReturned"] == 50 and executed["executionStages"]["inputStage"]["keysExamined"] == 50
    assert (group["nReturned"], match["nReturned"]) == (3, len(list(things.aggregate(pipeline))))


@pytest.mark.parametrize("stage", [{"$out": "copy"}, {"$merge": "copy"}])
def test_a_pipeline_that_would_write_is_explained_without_being_run(db, things, stage):
    (name,) = stage
    command = {"aggregate": "things", "pipeline": [stage], "cursor": {}}
    explained = db.command("explain", command, verbosity="queryPlanner")
    assert name in explained["stages"][-1]
    for verbosity in ("executionStats", "allPlansExecution"):
        with pytest.raises(OperationFailure) as refused:
            db.command("explain", command, verbosity=verbosity)
        assert refused.value.code == 51029
        assert refused.value.details["errmsg"] == f"explain of {name} is not allowed with verbosity {verbosity}"
    assert "copy" not in db.list_collection_names()


def test_each_stage_of_a_pipeline_says_how_long_it_took_with_what_comes_before_it(db, things):
    """Each said how long all of them took together."""
    slow = {"$addFields": {"sum": {"$reduce": {"input": {"$range": [0, 3000]}, "initialValue": 0,
                                               "in": {"$add": ["$$value", "$$this"]}}}}}
    explained = db.command(
        "explain", {"aggregate": "things", "pipeline": [{"$unwind": "$b"}, slow, {"$group": {"_id": "$sum"}}], "cursor": {}},
        verbosity="executionStats")
    cursor, unwind, reduce, group = explained["stages"]
    times = [stage["executionTimeMillisEstimate"] for stage in (unwind, reduce, group)]
    assert times == sorted(times) and times[1] > 2 * times[0] + 1, times
    assert cursor["$cursor"]["executionStats"]["executionTimeMillis"] <= times[0]


def test_a_query_on_a_view_is_explained_as_the_pipeline_that_it_is(db, things):
    """It was explained as a scan of a collection without documents."""
    db.create_collection("few", viewOn="things", pipeline=[{"$match": {"a": {"$lt": 5}}}, {"$addFields": {"c": 1}}])
    for command, last in (({"find": "few", "filter": {"c": 1}}, "$match"), ({"count": "few"}, "$count"),
                          ({"distinct": "few", "key": "b"}, "$group")):
        stages = db.command("explain", command, verbosity="executionStats")["stages"]
        assert stages[0]["$cursor"]["executionStats"]["nReturned"] == 50, command
        assert last in stages[-1] and stages[-1]["nReturned"] == (50 if last == "$match" else 1)
    for command in ({"update": "few", "updates": [{"q": {}, "u": {}}]},
                    {"delete": "few", "deletes": [{"q": {}, "limit": 1}]},
                    {"findAndModify": "few", "remove": True}):
        with pytest.raises(OperationFailure) as refused:
            db.command("explain", command)
        assert refused.value.code == 166
