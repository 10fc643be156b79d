"""Members that die at a named point of storage, in the middle of following, rolling back and voting.

The binary has the feature `crash-points`; `BATON_CRASH_AT` names the point at which a member kills itself. Each test fails if the
point is not reached, if the member does not go on from there, or if the members' documents differ in the end.
"""

import random
import threading

import pymongo
import pytest
from pymongo import WriteConcern

from replica_set import ReplicaSet

SOON = {"electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 200}
MAJORITY = WriteConcern("majority", wtimeout=30_000)


def carts_of(client, write_concern=MAJORITY):
    """The collection that these tests write to."""
    return client.get_database("shop", write_concern=write_concern).carts


def await_death(members, index):
    """Waits until a member has killed itself."""
    members.await_that(lambda: not members.members[index].is_running(), "the death at the crash point")
    assert members.members[index].process.returncode == -9


@pytest.mark.parametrize("point", ["rollback-before-commit", "rollback-after-commit"])
def test_04_a_kill_in_the_middle_of_a_rollback(point):
    """The next start rolls back again, or finds it done; either way every removed document is in a file."""
    with ReplicaSet(settings=SOON, network=True) as members, members.client(timeoutMS=60_000) as client:
        carts_of(client).insert_many([{"_id": i, "n": 0} for i in range(20)])
        members.await_equal()
        old = members.primary()
        members.network.isolate(old)
        with members.direct(old) as direct:
            alone = carts_of(direct, WriteConcern(1))
            alone.insert_many([{"_id": f"lost-{i}"} for i in range(20)])
            alone.update_many({"n": 0}, {"$set": {"n": 1}})
            direct.shop.command("createIndexes", "carts", indexes=[{"key": {"n": 1}, "name": "n_1"}], commitQuorum=0,
                                writeConcern={"w": 1})
            direct.get_database("shop", write_concern=WriteConcern(1)).created.insert_one({"_id": 1})
            alone.drop()
            alone.insert_one({"_id": "another"})
        members.kill(old)
        members.await_primary_among(members.others(old))
        carts_of(client).insert_one({"_id": "kept"})
        members.network.heal()
        members.spawn(old, {"BATON_CRASH_AT": f"{point}:1"})
        await_death(members, old)
        members.spawn(old)
        members.await_healthy()
        assert carts_of(client).count_documents({}) == 21
        assert carts_of(client).count_documents({"n": 0}) == 20
        assert "created" not in client.shop.list_collection_names()
        assert list(members.members[old].data.glob("rollback/*/removed.*.bson"))


@pytest.mark.parametrize("point", ["apply-before-commit", "apply-after-commit", "commit-before-write", "commit-after-write",
                                   "commit-before-sync", "commit-after-sync"])
def test_05_a_kill_between_writing_the_log_and_applying_it(point):
    """A secondary, again and again, while the primary is written to."""
    with ReplicaSet(settings=SOON) as members, members.client(timeoutMS=60_000) as client:
        carts_of(client).insert_one({"_id": 0, "n": 0})
        secondary = members.others(members.primary())[0]
        stop, written = threading.Event(), [0]

        def write():
            while not stop.is_set():
                carts_of(client).update_one({"_id": 0}, {"$inc": {"n": 1}, "$set": {f"f{written[0] % 7}": written[0]}})
                carts_of(client).insert_one({"n": written[0]})
                written[0] += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for number in (3, 17, 40):
                members.kill(secondary)
                members.spawn(secondary, {"BATON_CRASH_AT": f"{point}:{number}"})
                await_death(members, secondary)
                members.spawn(secondary)
                members.await_states()
        finally:
            stop.set()
            writer.join(60)
        members.await_healthy()
        assert carts_of(client).find_one(0)["n"] == written[0]
        assert carts_of(client).count_documents({}) == written[0] + 1


@pytest.mark.parametrize("point", ["fact-before-commit", "fact-after-commit"])
def test_16_a_kill_around_the_votes_sync(point):
    """A voter dies before or after its vote is on disk, in election after election. No term has two primaries: whoever voted
    still knows it."""
    with ReplicaSet(settings=SOON) as members, members.client(timeoutMS=60_000) as client:
        for number in range(3):
            carts_of(client).insert_one({"_id": number})
            primary = members.primary()
            voter, candidate = members.others(primary)
            members.kill(voter)
            members.spawn(voter, {"BATON_CRASH_AT": f"{point}:{number + 1}"})
            members.await_that(lambda: members.hello(voter).get("secondary") or not members.members[voter].is_running(),
                               "the voter's return")
            # Each election has it keep a vote, and then the new term's configuration.
            for _ in range(6):
                if not members.members[voter].is_running():
                    break
                for index in members.others(voter):
                    try:
                        with members.direct(index, socketTimeoutMS=30_000) as direct:
                            direct.admin.command("replSetStepUp", 1, skipDryRun=True, check=False)
                    except pymongo.errors.PyMongoError:
                        pass
            await_death(members, voter)
            members.spawn(voter)
            members.await_states()
        members.await_healthy()
        assert carts_of(client).count_documents({}) == 3
        assert candidate in range(3)


@pytest.mark.parametrize("who", ["primary", "secondary"])
@pytest.mark.parametrize("point", ["index-build-before-start", "index-build-started", "index-build-batch", "index-build-run-written",
                                   "index-build-ingested", "index-build-switched", "index-build-drained", "index-build-before-ready",
                                   "index-build-ready", "index-build-abort-before-commit", "index-build-abort-after-commit"])
def test_a_kill_in_the_middle_of_an_index_build(point, who):
    """Fails if the members end with different indexes, if a build waits for ever, or if an index lacks a document."""
    ends = "abort" in point
    with ReplicaSet(settings=SOON) as members, members.client(timeoutMS=60_000) as client:
        carts_of(client).insert_many([{"_id": i, "n": i} for i in range(600)] + ([{"_id": "twin", "n": 7}] if ends else []))
        victim, primary = 0, 0 if who == "primary" else 1
        members.kill(victim)
        members.spawn(victim, {"BATON_CRASH_AT": f"{point}:1"})
        members.await_states()
        members.stand(primary)
        building = threading.Thread(target=build_until_decided, args=(members,))
        building.start()
        await_death(members, victim)
        members.spawn(victim)
        building.join(90)
        assert not building.is_alive(), members.logs()
        members.await_healthy()
        assert set(carts_of(client).index_information()) == ({"_id_"} if ends else {"_id_", "n_1"})


def build_until_decided(members):
    """Builds a unique index, and again where the primary has gone."""
    while True:
        try:
            with members.client() as client:
                client.shop.command("createIndexes", "carts", indexes=[{"key": {"n": 1}, "name": "n_1", "unique": True}])
                return
        except pymongo.errors.DuplicateKeyError:
            return
        except pymongo.errors.OperationFailure as error:
            if error.code == 11000:
                return
        except pymongo.errors.PyMongoError:
            pass


@pytest.mark.parametrize("who", ["primary", "secondary"])
@pytest.mark.parametrize("point", ["drop-after-commit", "freeing-begins", "freeing-file", "freeing-deleted", "freeing-compaction",
                                   "freeing-done"])
def test_a_kill_while_what_was_dropped_is_freed(point, who):
    """A collection of 40 MB, whose keys are in files of their own, in files of level 0, and in memory, is dropped. Fails if a member
    dies at none of these points, if anything of what stays is harmed, or if the space is not given back after the restart."""
    with ReplicaSet(settings=SOON, arguments=["--cacheSizeGB", "0.25"]) as members, members.client(timeoutMS=60_000) as client:
        victim = 0
        members.kill(victim)
        members.spawn(victim, {"BATON_CRASH_AT": f"{point}:1"})
        members.await_states()
        members.stand(0 if who == "primary" else 1)
        shop = client.get_database("shop", write_concern=WriteConcern(3, wtimeout=60_000))
        for name in ("before", "carts"):
            shop[name].insert_many([{"_id": i, "n": i} for i in range(300)])
        with members.direct(victim) as direct:
            direct.admin.command("fsync")
        dropped = shop.dropped
        dropped.create_index("n")
        page = random.Random(7).randbytes
        for part in range(4):
            dropped.insert_many([{"_id": f"{part}-{i}", "n": i, "page": page(50_000)} for i in range(200)])
            with members.direct(victim) as direct:
                direct.admin.command("fsync")
                if part == 1:
                    direct.shop.command("compact", "dropped", force=True)
        dropped = dropped.with_options(write_concern=MAJORITY)
        drop(dropped)
        await_death(members, victim)
        # What the dead one alone had done is taken back.
        drop(dropped)
        carts_of(client).insert_one({"_id": "meanwhile"})
        members.spawn(victim)
        members.await_healthy()
        members.await_that(lambda: freed(members, victim), "the space given back", timeout_seconds=60)
        members.await_healthy()
        assert carts_of(client).count_documents({}) == 301 and client.shop.before.count_documents({}) == 300


def drop(collection):
    """Drops it, again if the primary has gone."""
    while True:
        try:
            collection.drop()
            return
        except (pymongo.errors.AutoReconnect, pymongo.errors.WriteConcernError):
            pass


def freed(members, index):
    """Whether a member has given all space back."""
    with members.direct(index, read_preference=pymongo.ReadPreference.SECONDARY_PREFERRED) as direct:
        files = direct.admin.command("serverStatus")["rocksdb"]["files"]
        # The oplog has it still.
        return files["droppedBytes"] == 0 and files["bytes"] < 60 << 20


@pytest.mark.parametrize("point", ["incoming-whole", "incoming-arrived", "incoming-has-facts", "incoming-has-room",
                                   "incoming-in-place"])
def test_32_a_kill_while_a_members_files_arrive(point):
    """A member that is copied by file dies; its next start begins anew or goes on. Fails if it never has the set's data."""
    with ReplicaSet(1, settings=SOON) as members, members.client(timeoutMS=60_000) as client:
        carts_of(client).insert_many([{"_id": i, "n": i} for i in range(2000)])
        carts_of(client).create_index("n")
        spare = members.spawn_spare({"initialSyncMethod": "fileCopyBased"})
        members.kill(spare)
        members.environments.append({})
        members.spawn(spare, {"BATON_CRASH_AT": f"{point}:1"})
        members.await_that(lambda: members.hello(spare).get("isreplicaset"), "the spare's answer")
        members.add(spare, votes=0, priority=0)
        await_death(members, spare)
        carts_of(client).update_many({"_id": {"$lt": 100}}, {"$inc": {"n": 1}})
        members.spawn(spare)
        members.await_healthy()
        assert carts_of(client).count_documents({}) == 2000
