"""What operators do to members: stop them, make them hand over, freeze and tend them."""

import signal
import threading
import time
import uuid

import pymongo
import pytest
from bson import Binary, Int64, Timestamp
from pymongo import ReadPreference, WriteConcern

from member import Member
from raw import Raw
from replica_set import ReplicaSet

SOON = {"electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 200}

# What a driver may send again elsewhere.
RETRYABLE = {91, 189, 10107, 11600, 11602, 13435, 13436}


@pytest.fixture(scope="module")
def trio():
    """Three members that the tests leave running."""
    with ReplicaSet(settings=SOON) as members:
        yield members


class Refusal:
    """What a command is refused with, whatever exception the driver makes of it."""

    def __init__(self, error):
        self.code = error.details["code"]
        self.message = error.details["errmsg"]


def refusal(client, *arguments, database="admin", **more):
    """The error that a command is answered with."""
    with pytest.raises((pymongo.errors.OperationFailure, pymongo.errors.NotPrimaryError)) as refused:
        client[database].command(*arguments, **more)
    return Refusal(refused.value)


class Stopped:
    """Members that stand still as long as this context lasts."""

    def __init__(self, members, *indexes):
        self.members, self.indexes = members, indexes

    def __enter__(self):
        self.members.pause(*self.indexes)

    def __exit__(self, *_):
        self.members.resume(*self.indexes)


def secondary_of(members):
    """The index of a member that is not primary."""
    return next(i for i in range(len(members.members)) if i != members.primary())


def test_a_primary_that_is_stopped_hands_over_first():
    """SIGTERM under load: another member is primary before the process ends, and no write of an application fails."""
    with ReplicaSet(settings=SOON) as members, members.client() as client:
        carts = client.get_database("shop", write_concern=WriteConcern("majority")).carts
        stop, failures, written = threading.Event(), [], []

        def write(worker):
            number = 0
            while not stop.is_set():
                try:
                    carts.insert_one({"_id": f"{worker}-{number}"})
                    written.append(f"{worker}-{number}")
                except pymongo.errors.PyMongoError as error:
                    failures.append(error)
                number += 1

        carts.insert_one({"_id": "first"})
        writers = [threading.Thread(target=write, args=(n,)) for n in range(4)]
        for writer in writers:
            writer.start()
        stopped = members.primary()
        members.members[stopped].stop()
        assert "handed over" not in members.members[stopped].log(400)
        after = members.primary()
        assert after != stopped
        count = len(written)
        deadline = time.monotonic() + 20
        while len(written) < count + 50:
            assert time.monotonic() < deadline, "writes do not go on"
            time.sleep(0.01)
        stop.set()
        for writer in writers:
            writer.join()
        assert not failures, failures[:3]
        assert {d["_id"] for d in carts.find()} == {"first", *written}
        members.members[stopped].spawn()
        members.await_states()
        members.await_equal()


def test_a_member_that_stops_tells_drivers_and_serves_what_still_comes():
    """In quiesce mode hello is answered with 91 and the time that is left, at once where a driver waits; reads are served."""
    with ReplicaSet(settings=SOON) as members:
        index = secondary_of(members)
        member = members.members[index]
        with members.client() as client:
            client.get_database("shop", write_concern=WriteConcern(3)).carts.insert_one({"_id": 1})
        awaited = {}
        # A connection of each kind by hand, since a driver would turn away.
        waiting, reading = Raw(member), Raw(member)
        version = waiting.command("admin", {"hello": 1})["topologyVersion"]

        def wait():
            awaited["reply"] = waiting.command(
                "admin", {"hello": 1, "topologyVersion": version, "maxAwaitTimeMS": Int64(20_000)})

        find = {"find": "carts", "$readPreference": {"mode": "secondary"}}
        assert reading.command("shop", find)["ok"]
        waiter = threading.Thread(target=wait)
        waiter.start()
        member.process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        while waiter.is_alive():
            assert reading.command("shop", find)["cursor"]["firstBatch"] == [{"_id": 1}]
            assert time.monotonic() < began + 10, "nobody told the driver that waited"
        reply = awaited["reply"]
        assert (reply["code"], reply["codeName"]) == (91, "ShutdownInProgress")
        assert 0 < reply["remainingQuiesceTimeMillis"] <= 15_000
        assert reply["topologyVersion"]["counter"] > version["counter"]
        for _ in range(20):
            assert reading.command("shop", find)["cursor"]["firstBatch"] == [{"_id": 1}]
        assert reading.command("admin", {"hello": 1})["code"] == 91
        assert reading.command("shop", {"insert": "carts", "documents": [{"_id": 2}]})["code"] == 10107
        # Once nobody asks any more it ends, long before the time is up.
        assert member.process.wait(12) == 0
        waiting.socket.close()
        reading.socket.close()


def test_a_member_alone_stops_at_once(own_member):
    """There is nobody to hand over to, and nothing to wait for."""
    with own_member.client() as client:
        client.shop.carts.insert_one({"_id": 1})
    began = time.monotonic()
    own_member.stop()
    assert time.monotonic() - began < 10


def test_the_shutdown_command_needs_somebody_to_take_over_or_force():
    """Without a member that catches up `shutdown` is refused with 262 and the primary goes on; force stops it."""
    with ReplicaSet(settings={**SOON, "electionTimeoutMillis": 20_000}) as members:
        primary = members.primary()
        others = [members.members[i] for i in range(3) if i != primary]
        with members.direct(primary) as direct:
            direct.shop.carts.insert_one({"_id": 1})
            for member in others:
                member.kill()
            direct.shop.carts.with_options(write_concern=WriteConcern(1)).insert_one({"_id": 2})
            assert refusal(direct, "shutdown", timeoutSecs=1).code == 262
            assert direct.admin.command("hello")["isWritablePrimary"]
            direct.shop.carts.with_options(write_concern=WriteConcern(1)).insert_one({"_id": 3})
            try:
                direct.admin.command("shutdown", force=True, timeoutSecs=1)
            except pymongo.errors.AutoReconnect:
                pass
        assert members.members[primary].process.wait(20) == 0


def test_a_step_down_that_nobody_can_follow_is_refused_and_writes_go_on():
    """262 after secondaryCatchUpPeriodSecs; with force the primary steps down all the same."""
    with ReplicaSet(settings={**SOON, "electionTimeoutMillis": 20_000}) as members:
        primary = members.primary()
        others = [i for i in range(3) if i != primary]
        with members.direct(primary) as direct, Stopped(members, *others):
            carts = direct.shop.get_collection("carts", write_concern=WriteConcern(1))
            carts.insert_one({"_id": 1})
            began = time.monotonic()
            error = refusal(direct, "replSetStepDown", 60, secondaryCatchUpPeriodSecs=1)
            assert error.code == 262 and "No electable secondaries caught up" in error.message
            assert time.monotonic() - began < 10
            carts.insert_one({"_id": 2})
            # A client that gives up ends the attempt.
            error = refusal(direct, "replSetStepDown", 60, secondaryCatchUpPeriodSecs=30, maxTimeMS=300)
            assert error.code == 50
            carts.insert_one({"_id": 3})
            direct.admin.command("replSetStepDown", 60, force=True)
            assert not direct.admin.command("hello")["isWritablePrimary"]


def test_a_step_down_checks_what_it_is_asked(trio):
    """MongoDB's codes for periods that make no sense, and for a member that is not primary."""
    with trio.direct(trio.primary()) as direct:
        assert refusal(direct, "replSetStepDown", -1).code == 2
        assert "longer than secondaryCatchUpPeriodSecs" in refusal(direct, "replSetStepDown", 5).message
        assert refusal(direct, "replSetStepDown", 60, secondaryCatchUpPeriodSecs=-1).code == 2
        assert refusal(direct, "replSetStepDown", 60, secondaryCatchUpPeriodSecs="x").code == 14
        assert direct.admin.command("hello")["isWritablePrimary"]
    with trio.direct(secondary_of(trio)) as direct:
        assert refusal(direct, "replSetStepDown", 60).code == 10107


def test_writes_in_flight_at_a_step_down_fail_with_what_drivers_retry():
    """Clients that retry nothing see only errors of the member's change of part; retryable writes are labelled so."""
    with ReplicaSet(settings=SOON) as members:
        primary = members.primary()
        with members.direct(primary) as direct:
            direct.shop.carts.insert_one({"_id": "first"})
            replies, stop = [], threading.Event()

            def write(worker):
                with members.direct(primary, retryWrites=False) as own:
                    lsid = {"id": Binary(uuid.uuid4().bytes, 4)}
                    number = 0
                    while not stop.is_set():
                        number += 1
                        replies.append(own.shop.command(
                            {"insert": "carts", "documents": [{"_id": f"{worker}-{number}"}], "lsid": lsid,
                             "txnNumber": Int64(number), "writeConcern": {"w": "majority"}}, check=False))
                        if not replies[-1]["ok"]:
                            return

            writers = [threading.Thread(target=write, args=(n,)) for n in range(8)]
            for writer in writers:
                writer.start()
            while len(replies) < 100:
                time.sleep(0.01)
            direct.admin.command("replSetStepDown", 30)
            for writer in writers:
                writer.join(20)
                assert not writer.is_alive(), "a write hangs after the step-down"
            stop.set()
        failures = [reply for reply in replies if not reply["ok"] or "writeConcernError" in reply]
        assert failures, "no write was in flight"
        for reply in failures:
            code = reply["code"] if not reply["ok"] else reply["writeConcernError"]["code"]
            assert code in RETRYABLE, reply
            assert "RetryableWriteError" in reply["errorLabels"], reply
        members.await_states()
        members.await_equal()


def test_who_is_refused_because_leadership_moves_is_told_at_once_that_it_does_not_lead():
    """A driver that is refused asks who leads and sends the write again, once: had the member that stepped down still said that it
    leads, that would be refused too, and the application would see it."""
    with ReplicaSet(settings=SOON) as members:
        asked = 0
        for _ in range(4):
            primary, claims = members.primary(), []

            def write(worker):
                with members.direct(primary, retryWrites=False, maxPoolSize=1) as own:
                    while True:
                        reply = own.shop.command({"insert": "carts", "documents": [{}], "writeConcern": {"w": 1}}, check=False)
                        if not reply["ok"]:
                            hello = own.admin.command("hello")
                            is_newer = hello["topologyVersion"]["counter"] >= reply["topologyVersion"]["counter"]
                            claims.append((reply["code"], hello["isWritablePrimary"], is_newer))
                            return

            writers = [threading.Thread(target=write, args=(n,)) for n in range(8)]
            for writer in writers:
                writer.start()
            time.sleep(0.3)
            with members.direct(primary) as direct:
                direct.admin.command("replSetStepDown", 5, secondaryCatchUpPeriodSecs=4)
            for writer in writers:
                writer.join(20)
            assert claims == [(10107, False, True)] * len(writers)
            asked += len(claims)
            members.await_states()
        assert asked == 32


def test_a_handoff_explains_itself_and_goes_to_whom_it_is_told():
    """replSetHandoff ranks the members in a dry run, refuses a target that cannot be, and moves leadership where it is told."""
    options = [{}, {"priority": 2}, {}, {"priority": 0, "votes": 0}]
    with ReplicaSet(settings={**SOON, "electionTimeoutMillis": 5000}, members=options) as members:
        hosts = members.hosts
        deadline = time.monotonic() + 30
        while members.primary() != 1:
            assert time.monotonic() < deadline, "the member of the highest priority does not take over"
            time.sleep(0.1)
        with members.direct(1) as direct:
            direct.get_database("shop", write_concern=WriteConcern(4)).carts.insert_one({"_id": 1})
            dry = direct.admin.command("replSetHandoff", 1, dryRun=True)
            assert dry["from"] == hosts[1] and dry["to"] in (hosts[0], hosts[2])
            assert [place["chosen"] for place in dry["ranking"]] == [True, False, False]
            assert dry["ranking"][2]["host"] == hosts[3] and "priority" in dry["ranking"][2]["why"]
            assert refusal(direct, "replSetHandoff", 1, to=hosts[3]).code == 104
            assert refusal(direct, "replSetHandoff", 1, to="127.0.0.1:1").code == 74
            assert direct.admin.command("hello")["isWritablePrimary"]
            done = direct.admin.command("replSetHandoff", 1, to=hosts[2])
            assert done["to"] == hosts[2]
            assert 0 < done["writeGapMs"] < 5000
            assert members.primary() == 2
            handoffs = direct.admin.command("replSetGetStatus")["handoffs"]
            assert (handoffs[-1]["to"], handoffs[-1]["trigger"]) == (hosts[2], "replSetHandoff")
            assert refusal(direct, "replSetHandoff", 1).code == 10107


def test_freezing_checks_the_member_and_the_time(trio):
    """A frozen member does not stand; a primary is not frozen (95)."""
    with trio.direct(trio.primary()) as direct:
        assert refusal(direct, "replSetFreeze", 10).code == 95
    with trio.direct(secondary_of(trio)) as direct:
        assert direct.admin.command("replSetFreeze", 60)["info"] == "freezing"
        assert refusal(direct, "replSetStepUp", 1).code == 125
        assert direct.admin.command("replSetFreeze", 0)["info"] == "unfreezing"
        assert "warning" in direct.admin.command("replSetFreeze", 1)
        assert refusal(direct, "replSetFreeze", -3).code == 2
        direct.admin.command("replSetFreeze", 0)


def test_a_sync_source_is_one_that_can_be(trio):
    """Self, strangers and a primary's own wish are refused; another member is taken and shown."""
    primary = trio.primary()
    index = secondary_of(trio)
    other = next(i for i in range(3) if i not in (primary, index))
    with trio.direct(primary) as direct:
        assert refusal(direct, "replSetSyncFrom", trio.hosts[index]).code == 95
        # Something to fetch, so that every member has a source.
        direct.get_database("shop", write_concern=WriteConcern(3)).carts.insert_one({"_id": str(uuid.uuid4())})
    with trio.direct(index) as direct:
        assert refusal(direct, "replSetSyncFrom", trio.hosts[index]).code == 72
        assert refusal(direct, "replSetSyncFrom", "127.0.0.1:1").code == 74
        assert refusal(direct, "replSetSyncFrom", 7).code == 14
        assert direct.admin.command("replSetSyncFrom", trio.hosts[other])["syncFromRequested"] == trio.hosts[other]
        direct.admin.command("replSetSyncFrom", trio.hosts[primary])


def test_maintenance_lasts_until_it_was_ended_as_often_as_begun(trio):
    """RECOVERING meanwhile, which nobody reads from; ending what has not begun is 96, and a primary refuses."""
    with trio.direct(trio.primary()) as direct:
        assert refusal(direct, "replSetMaintenance", True).code == 95
    with trio.direct(secondary_of(trio), read_preference=ReadPreference.SECONDARY) as direct:
        def state():
            return direct.admin.command("replSetGetStatus")["myState"]

        direct.admin.command("replSetMaintenance", True)
        direct.admin.command("replSetMaintenance", True)
        direct.admin.command("replSetMaintenance", False)
        assert state() == 3
        assert refusal(direct, "find", "carts", database="shop").code == 13436
        direct.admin.command("replSetMaintenance", False)
        assert state() == 2
        assert refusal(direct, "replSetMaintenance", False).code == 96


def test_catching_up_is_aborted_only_where_it_happens(trio):
    """20 from a member that is not catching up."""
    with trio.direct(trio.primary()) as direct:
        assert refusal(direct, "replSetAbortPrimaryCatchUp", 1).code == 20


def test_a_member_stands_when_it_is_told_to(trio):
    """replSetStepUp makes a secondary primary, and is nothing to the one that is."""
    index = secondary_of(trio)
    with trio.direct(index) as direct:
        direct.admin.command("replSetStepUp", 1)
    deadline = time.monotonic() + 20
    while trio.primary() != index:
        assert time.monotonic() < deadline, "it was not elected"
    with trio.direct(index) as direct:
        direct.admin.command("replSetStepUp", 1)
    trio.await_states()


def test_the_figures_of_replication_are_counted(trio):
    """electionCandidateMetrics, electionTime, serverStatus's electionMetrics and metrics.repl, and /metrics, of a set at work."""
    import urllib.request
    primary = trio.primary()
    index = secondary_of(trio)
    with trio.direct(primary) as direct, trio.direct(index, read_preference=ReadPreference.SECONDARY) as secondary:
        carts = direct.get_database("shop", write_concern=WriteConcern(3, wtimeout=20_000)).carts
        carts.insert_many({"_id": f"figure-{i}"} for i in range(50))
        direct.get_database("shop", write_concern=WriteConcern("majority")).carts.insert_one({"_id": "figures"})
        status = direct.admin.command("replSetGetStatus")
        election = status["electionCandidateMetrics"]
        assert election["electionTerm"] == status["term"] and election["numVotesNeeded"] == 2
        assert election["lastElectionDate"] <= election["newTermStartDate"] <= election["wMajorityWriteAvailabilityDate"]
        own = next(member for member in status["members"] if member.get("self"))
        assert own["electionTime"].as_datetime().timestamp() == pytest.approx(own["electionDate"].timestamp(), abs=1.5)
        figures = direct.admin.command("serverStatus")
        called = [kind["successful"] for kind in figures["electionMetrics"].values() if isinstance(kind, dict)]
        assert sum(called) >= 1
        assert figures["metrics"]["repl"]["majorityWaits"]["num"] >= 1
        assert secondary.admin.command("replSetGetStatus")["syncSourceHost"] in trio.hosts
        repl = secondary.admin.command("serverStatus")["metrics"]["repl"]
        assert repl["apply"]["ops"] >= 50 and repl["network"]["bytes"] > 0 and repl["syncSource"]["numSelections"] >= 1
        assert secondary.admin.command("serverStatus")["opcountersRepl"]["insert"] >= 50
    page = urllib.request.urlopen(f"http://127.0.0.1:{trio.members[primary].port + 1000}/metrics", timeout=10).read().decode()
    for name in ["baton_member_lag_seconds", "baton_elections_won_total{reason=", "baton_majority_wait_seconds_total"]:
        assert name in page, name


def test_members_of_different_versions_refuse_each_other_and_say_why():
    """One of three members comes back as one of another version of what members say to each other. Fails if it is fetched from,
    fetches, is voted for or counts for a majority; if an election comes of it; if nobody says why; or if it is not as the others once
    it is of their version."""
    with ReplicaSet(settings=SOON) as members, members.client() as client:
        shop = client.get_database("shop", write_concern=WriteConcern("majority", wtimeout=30_000))
        shop.carts.insert_one({"_id": 0})
        members.await_equal()
        members.stand(0)
        other = members.members[2]
        other.stop()
        other.parameters["testProtocolVersion"] = 77
        terms = members.check_terms()
        other.spawn()

        def said_of(index, of):
            with members.direct(index) as direct:
                return direct.admin.command("replSetGetStatus")["members"][of]

        for index, of in ((0, 2), (1, 2), (2, 0), (2, 1)):
            members.await_that(
                lambda index=index, of=of: members.hello(index) and
                "different versions of the protocol" in said_of(index, of)["lastHeartbeatMessage"],
                f"member {index} says of member {of} what is wrong")
            said = said_of(index, of)
            assert "77" in said["lastHeartbeatMessage"] and said["health"] == 0 and said["state"] in (6, 8), said
            warned = [line for line in members.members[index].log_path.read_text().splitlines()
                      if '"s":"W"' in line and "cannot be worked with" in line and f'"member":{of}' in line]
            assert len(warned) == 1, warned
        for number in range(1, 20):
            shop.carts.insert_one({"_id": number})
        time.sleep(3 * SOON["electionTimeoutMillis"] / 1000)
        assert members.hello(0)["isWritablePrimary"] and members.check_terms() == terms, members.logs()
        with members.direct(2, read_preference=ReadPreference.SECONDARY_PREFERRED) as direct:
            assert direct.shop.carts.count_documents({}) == 1
            heartbeat = {"replSetHeartbeat": "rs0", "configVersion": 1, "hbv": 1, "from": "", "fromId": -1, "term": 1, "state": 1,
                         "primaryId": -1, **{name: {"ts": Timestamp(0, 0), "t": 0}
                                             for name in ("writtenOpTime", "opTime", "durableOpTime", "commitPoint")}}
            assert refusal(direct, heartbeat).code == 188
        reply = client.shop.command("insert", "carts", documents=[{"_id": "all"}], writeConcern={"w": 3, "wtimeout": 500}, check=False)
        assert reply["writeConcernError"]["code"] == 64, reply
        other.stop()
        del other.parameters["testProtocolVersion"]
        other.spawn()
        members.await_healthy()
        assert said_of(0, 2)["lastHeartbeatMessage"] == "" and said_of(0, 2)["health"] == 1


def test_a_version_is_pretended_only_where_there_are_commands_for_tests():
    """Fails if a member outside of tests can be told to say that it is of another version."""
    member = Member(parameters={"testProtocolVersion": 3})
    try:
        member.spawn()
        assert member.process.wait(20) == 2 and "enableTestCommands" in member.log()
    finally:
        member.remove()
