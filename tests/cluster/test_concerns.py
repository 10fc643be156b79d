"""Read and write concerns on a set of several members, and the set's defaults for them."""

import threading
import time

import pymongo
import pytest
from bson import Timestamp
from pymongo import ReadPreference, WriteConcern
from pymongo.read_concern import ReadConcern

from machine_faults import MachineFaults
from replica_set import ReplicaSet
from test_members import SOON, Stopped, refusal, secondary_of

# Nobody stands for election while a test holds members still.
STILL = {"electionTimeoutMillis": 60_000, "heartbeatIntervalMillis": 200}
TAGS = [{"tags": {"dc": "east"}}, {"tags": {"dc": "east"}, "priority": 0}, {"tags": {"dc": "west"}, "priority": 0}]
MODES = {"getLastErrorModes": {"everywhere": {"dc": 2}, "somewhere": {"dc": 1}}}


@pytest.fixture(scope="module")
def tagged():
    """Three members with tags, of which the first is primary."""
    with ReplicaSet(settings={**STILL, **MODES}, members=TAGS) as members:
        assert members.primary() == 0
        yield members


_numbers = iter(range(1_000_000))


def insert(client, concern):
    """The reply to an insert with that write concern."""
    document = {"_id": next(_numbers)}
    return client.shop.command("insert", "carts", documents=[document], writeConcern=concern)


def concern_error(client, concern):
    """The writeConcernError of an insert with that concern; one of code 0 if there is none."""
    reply = insert(client, concern)
    assert reply["n"] == 1
    return reply.get("writeConcernError", {"code": 0})


def test_a_number_of_members_is_waited_for_and_a_time_limit_says_what_it_was(tagged):
    """w: 3 waits for the third member; until then 64 with the concern that was asked for."""
    with tagged.direct(0) as direct:
        assert insert(direct, {"w": 3, "wtimeout": 20_000})["n"] == 1
        assert insert(direct, {"w": 3, "j": True, "wtimeout": 20_000})["n"] == 1
        with Stopped(tagged, 2):
            assert insert(direct, {"w": 2, "wtimeout": 20_000})["n"] == 1
            error = concern_error(direct, {"w": 3, "wtimeout": 200})
            assert (error["code"], error["codeName"]) == (64, "WriteConcernFailed")
            assert error["errmsg"] == "waiting for replication timed out"
            assert error["errInfo"] == {"wtimeout": True, "writeConcern": {
                "w": 3, "wtimeout": 200, "provenance": "clientSupplied"}}
            done = []
            waiter = threading.Thread(target=lambda: done.append(insert(direct, {"w": 3})))
            waiter.start()
            waiter.join(0.3)
            assert waiter.is_alive() and not done
        waiter.join(20)
        assert done and done[0]["n"] == 1


def test_tags_and_modes_count_different_values(tagged):
    """A mode of two data centres is not met by two members of one."""
    with tagged.direct(0) as direct:
        assert insert(direct, {"w": "everywhere", "wtimeout": 20_000})["n"] == 1
        assert insert(direct, {"w": {"dc": 2}, "wtimeout": 20_000})["n"] == 1
        with Stopped(tagged, 2):
            assert insert(direct, {"w": "somewhere", "wtimeout": 20_000})["n"] == 1
            assert concern_error(direct, {"w": "everywhere", "wtimeout": 200})["code"] == 64
            assert concern_error(direct, {"w": {"dc": 2}, "wtimeout": 200})["code"] == 64


def test_what_can_never_be_had_is_said_at_once_and_the_write_is_done(tagged):
    """100 for more than there is, 79 for what nobody has named; the documents are there."""
    with tagged.direct(0) as direct:
        before = direct.shop.carts.count_documents({})
        for concern, code, name in [
            ({"w": 4}, 100, "UnsatisfiableWriteConcern"), ({"w": 50}, 100, "UnsatisfiableWriteConcern"),
            ({"w": {"dc": 3}}, 100, "UnsatisfiableWriteConcern"),
            ({"w": "nowhere"}, 79, "UnknownReplWriteConcern"), ({"w": {"rack": 1}}, 79, "UnknownReplWriteConcern"),
        ]:
            error = concern_error(direct, concern)
            assert (error["code"], error["codeName"]) == (code, name), concern
            assert error["errInfo"]["writeConcern"]["provenance"] == "clientSupplied"
        assert direct.shop.carts.count_documents({}) == before + 5
        for concern in [{"w": {}}, {"w": -1}, {"w": 51}, {"w": {"dc": "x"}}]:
            assert refusal(direct, "insert", "carts", documents=[{}], writeConcern=concern, database="shop").code == 9


