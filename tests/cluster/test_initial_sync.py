"""Members without data that copy another's: real processes, under load, killed half way, while everything changes."""

import contextlib
import threading
import time

import bson
import pymongo
import pytest
from pymongo import IndexModel, ReadPreference, WriteConcern

from raw import Raw
from replica_set import ReplicaSet

SOON = {"electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 200, "heartbeatTimeoutSecs": 2}
# Acknowledges and elects nothing: the set goes on whatever becomes of it.
SPECTATOR = {"votes": 0, "priority": 0}
BEGUN = "initialSyncHangBeforeCopyingDatabases"
COPYING = "initialSyncHangDuringCollectionClone"
COPIED = "initialSyncHangAfterDataCloning"


def await_that(what, condition, timeout_seconds=60):
    deadline = time.monotonic() + timeout_seconds
    while True:
        with contextlib.suppress(pymongo.errors.PyMongoError):
            outcome = condition()
            if outcome:
                return outcome
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def hold(members, index, point):
    """Lets the member's initial sync wait at this point."""
    with members.direct(index) as client:
        client.admin.command("configureFailPoint", point, mode="alwaysOn")


def release(members, index, point):
    with members.direct(index) as client:
        client.admin.command("configureFailPoint", point, mode="off")


def progress(members, index):
    """What the member says of its initial sync; nothing if it is not in one."""
    with members.direct(index, serverSelectionTimeoutMS=1000) as client:
        return client.admin.command("replSetGetStatus").get("initialSyncStatus", {})


def await_copying(members, index):
    """Waits until the member has listed what there is to copy, and copies it."""
    def begun():
        databases = progress(members, index).get("databases", {})
        return any("start" in database for database in databases.values() if isinstance(database, dict))
    await_that("no copying began", begun)


def await_copied(members, index):
    """Waits until both databases are copied; what was written meanwhile is not applied yet."""
    await_that("not everything is copied", lambda: progress(members, index).get("databases", {}).get("databasesCloned") == 2)


def await_secondary(members, index, timeout_seconds=60):
    await_that(f"the member is no secondary:\n{members.members[index].log(60, but='NETWORK')}",
               lambda: members.hello(index).get("secondary"), timeout_seconds)


def description(members, index):
    """What a member's collections are, but for the documents: names, UUIDs, options, indexes."""
    described = {}
    with members.direct(index, read_preference=ReadPreference.SECONDARY_PREFERRED) as client:
        for database in client.list_database_names():
            if database == "local":
                continue
            for info in client[database].list_collections():
                if info["name"] == "system.views":
                    continue
                indexes = []
                if info["type"] != "view":
                    indexes = sorted((bson.encode(i) for i in client[database][info["name"]].list_indexes()))
                described[f"{database}.{info['name']}"] = (info["options"], info["info"].get("uuid"), indexes)
    return described


def assert_equal(members):
    """Every member has the same documents, collections, UUIDs and indexes, and what it has is sound."""
    members.await_equal()
    running = [i for i, member in enumerate(members.members) if member.is_running()]
    descriptions = [description(members, i) for i in running]
    assert all(described == descriptions[0] for described in descriptions)
    for index in running:
        with members.direct(index, read_preference=ReadPreference.SECONDARY_PREFERRED) as client:
            for name, (options, _, _) in descriptions[0].items():
                database, collection = name.split(".", 1)
                if "viewOn" not in options:
                    report = client[database].command("validate", collection)
                    assert report["valid"], report


def fill(client, documents=3000):
    """A bit of everything."""
    shop = client.get_database("shop", write_concern=WriteConcern(1))
    shop.carts.create_indexes([IndexModel("owner"), IndexModel("number", unique=True)])
    shop.carts.insert_many({"_id": i, "owner": i % 7, "number": i, "items": [i], "text": "x" * 200} for i in range(documents))
    shop.strings.insert_many({"_id": f"{i}", "n": i} for i in range(documents // 10))
    # Values of several types, in whose order the copy goes on.
    shop.mixed.insert_many([{"_id": i if i % 3 else f"{i:05}"} for i in range(300)])
    shop.mixed.insert_many([{"_id": {"a": i}} for i in range(100)])
    shop.create_collection("log", capped=True, size=20_000, max=100)
    shop.log.insert_many({"_id": i, "text": "y" * (i % 50)} for i in range(150))
    shop.create_collection("recent", viewOn="carts", pipeline=[{"$match": {"owner": 3}}])
    shop.create_collection("strict", validator={"n": {"$gt": 1}})
    shop.strict.insert_one({"n": 2})
    client.other.expiring.create_index("at", expireAfterSeconds=100_000)
    client.other.expiring.insert_one({"at": 1})


class Load:
    """Writes of every kind, until it is left; they must all succeed."""

    def __init__(self, client):
        self.client = client
        self.stopping = threading.Event()
        self.failure = None
        self.rounds = 0
        self.thread = threading.Thread(target=self._run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.thread.join()
        if self.failure:
            raise self.failure

    def _run(self):
        carts, log = self.client.shop.carts, self.client.shop.log
        try:
            while not self.stopping.is_set():
                n = self.rounds = self.rounds + 1
                carts.insert_one({"_id": -n, "owner": 3, "number": -n, "items": []})
                carts.update_many({"_id": {"$in": [n * 37 % 3000, n * 53 % 3000, 1 - n]}}, {"$push": {"items": n}, "$inc": {"n": 1}})
                carts.update_one({"_id": n * 11 % 3000}, {"$set": {"a.b": n}, "$unset": {"text": 1}})
                carts.delete_one({"_id": n * 7 % 3000})
                log.insert_one({"_id": 1000 + n, "text": "z" * (n % 80)})
                # A unique key goes from one document to another.
                carts.delete_one({"_id": "taken"})
                carts.insert_one({"_id": f"taken{n}", "number": "key"})
                carts.delete_one({"_id": f"taken{n}"})
                self.stopping.wait(0.002)
        except Exception as failure:  # pylint: disable=broad-exception-caught
            self.failure = failure


def test_a_member_added_under_load_ends_equal():
    """While clients write, a new member copies everything and follows, and says how far it is."""
    with ReplicaSet(1, settings=SOON) as members, members.client() as client:
        fill(client)
        spare = members.spawn_spare({"collectionClonerBatchSize": 100})
        with Load(client) as load:
            hold(members, spare, COPYING)
            members.add(spare, **SPECTATOR)
            await_copying(members, spare)
            status = progress(members, spare)
            assert status["method"] == "logical"
            assert status["failedInitialSyncAttempts"] == 0 and status["maxFailedInitialSyncAttempts"] == 10
            assert status["approxTotalDataSize"] > 3000 * 200
            assert status["databases"]["shop"]["shop.carts"]["documentsToCopy"] > 2000
            assert members.hello(spare).get("secondary") is False
            with members.direct(spare) as direct, pytest.raises(pymongo.errors.NotPrimaryError) as refused:
                direct.shop.command({"find": "carts", "$readPreference": {"mode": "nearest"}})
            assert refused.value.details["code"] == 13436
            rounds = load.rounds
            await_that("the load goes on", lambda: load.rounds > rounds + 50)
            release(members, spare, COPYING)
            await_secondary(members, spare)
        assert_equal(members)
        assert progress(members, spare) == {}


def test_a_member_killed_while_it_copies_begins_again():
    """After SIGKILL half way nothing of the first copy is left over, and the second is whole."""
    with ReplicaSet(1, settings=SOON) as members, members.client() as client:
        fill(client)
        spare = members.spawn_spare({"collectionClonerBatchSize": 100})
        hold(members, spare, COPIED)
        members.add(spare, **SPECTATOR)
        await_copied(members, spare)
        members.members[spare].kill()
        # What the first copy had is not there any more.
        client.shop.strings.drop()
        client.shop.carts.delete_many({"owner": 2})
        members.members[spare].spawn()
        await_secondary(members, spare)
        assert_equal(members)


def test_when_the_source_dies_another_is_copied():
    """SIGKILL of the source half way: the attempt counts as failed, and the next is made from another member."""
    with ReplicaSet(2, settings=SOON, members=[{}, SPECTATOR]) as members, members.client() as client:
        fill(client)
        members.await_equal()
        primary = members.primary()
        other = 1 - primary
        spare = members.spawn_spare({"collectionClonerBatchSize": 100})
        hold(members, spare, COPYING)
        members.add(spare, **SPECTATOR)
        await_copying(members, spare)
        with members.direct(spare) as direct:
            direct.admin.command("replSetSyncFrom", members.hosts[other])
        await_that("no attempt from the other", lambda: progress(members, spare).get("syncSource") == members.hosts[other])
        await_copying(members, spare)
        members.members[other].kill()
        await_that("no attempt from the primary", lambda: progress(members, spare).get("syncSource") == members.hosts[primary])
        attempts = progress(members, spare)["initialSyncAttempts"]
        assert members.hosts[other] in [attempt["syncSource"] for attempt in attempts]
        release(members, spare, COPYING)
        await_secondary(members, spare)
        assert_equal(members)


def test_a_source_that_comes_back_is_copied_on():
    """The source is killed and started again half way: collections go on from the last `_id` that came, in the same attempt."""
    with ReplicaSet(1, settings={**SOON, "heartbeatTimeoutSecs": 30}) as members, members.client() as client:
        fill(client)
        spare = members.spawn_spare({"collectionClonerBatchSize": 100})
        hold(members, spare, COPYING)
        members.add(spare, **SPECTATOR)
        await_copying(members, spare)
        with members.direct(spare) as direct:
            # A few batches of each, then another pause.
            direct.admin.command("configureFailPoint", COPYING, mode={"skip": 8})
        def some_came():
            copied = [c["fetchedBatches"] for d in progress(members, spare).get("databases", {}).values() if isinstance(d, dict)
                      for c in d.values() if isinstance(c, dict)]
            return sum(copied) >= 8
        await_that("no batches come", some_came)
        client.shop.carts.update_many({"owner": 4}, {"$set": {"late": True}})
        members.members[0].kill()
        members.members[0].spawn()
        release(members, spare, COPYING)
        await_that("the source is no primary again", lambda: members.hello(0).get("isWritablePrimary"))
        client.shop.carts.insert_one({"_id": "later", "number": "later"})
        hold(members, spare, COPIED)
        def status_at_the_end():
            status = progress(members, spare)
            return status if status.get("databases", {}).get("databasesCloned") == 2 else members.hello(spare).get("secondary")
        status = await_that("the copy does not go on", status_at_the_end)
        if status is not True:
            assert status["failedInitialSyncAttempts"] == 0, status["initialSyncAttempts"]
            assert status["operationsRetried"] > 0
            carts = status["databases"]["shop"]["shop.carts"]
            assert carts["documentsCopied"] < 3000 + 500, "the collection was not copied from its beginning"
        release(members, spare, COPIED)
        await_secondary(members, spare)
        assert_equal(members)


def change_everything(client):
    """Drops, creations, renames and index builds, of which a copy may have seen any part."""
    shop = client.shop
    # A name changes hands, once and back.
    shop.strings.rename("renamed")
    shop.strings.insert_one({"_id": "another"})
    shop.mixed.drop()
    shop.mixed.insert_many({"_id": i, "again": True} for i in range(50))
    for _ in range(3):
        shop.passing.insert_one({"_id": 1})
        shop.passing.create_index("a")
        shop.passing.drop()
    shop.create_collection("passing", viewOn="carts", pipeline=[])
    shop.passing.drop()
    shop.passing.insert_one({"_id": "last"})
    # Two collections trade their names.
    shop.one.insert_one({"_id": "of one"})
    shop.two.insert_one({"_id": "of two"})
    shop.one.rename("three")
    shop.two.rename("one")
    shop.three.rename("two")
    # What was there long before takes a name that another had meanwhile.
    shop.brief.insert_one({"_id": "brief"})
    shop.brief.drop()
    shop.old.rename("brief")
    # A name goes from a collection to a view; what the log tells of the first is not the second's.
    shop.seen.insert_one({"_id": 1})
    shop.seen.create_index("a")
    shop.command("collMod", "seen", validator={"_id": 1})
    shop.seen.drop_index("a_1")
    shop.seen.drop()
    shop.create_collection("seen", viewOn="carts", pipeline=[])
    # One takes another's place.
    shop.fresh.insert_one({"_id": "fresh"})
    shop.fresh.rename("replaced", dropTarget=True)
    shop.fresh.insert_one({"_id": "fresh again"})
    client.admin.command("renameCollection", "shop.fresh", to="other.moved")
    # Indexes that come and go under the same names and on the same keys.
    shop.carts.drop_index("owner_1")
    shop.carts.create_index([("owner", -1), ("n", 1)], name="owner_1")
    shop.carts.drop_index("number_1")
    shop.carts.update_many({"_id": {"$lt": 5}}, {"$set": {"number": 0}})
    shop.carts.create_index("text")
    shop.carts.drop_index("text_1")
    shop.carts.create_index("text", name="other_name")
    shop.command("collMod", "strict", validator={"n": {"$gt": 0}})
    shop.command("collMod", "recent", viewOn="carts", pipeline=[{"$match": {"owner": 4}}])
    shop.log.drop()
    shop.create_collection("log", capped=True, size=10_000, max=20)
    shop.log.insert_many({"_id": i} for i in range(50))
    client.dropped.gone.insert_one({})
    client.drop_database("dropped")
    client.dropped.back.insert_one({"_id": "back"})
    client.drop_database("other")
    client.other.expiring.insert_one({"_id": "anew"})


@pytest.mark.parametrize("moment", ["begun", "listed", "copied"])
def test_whatever_changes_during_the_copy_the_copy_ends_equal(moment):
    """Names change hands, collections and indexes come and go while the copy is made: by UUID, all is the same in the end."""
    with ReplicaSet(1, settings=SOON) as members, members.client() as client:
        fill(client, 1000)
        client.shop.replaced.insert_one({"_id": "old"})
        client.shop.old.insert_many({"_id": i} for i in range(100))
        spare = members.spawn_spare({"collectionClonerBatchSize": 20})
        point = {"begun": BEGUN, "listed": COPYING, "copied": COPIED}[moment]
        hold(members, spare, point)
        members.add(spare, **SPECTATOR)
        if moment == "begun":
            await_that("nothing is begun", lambda: "initialSyncOplogStart" in progress(members, spare))
        elif moment == "listed":
            await_copying(members, spare)
        else:
            await_copied(members, spare)
        change_everything(client)
        release(members, spare, point)
        await_secondary(members, spare)
        assert_equal(members)
        with members.direct(spare, read_preference=ReadPreference.SECONDARY_PREFERRED) as direct:
            assert [d["_id"] for d in direct.shop.one.find()] == ["of two"]
            assert direct.shop.brief.count_documents({}) == 100
            assert not logged(members, spare, "Initial sync attempt failed")
            assert direct.other.expiring.count_documents({}) == 1
            assert not [name for name in direct.shop.list_collection_names() if name.startswith("tmp")]


def test_more_log_than_fits_into_memory_waits_in_a_file():
    """With no memory for the source's log all of it goes through the file, and comes out in its order."""
    with ReplicaSet(1, settings=SOON) as members, members.client() as client:
        fill(client, 500)
        spare = members.spawn_spare({"initialSyncLogMemoryBytes": 0, "initialSyncCollectionsAtOnce": 1})
        hold(members, spare, COPIED)
        members.add(spare, **SPECTATOR)
        await_copied(members, spare)
        for i in range(200):
            client.shop.carts.update_one({"_id": i}, {"$set": {"n": i}, "$push": {"items": "more"}})
        client.shop.carts.delete_many({"owner": 1})
        release(members, spare, COPIED)
        await_secondary(members, spare)
        assert_equal(members)


def test_a_new_member_that_becomes_primary_knows_the_retryable_writes():
    """A statement that was carried out before the copy began is answered again and not done again."""
    with ReplicaSet(1, settings=SOON) as members, members.client() as client:
        fill(client, 300)
        spare = members.spawn_spare()
        hold(members, spare, COPIED)
        def statement(index, number, command):
            command = {**command, "lsid": {"id": bson.Binary(b"a retrying client"[:16], 4)}, "txnNumber": bson.Int64(number)}
            with Raw(members.members[index]) as connection:
                answer = connection.command("shop", command)
                assert answer["ok"] == 1, answer
                return answer
        first = {"update": "carts", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"times": 1}}}]}
        second = {"findAndModify": "carts", "query": {"_id": 2}, "update": {"$inc": {"times": 1}}, "new": True}
        assert statement(0, 1, first)["n"] == 1
        members.add(spare)
        await_copied(members, spare)
        assert statement(0, 1, first)["n"] == 1
        release(members, spare, COPIED)
        await_secondary(members, spare)
        members.await_equal()
        with members.direct(0) as direct:
            direct.admin.command("replSetStepDown", 30)
        await_that("the new member is not primary", lambda: members.hello(spare).get("isWritablePrimary"))
        assert statement(spare, 1, first)["n"] == 1
        assert client.shop.carts.find_one({"_id": 1})["times"] == 1
        answer = statement(spare, 2, second)
        assert statement(spare, 2, second)["value"] == answer["value"]
        assert client.shop.carts.find_one({"_id": 2})["times"] == 1
        members.await_equal()


