"""`$out` and `$merge`: what they write, what they refuse, and what is left when they do not come to their end."""

import threading
import time

import pymongo
import pytest
from bson import ObjectId
from pymongo.errors import ExecutionTimeout, OperationFailure, WriteError


def code(run):
    with pytest.raises(OperationFailure) as caught:
        run()
    return caught.value.code


def merge(db, source, **arguments):
    project = arguments.pop("project", None)
    stages = [{"$project": project}] if project else []
    return source.aggregate([{"$sort": {"_id": 1}}, *stages, {"$merge": {"into": "target", **arguments}}])


@pytest.fixture
def target(db):
    """A target with a unique key `k` besides `_id`, and a source with one document for it and one that is new."""
    db.target.create_index("k", unique=True)
    db.target.insert_one({"_id": "old", "k": 1, "a": 1})
    db.source.insert_many([{"_id": 1, "k": 1, "b": 1}, {"_id": 2, "k": 2, "b": 2}])
    return db.target


@pytest.mark.parametrize("how", ["replace", "merge", "keepExisting", [{"$set": {"b": "$$new.b"}}]])
def test_merge_on_another_field_needs_no_id_in_the_source(db, target, how):
    merge(db, db.source, on="k", whenMatched=how, project={"_id": 0})
    old, new = target.find_one({"k": 1}), target.find_one({"k": 2})
    assert old["_id"] == "old" and isinstance(new["_id"], ObjectId) and new["b"] == 2
    kept = {"replace": {"b": 1}, "keepExisting": {"a": 1}}.get(how if isinstance(how, str) else "", {"a": 1, "b": 1})
    assert {name: old[name] for name in old if name in "ab"} == kept


@pytest.mark.parametrize("how", ["replace", "merge"])
def test_merge_does_not_change_the_id_of_what_it_finds(db, target, how):
    with pytest.raises(OperationFailure) as caught:
        merge(db, db.source, on="k", whenMatched=how)
    assert caught.value.code == 66
    assert "$merge failed to update the matching document, did you attempt to modify the _id" in str(caught.value)
    # The other document of the batch is written all the same.
    assert target.find_one({"k": 1}) == {"_id": "old", "k": 1, "a": 1}
    assert target.find_one({"k": 2}) == {"_id": 2, "k": 2, "b": 2}


def test_merge_that_keeps_what_is_there_asks_for_no_id(db, target):
    merge(db, db.source, on="k", whenMatched="keepExisting")
    assert target.find_one({"k": 1})["_id"] == "old" and target.find_one({"k": 2})["_id"] == 2


def test_merge_that_fails_on_a_match_writes_the_others_all_the_same(db):
    db.target.insert_one({"_id": 1, "old": True})
    db.source.insert_many([{"_id": n} for n in range(4)])
    with pytest.raises(OperationFailure) as caught:
        merge(db, db.source, whenMatched="fail")
    assert caught.value.code == 11000
    assert "whenMatched: fail found an existing document with the same values for the 'on' fields" in str(caught.value)
    assert [d["_id"] for d in db.target.find().sort("_id")] == [0, 1, 2, 3]
    assert db.target.find_one({"_id": 1}) == {"_id": 1, "old": True}


def test_merge_that_fails_without_a_match_changes_the_others_all_the_same(db):
    db.target.insert_many([{"_id": 0}, {"_id": 2}])
    db.source.insert_many([{"_id": n, "n": n} for n in range(3)])
    assert code(lambda: merge(db, db.source, whenNotMatched="fail")) == 13113
    assert list(db.target.find().sort("_id")) == [{"_id": 0, "n": 0}, {"_id": 2, "n": 2}]


def test_merge_refuses_on_fields_without_a_value_of_their_own(db, target):
    for k, expected in ((None, 51132), ([1], 51185)):
        db.source.replace_one({"_id": 1}, {"k": k})
        assert code(lambda: merge(db, db.source, on="k", project={"_id": 0})) == expected
    assert code(lambda: merge(db, db.source, on="b")) == 51183


def test_another_unique_key_in_the_way_of_merge_is_no_match(db, target):
    db.source.delete_many({})
    db.source.insert_one({"_id": 5, "k": 1})
    with pytest.raises(OperationFailure) as caught:
        merge(db, db.source, whenMatched="fail")
    assert caught.value.code == 11000 and "$merge failed due to a DuplicateKey error" in str(caught.value)
    assert code(lambda: merge(db, db.source)) == 11000