def test_a_kill_ends_the_wait_for_members(tagged):
    """killOp ends a write that waits for a member; the write itself is done."""
    with tagged.direct(0) as direct, tagged.direct(0) as other, Stopped(tagged, 2):
        outcome = []

        def write():
            try:
                outcome.append(insert(direct, {"w": 3}))
            except pymongo.errors.PyMongoError as error:
                outcome.append(error.details)

        waiter = threading.Thread(target=write)
        waiter.start()
        deadline = time.monotonic() + 20
        while waiter.is_alive():
            assert time.monotonic() < deadline
            for operation in other.admin.command("currentOp")["inprog"]:
                is_insert = operation.get("command", {}).get("insert") == "carts"
                # Killed before it has written, it would write nothing.
                if is_insert and operation.get("msg") == "waiting for the members that its write concern asks for":
                    other.admin.command("killOp", op=operation["opid"])
            time.sleep(0.02)
        assert outcome[0]["n"] == 1 and outcome[0]["writeConcernError"]["code"] == 11601


def test_the_defaults_are_majority_and_local_and_can_be_set_for_the_whole_set(tagged):
    """setDefaultRWConcern is taken by every member, shown with its source, and used by who names no concern."""
    with tagged.direct(0) as direct:
        shown = direct.admin.command("getDefaultRWConcern")
        assert shown["defaultWriteConcern"] == {"w": "majority", "wtimeout": 0}
        assert shown["defaultReadConcern"] == {"level": "local"}
        assert shown["defaultWriteConcernSource"] == shown["defaultReadConcernSource"] == "implicit"
        assert refusal(direct, "setDefaultRWConcern", 1).code == 2
        assert refusal(direct, "setDefaultRWConcern", 1, defaultWriteConcern={"w": 0}).code == 2
        assert refusal(direct, "setDefaultRWConcern", 1, defaultReadConcern={"level": "linearizable"}).code == 2
        assert refusal(direct, "setDefaultRWConcern", 1, defaultWriteConcern={"w": 9}).code == 100
        done = direct.admin.command("setDefaultRWConcern", 1, defaultWriteConcern={"w": 3, "wtimeout": 300},
                                    defaultReadConcern={"level": "majority"})
        assert done["defaultWriteConcern"] == {"w": 3, "wtimeout": 300}
        assert done["defaultWriteConcernSource"] == done["defaultReadConcernSource"] == "global"
        assert isinstance(done["updateOpTime"], Timestamp)
        with Stopped(tagged, 2):
            error = direct.shop.command("insert", "carts", documents=[{"_id": next(_numbers)}])["writeConcernError"]
            assert error["code"] == 64
            assert error["errInfo"]["writeConcern"] == {"w": 3, "wtimeout": 300, "provenance": "customDefault"}
        tagged.await_equal()
        with tagged.direct(1) as secondary:
            assert secondary.admin.command("getDefaultRWConcern")["defaultWriteConcern"] == {"w": 3, "wtimeout": 300}
            assert refusal(secondary, "setDefaultRWConcern", 1, defaultReadConcern={}).code == 10107
        assert refusal(direct, "setDefaultRWConcern", 1, defaultWriteConcern={}).code == 20
        done = direct.admin.command("setDefaultRWConcern", 1, defaultWriteConcern={"w": "majority"},
                                    defaultReadConcern={})
        assert done["defaultReadConcernSource"] == "implicit"


def test_arbiters_that_leave_no_voter_to_spare_make_the_default_one_member():
    """With a primary, a secondary and an arbiter a write that names no concern waits for nobody."""
    with ReplicaSet(settings=STILL, members=[{}, {"priority": 0}, {"arbiterOnly": True}]) as members:
        with members.direct(0) as direct:
            assert direct.admin.command("getDefaultRWConcern")["defaultWriteConcern"] == {"w": 1, "wtimeout": 0}
            with Stopped(members, 1):
                assert direct.shop.command("insert", "carts", documents=[{"_id": next(_numbers)}])["n"] == 1
                assert concern_error(direct, {"w": "majority", "wtimeout": 200})["code"] == 64
            assert concern_error(direct, {"w": 3})["code"] == 100


def test_a_secondary_waits_for_what_the_client_has_seen(tagged):
    """A causally consistent session reads its own write from a secondary that is behind, once that has it."""
    with tagged.client() as client, client.start_session(causal_consistency=True) as session:
        carts = client.shop.get_collection("carts", write_concern=WriteConcern(1))
        behind = carts.with_options(read_preference=pymongo.read_preferences.Secondary([{"dc": "west"}]))
        behind.find_one({}, session=session)
        for _ in range(20):
            number = next(_numbers)
            carts.insert_one({"_id": number}, session=session)
            assert behind.find_one({"_id": number}, session=session) is not None
        # A time that no log has reached yet: the primary writes an entry, whoever is asked.
        for _ in range(2):
            now = session.operation_time
            session.advance_operation_time(Timestamp(now.time + 1, 1))
            session.advance_cluster_time({"clusterTime": Timestamp(now.time + 1, 1),
                                          "signature": {"hash": b"\0" * 20, "keyId": 0}})
            assert behind.find_one({"_id": number}, session=session) is not None
            assert carts.find_one({"_id": number}, session=session) is not None