BY_FILE = {"initialSyncMethod": "fileCopyBased"}


def logged(members, index, words):
    return words in members.members[index].log_path.read_text(errors="replace")


def test_a_member_comes_to_its_data_by_file():
    """Under load a new member copies the source's files, starts anew with them, and follows: equal, by the same process."""
    with ReplicaSet(1, settings=SOON) as members, members.client() as client:
        fill(client)
        client.shop.command("profile", 2)
        client.shop.carts.find_one()
        client.shop.command("profile", 0)
        spare = members.spawn_spare(BY_FILE)
        pid = members.members[spare].pid
        with Load(client) as load:
            hold(members, spare, COPYING)
            members.add(spare)
            await_that("no file comes", lambda: progress(members, spare).get("method") == "fileCopyBased")
            assert progress(members, spare)["approxTotalDataSize"] > 0
            rounds = load.rounds
            await_that("the load goes on", lambda: load.rounds > rounds + 50)
            release(members, spare, COPYING)
            await_secondary(members, spare)
        assert members.members[spare].pid == pid and members.members[spare].is_running()
        assert logged(members, spare, "starting anew")
        client.shop.system.profile.drop()
        assert_equal(members)
        with members.direct(0) as direct:
            tasks = direct.admin.command("replSetGetStatus")["members"][0]["tasks"]
            assert not [task for task in tasks if task["kind"] == "initialSyncSource"]
            direct.admin.command("replSetStepDown", 30)
        await_that("the new member is not primary", lambda: members.hello(spare).get("isWritablePrimary"))
        client.get_database("shop", write_concern=WriteConcern("majority", wtimeout=20_000)).carts.insert_one({"_id": "its own"})
        assert_equal(members)


