"""Faults that take their time. Numbers as in the matrix of faults (docs/testing.md)."""

import random
import shutil
import tempfile
import time

import bson
import pytest
from pymongo import ReadPreference, WriteConcern

from machine_faults import SmallDisk
from power import Ledger
from raw import Raw
from replica_set import ReplicaSet

SOON = {"electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 200}
MAJORITY = WriteConcern("majority", wtimeout=30_000)
# How long storage keeps old versions for readers by default (crates/devices/storage/src/options.rs).
HISTORY_SECS = 10


def carts_of(client, write_concern=MAJORITY):
    """The collection that these tests write to."""
    return client.get_database("shop", write_concern=write_concern).carts


def test_06_a_primary_paused_for_fifteen_seconds_with_default_settings():
    """As its short sibling in tests/cluster, with the election timeout that users have."""
    with ReplicaSet() as members, members.client(timeoutMS=90_000) as client:
        carts_of(client).insert_one({"_id": "x", "n": 1})
        paused = members.primary()
        with Raw(members.members[paused]) as read, Raw(members.members[paused]) as write:
            for connection in (read, write):
                connection.command("admin", {"ping": 1})
            members.pause(paused)
            read.message(bson.encode({"find": "carts", "filter": {"_id": "x"}, "$db": "shop",
                                      "readConcern": {"level": "linearizable"}}))
            write.message(bson.encode({"insert": "carts", "documents": [{"_id": "late"}], "$db": "shop",
                                       "writeConcern": {"w": "majority"}}))
            members.write_on_primary_among(members.others(paused), lambda direct: carts_of(direct).update_one(
                {"_id": "x"}, {"$set": {"n": 2}}))
            members.resume(paused)
            found, late = read.reply(), write.reply()
        members.await_healthy()
        assert not found["ok"] or found["cursor"]["firstBatch"] == [{"_id": "x", "n": 2}], found
        if late["ok"] and "writeConcernError" not in late:
            assert carts_of(client).find_one("late")


def test_11_a_source_rolls_back_while_it_is_pulled_from():
    """Of five, the old primary and one that pulls from it are cut off together. Fails if the puller keeps what its source took
    back."""
    with ReplicaSet(5, settings=SOON, network=True) as members, members.client(timeoutMS=60_000) as client:
        carts_of(client).insert_one({"_id": 0})
        members.await_equal()
        old = members.primary()
        puller, *others = members.others(old)
        with members.direct(puller) as direct:
            direct.admin.command("replSetSyncFrom", members.hosts[old])
        for other in others:
            for cut_off in (old, puller):
                members.network.cut(cut_off, other)
                members.network.cut(other, cut_off)
        with members.direct(old) as direct:
            carts_of(direct, WriteConcern(1)).insert_many([{"_id": f"lost-{i}"} for i in range(50)])

        def is_pulled():
            with members.direct(puller, read_preference=ReadPreference.SECONDARY_PREFERRED) as direct:
                return direct.shop.carts.count_documents({}) == 51

        members.await_that(is_pulled, "the entries on the puller")
        for number in range(50):
            members.write_on_primary_among(others, lambda direct, key=f"kept-{number}": carts_of(direct).update_one(
                {"_id": key}, {"$set": {"n": 1}}, upsert=True))
        members.network.heal()
        members.await_healthy()
        assert carts_of(client).count_documents({"_id": {"$regex": "lost"}}) == 0
        assert carts_of(client).count_documents({}) == 51


def test_21_a_majority_loses_power_and_what_it_acknowledged_is_there():
    """All die, and the files of two lose what was never synced. Fails if a majority acknowledged what it had not synced."""
    data = [tempfile.mkdtemp(prefix="baton-power-") for _ in range(3)]
    ledgers = [Ledger(folder) for folder in data]
    draw = random.Random(21)
    try:
        with ReplicaSet(settings=SOON, data=data, environments=[ledger.environment() for ledger in ledgers]) as members:
            acknowledged = 0
            for _ in range(3):
                with members.client(timeoutMS=60_000) as client:
                    for _ in range(60):
                        carts_of(client).insert_one({"_id": acknowledged, "page": "x" * draw.randrange(2000)})
                        acknowledged += 1
                    with members.direct(members.primary()) as direct:
                        carts_of(direct, WriteConcern(1)).insert_many([{"n": i} for i in range(20)])
                members.kill(*range(3))
                for index in draw.sample(range(3), 2):
                    ledgers[index].lose_unsynced(draw)
                for index in range(3):
                    members.spawn(index)
                members.await_healthy()
                with members.client(timeoutMS=60_000) as client:
                    found = {document["_id"] for document in carts_of(client).find({"page": {"$exists": True}}, {"_id": 1})}
                assert found == set(range(acknowledged))
    finally:
        for folder, ledger in zip(data, ledgers):
            ledger.close()
            shutil.rmtree(folder, ignore_errors=True)


def test_03_what_only_the_dead_primary_had_is_in_a_rollback_file_after_a_long_absence():
    """As its short sibling in tests/cluster, but the dead one is away for longer than history is kept, and after its return hears
    nobody for longer than that too. Fails if it forgets what it needs to go back before it knows how far it must."""
    with ReplicaSet(settings=SOON, network=True) as members, members.client(timeoutMS=60_000) as client:
        carts_of(client).insert_many([{"_id": i} for i in range(3)])
        members.await_equal()
        time.sleep(HISTORY_SECS / 2)
        dead = members.primary()
        members.network.isolate(dead)
        with members.direct(dead) as direct:
            carts_of(direct, WriteConcern(1)).insert_one({"_id": "lost"})
        members.kill(dead)
        members.await_primary_among(members.others(dead))
        carts_of(client).insert_one({"_id": "kept"})
        members.network.heal()
        time.sleep(HISTORY_SECS + 2)
        members.network.isolate(dead)
        members.spawn(dead)
        time.sleep(HISTORY_SECS + 2)
        members.network.heal()
        members.await_healthy()
        removed = [document for path in members.members[dead].data.glob("rollback/*/removed.*.bson")
                   for document in bson.decode_all(path.read_bytes())]
        assert removed == [{"_id": "lost"}]


def test_a_full_disk_gets_its_space_back_from_what_is_dropped():
    """A collection whose files hold another's documents too is dropped when the disk is full, so that there is no room to write those
    files anew. Fails if the drop is refused, if the member dies while it cannot give the space back, if a write fails meanwhile, if
    the space is never given back once there is room, or if anything of another collection is lost."""
    with SmallDisk(160) as disk:
        if not disk.is_there:
            pytest.skip("this needs to mount a small file system")
        arguments = ["--cacheSizeGB", "0.0625"]
        with ReplicaSet(settings=SOON, data=[disk.path / "data", None, None], arguments=arguments) as members, \
                members.client(timeoutMS=60_000) as client:
            members.stand(0)
            noise = random.Random(3)
            shop = client.get_database("shop", write_concern=WriteConcern(3, wtimeout=60_000))
            shop.large.create_index("n")
            for part in range(10):
                shop.large.insert_many([{"_id": f"{part}-{n}", "n": n, "page": noise.randbytes(40_000)} for n in range(100)])
                shop.carts.insert_many([{"_id": f"{part}-{n}", "page": noise.randbytes(3_000)} for n in range(100)])
            with members.direct(0) as direct:
                direct.admin.command("fsync")
                direct.shop.command("compact", "large", force=True)
            disk.fill()
            assert disk.free_bytes() < 1 << 20, "the disk is not full"
            carts_of(client).database.large.drop()

            def files():
                with members.direct(0) as direct:
                    return direct.admin.command("serverStatus")["rocksdb"]["files"]

            # History passes the drop, so that it is tried.
            for number in range(3 * HISTORY_SECS):
                carts_of(client).insert_one({"_id": f"after-{number}"})
                time.sleep(0.6)
            now = files()
            assert now["droppedBytes"] > 30 << 20 or now["bytes"] < 60 << 20, f"it counts as given back and is there: {now}"
            disk.free()
            members.await_that(lambda: files()["droppedBytes"] == 0 and files()["bytes"] < 60 << 20, "the space given back")
            assert members.members[0].is_running() and members.hello(0)["isWritablePrimary"]
            members.await_healthy()
            assert carts_of(client).count_documents({}) == 1000 + 3 * HISTORY_SECS