def test_reads_at_majority_wait_for_what_they_saw(tagged):
    """What only the primary has is not read at majority or linearizable until others have it."""
    with tagged.direct(0) as direct, tagged.direct(1, read_preference=ReadPreference.SECONDARY) as secondary:
        number = next(_numbers)
        carts = direct.shop.carts
        with Stopped(tagged, 1), Stopped(tagged, 2):
            direct.shop.command("insert", "carts", documents=[{"_id": number}], writeConcern={"w": 1})
            assert carts.find_one({"_id": number}) is not None
            for level in ["majority", "linearizable", "snapshot"]:
                assert refusal(direct, "find", "carts", filter={"_id": number}, readConcern={"level": level},
                               maxTimeMS=200, database="shop").code == 50, level
        for level in ["majority", "linearizable", "snapshot"]:
            concerned = carts.with_options(read_concern=ReadConcern(level))
            assert concerned.find_one({"_id": number}, max_time_ms=20_000) is not None
        assert refusal(secondary, "find", "carts", readConcern={"level": "linearizable"}, database="shop").code == 10107
        for level in ["majority", "snapshot"]:
            there = secondary.shop.carts.with_options(read_concern=ReadConcern(level))
            deadline = time.monotonic() + 20
            while there.find_one({"_id": number}) is None:
                assert time.monotonic() < deadline


def test_a_primary_that_nobody_writes_to_keeps_the_log_moving_and_a_secondary_does_not_write():
    """TTL and idle entries are the primary's: a secondary's log is the primary's."""
    idle = ReplicaSet(settings=SOON)
    for member in idle.members:
        member.parameters = {"periodicNoopIntervalSecs": 1}
    with idle as members, members.client() as client:
        index = secondary_of(members)
        carts = client.get_database("shop", write_concern=WriteConcern(3)).carts
        carts.insert_one({"_id": 1})
        with members.direct(members.primary()) as direct:
            entries = direct.local["oplog.rs"]
            last = entries.find_one(sort=[("$natural", -1)])["ts"]
            deadline = time.monotonic() + 30
            while entries.find_one({"ts": {"$gt": last}, "op": "n"}) is None:
                assert time.monotonic() < deadline, "the log of an idle primary stands still"
                time.sleep(0.2)
        with members.direct(index, read_preference=ReadPreference.SECONDARY) as secondary:
            assert secondary.admin.command("replSetGetStatus")["myState"] == 2


def test_a_failure_is_told_once_what_it_is_about_is_replicated(tagged):
    """A duplicate key is another write's; the error waits for that one, and says where it has not spread in time."""
    with tagged.direct(0) as direct:
        number = next(_numbers)
        direct.shop.create_collection("failures")
        with Stopped(tagged, 1), Stopped(tagged, 2):
            direct.shop.command("insert", "failures", documents=[{"_id": number}], writeConcern={"w": 1})
            reply = direct.shop.command("create", "failures", capped=True, size=4096,
                                        writeConcern={"w": 3, "wtimeout": 100}, check=False)
            assert reply["code"] == 48 and reply["writeConcernError"]["code"] == 64
            reply = direct.shop.command("insert", "failures", documents=[{"_id": number}],
                                        writeConcern={"w": "majority", "wtimeout": 100})
            assert reply["writeErrors"][0]["code"] == 11000 and reply["writeConcernError"]["code"] == 64
        assert "writeConcernError" not in direct.shop.command(
            "create", "failures", capped=True, size=4096, writeConcern={"w": 3, "wtimeout": 20_000}, check=False)


def test_a_pipeline_that_writes_may_be_asked_of_a_secondary(tagged):
    """$out and $merge are carried out by the primary; the secondary has what was written when it answers, and passes errors on."""
    with tagged.direct(0) as direct, tagged.direct(1, read_preference=ReadPreference.SECONDARY) as secondary:
        carts = direct.get_database("shop", write_concern=WriteConcern(3, wtimeout=20_000)).sources
        carts.insert_many({"_id": i, "n": i} for i in range(10))
        assert list(secondary.shop.sources.aggregate([{"$match": {"n": {"$gte": 5}}}, {"$out": "copies"}])) == []
        assert secondary.shop.copies.count_documents({}) == 5
        list(secondary.shop.sources.aggregate([{"$merge": {"into": "copies"}}]))
        assert secondary.shop.copies.count_documents({}) == 10
        error = refusal(secondary, "aggregate", "sources", database="shop", cursor={},
                        pipeline=[{"$project": {"n": {"$divide": ["$n", 0]}}}, {"$out": "copies"}])
        assert error.code == 2 and "divide" in error.message, (error.code, error.message)
        assert secondary.shop.copies.count_documents({}) == 10
        tagged.await_equal()


