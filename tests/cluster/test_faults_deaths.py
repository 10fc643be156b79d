"""Members that die or fall silent: nothing acknowledged by a majority is lost, nothing is done twice, all end equal.

The numbers are those of the matrix of faults (docs/testing.md). `await_healthy` ends each test: the same documents and indexes
on all members, every collection valid, no term with two primaries.
"""

import threading
import time

import bson
import pymongo
from pymongo import ReadPreference, WriteConcern

from raw import Raw
from replica_set import ReplicaSet

SOON = {"electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 200}
# With a time limit of its own (timeoutMS) a driver retries as often as needed, not once.
MAJORITY = WriteConcern("majority", wtimeout=20_000)


def carts_of(client, write_concern=MAJORITY):
    """The collection that these tests write to."""
    return client.get_database("shop", write_concern=write_concern).carts


def ids(collection):
    """All ids of a collection."""
    return {document["_id"] for document in collection.find({}, {"_id": 1})}


def test_01_what_a_majority_acknowledged_survives_the_primary():
    """SIGKILL of the primary right after the acknowledgement. Fails if a majority is said to have what it has not."""
    with ReplicaSet(settings=SOON) as members, members.client(timeoutMS=60_000) as client:
        carts = carts_of(client)
        acknowledged = set()
        for round_number in range(3):
            for i in range(40):
                carts.insert_one({"_id": f"{round_number}-{i}"})
                acknowledged.add(f"{round_number}-{i}")
            killed = members.primary()
            members.kill(killed)
            members.await_primary_among(members.others(killed))
            assert ids(carts) == acknowledged
            members.spawn(killed)
            members.await_states()
        members.await_healthy()


def test_02_what_a_majority_acknowledged_survives_all_of_them():
    """SIGKILL of every member right after the acknowledgement. Fails if it was not on a disk."""
    with ReplicaSet(settings=SOON) as members:
        with members.client(timeoutMS=60_000) as client:
            for i in range(100):
                carts_of(client).insert_one({"_id": i})
        members.kill(*range(3))
        for index in range(3):
            members.spawn(index)
        members.await_healthy()
        with members.client(timeoutMS=60_000) as client:
            assert ids(carts_of(client)) == set(range(100))


def test_03_what_only_the_dead_primary_had_is_in_a_rollback_file():
    """SIGKILL after w:1 without replication. Fails if the write stays on one member, or is gone without a trace."""
    with ReplicaSet(settings=SOON, network=True) as members, members.client(timeoutMS=60_000) as client:
        carts_of(client).insert_many([{"_id": i, "n": 0} for i in range(3)])
        members.await_equal()
        dead = members.primary()
        members.network.isolate(dead)
        with members.direct(dead) as direct:
            alone = carts_of(direct, WriteConcern(1))
            alone.insert_one({"_id": "lost"})
            alone.update_one({"_id": 1}, {"$set": {"n": "lost"}})
            alone.delete_one({"_id": 2})
        members.kill(dead)
        members.await_primary_among(members.others(dead))
        carts_of(client).insert_one({"_id": "kept"})
        members.network.heal()
        members.spawn(dead)
        members.await_healthy()
        assert ids(carts_of(client)) == {0, 1, 2, "kept"}
        assert carts_of(client).find_one(1) == {"_id": 1, "n": 0}
        removed = [document for path in members.members[dead].data.glob("rollback/*/removed.*.bson")
                   for document in bson.decode_all(path.read_bytes())]
        assert {"_id": "lost"} in removed
        assert {"_id": 1, "n": "lost"} in removed


def change_everything(db):
    """Drops, renames and alters what `test_03_..._is_undone` made, each kind of it once."""
    db.dropped.update_one({"_id": 1}, {"$set": {"n": "lost"}})
    db.dropped.drop()
    db.dropped.insert_one({"_id": "another"})
    db.indexed.drop_index("n_1")
    db.indexed.insert_one({"_id": "lost", "n": 7})
    db.indexed.delete_one({"_id": 3})
    db.renamed.rename("replaced", dropTarget=True)
    alone = {"writeConcern": {"w": 1}}
    db.command("collMod", "altered", validator={"n": {"$exists": True}}, index={"name": "n_1", "hidden": True}, **alone)
    db.command("convertToCapped", "converted", size=100_000, **alone)
    db.converted.aggregate([{"$match": {"n": 1}}, {"$out": "out"}])
    db.client.other.command("dropDatabase", **alone)


def test_03_what_only_the_dead_primary_dropped_and_altered_is_undone():
    """DDL with w:1 and without replication. Fails if a rollback does not bring back what was, or the member has to copy its data."""
    names = ["dropped", "indexed", "renamed", "replaced", "altered", "converted", "out"]
    # Long enough for the cut off primary to do all of it.
    settings = SOON | {"electionTimeoutMillis": 10_000}
    with ReplicaSet(settings=settings, network=True) as members, members.client(timeoutMS=90_000) as client:
        shop = client.get_database("shop", write_concern=MAJORITY)
        for collection in [*(shop[name] for name in names), client.get_database("other", write_concern=MAJORITY).c]:
            collection.insert_many([{"_id": i, "n": i, "in": collection.name} for i in range(500)])
            collection.create_index("n")
        members.await_equal()
        uuids = {info["name"]: info["info"]["uuid"] for info in shop.list_collections()}
        dead = members.primary()
        members.network.isolate(dead)
        with members.direct(dead) as direct:
            change_everything(direct.get_database("shop", write_concern=WriteConcern(1)))
            # What no majority has is not given back.
            time.sleep(2)
            files = direct.admin.command("serverStatus")["rocksdb"]["files"]
            assert files["droppedBytes"] > 0
        members.kill(dead)
        members.await_primary_among(members.others(dead))
        carts_of(client).insert_one({"_id": "kept"})
        members.network.heal()
        members.spawn(dead)
        members.await_healthy()
        assert "Rollback summary" in members.members[dead].log(lines=100_000)
        with members.direct(dead) as direct:
            assert direct.admin.command("replSetGetStatus").get("initialSyncStatus") is None
            here = direct.get_database("shop", read_preference=ReadPreference.SECONDARY_PREFERRED)
            assert {info["name"]: info["info"]["uuid"] for info in here.list_collections()
                    if info["name"] != "carts"} == uuids
            for name in names:
                assert ids(here[name]) == set(range(500)), name
                assert here[name].index_information().keys() == {"_id_", "n_1"}


def test_06_a_paused_primary_acknowledges_nothing_when_it_wakes():
    """SIGSTOP of the primary until there is another. What reached it meanwhile is neither acknowledged in its old term nor
    answered with what was true then. Fails if it trusts its own belief to be primary."""
    with ReplicaSet(settings=SOON) as members, members.client(timeoutMS=60_000) as client:
        carts = carts_of(client)
        carts.insert_one({"_id": "x", "n": 1})
        paused = members.primary()
        old = members.members[paused]
        with Raw(old) as read, Raw(old) as write, Raw(old) as noop:
            for connection in (read, write, noop):
                assert connection.command("admin", {"hello": 1})["isWritablePrimary"]
            members.pause(paused)
            majority = {"w": "majority", "wtimeout": 10_000}
            read.message(bson.encode({"find": "carts", "filter": {"_id": "x"}, "$db": "shop",
                                      "readConcern": {"level": "linearizable"}}))
            write.message(bson.encode({"insert": "carts", "documents": [{"_id": "late"}], "$db": "shop",
                                       "writeConcern": majority}))
            noop.message(bson.encode({"update": "carts", "updates": [{"q": {"_id": "x"}, "u": {"$set": {"n": 1}}}],
                                      "$db": "shop", "writeConcern": majority}))
            members.write_on_primary_among(members.others(paused), lambda direct: carts_of(direct).update_one(
                {"_id": "x"}, {"$set": {"n": 2}}))
            members.resume(paused)
            found, late, same = read.reply(), write.reply(), noop.reply()
        members.await_healthy()
        assert not found["ok"] or found["cursor"]["firstBatch"] == [{"_id": "x", "n": 2}], found
        if late["ok"] and "writeConcernError" not in late:
            assert carts.find_one("late"), "acknowledged by a majority, and gone"
        assert not same["ok"] or "writeConcernError" in same, same
        assert carts.find_one("x")["n"] == 2


def test_39_a_retry_after_a_lost_reply_is_answered_and_not_done_again():
    """The primary dies after the commit, before the reply. Fails if the session's record does not come with the write."""
    with ReplicaSet(settings=SOON, network=True) as members, members.client(timeoutMS=60_000) as client:
        carts = carts_of(client)
        carts.insert_one({"_id": "x", "n": 0})
        dying = members.primary()
        answers = []

        def change():
            answers.append(carts.find_one_and_update({"_id": "x"}, {"$inc": {"n": 1}}))
            answers.append(carts.insert_one({"_id": "y"}).inserted_id)
            answers.append(carts.find_one_and_delete({"_id": "x"}))

        # Nothing that the primary says reaches a client any more.
        members.network.cut(dying, "client")
        thread = threading.Thread(target=change)
        thread.start()

        def is_everywhere():
            for index in range(3):
                with members.direct(index, read_preference=ReadPreference.SECONDARY_PREFERRED) as direct:
                    if direct.shop.carts.find_one("x") != {"_id": "x", "n": 1}:
                        return False
            return True

        members.await_that(is_everywhere, "the change on all members")
        members.kill(dying)
        members.network.heal()
        thread.join(60)
        assert answers == [{"_id": "x", "n": 0}, "y", {"_id": "x", "n": 1}]
        members.spawn(dying)
        members.await_healthy()


def test_writes_go_on_through_kills_and_pauses_and_none_is_lost_or_doubled():
    """A counter by retryable increments, while members are killed and paused one after the other."""
    with ReplicaSet(settings=SOON) as members, members.client(timeoutMS=60_000) as client:
        carts = carts_of(client)
        carts.insert_one({"_id": "counter", "n": 0})
        done, stop = [0], threading.Event()

        def count():
            while not stop.is_set():
                try:
                    carts.update_one({"_id": "counter"}, {"$inc": {"n": 1}, "$push": {"seen": done[0]}})
                    done[0] += 1
                except pymongo.errors.PyMongoError as error:
                    # Not known to be done, nor not to be: this test is of what is known.
                    done.append(error)
                    return

        thread = threading.Thread(target=count)
        thread.start()
        for number in range(4):
            member = members.primary() if number % 2 == 0 else (members.primary() + 1) % 3
            if number < 2:
                members.kill(member)
                time.sleep(0.3)
                members.spawn(member)
            else:
                members.pause(member)
                time.sleep(0.5)
                members.resume(member)
            members.await_states()
        stop.set()
        thread.join(60)
        assert len(done) == 1, done
        counter = carts.find_one("counter")
        assert counter["n"] == done[0]
        assert counter["seen"] == list(range(done[0]))
        members.await_healthy()
