"""`baton backup` and `baton restore`: the files are mongodump's byte for byte, and what comes back is one moment."""

import datetime
import gzip
import json
import os
import pathlib
import shutil
import subprocess
import threading
import time

import bson
import pytest
from bson import Decimal128, Int64, ObjectId, Timestamp

from pymongo import ReadPreference

from member import Member
from replica_set import ReplicaSet


def baton(*arguments, succeeds=True):
    done = subprocess.run([os.environ["BATON"], *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert (done.returncode == 0) == succeeds, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout if succeeds else done.stderr


def files_of(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def fill(client):
    """A bit of everything that a dump must carry."""
    shop = client.shop
    shop.carts.insert_many([{"_id": n, "a": n, "text": "grüß", "n": {"d": Decimal128("1.10")}} for n in range(2500)])
    shop.carts.create_index("a", unique=True)
    shop.carts.create_index([("b", -1), ("a", 1)], name="both", sparse=True)
    shop.carts.create_index("at", expireAfterSeconds=3600, partialFilterExpression={"a": {"$gt": 5}})
    shop.create_collection("log", capped=True, size=65536, max=100)
    shop.log.insert_many([{"_id": ObjectId(), "n": Int64(n)} for n in range(150)])
    shop.create_collection("strict", validator={"n": {"$gt": 1}}, validationLevel="moderate")
    shop.create_collection("recent", viewOn="carts", pipeline=[{"$match": {"a": {"$gte": 2400}}}, {"$sort": {"a": -1}}])
    shop.command("insert", "strict", documents=[{"_id": 1, "ts": Timestamp(0, 0)}], bypassDocumentValidation=True,
                 bypassEmptyTsReplacement=True)
    shop["a b/ü+%"].insert_one({"_id": datetime.datetime(2024, 2, 29)})
    shop["x" + "ü" * 60].insert_one({"_id": "a name too long for a file"})
    client["other-db"].empty.create_index("q")


def contents(client, databases=("shop", "other-db")):
    """Everything that a client can see of the databases, in order, but for the UUIDs."""
    seen = {}
    for name in databases:
        for info in client[name].list_collections():
            if info["name"].startswith("system."):
                continue
            info.get("info", {}).pop("uuid", None)
            collection = client[name][info["name"]]
            # Within an index only its key has an order; mongorestore does not keep that of the options.
            indexes = [] if info["type"] == "view" else [
                {**index, "key": list(index["key"].items())} for index in collection.list_indexes()]
            indexes.sort(key=lambda index: index["name"])
            seen[name, info["name"]] = (bson.encode(info), indexes, b"".join(collection.find_raw_batches()))
    return seen


@pytest.fixture
def source():
    with Member() as member, member.client() as client:
        fill(client)
        yield member, client


@pytest.fixture
def target():
    with Member() as member, member.client() as client:
        yield member, client


def test_the_files_are_those_of_mongodump_byte_for_byte(source, tmp_path):
    member, client = source
    out = tmp_path / "dump"
    said = baton("backup", member.uri, "--out", out)
    assert "2603 documents" in said and "oplog" in said
    long_name = "x" + "%C3%BC" * 60
    found = files_of(out)
    cut = next(name for name in found if name.startswith("shop/x") and name.endswith(".bson"))
    assert len(pathlib.Path(cut).stem) == 238 and cut.startswith("shop/" + long_name[:208] + "%24")
    stems = ["a+b%2F%C3%BC%2B%25", "carts", "log", "strict", pathlib.Path(cut).stem]
    assert found == sorted(
        [f"shop/{stem}{ending}" for stem in stems for ending in (".bson", ".metadata.json")]
        + ["shop/recent.metadata.json", "other-db/empty.bson", "other-db/empty.metadata.json"]
        + ["oplog.bson", "prelude.json"])
    assert (out / "shop/carts.bson").read_bytes() == b"".join(client.shop.carts.find_raw_batches())
    assert [d["n"] for d in bson.decode_all((out / "shop/log.bson").read_bytes())] == list(range(50, 150))
    uuids = {info["name"]: info["info"]["uuid"].hex() for info in client.shop.list_collections() if "uuid" in info["info"]}
    key = '{"v":{"$numberInt":"2"},"key":{"_id":{"$numberInt":"1"}},"name":"_id_"}'
    assert (out / "shop/log.metadata.json").read_text() == (
        '{"options":{"capped":true,"size":{"$numberInt":"65536"},"max":{"$numberInt":"100"}},"indexes":[' + key
        + f'],"uuid":"{uuids["log"]}","collectionName":"log","type":"collection"}}')
    assert (out / "shop/recent.metadata.json").read_text() == (
        '{"options":{"viewOn":"carts","pipeline":[{"$match":{"a":{"$gte":{"$numberInt":"2400"}}}},'
        '{"$sort":{"a":{"$numberInt":"-1"}}}]},"indexes":[],"collectionName":"recent","type":"view"}')
    carts = json.loads((out / "shop/carts.metadata.json").read_text())
    assert [index["name"] for index in carts["indexes"]] == ["_id_", "a_1", "both", "at_1"]
    assert carts["indexes"][2] == {
        "v": {"$numberInt": "2"}, "key": {"b": {"$numberInt": "-1"}, "a": {"$numberInt": "1"}}, "name": "both",
        "sparse": True}
    oplog = bson.decode_all((out / "oplog.bson").read_bytes())
    assert all(entry["ns"].startswith(("shop", "other-db", "admin", "")) for entry in oplog) and len(oplog) >= 1


@pytest.mark.parametrize("compressed", [False, True])
def test_what_was_saved_comes_back_whole(source, target, tmp_path, compressed):
    (member, client), (other, other_client) = source, target
    out = tmp_path / "dump"
    flags = ["--gzip"] if compressed else []
    baton("backup", member.uri, "--out", out, *flags)
    if compressed:
        assert gzip.decompress((out / "shop/carts.bson.gz").read_bytes()) == b"".join(client.shop.carts.find_raw_batches())
        assert "shop/recent.metadata.json.gz" in files_of(out)
    said = baton("restore", other.uri, out, "--oplogReplay")
    assert "2603 documents" in said
    assert contents(other_client) == contents(client)
    # Again, onto itself: without --drop everything is there already, with it everything is anew.
    said = baton("restore", other.uri, out)
    assert "2603 documents were there already" in said and "oplog.bson was left out" in said
    assert contents(other_client) == contents(client)
    other_client.shop.carts.update_many({}, {"$set": {"spoilt": True}})
    other_client.shop.recent.drop()
    baton("restore", other.uri, out, "--drop")
    assert contents(other_client) == contents(client)


def test_one_collection_or_one_database_under_another_name(source, target, tmp_path):
    (member, client), (other, other_client) = source, target
    out = tmp_path / "dump"
    baton("backup", member.uri, "--out", out, "--db", "shop", "--collection", "carts")
    assert files_of(out) == ["prelude.json", "shop/carts.bson", "shop/carts.metadata.json"]
    baton("restore", other.uri, out / "shop", "--db", "shop2", "--numInsertionWorkersPerCollection", 1)
    assert other_client.shop2.carts.count_documents({"text": "grüß"}) == 2500
    assert set(other_client.shop2.carts.index_information()) == {"_id_", "a_1", "both", "at_1"}
    baton("restore", other.uri, out, "--db", "shop", "--collection", "carts", "--noIndexRestore")
    assert set(other_client.shop.carts.index_information()) == {"_id_"}


class Load(threading.Thread):
    """One writer whose n-th operation is always the same, so that every prefix of them is a state that can be told."""

    def __init__(self, uri_of):
        super().__init__()
        self.client, self.stop, self.done, self.failure = uri_of, threading.Event(), 0, None

    def run(self):
        try:
            while not self.stop.is_set():
                operate(self.client.load, self.done)
                self.done += 1
        except Exception as failure:  # noqa: BLE001 - told to the test, which fails with it
            self.failure = failure


def operate(db, n):
    kind, which = n % 6, n // 6
    if kind == 0:
        db.log.insert_one({"_id": which})
    elif kind == 1:
        change = {"$inc": {"v": 1}, "$set": {"deep.last": n}, "$push": {"list": {"$each": [n], "$slice": -4}}}
        db.items.update_one({"_id": which % 40}, change, upsert=True)
    elif kind == 2:
        db.items.delete_one({"_id": (which * 7) % 40})
    elif kind == 3:
        db.log.delete_one({"_id": which - 200})
    elif kind == 4:
        db.fixed.update_one({"_id": which % 3000}, {"$set": {"n": n, "arr.1": which}})
    # One change of the catalog at a time, so that no moment lies within an operation.
    elif which % 80 == 19:
        db.made.insert_one({"_id": which})
    elif which % 80 == 39:
        db.made.create_index("x")
    elif which % 80 == 59:
        db.made.drop_index("x_1")
    elif which % 80 == 79:
        db.made.drop()


def state(db):
    return {
        "log": sorted(d["_id"] for d in db.log.find()),
        "items": sorted(db.items.find(), key=lambda d: d["_id"]),
        "fixed": [(d["_id"], d["n"], d["arr"]) for d in db.fixed.find().sort("_id", 1)],
        "made": sorted(d["_id"] for d in db.made.find()),
    }


def prepare(db):
    db.fixed.insert_many([{"_id": n, "n": -1, "arr": [0, 0, {"pad": "x" * 400}]} for n in range(3000)])
    db.items.create_index("v")


def is_a_prefix(found, member_client, at_least, at_most):
    """Whether `found` is the state after some number of the load's operations; they are carried out again to see."""
    db = member_client.load
    member_client.drop_database("load")
    prepare(db)
    for n in range(at_most + 1):
        if n >= at_least and state(db) == found:
            return True
        operate(db, n)
    return state(db) == found


def test_a_backup_is_a_task_of_the_member_while_it_runs(source, tmp_path):
    member, client = source
    baton("backup", member.uri, "--out", tmp_path / "dump")
    deadline = time.monotonic() + 10
    while (tasks := client.admin.command("serverStatus")["tasks"])["running"] and time.monotonic() < deadline:
        time.sleep(0.02)
    assert tasks["finished"]["backup"]["count"] == 1, "it ends with its connection"


def test_a_backup_under_load_is_the_state_of_one_moment(target, tmp_path):
    other, other_client = target
    out = tmp_path / "dump"
    with Member() as member, member.client() as client, member.client() as load_client:
        prepare(client.load)
        load = Load(load_client)
        load.start()
        while load.done < 300 and load.is_alive():
            load.join(0.01)
        begun = load.done
        baton("backup", member.uri, "--out", out)
        # Some of the load falls into the backup; the last operation may have been under way when it ended.
        ended = load.done + 1
        load.stop.set()
        load.join()
        assert load.failure is None
        assert ended > begun
    said = baton("restore", other.uri, out, "--oplogReplay")
    oplog = bson.decode_all((out / "oplog.bson").read_bytes())
    assert f"state of {oplog[-1]['ts'].time}:{oplog[-1]['ts'].inc}" in said
    restored = state(other_client.load)
    assert set(other_client.load.items.index_information()) == {"_id_", "v_1"}
    assert len(restored["fixed"]) == 3000
    # The moment is between the operations that were done before the backup and those begun before its end; where
    # exactly, the log tells: operation 6 n inserts n.
    newest = max(restored["log"]) * 6
    assert begun - 6 <= newest <= ended
    assert is_a_prefix(restored, other_client, max(newest - 6, 0), newest + 6)
    # And not beyond a limit.
    if len(oplog) > 1:
        limit = oplog[len(oplog) // 2]["ts"]
        baton("restore", other.uri, out, "--drop", "--oplogReplay", "--oplogLimit", f"{limit.time}:{limit.inc}")


@pytest.mark.parametrize("tool", ["baton", pytest.param("mongodump", marks=pytest.mark.skipif(
    not (shutil.which("mongodump") and shutil.which("mongorestore")), reason="the tools are not on PATH"))])
def test_a_backup_from_a_secondary_under_load_is_the_state_of_one_moment(target, tmp_path, tool):
    """Clients write to the primary while a secondary is saved. Fails if what is restored elsewhere is not what some number of the
    operations leaves, or if it is missing what the secondary had before."""
    other, other_client = target
    out = tmp_path / "dump"
    with ReplicaSet() as members, members.client() as load_client:
        prepare(load_client.load)
        members.await_equal()
        secondary = members.others(members.primary())[0]
        load = Load(load_client)
        load.start()
        while load.done < 300 and load.is_alive():
            load.join(0.01)
        # Majority writes: this secondary may lack the newest, and no more than what it has not fetched yet.
        with members.direct(secondary, read_preference=ReadPreference.SECONDARY) as direct:
            begun = max(document["_id"] for document in direct.load.log.find({}, {"_id": 1})) * 6
        uri = f"mongodb://127.0.0.1:{members.members[secondary].port}/?directConnection=true&readPreference=secondary"
        if tool == "baton":
            baton("backup", uri, "--out", out)
        else:
            subprocess.run(["mongodump", "--quiet", "--uri", uri, "--oplog", "--out", out], check=True)
        ended = load.done + 1
        load.stop.set()
        load.join()
        assert load.failure is None
        assert ended > begun
        members.await_equal()
    if tool == "baton":
        baton("restore", other.uri, out, "--oplogReplay")
    else:
        subprocess.run(["mongorestore", "--quiet", "--uri", other.uri, "--oplogReplay", out], check=True)
    restored = state(other_client.load)
    assert len(restored["fixed"]) == 3000
    newest = max(restored["log"]) * 6
    assert begun <= newest <= ended
    assert is_a_prefix(restored, other_client, max(newest - 6, 0), newest + 6)


def test_what_cannot_be_done_is_refused_with_what_to_do(source, tmp_path):
    member, client = source
    out = tmp_path / "dump"
    baton("backup", member.uri, "--out", out, "--db", "shop")
    assert "choose another --out" in baton("backup", member.uri, "--out", out, succeeds=False)
    assert "there is nothing in nowhere" in baton("backup", member.uri, "--out", tmp_path / "x", "--db", "nowhere", succeeds=False)
    assert "is a member running there?" in baton("backup", "mongodb://127.0.0.1:1", "--out", tmp_path / "y", succeeds=False)
    assert "taken without the oplog" in baton("restore", member.uri, out, "--oplogReplay", succeeds=False)
    assert "a directory that a backup made" in baton("restore", member.uri, tmp_path / "none", succeeds=False)
    file = out / "shop/carts.bson"
    whole = file.read_bytes()
    file.write_bytes(whole[:-5])
    said = baton("restore", member.uri, out, "--drop", "--collection", "carts", "--db", "shop", succeeds=False)
    assert f"at byte {whole.rfind(bson.encode({'_id': 2499})[4:9]) - 4}" in said and "damaged or was cut off" in said
    file.write_bytes(b"\xff\xff\xff\x7f" + whole[4:])
    said = baton("restore", member.uri, out, "--drop", "--collection", "carts", "--db", "shop", succeeds=False)
    assert "at byte 0" in said
    # Documents that an index refuses: the documents are there, and the way out is named.
    twice = [bson.encode({"_id": n, "a": 1}) for n in range(2)]
    file.write_bytes(b"".join(twice))
    said = baton("restore", member.uri, out, "--drop", "--collection", "carts", "--db", "shop", succeeds=False)
    assert "--noIndexRestore" in said and client.shop.carts.count_documents({}) == 2


def test_a_standalone_has_no_oplog_to_save(tmp_path):
    with Member(replica_set=None) as member, member.client() as client:
        client.shop.carts.insert_one({"_id": 1})
        assert "leave --oplog out" in baton("backup", member.uri, "--out", tmp_path / "a", "--oplog", succeeds=False)
        baton("backup", member.uri, "--out", tmp_path / "b")
        assert files_of(tmp_path / "b") == ["prelude.json", "shop/carts.bson", "shop/carts.metadata.json"]


@pytest.mark.skipif(not (shutil.which("mongodump") and shutil.which("mongorestore")), reason="the tools are not on PATH")
@pytest.mark.parametrize("flags", [[], ["--gzip"]])
def test_mongodump_and_mongorestore_are_interchangeable_with_it(source, target, tmp_path, flags):
    (member, client), (other, other_client) = source, target
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    baton("backup", member.uri, "--out", ours, *flags)
    subprocess.run(["mongodump", "--quiet", "--uri", member.uri, "--oplog", "--out", theirs, *flags], check=True)
    assert files_of(ours) == files_of(theirs)
    for name in files_of(ours):
        read = (lambda path: gzip.decompress(path.read_bytes())) if flags else pathlib.Path.read_bytes
        if name not in ("oplog.bson", "prelude.json", "prelude.json.gz"):
            assert read(ours / name) == read(theirs / name), name
    subprocess.run(["mongorestore", "--quiet", "--uri", other.uri, "--oplogReplay",
                    "--bypassDocumentValidation", *flags, ours], check=True)
    assert contents(other_client) == contents(client)
    baton("restore", other.uri, theirs, "--drop", "--oplogReplay", *flags)
    assert contents(other_client) == contents(client)