def test_a_member_killed_while_files_come_begins_again():
    """What has come of the files is of no use to the next process, and does not stay."""
    with ReplicaSet(1, settings=SOON) as members, members.client() as client:
        fill(client, 1000)
        spare = members.spawn_spare(BY_FILE)
        hold(members, spare, COPIED)
        members.add(spare, **SPECTATOR)
        def all_came():
            status = progress(members, spare)
            return status.get("method") == "fileCopyBased" and status["approxTotalBytesCopied"] == status["approxTotalDataSize"] > 0
        await_that("not all files came", all_came)
        members.members[spare].kill()
        client.shop.strings.drop()
        members.members[spare].spawn()
        await_secondary(members, spare)
        assert_equal(members)
        left = sorted(path.name for path in members.members[spare].data.iterdir() if path.is_dir() or path.suffix)
        assert not [name for name in left if name.startswith("rocksdb.") and name not in ("rocksdb.checkpoints", "rocksdb.removed")], left


def test_much_data_comes_by_file_and_a_source_that_dies_half_way_is_left():
    """Without a method set, the size decides; when the source is gone, so is its checkpoint, and another attempt is made."""
    with ReplicaSet(1, settings=SOON) as members, members.client() as client:
        fill(client)
        spare = members.spawn_spare({"initialSyncFileCopyMinBytes": 100_000})
        hold(members, spare, COPYING)
        members.add(spare, **SPECTATOR)
        await_that("no file comes", lambda: progress(members, spare).get("method") == "fileCopyBased")
        members.members[0].kill()
        members.members[0].spawn()
        release(members, spare, COPYING)
        await_secondary(members, spare)
        assert logged(members, spare, "Initial sync attempt failed")
        assert_equal(members)