def test_who_waits_at_a_secondary_for_the_primary_can_be_killed_there(tagged):
    """killOp ends the waiting at the secondary, whose connection goes on; the primary's work is ended by itself. fsync locks none."""
    def kill(client):
        for _ in range(200):
            for operation in client.admin.aggregate([{"$currentOp": {}}, {"$match": {"command.comment": "endless"}}]):
                client.admin.command("killOp", op=operation["opid"])
                return True
            time.sleep(0.05)
        return False

    with tagged.direct(0) as direct, tagged.direct(1, read_preference=ReadPreference.SECONDARY) as secondary:
        pads = direct.get_database("shop", write_concern=WriteConcern(3, wtimeout=20_000)).pads
        pads.insert_many({"pad": "x" * 100} for _ in range(1000))
        endless = [{"$lookup": {"from": "pads", "pipeline": [], "as": "all"}}, {"$unwind": "$all"}, {"$unset": "_id"}]
        killer = threading.Timer(0.5, lambda: kill(secondary))
        killer.start()
        with pytest.raises(pymongo.errors.OperationFailure) as killed:
            secondary.shop.pads.aggregate([*endless, {"$out": "copies"}], comment="endless")
        killer.join()
        assert killed.value.code == 11601
        assert kill(direct)
        assert refusal(secondary, "fsync", 1, database="admin", lock=True).code == 238


def test_a_journaled_majority_waits_for_disks_where_the_configuration_does_not():
    """With writeConcernMajorityJournalDefault: false a majority need not have synced, unless the client asks for j: true."""
    faults = [MachineFaults() for _ in range(3)]
    environments = [fault.environment() for fault in faults]
    with ReplicaSet(settings=STILL, environments=environments,
                    members=[{}, {"priority": 0}, {"priority": 0}]) as members, members.direct(0) as direct:
        configuration = direct.admin.command("replSetGetConfig")["config"]
        configuration |= {"version": configuration["version"] + 1, "writeConcernMajorityJournalDefault": False}
        direct.admin.command("replSetReconfig", configuration)
        assert insert(direct, {"w": "majority", "j": True, "wtimeout": 20_000})["n"] == 1
        # Of two writes a secondary takes the second one only when it has synced the first.
        for concern, code in [({"w": "majority", "wtimeout": 20_000}, 0),
                              ({"w": "majority", "j": True, "wtimeout": 300}, 64)]:
            for fault in faults[1:]:
                fault.hold_syncs(True)
            try:
                assert concern_error(direct, concern)["code"] == code
            finally:
                for fault in faults[1:]:
                    fault.hold_syncs(False)
            assert concern_error(direct, {"w": "majority", "j": True, "wtimeout": 20_000})["code"] == 0


def test_a_majority_read_waits_for_the_disk_of_the_member_that_answers():
    """The others' disks have committed what it saw; were this member to lose power, its next answer would be older."""
    faults = [MachineFaults() for _ in range(3)]
    environments = [fault.environment() for fault in faults]
    with ReplicaSet(settings=STILL, environments=environments,
                    members=[{}, {"priority": 0}, {"priority": 0}]) as members, members.direct(0) as direct, \
            members.direct(1, read_preference=ReadPreference.SECONDARY) as secondary:
        carts = direct.shop.get_collection("carts", write_concern=WriteConcern("majority", wtimeout=20_000))
        carts.insert_one({"_id": 0})
        members.await_that(lambda: secondary.shop.carts.find_one({"_id": 0}), "the first on the secondary")
        answered = []

        def read():
            cart = secondary.shop.get_collection("carts", read_concern=ReadConcern("majority")).find_one({"_id": 1})
            answered.append(cart)

        faults[1].hold_syncs(True)
        try:
            carts.insert_one({"_id": 1})
            members.await_that(lambda: secondary.shop.carts.find_one({"_id": 1}), "the second, not synced")
            reader = threading.Thread(target=read)
            reader.start()
            reader.join(1)
            committed = secondary.admin.command("replSetGetStatus")["optimes"]
            assert committed["lastCommittedOpTime"]["ts"] > committed["durableOpTime"]["ts"]
            assert not answered, "it has not synced what it answers"
        finally:
            faults[1].hold_syncs(False)
        reader.join(20)
        assert answered == [{"_id": 1}]
