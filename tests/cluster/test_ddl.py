"""DDL from many threads at once, against writes and against itself: what is decided holds on every member, over a SIGKILL too."""

import os
import threading
import time

import pymongo
import pytest
from pymongo import WriteConcern

import ddl_storm
from replica_set import ReplicaSet

SOON = {"electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 200}

# Faults of the member, whatever was asked: an internal error, and one that nobody has a name for.
NEVER = {1, 8}


@pytest.fixture(scope="module")
def trio():
    """Three members."""
    with ReplicaSet(settings=SOON) as members:
        yield members


class Crowd:
    """Threads that each do one thing over and over, until the crowd is left. Refusals are part of it; faults are not."""

    def __init__(self, uri):
        self.uri = uri
        self.over = threading.Event()
        self.threads = []
        self.faults = []
        self.done = {}

    def add(self, name, act, threads=1):
        """Lets threads do `act(client, round)`."""
        for _ in range(threads):
            self.threads.append(threading.Thread(target=self._repeat, args=(name, act)))

    def _repeat(self, name, act):
        with pymongo.MongoClient(self.uri, serverSelectionTimeoutMS=20_000) as client:
            number = 0
            while not self.over.is_set():
                number += 1
                try:
                    act(client, number)
                    self.done[name] = self.done.get(name, 0) + 1
                except pymongo.errors.OperationFailure as error:
                    if error.code in NEVER:
                        self.faults.append((name, str(error)))
                except Exception as error:  # pylint: disable=broad-except
                    self.faults.append((name, repr(error)))
                    return

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def until(self, name, times, seconds=12):
        """Lets the crowd go on until this was done so often, or for so long; but for a moment at least."""
        deadline = time.monotonic() + seconds
        time.sleep(1)
        while self.done.get(name, 0) < times and time.monotonic() < deadline:
            time.sleep(0.05)
        assert self.done.get(name, 0) > 0, self.done

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive(), "a command has not come back"
        assert not self.faults, self.faults[:5]


def catalog(client, database):
    """Every collection's name, UUID, options and indexes."""
    kept = {}
    for entry in client[database].list_collections():
        if entry["name"] == "system.views":
            continue
        indexes = [] if entry["type"] == "view" else [i.to_dict() for i in client[database][entry["name"]].list_indexes()]
        kept[entry["name"]] = (entry["type"], entry["info"].get("uuid"), entry["options"], indexes)
    return kept


def test_an_index_that_one_member_takes_is_taken_by_all(trio):
    """A text index that expires was built by the primary and refused by the others: the set stood still from then on."""
    with trio.client() as client:
        collection = client.accepted.get_collection("c", write_concern=WriteConcern("majority", wtimeout=20_000))
        client.accepted.command("createIndexes", "c", indexes=[{"key": {"s": "text"}, "name": "n", "expireAfterSeconds": 60}],
                                writeConcern={"w": "majority", "wtimeout": 20_000})
        collection.insert_one({"s": "some words"})
    trio.await_healthy()


def test_coll_mod_against_drop_and_create_poisons_no_member(trio):
    """Sizes and validators were decided about one collection and set on the next of its name."""
    name = "capped"

    def order(client, *arguments, **more):
        # Nobody waits for the others: the faster, the closer they come to each other.
        client.races.command(*arguments, writeConcern={"w": 1}, **more)

    def replace(client, number):
        order(client, "drop", name)
        order(client, "create", name, **({"capped": True, "size": 8192} if number % 2 else {}))

    def resize(client, number):
        order(client, "collMod", name, cappedSize=4096 + number % 4096)

    def validate(client, number):
        order(client, "collMod", name, validator={"n": {"$lt": number}}, validationAction="warn")

    def write(client, number):
        order(client, "insert", name, documents=[{"n": number}])

    def out(client, _):
        order(client, "aggregate", name, pipeline=[{"$out": "target"}], cursor={})

    def change_target(client, number):
        spec = {"key": {"n": 1}, "name": f"n{number % 3}", "sparse": bool(number % 2)}
        order(client, "createIndexes", "target", indexes=[spec])
        order(client, "dropIndexes", "target", index="*")

    crowd = Crowd(trio.uri)
    for act, threads in [(replace, 1), (resize, 3), (validate, 3), (write, 1), (out, 1), (change_target, 1)]:
        crowd.add(act.__name__, act, threads)
    with crowd:
        crowd.until("replace", 150, seconds=6)
    trio.await_healthy()


def test_what_was_dropped_stays_dropped_after_a_kill(own_member):
    """A `collMod` of an index stored the entry of a collection that was dropped already: a restart brought it back."""
    alive = ["live"]

    def live_and_drop(client, number):
        name = f"live{threading.get_ident()}_{number}"
        client.drops.command("create", name)
        client.drops.command("createIndexes", name, indexes=[{"key": {"a": 1}, "name": "a"}])
        alive.append(name)
        client.drops[name].insert_one({"a": [1, 2]})
        client.drops.command("drop", name)

    def hide(client, number):
        client.drops.command("collMod", alive[-1 - number % min(2, len(alive))], index={"name": "a", "hidden": bool(number % 4 > 1)})

    def index_again(client, number):
        client.drops.command("createIndexes", alive[-1], indexes=[{"key": {"b": 1, "a": 1}, "name": f"b{number % 5}"}])

    def write(client, number):
        client.drops[alive[-1]].update_one({"_id": number % 7}, {"$set": {"a": [number]}})

    crowd = Crowd(own_member.uri)
    for act, threads in [(live_and_drop, 2), (hide, 5), (index_again, 1), (write, 1)]:
        crowd.add(act.__name__, act, threads)
    with crowd:
        crowd.until("live_and_drop", 120, seconds=6)
    with own_member.client() as client:
        before = catalog(client, "drops")
    own_member.kill()
    own_member.start()
    with own_member.client() as client:
        after = catalog(client, "drops")
        assert after.keys() == before.keys(), f"{len(after.keys() - before.keys())} of {len(alive)} are back"
        assert after == before
        for name in after:
            assert client.drops.command("validate", name)["valid"]


def test_an_index_asked_to_hide_while_it_is_built_is_completed_and_keeps_keys_unique(own_member):
    """The build marked another index as ready than the one that `collMod` had put in its place."""
    with own_member.client() as client, own_member.client() as other:
        client.builds.c.insert_many([{"_id": n, "a": n} for n in range(5_000)])
        refused = []
        over = threading.Event()

        def hide():
            while not over.is_set():
                try:
                    other.builds.command("collMod", "c", index={"name": "a", "hidden": True})
                    return
                except pymongo.errors.OperationFailure as error:
                    refused.append(error.code)

        thread = threading.Thread(target=hide)
        thread.start()
        try:
            spec = {"key": {"a": 1}, "name": "a", "unique": True}
            client.builds.command("createIndexes", "c", indexes=[spec])
        finally:
            # Now it can be hidden.
            thread.join(20)
            over.set()
        assert set(refused) <= {27, 12587} and 12587 in refused, set(refused)
        client.builds.command("collMod", "c", index={"name": "a", "hidden": False})
        again = client.builds.command("createIndexes", "c", indexes=[spec], maxTimeMS=10_000)
        assert again["note"] == "all indexes already exist"
        with pytest.raises(pymongo.errors.DuplicateKeyError):
            client.builds.c.insert_one({"_id": -1, "a": 7})
        plan = client.builds.c.find({"a": 7}).explain()["queryPlanner"]["winningPlan"]
        assert "IXSCAN" in str(plan), plan
        report = client.builds.command("validate", "c", full=True)
        assert report["valid"] and report["keysPerIndex"] == {"_id_": 5_000, "a": 5_000}, report


def test_a_collection_made_capped_beside_writers_keeps_every_write_on_every_member(trio):
    """Whatever was acknowledged before, while and after the collection was copied is there; nobody waits for the copy to change what
    exists; and the members have the same, in the same order."""
    documents = 40_000
    with trio.client(w=1) as client:
        client.drop_database("ring")
        collection = client.ring.events
        for first in range(0, documents, 5_000):
            collection.insert_many([{"_id": i, "n": 0} for i in range(first, first + 5_000)])
        over, faults = threading.Event(), []
        inserted, updated, created = [], {}, []

        def insert():
            while not over.is_set():
                identity = documents + len(inserted)
                collection.insert_one({"_id": identity, "n": 1})
                inserted.append(identity)

        def update():
            number = 0
            while not over.is_set():
                number += 1
                identity = number * 7919 % documents
                collection.update_one({"_id": identity}, {"$set": {"n": number}})
                updated[identity] = number

        def create():
            while not over.is_set():
                client.ring.create_collection(f"other{len(created)}")
                created.append(time.monotonic())
                time.sleep(0.2)

        def beside(act):
            try:
                act()
            except Exception as error:  # pylint: disable=broad-except
                faults.append(repr(error))

        threads = [threading.Thread(target=beside, args=(act,)) for act in (insert, update, create)]
        for thread in threads:
            thread.start()
        while len(inserted) < 100 or len(updated) < 100:
            time.sleep(0.01)
        began = time.monotonic()
        client.ring.command("convertToCapped", "events", size=1 << 26)
        ended = time.monotonic()
        seen = len(inserted)
        deadline = time.monotonic() + 30
        while len(inserted) < seen + 20 and time.monotonic() < deadline and not faults:
            time.sleep(0.01)
        over.set()
        for thread in threads:
            thread.join()
        assert not faults
        assert collection.options()["capped"]
        found = {document["_id"]: document["n"] for document in collection.find()}
        assert list(found)[-len(inserted) + seen:] == inserted[seen:]
        assert found.keys() == {*range(documents), *inserted}
        assert {identity: found[identity] for identity in updated} == updated
        assert sum(began < at < ended for at in created) > 1, "whoever creates a collection waits for the copy"
        assert not [name for name in client.ring.list_collection_names() if name.startswith("tmp")]
    trio.await_healthy()


def test_ddl_from_sixteen_clients_beside_writes_and_kills_ends_the_same_on_every_member():
    """A few seconds of what tests/faults does for minutes; the seed is the commit's. Fails if a command is not answered in time, or
    with an error that is none of its own; if members differ in the end; or if a majority's acknowledgement was worth nothing."""
    with ReplicaSet(settings=SOON) as members:
        storm = ddl_storm.run(members, int(os.environ.get("BATON_SEED", 1)), seconds=5, kills=2)
        assert storm.done.get("kept") and storm.done.get("createIndexes"), storm.done
