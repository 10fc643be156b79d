"""Machines that fail under a member: syncs, disks, clocks. Numbers as in the matrix of faults (docs/testing.md)."""

import errno
import os
import random
import threading
import time

import bson
import pytest
from pymongo import ReadPreference, WriteConcern
from pymongo.errors import OperationFailure

from machine_faults import MachineFaults, SmallDisk
from raw import Raw
from replica_set import ReplicaSet

SOON = {"electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 200}
MAJORITY = WriteConcern("majority", wtimeout=30_000)
HOUR = 3600
# mongod's, of one that must not go on.
EXIT_ABRUPT = 14


def carts_of(client, write_concern=MAJORITY):
    """The collection that these tests write to."""
    return client.get_database("shop", write_concern=write_concern).carts


def set_with_faults(count=3, **options):
    """A set each of whose machines can be made to fail."""
    faults = [MachineFaults() for _ in range(count)]
    members = ReplicaSet(count, settings=SOON, environments=[each.environment() for each in faults], **options)
    return members, faults


def await_end(member, timeout_seconds=20):
    """Waits until the process has ended by itself, in order: mongod's code for that, and no signal."""
    code = member.process.wait(timeout_seconds)
    assert code == EXIT_ABRUPT, f"it ended with {code}"


def test_18_a_failed_sync_stops_the_primary_unanswered_and_is_not_repeated():
    """Fails if the write is acknowledged, if the sync is tried again (it would succeed, and prove nothing), or if the process
    goes on."""
    members, faults = set_with_faults()
    with members, members.client(timeoutMS=60_000) as client:
        carts_of(client).insert_one({"_id": 0})
        failing = members.primary()
        member = members.members[failing]
        with Raw(member) as raw:
            faults[failing].fail_syncs(errno.EIO)
            reply = raw.command("shop", {"insert": "carts", "documents": [{"_id": 1}],
                                         "writeConcern": {"w": 1, "j": True}})
        assert reply is None, "acknowledged without a sync"
        await_end(member)
        assert faults[failing].syncs_failed == 1
        carts_of(client).insert_one({"_id": 2})
        faults[failing].fail_syncs(0)
        members.spawn(failing)
        members.await_healthy()
        assert carts_of(client).find_one(2)


def test_18_a_failed_sync_on_a_secondary_is_not_counted():
    """Fails if the secondary acknowledges what it could not sync, or if the set stops."""
    members, faults = set_with_faults()
    with members, members.client(timeoutMS=60_000) as client:
        carts_of(client).insert_one({"_id": 0})
        failing = members.others(members.primary())[0]
        faults[failing].fail_syncs(errno.EIO)
        carts_of(client).insert_one({"_id": 1})
        await_end(members.members[failing])
        reply = client.shop.command("insert", "carts", documents=[{"_id": 2}], writeConcern={"w": 3, "wtimeout": 300},
                                    check=False)
        assert reply["writeConcernError"]["code"] == 64, reply
        faults[failing].fail_syncs(0)
        members.spawn(failing)
        members.await_healthy()


@pytest.fixture(name="disk")
def _disk():
    with SmallDisk(160) as disk:
        if not disk.is_there:
            pytest.skip("this needs to mount a small file system")
        yield disk


def set_on(disk):
    """A set whose first member has that disk."""
    return ReplicaSet(settings=SOON, data=[disk.path / "data", None, None], arguments=["--cacheSizeGB", "0.0625"])


PAGE = "x" * 400_000


def test_19_a_full_disk_stops_the_primary_and_loses_nothing(disk):
    """Writes go on until the disk is full, and then elsewhere. Fails if what was acknowledged is lost, if the member goes on
    without a disk, or if it does not come back when there is space."""
    with set_on(disk) as members, members.client(timeoutMS=60_000) as client:
        members.stand(0)
        # What the log has been given in advance is still there for it.
        disk.fill()
        acknowledged = 0
        while members.members[0].is_running():
            carts_of(client).insert_one({"_id": acknowledged, "page": PAGE})
            acknowledged += 1
            assert acknowledged < 600, "the disk is not full"
        await_end(members.members[0])
        carts_of(client).insert_one({"_id": acknowledged})
        disk.free()
        members.spawn(0)
        members.await_healthy()
        assert carts_of(client).count_documents({}) == acknowledged + 1


def test_a_primary_whose_disk_is_nearly_full_hands_over_before_it_is_full(disk):
    """Less than a twentieth is left: leadership goes to a member with more, nothing stops, and no write fails. Fails if it waits until
    writes fail, or comes back while there is no more space."""
    policy = {"cooldownSecs": 1, "minTenureSecs": 1}
    options = {"settings": {**SOON, "leadership": policy}, "data": [disk.path / "data", None, None]}
    with ReplicaSet(**options, arguments=["--cacheSizeGB", "0.0625"]) as members, members.client() as client:
        members.stand(0)
        time.sleep(SOON["electionTimeoutMillis"] / 1000)
        with open(disk.path / "ballast", "ab", buffering=0) as ballast:
            ballast.write(bytes(disk.free_bytes() - (5 << 20)))
        members.await_that(lambda: members.primary() != 0, "another primary")
        carts_of(client).insert_one({"_id": 1})
        with members.direct(0) as direct:
            move = direct.admin.command("replSetGetStatus")["handoffs"][-1]
        assert (move["trigger"], move["rule"]) == ("diskNearlyFull", "diskNearlyFull")
        time.sleep(2 * SOON["electionTimeoutMillis"] / 1000)
        assert members.primary() != 0 and members.members[0].is_running()
        disk.free()
        members.await_healthy()


def test_a_task_ends_before_it_is_done_where_its_member_is_to_lead_because_another_disk_fills(disk):
    """Both secondaries are in a task of a client's when the primary's disk is nearly full. Fails if nobody is asked to end its task, if
    both are, if its client is not told, or if leadership does not move there."""
    policy = {"cooldownSecs": 1, "minTenureSecs": 1, "maxPostponeSecs": 1}
    options = {"settings": {**SOON, "leadership": policy}, "data": [disk.path / "data", None, None]}
    with ReplicaSet(**options, arguments=["--cacheSizeGB", "0.0625"]) as members, members.client() as client:
        members.stand(0)
        time.sleep(SOON["electionTimeoutMillis"] / 1000)
        with members.direct(1) as one, members.direct(2) as two:
            workers = {1: one, 2: two}
            for worker in workers.values():
                # One by its claim, the other when it may wait no longer.
                worker.admin.command("replSetBeginTask", kind="backup", name="nightly", maxWaitSecs=30)
            with open(disk.path / "ballast", "ab", buffering=0) as ballast:
                ballast.write(bytes(disk.free_bytes() - (5 << 20)))
            told = members.await_that(lambda: [index for index, worker in workers.items() if was_told_to_end(worker)], "an end")
            assert len(told) == 1
            members.await_that(lambda: members.primary() == told[0], "leadership of who ended its task")
            assert not was_told_to_end(workers[3 - told[0]]), "one is enough"
        carts_of(client).insert_one({"_id": 1})
        with members.direct(0) as direct:
            move = direct.admin.command("replSetGetStatus")["handoffs"][-1]
        assert move["rule"] == "diskNearlyFull"
        disk.free()
        members.await_healthy()


def was_told_to_end(worker):
    """Whether the answer to a client's command is that its task is to end; which is said once."""
    reply = worker.admin.command("ping", check=False)
    assert reply["ok"] == 1 or (reply["code"] == 11602 and "backup of nightly ends before it is done" in reply["errmsg"]), reply
    return reply["ok"] == 0


def test_20_a_full_disk_on_a_secondary_is_not_counted(disk):
    """Fails if it acknowledges what it cannot keep, or if the others wait for it."""
    with set_on(disk) as members, members.client(timeoutMS=60_000) as client:
        members.stand(1)
        disk.fill()
        for number in range(300):
            reply = client.shop.command("insert", "carts", documents=[{"_id": number, "page": PAGE}],
                                        writeConcern={"w": 3, "wtimeout": 1000}, check=False)
            assert reply["n"] == 1
            if "writeConcernError" in reply:
                break
        else:
            raise AssertionError("the disk is not full")
        carts_of(client).insert_one({"_id": "majority"})
        disk.free()
        if members.members[0].is_running():
            members.kill(0)
        members.spawn(0)
        members.await_healthy()
        assert carts_of(client).count_documents({}) == number + 2


def test_an_index_build_on_a_full_disk_fails_alone_and_reads_go_on(disk):
    """Fails if the build takes the member with it, if reads or serverStatus fail, or if the index cannot be built once there is
    space."""
    with set_on(disk) as members, members.client(timeoutMS=60_000) as client:
        members.stand(0)
        carts_of(client).insert_many([{"_id": number, "n": number} for number in range(1000)])
        disk.fill()
        with members.direct(0) as direct:
            with pytest.raises(OperationFailure) as failed:
                direct.shop.carts.create_index("n")
            assert failed.value.code == 14031, failed.value.details
            assert direct.shop.carts.count_documents({"n": {"$gte": 0}}) == 1000
            assert direct.admin.command("serverStatus")["ok"] == 1
            assert list(direct.shop.carts.index_information()) == ["_id_"]
            disk.free()
            direct.shop.carts.create_index("n")
        members.await_healthy()


def hold_scan(members, index, on):
    """Index builds of this member wait after their first batch of documents, or no longer."""
    with members.direct(index) as direct:
        direct.admin.command("configureFailPoint", "hangIndexBuildDuringCollectionScanPhaseBeforeInsertion",
                             mode="alwaysOn" if on else "off")


def builds(members, index):
    """The index builds under way on a member."""
    with members.direct(index) as direct:
        return direct.admin.command("currentOp", **{"command.createIndexes": {"$exists": True}, "desc": "IndexBuildsCoordinator"})["inprog"]


def test_a_disk_that_fills_up_in_the_middle_of_a_build_ends_the_build_everywhere(disk):
    """The primary's disk is full when a part of the index is there. Fails if the client is not told so (14031), if any member keeps
    the index or builds on, if a write fails meanwhile, if what was built stays, or if the index cannot be had once there is space."""
    with set_on(disk) as members, members.client(timeoutMS=60_000) as client:
        members.stand(0)
        carts_of(client).insert_many([{"_id": number, "n": number, "text": "x" * 200} for number in range(3000)])
        hold_scan(members, 0, True)
        failures = []

        def build():
            with members.direct(0) as direct:
                try:
                    direct.shop.carts.create_index([("text", 1), ("n", 1)], name="large")
                except OperationFailure as error:
                    failures.append(error.code)

        building = threading.Thread(target=build)
        building.start()
        members.await_that(lambda: any(one["progress"]["done"] > 0 for one in builds(members, 0)), "a first batch")
        disk.fill()
        hold_scan(members, 0, False)
        building.join(60)
        assert failures == [14031], failures
        carts_of(client).insert_one({"_id": "on a full disk"})
        for index in range(3):
            members.await_that(lambda index=index: not builds(members, index), f"member {index} builds on")
        members.await_healthy()
        assert list(carts_of(client).index_information()) == ["_id_"]
        members.await_that(lambda: dropped_bytes(members, 0) == 0, "what was built is given back")
        assert members.members[0].is_running() and members.hello(0)["isWritablePrimary"]
        disk.free()
        carts_of(client).create_index([("text", 1), ("n", 1)], name="large")
        members.await_healthy()


def dropped_bytes(members, index):
    """What was dropped on a member and still takes space."""
    with members.direct(index) as direct:
        return direct.admin.command("serverStatus")["rocksdb"]["files"]["droppedBytes"]


def test_a_build_on_a_secondary_whose_disk_is_full_is_made_up_for_when_there_is_space(disk):
    """Fails if the primary or the other member waits for it beyond the commit quorum, or if it lacks the index in the end."""
    with set_on(disk) as members, members.client(timeoutMS=60_000) as client:
        members.stand(1)
        carts_of(client).insert_many([{"_id": number, "n": number} for number in range(3000)])
        members.await_equal()
        disk.fill()
        client.shop.command("createIndexes", "carts", indexes=[{"key": {"n": 1}, "name": "n_1"}], commitQuorum="majority",
                            writeConcern={"w": "majority"})
        carts_of(client).insert_one({"_id": "meanwhile", "n": -1})
        disk.free()
        if not members.members[0].is_running():
            members.spawn(0)
        members.await_healthy()
        with members.direct(0, read_preference=ReadPreference.SECONDARY_PREFERRED) as direct:
            assert direct.shop.carts.count_documents({"n": {"$lt": 3000}}, hint="n_1") == 3001


def test_an_index_build_that_fills_the_disk_fails_alone_and_gives_the_space_back(disk):
    """The disk has room for the documents and not for what the build sorts. Fails if that takes the member with it, if what it wrote
    stays, if a write fails meanwhile, or if another index cannot be built then."""
    with set_on(disk) as members, members.client(timeoutMS=120_000) as client:
        members.stand(0)
        letters = random.Random(5)
        carts_of(client).insert_many(
            [{"_id": n, "n": n, "page": "".join(letters.choices("abcdefghijklmnop", k=20_000)), "tags": list(range(8))}
             for n in range(1200)])
        with members.direct(0, socketTimeoutMS=120_000) as direct:
            direct.admin.command("fsync")
            free = disk.free_bytes()
            with pytest.raises(OperationFailure) as failed:
                direct.shop.carts.create_index([("page", 1), ("tags", 1)])
            assert failed.value.code == 14031, failed.value.details
            members.await_that(lambda: not list((disk.path / "data" / "rocksdb.builds").iterdir()), "its files are removed")
            # A compaction of what was inserted has its input and its output for a moment.
            members.await_that(lambda: disk.free_bytes() > free - (16 << 20), "the space is given back")
            assert list(direct.shop.carts.index_information()) == ["_id_"]
            carts_of(client).insert_one({"_id": "after"})
            direct.shop.carts.create_index("n")
            assert direct.shop.carts.count_documents({"n": {"$gte": 0}}, hint="n_1") == 1200
        members.await_healthy()


def test_a_sort_that_spills_to_a_full_disk_fails_alone_and_gives_the_space_back(disk):
    """Fails if it takes the member with it, if what it wrote stays, if it takes what the member needs for itself, or if a write
    fails meanwhile."""
    with set_on(disk) as members, members.client(timeoutMS=60_000) as client:
        members.stand(0)
        letters = random.Random(5)
        carts_of(client).insert_many(
            [{"_id": n, "n": -n, "page": "".join(letters.choices("abcdefghijklmnop", k=20_000))} for n in range(2000)])
        with members.direct(0) as direct:
            direct.admin.command("setParameter", 1, internalQueryMaxBlockingSortMemoryUsageBytes=1 << 20)
            free = disk.free_bytes()
            # Every document eight times, which are more than the disk holds.
            pipeline = [{"$set": {"copy": list(range(8))}}, {"$unwind": "$copy"}, {"$sort": {"n": 1, "copy": 1}}, {"$limit": 15_999}]
            with pytest.raises(OperationFailure) as failed:
                list(direct.shop.carts.aggregate(pipeline))
            assert failed.value.code == 14031, failed.value.details
            assert not os.listdir(disk.path / "data" / "rocksdb.spill")
            # What a compaction of what was inserted no longer needs goes in the second after it.
            members.await_that(lambda: disk.free_bytes() > free - (16 << 20), "the space is given back")
            carts_of(client).insert_one({"_id": "after"})
            assert [d["n"] for d in direct.shop.carts.find({"n": {"$lt": 0}}).sort("n", 1).limit(3)] == [-1999, -1998, -1997]
        members.await_healthy()


def last_timestamp(members, index):
    """The newest entry's timestamp, by that member's oplog."""
    with members.direct(index, read_preference=ReadPreference.SECONDARY_PREFERRED) as direct:
        return direct.local["oplog.rs"].find().sort("$natural", -1).limit(1)[0]["ts"]


def test_23_a_clock_that_jumps_ahead_moves_timestamps_on_and_nobody_out():
    """One hour ahead on the primary, and back. Fails if a timestamp goes back, if an election comes of it, or if the next
    primary, whose clock is right, cannot go on from there."""
    members, faults = set_with_faults()
    with members, members.client(timeoutMS=60_000) as client:
        carts_of(client).insert_one({"_id": 0})
        ahead = members.primary()
        terms = members.check_terms()
        seen = [last_timestamp(members, ahead)]
        for shift in [HOUR, 0, HOUR]:
            faults[ahead].shift_clock(shift)
            began = time.monotonic()
            while time.monotonic() - began < 0.7:
                carts_of(client).update_one({"_id": 0}, {"$inc": {"n": 1}})
            seen.append(last_timestamp(members, ahead))
        assert seen == sorted(seen) and seen[1].time >= time.time() + HOUR - 60
        assert members.check_terms() == terms, "a clock was enough for an election"
        members.kill(ahead)
        members.await_primary_among(members.others(ahead))
        carts_of(client).insert_one({"_id": 1})
        seen.append(last_timestamp(members, members.primary()))
        assert seen[-1] > seen[-2]
        faults[ahead].shift_clock(0)
        members.spawn(ahead)
        members.await_healthy()


def test_a_second_rollback_before_the_log_has_passed_the_first():
    """A primary whose clock is an hour ahead is cut off, writes alone, and is rolled back; an hour before the log is where it was, it is
    primary and cut off and rolled back again. Fails if the second rollback brings back what the first took away: its versions of
    documents were newer than what came in between, by their stamps."""
    members, faults = set_with_faults(network=True)
    with members, members.client(timeoutMS=60_000) as client:
        old = members.primary()
        carts_of(client).insert_many([{"_id": i, "n": 0} for i in range(20)])
        for number in range(2):
            members.stand(old)
            for i in range(10):
                carts_of(client).update_one({"_id": i}, {"$set": {"n": 10 * number + i}})
            members.await_equal()
            members.network.isolate(old)
            faults[old].shift_clock(0 if number else HOUR)
            with members.direct(old, retryWrites=False) as direct:
                alone = carts_of(direct, WriteConcern(1))
                for i in range(20):
                    alone.update_one({"_id": i}, {"$set": {"n": -1 - number}})
            members.await_primary_among(members.others(old))
            faults[old].shift_clock(0)
            carts_of(client).insert_one({"_id": f"kept-{number}"})
            members.network.heal()
            members.await_healthy()
            assert members.members[old].log_path.read_text().count("Rollback summary") == number + 1
        assert [one["n"] for one in carts_of(client).find({"_id": {"$lt": 20}}).sort("_id")] == [10 + i for i in range(10)] + [0] * 10


def test_24_a_new_primary_whose_clock_is_behind_goes_on_above_the_old_ones():
    """One hour behind on whoever is elected. Fails if an entry of the new term has a timestamp below one of the old: it would
    never be pulled."""
    members, faults = set_with_faults()
    with members, members.client(timeoutMS=60_000) as client:
        carts_of(client).insert_one({"_id": 0})
        members.await_equal()
        old = members.primary()
        before = last_timestamp(members, old)
        for index in members.others(old):
            faults[index].shift_clock(-HOUR)
        members.kill(old)
        new = members.await_primary_among(members.others(old))
        carts_of(client).insert_one({"_id": 1})
        after = last_timestamp(members, new)
        assert after > before and after.time < before.time + 60
        members.spawn(old)
        members.await_healthy()
        with members.direct(old, read_preference=ReadPreference.SECONDARY_PREFERRED) as direct:
            stamps = [entry["ts"] for entry in direct.local["oplog.rs"].find().sort("$natural", 1)]
        assert stamps == sorted(set(stamps))
        assert isinstance(stamps[0], bson.Timestamp)