def test_merges_that_race_for_one_document_insert_it_once(db):
    db.source.insert_many([{"_id": n, "n": 1} for n in range(50)])
    failures = []

    def race():
        try:
            db.source.aggregate([{"$merge": {"into": "target", "whenMatched": [{"$set": {"n": {"$add": ["$n", 1]}}}]}}])
        except OperationFailure as error:
            failures.append(error)

    racers = [threading.Thread(target=race) for _ in range(4)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert failures == [] and {d["n"] for d in db.target.find()} == {4}


@pytest.mark.parametrize("stage", ["$out", "$merge"])
def test_the_validator_of_the_target_is_asked_unless_it_is_bypassed(db, stage):
    db.create_collection("target", validator={"n": {"$gt": 0}})
    db.source.insert_many([{"_id": 0, "n": 0}, {"_id": 1, "n": 1}])
    into = [{stage: "target" if stage == "$out" else {"into": "target"}}]
    assert code(lambda: db.source.aggregate(into)) == 121
    db.source.aggregate(into, bypassDocumentValidation=True)
    assert db.target.count_documents({}) == 2
    # The new collection has the old one's validator.
    with pytest.raises(WriteError):
        db.target.insert_one({"n": 0})
    assert db.command("delete", "target", deletes=[{"q": {}, "limit": 0}], bypassDocumentValidation=True)["n"] == 2


def names(db):
    return sorted(db.list_collection_names())


def test_out_replaces_its_target_all_at_once_and_keeps_its_indexes_and_options(db):
    db.create_collection("target", validator={"n": {"$gte": 0}})
    db.target.create_index("n", name="by_n")
    db.target.insert_many([{"n": -n} for n in range(0, 1)])
    db.source.insert_many([{"n": n} for n in range(1500)])
    seen, done = set(), threading.Event()

    def watch():
        while not done.is_set():
            try:
                seen.add(db.target.count_documents({}))
            except OperationFailure as killed:
                # What it read from was replaced under it.
                assert killed.code == 175, killed

    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in range(2):
        db.source.aggregate([{"$out": "target"}])
    done.set()
    watcher.join()
    assert seen <= {1, 1500} and 1500 == db.target.count_documents({})
    assert "by_n" in db.target.index_information() and db.target.options()["validator"] == {"n": {"$gte": 0}}
    assert names(db) == ["source", "target"]


def test_out_to_a_name_that_no_collection_can_have_is_refused_as_mongodb_does(db):
    db.source.insert_one({})
    with pytest.raises(OperationFailure) as refused:
        db.source.aggregate([{"$out": "some$collection"}])
    assert (refused.value.code, refused.value.details["errmsg"]) == (
        20, "PlanExecutor error during aggregation :: caused by :: error with target namespace: "
            "Invalid collection name: some$collection")
    assert code(lambda: db.source.aggregate([{"$merge": "some$collection"}])) == 73
    assert names(db) == ["source"]


def test_out_that_fails_leaves_its_target_as_it_was_and_nothing_else(db):
    db.target.insert_one({"_id": "old"})
    db.target.create_index("n", unique=True)
    db.source.insert_many([{"n": n // 2} for n in range(600)])
    assert code(lambda: db.source.aggregate([{"$out": "target"}])) == 11000
    assert list(db.target.find()) == [{"_id": "old"}] and names(db) == ["source", "target"]
    db.create_collection("small", capped=True, size=4096)
    assert code(lambda: db.source.aggregate([{"$out": "small"}])) == 17152
    assert names(db) == ["small", "source", "target"]


@pytest.mark.parametrize("stage", [{"$out": "target"}, {"$merge": "target"}])
def test_out_and_merge_end_at_their_deadline_and_when_killed(db, client, stage):
    db.target.insert_one({"_id": "old"})
    db.source.insert_many([{"pad": "x" * 100} for _ in range(1000)])
    endless = [{"$lookup": {"from": "source", "pipeline": [], "as": "all"}}, {"$unwind": "$all"}, {"$replaceWith": "$all"}]
    endless = [*endless, {"$unset": "_id"}, stage]
    with pytest.raises(ExecutionTimeout):
        db.source.aggregate(endless, maxTimeMS=300)

    def kill():
        for _ in range(100):
            for operation in client.admin.aggregate([{"$currentOp": {}}, {"$match": {"command.comment": db.name}}]):
                client.admin.command("killOp", op=operation["opid"])
                return
            time.sleep(0.02)

    killer = threading.Timer(0.3, kill)
    killer.start()
    with pymongo.timeout(20):
        assert code(lambda: db.source.aggregate(endless, comment=db.name)) == 11601
    killer.join()
    if "$out" in stage:
        assert list(db.target.find()) == [{"_id": "old"}]
    assert names(db) == ["source", "target"]


def test_out_does_not_undo_what_was_done_to_its_target_meanwhile(db):
    db.target.insert_one({"_id": "old"})
    db.source.insert_many([{"n": n} for n in range(300)])
    # Long enough for an index to come between its beginning and its end.
    slow = [
        {"$lookup": {"from": "source", "pipeline": [], "as": "all"}},
        {"$set": {"all": {"$size": "$all"}}},
        {"$out": "target"},
    ]
    outcome = []
    runner = threading.Thread(target=lambda: outcome.append(code(lambda: db.source.aggregate(slow))))
    runner.start()
    while not any(name.startswith("tmp.agg_out") for name in names(db)):
        time.sleep(0.005)
    db.target.create_index("n")
    runner.join()
    assert outcome == [125]
    assert list(db.target.find()) == [{"_id": "old"}] and "n_1" in db.target.index_information()
