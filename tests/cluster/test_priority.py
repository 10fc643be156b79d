"""Requests of different classes: who says of which class one is, who waits for whom, and for how long at most."""

import contextlib
import os
import pathlib
import subprocess
import threading
import time
import urllib.request
import uuid

import bson
import pymongo
import pytest
from bson.binary import Binary, UuidRepresentation
from pymongo import ReadPreference

from raw import Raw
from replica_set import ReplicaSet
from test_members import Stopped

# Nobody stands for election, nor steps down, while a test holds members still.
STILL = {"electionTimeoutMillis": 60_000, "heartbeatIntervalMillis": 200}
WAITS = "waiting for its turn: requests of its class or of higher ones are in progress"


@pytest.fixture(scope="module")
def members():
    """Three members, of which the first is primary."""
    with ReplicaSet(settings=STILL, members=[{}, {"priority": 0}, {"priority": 0}]) as members:
        assert members.primary() == 0
        with members.direct(0) as direct:
            direct.shop.command("insert", "carts", documents=[{"_id": n} for n in range(100)], writeConcern={"w": 3})
        yield members


def configure(members, **priority):
    """Gives the set these settings of priority, and waits until the primary goes by them."""
    with members.direct(0) as client:
        config = client.admin.command("replSetGetConfig")["config"]
        config["version"] += 1
        config["settings"]["priority"] = priority
        client.admin.command("replSetReconfig", config)
        stored = client.admin.command("replSetGetConfig")["config"]["settings"]["priority"]
        for name, value in priority.items():
            assert stored[name] == value
        members.await_that(lambda: status(client)["mode"] == priority.get("mode", "full"), "the mode")


def status(client):
    """What the member tells of priorities."""
    return client.admin.command("serverStatus")["priority"]


def own(client, session=None, **fields):
    """The class of a request, and by whose word, as the request itself sees it."""
    command = {"aggregate": 1, "pipeline": [{"$currentOp": {}}], "cursor": {}, "comment": str(uuid.uuid4()), **fields}
    shown = client.admin.command(command, session=session)["cursor"]["firstBatch"]
    op = next(op for op in shown if op.get("command", {}).get("comment") == command["comment"])
    return op["class"], op["priority"]["source"]


def lsid():
    """A session that no driver manages."""
    return {"id": Binary.from_uuid(uuid.uuid4(), UuidRepresentation.STANDARD)}


def test_the_most_specific_word_counts_request_session_connection_rule(members):
    configure(members, rules=[{"match": {"appName": "report*"}, "priority": "low"},
                              {"match": {"command": "aggregate"}, "priority": "high"}])
    with members.direct(0) as plain, members.direct(0, appname="report-nightly") as report:
        assert own(plain) == ("high", "rule")
        assert own(report) == ("low", "rule"), "the first that matches"
        before = [rule["matched"] for rule in status(plain)["rules"]]
        own(report)
        after = [rule["matched"] for rule in status(plain)["rules"]]
        assert [b - a for a, b in zip(before, after)] == [1, 0]
        assert status(plain)["rules"][0]["match"] == {"appName": "report*"}
        with report.start_session() as session:
            reply = report.admin.command("setClientPriority", priority="normal", session=session)
            assert (reply["was"], reply["priority"], reply["of"]) == ("normal", "normal", "session")
            assert own(report, session) == ("normal", "session")
            assert own(report, session, priority="high") == ("high", "request")
            assert own(report, session) == ("normal", "session"), "for that one request"
        configure(members, rules=[])
        assert own(plain) == ("normal", "default"), "changed at run time"
    with Raw(members.members[0]) as raw:
        def seen(**fields):
            reply = raw.command("admin", {"aggregate": 1, "pipeline": [{"$currentOp": {}}], "cursor": {}, "comment": "raw", **fields})
            op = next(op for op in reply["cursor"]["firstBatch"] if op.get("command", {}).get("comment") == "raw")
            return op["class"], op["priority"]["source"]

        assert raw.command("admin", {"setClientPriority": 1, "priority": "low"})["of"] == "connection"
        assert seen() == ("low", "connection")
        session = lsid()
        assert raw.command("admin", {"setClientPriority": 1, "priority": "high", "lsid": session})["of"] == "session"
        assert seen(lsid=session) == ("high", "session")
        assert seen(lsid=lsid()) == ("low", "connection")


def test_a_session_takes_its_class_along_whichever_connection_carries_it(members):
    configure(members)
    session = lsid()
    with Raw(members.members[0]) as one, Raw(members.members[0]) as other:
        one.command("admin", {"setClientPriority": 1, "priority": "high", "lsid": session})
        command = {"aggregate": 1, "pipeline": [{"$currentOp": {}}], "cursor": {}, "comment": "other"}
        shown = other.command("admin", {**command, "lsid": session})["cursor"]["firstBatch"]
        assert {op["class"] for op in shown if op.get("command", {}).get("comment") == "other"} == {"high"}
        shown = other.command("admin", command)["cursor"]["firstBatch"]
        assert {op["class"] for op in shown if op.get("command", {}).get("comment") == "other"} == {"normal"}


def test_a_rule_by_namespace_command_and_comment(members):
    configure(members, rules=[{"match": {"ns": "shop.*", "comment": "nightly*"}, "priority": "low"},
                              {"match": {"user": "*"}, "priority": "high"}])
    with members.direct(0) as client:
        before = [rule["matched"] for rule in status(client)["rules"]]
        client.shop.command("count", "carts", comment="nightly-7")
        client.shop.command("count", "carts", comment="daily")
        client.other.command("count", "carts", comment="nightly-7")
        after = [rule["matched"] for rule in status(client)["rules"]]
        assert [b - a for a, b in zip(before, after)] == [1, 0], "nobody has authenticated, so no user matches"
    configure(members, rules=[{"match": {"appName": f"application-{n}"}, "priority": "low"} for n in range(999)]
              + [{"match": {}, "priority": "high"}])
    with members.direct(0) as client:
        assert own(client) == ("high", "rule")
        assert status(client)["rules"][999]["matched"] >= 1
    configure(members)


@contextlib.contextmanager
def present(members, priority, **fields):
    """A request of this class that is in progress as long as this lasts: it waits for a majority."""
    client = members.direct(0)
    document = {"_id": str(uuid.uuid4())}

    def write():
        with contextlib.suppress(pymongo.errors.PyMongoError):
            client.shop.command("insert", "held", documents=[document], writeConcern={"w": "majority"}, priority=priority, **fields)

    with Stopped(members, 1, 2):
        thread = threading.Thread(target=write)
        thread.start()
        with members.direct(0) as observer:
            members.await_that(lambda: any(op["class"] == priority and op.get("ns") == "shop.held"
                                           and op.get("msg") == "waiting for a majority to have what was written"
                                           for op in observer.admin.command("currentOp")["inprog"]), "that it waits")
        yield
    thread.join(30)
    client.close()


class Request:
    """One that runs on a thread of its own."""

    def __init__(self, client, command):
        self.outcome, self.seconds = None, None
        self.thread = threading.Thread(target=self._run, args=(client, command))
        self.thread.start()

    def _run(self, client, command):
        began = time.monotonic()
        try:
            self.outcome = client.shop.command(command)
        except pymongo.errors.OperationFailure as error:
            self.outcome = error.details
        except pymongo.errors.PyMongoError as error:
            self.outcome = {"broken": repr(error)}
        self.seconds = time.monotonic() - began

    def join(self):
        """Its outcome."""
        self.thread.join(30)
        assert not self.thread.is_alive()
        return self.outcome


def waiting(client):
    """Who waits for their turn, by comment."""
    shown = client.admin.command("currentOp")["inprog"]
    return {op["command"]["comment"]: op["opid"] for op in shown if op.get("msg") == WAITS}


def test_at_the_checkpoint_a_low_request_waits_while_a_high_one_is_in_progress(members):
    configure(members, mode="checkpoint", worstWaitMs=20_000)
    with members.direct(0) as client, members.direct(0) as observer:
        with present(members, "high"):
            request = Request(client, {"count": "carts", "comment": "low one", "priority": "low"})
            members.await_that(lambda: "low one" in waiting(observer), "that it waits")
            shown = [op for op in observer.admin.command("currentOp")["inprog"] if op.get("msg") == WAITS]
            assert [(op["class"], op["priority"]["source"], op["priority"]["waitsFor"]) for op in shown] == [("low", "request", {"high": 1})]
            assert 0 < shown[0]["priority"]["waitedMicros"] <= shown[0]["microsecs_running"]
            # A soft checkpoint: these pass always, on whichever connection.
            assert observer.admin.command("ping", priority="low")["ok"] == 1
            assert observer.admin.command("hello", priority="low")["ok"] == 1
            assert observer.admin.command("setClientPriority", priority="low")["ok"] == 1
            assert observer.shop.command("count", "carts", priority="high")["n"] == 100
            seen = status(observer)["classes"]
            assert (seen["low"]["waiting"], seen["high"]["present"]) == (1, 1)
            assert request.outcome is None
        assert request.join()["n"] == 100
        low = status(observer)["classes"]["low"]
        assert low["waited"] >= 1 and low["worstWaitMicros"] > 0 and low["waiting"] == 0


def test_nobody_waits_longer_than_the_worst_wait(members):
    configure(members, mode="checkpoint", worstWaitMs=300)
    with members.direct(0) as client, members.direct(0) as observer:
        before = status(observer)["classes"]["low"]["aged"]
        with present(members, "high"):
            requests = [Request(client, {"count": "carts", "comment": f"low {n}", "priority": "low"}) for n in range(5)]
            assert [request.join()["n"] for request in requests] == [100] * 5
        assert status(observer)["classes"]["low"]["aged"] == before + 5
        # The bound, and what the machine takes to run a thread.
        assert status(observer)["worstWaitMs"] == 300
        assert max(request.seconds for request in requests) < 5


def test_who_is_killed_hangs_up_or_is_out_of_time_while_he_waits_is_gone(members):
    configure(members, mode="checkpoint", worstWaitMs=60_000)
    with members.direct(0) as client, members.direct(0) as observer, Raw(members.members[0]) as raw:
        with present(members, "high"):
            killed = Request(client, {"count": "carts", "comment": "killed", "priority": "low"})
            late = Request(client, {"count": "carts", "comment": "late", "priority": "low", "maxTimeMS": 300})
            raw.message(bson.encode({"count": "carts", "$db": "shop", "comment": "gone", "priority": "low"}))
            members.await_that(lambda: {"killed", "gone"} <= set(waiting(observer)), "that they wait")
            observer.admin.command("killOp", op=waiting(observer)["killed"])
            assert killed.join()["code"] == 11601
            assert late.join()["code"] == 50
            raw.socket.close()
            members.await_that(lambda: not waiting(observer), "that nobody waits")
        low = status(observer)["classes"]["low"]
        assert low["waiting"] == 0 and low["gaveUp"] >= 2


def test_a_class_that_is_changed_while_a_request_waits_is_that_of_the_next_one(members):
    configure(members, mode="checkpoint", worstWaitMs=20_000)
    session = lsid()
    with members.direct(0) as client, members.direct(0) as observer, Raw(members.members[0]) as raw:
        raw.command("admin", {"setClientPriority": 1, "priority": "low", "lsid": session})
        with present(members, "high"):
            request = Request(client, {"count": "carts", "comment": "before", "lsid": session})
            members.await_that(lambda: "before" in waiting(observer), "that it waits")
            assert raw.command("admin", {"setClientPriority": 1, "priority": "high", "lsid": session})["was"] == "low"
            assert raw.command("shop", {"count": "carts", "lsid": session})["n"] == 100, "of high class, it does not wait"
            assert "before" in waiting(observer) and request.outcome is None, "as it came"
        assert request.join()["n"] == 100
    configure(members)


@pytest.mark.parametrize("settings", [{}, {"mode": "checkpoint", "workConserving": True}], ids=["full", "checkpoint"])
def test_one_that_waits_for_others_only_keeps_nobody_waiting_where_work_is_conserved(members, settings):
    configure(members, worstWaitMs=60_000, **settings)
    with members.direct(0) as client:
        assert client.admin.command("serverStatus")["priority"]["workConserving"] is True
    # One that is in a hurry is counted, however short.
    with members.direct(0) as client, present(members, "high", maxTimeMS=4500):
        assert client.shop.command("count", "carts", priority="low")["n"] == 100
        assert status(client)["classes"]["high"]["present"] == 1
        assert status(client)["classes"]["high"]["computing"] == 0


def niceness_of_thread(member, name):
    """Of the member's thread with this name, if it has one."""
    for task in pathlib.Path(f"/proc/{member.pid}/task").iterdir():
        with contextlib.suppress(OSError):
            if (task / "comm").read_text().strip() == name:
                return int((task / "stat").read_text().rpartition(")")[2].split()[16])
    return None


def niceness_of(member, connection):
    """Of a connection's own thread, which it has from its first request on whose class is not normal."""
    return niceness_of_thread(member, f"conn{connection}")


def test_a_thread_has_the_niceness_of_its_class(members):
    configure(members)
    member = members.members[0]
    with members.direct(0) as client:
        right = status(client)["niceness"]
        if right != "all":
            with members.direct(0) as observer:
                warnings = observer.admin.command("getLog", "startupWarnings")["log"]
            assert any("niceness" in line for line in warnings), "it says what it may not do"
            return
    with Raw(member) as raw:
        connection = raw.command("admin", {"hello": 1})["connectionId"]
        usual = niceness_of_thread(member, "worker")
        for priority, niceness in [("high", -20), ("low", 19), ("normal", usual)]:
            raw.command("admin", {"setClientPriority": 1, "priority": priority})
            raw.command("admin", {"ping": 1})
            # It is that while the next request is awaited, too: that one is read as what the connection is.
            members.await_that(lambda: niceness_of(member, connection) == niceness, priority)
        raw.command("admin", {"ping": 1, "priority": "low"})
        members.await_that(lambda: niceness_of(member, connection) == usual, "as before the one request")
    configure(members, mode="off")
    with Raw(member) as raw:
        connection = raw.command("admin", {"hello": 1})["connectionId"]
        raw.command("admin", {"setClientPriority": 1, "priority": "high"})
        raw.command("admin", {"ping": 1})
        members.await_that(lambda: niceness_of(member, connection) == usual, "as if it had said nothing")
    configure(members)


def test_one_of_low_class_that_lasts_has_a_tenth_of_the_weight_until_it_ends(members):
    configure(members, worstWaitMs=1000)
    member = members.members[0]
    with members.direct(0) as client:
        if status(client)["niceness"] != "all":
            return
        client.shop.command("create", "tail", capped=True, size=4096)
        client.shop.command("insert", "tail", documents=[{"_id": 0}])
    with Raw(member) as raw:
        connection = raw.command("admin", {"hello": 1})["connectionId"]
        raw.command("admin", {"setClientPriority": 1, "priority": "low"})
        cursor = raw.command("shop", {"find": "tail", "tailable": True, "awaitData": True})["cursor"]["id"]
        more = {"getMore": bson.Int64(cursor), "collection": "tail", "maxTimeMS": 4000}
        asks = threading.Thread(target=lambda: raw.command("shop", more))
        asks.start()
        members.await_that(lambda: niceness_of(member, connection) == 10, "that it has lasted")
        asks.join(30)
        raw.command("admin", {"ping": 1})
        assert niceness_of(member, connection) == 19
    configure(members)


def test_one_whose_wait_is_at_its_end_begins_and_is_as_nice_as_before(members):
    configure(members)
    member = members.members[0]
    with members.direct(0) as client:
        if status(client)["niceness"] != "all":
            return
        client.shop.long.insert_many([{"_id": n, "a": n % 7} for n in range(3000)])
        before = status(client)["classes"]["low"]["aged"]
    with Raw(member) as raw, members.direct(0) as observer:
        connection = raw.command("admin", {"hello": 1})["connectionId"]
        raw.command("admin", {"setClientPriority": 1, "priority": "low"})
        configure(members, mode="both", worstWaitMs=300)
        with present(members, "high"):
            sum_of_many = {"$reduce": {"input": {"$range": [0, {"$add": [20000, "$a"]}]}, "initialValue": 0, "in": {"$add": ["$$value", "$$this"]}}}
            scan = {"count": "long", "query": {"$expr": {"$eq": [sum_of_many, -1]}}, "maxTimeMS": 5000}
            replies = []
            asks = threading.Thread(target=lambda: replies.append(raw.command("shop", scan)))
            asks.start()
            members.await_that(lambda: status(observer)["classes"]["low"]["aged"] > before, "that its wait is at its end")
            # The weight of one that lasts it has later.
            seen = [niceness_of(member, connection)]
            while seen[-1] != 10:
                time.sleep(0.01)
                seen.append(niceness_of(member, connection))
                assert not replies, f"it had niceness {set(seen)} until its end"
            assert set(seen) <= {19, 10}
        asks.join(30)
        assert [reply.get("code") for reply in replies] == [50], "it computed for as long as it was looked at"
        observer.shop.long.drop()
    configure(members)


def test_a_deadline_runs_from_when_a_request_arrives_and_not_from_when_it_is_read(members):
    """A member that stands still for longer than a read may take has no time left for it; for one that may take longer it has."""
    configure(members)
    quick = {"find": "carts", "filter": {"_id": 7}, "maxTimeMS": 300}
    with Raw(members.members[0]) as short, Raw(members.members[0]) as long, members.direct(0) as client:
        assert [raw.command("shop", quick)["ok"] for raw in (short, long)] == [1, 1]

        def both(stands_seconds):
            with Stopped(members, 0):
                short.message(bson.encode({**quick, "$db": "shop"}))
                long.message(bson.encode({**quick, "maxTimeMS": 4000, "$db": "shop"}))
                time.sleep(stands_seconds)
            return [raw.reply().get("code", 0) for raw in (short, long)]

        # The kernel begins to tell a moment after the first connection has asked it to.
        members.await_that(lambda: both(0.4) == [50, 0], "that one is late, and the other is not")
        assert both(0) == [0, 0]
        assert client.shop.carts.find_one({"_id": 7}, max_time_ms=300) == {"_id": 7}


def test_of_more_than_there_is_time_for_the_low_are_refused_and_others_are_served(members):
    """Ninety low clients that count with a scan: where 34 compute, the rest is told to try again later, with labels that drivers know."""
    configure(members, worstWaitMs=10, shedAbove={"low": 17})
    member = members.members[0]
    with members.direct(0) as client:
        client.shop.many.insert_many([{"_id": n, "a": n % 7} for n in range(3000)])
        before = status(client)["classes"]
        over, refused, served, told = threading.Event(), [], [], []

        def scans(command):
            with Raw(member) as raw:
                while not over.is_set():
                    reply = raw.command("shop", command)
                    (served if reply["ok"] == 1 else refused).append(reply)

        low = {"count": "many", "query": {"$expr": {"$eq": [{"$pow": ["$a", 3]}, 8]}}, "priority": "low"}
        threads = [threading.Thread(target=scans, args=[low]) for _ in range(45 * len(os.sched_getaffinity(0)))]
        for thread in threads:
            thread.start()
        members.await_that(lambda: len(refused) >= 20 or None, "that the member has too much to do")
        for priority in ("normal", "high"):
            told += [client.shop.command("find", "many", filter={"a": 3}, limit=1, priority=priority)["ok"]]
        over.set()
        for thread in threads:
            thread.join(60)
        assert told == [1, 1] and served
        assert {reply["code"] for reply in refused} == {462}
        assert all(set(reply["errorLabels"]) == {"SystemOverloadedError", "RetryableError"} for reply in refused)
        after = status(client)["classes"]
        assert after["low"]["refused"]["overload"] - before["low"]["refused"]["overload"] == len(refused)
        assert after["normal"]["refused"] == before["normal"]["refused"]
        client.shop.many.drop()
    configure(members)


def test_what_means_nothing_is_refused(members):
    configure(members)
    with members.direct(0) as client:
        def code(command, **fields):
            with pytest.raises(pymongo.errors.OperationFailure) as refused:
                client.admin.command(command, **fields)
            return refused.value.code

        assert code("ping", priority="urgent") == 2
        assert code("ping", priority=1) == 14
        assert code("setClientPriority") == 40414
        assert code("setClientPriority", priority="background") == 2
        # Nor does a deadline that no clock can have.
        for late, expected in ((-1, 51024), (2**31, 2), (2**62, 2)):
            with pytest.raises(pymongo.errors.OperationFailure) as refused:
                client.shop.command("find", "carts", maxTimeMS=late)
            assert refused.value.code == expected, late
        assert client.shop.command("count", "carts", maxTimeMS=2**31 - 1, priority="low")["n"] == 100
        with pytest.raises(pymongo.errors.OperationFailure) as refused:
            client.shop.command("update", "carts", updates=[{"q": {"_id": 1}, "u": {"$set": {"a": 1}}, "priority": "high"}])
        assert refused.value.code == 40415
        config = client.admin.command("replSetGetConfig")["config"]
        config["version"] += 1
        for priority, words in [({"mode": "fast"}, "settings.priority.mode must be"),
                                ({"worstWaitMs": 1}, "settings.priority.worstWaitMs must be 10 to 60000"),
                                ({"shedAbove": {"low": 1}}, "settings.priority.shedAbove.low must be 17 to 10000"),
                                ({"rules": [{"match": {"frob": "x"}, "priority": "low"}]}, "unknown field"),
                                ({"rules": [{"match": {}, "priority": "low"}] * 1001}, "at most 1000 entries")]:
            config["settings"]["priority"] = priority
            with pytest.raises(pymongo.errors.OperationFailure, match=words):
                client.admin.command("replSetReconfig", config)


# The right to set niceness is taken from a process that this one starts so, if this one may take it.
WITHOUT_NICENESS = ["prlimit", "--nice=0:0", "setpriv", "--inh-caps", "-sys_nice", "--bounding-set", "-sys_nice"]


def test_a_member_that_may_not_set_niceness_serves_beside_others_that_may():
    if subprocess.run([*WITHOUT_NICENESS, "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        # Then nobody here may.
        return
    with ReplicaSet(settings={"leadership": {"mode": "off"}}) as members:
        bare = members.others(members.primary())[0]
        members.kill(bare)
        members.members[bare].under = WITHOUT_NICENESS
        members.spawn(bare)
        members.await_states()
        with members.direct(bare) as client:
            assert status(client)["niceness"] == "none"
            warnings = client.admin.command("getLog", "startupWarnings")["log"]
            assert sum("niceness" in line for line in warnings) == 1, "it says so, once"

        def write(document):
            def act(client):
                for priority in ("high", "low"):
                    client.shop.command("insert", "classes", documents=[{**document, "of": priority}], writeConcern={"w": 3}, priority=priority)
                return True
            return act

        members.write_on_primary_among(range(3), write({"n": 1}))
        members.stand(bare)
        members.write_on_primary_among([bare], write({"n": 2}))
        for index in range(3):
            with members.direct(index, read_preference=ReadPreference.SECONDARY_PREFERRED) as client:
                entries = client.local["oplog.rs"].find({"ns": "shop.classes", "op": "i"})
                assert {(entry["o"]["n"], entry["class"]) for entry in entries} == {(1, "high"), (1, "low"), (2, "high"), (2, "low")}


def test_a_secondary_serves_by_the_same_rules(members):
    configure(members, rules=[{"match": {"appName": "report"}, "priority": "low"}])
    with members.direct(1, appname="report", read_preference=ReadPreference.SECONDARY_PREFERRED) as client:
        members.await_that(lambda: own(client) == ("low", "rule"), "that the secondary has the rule")
    configure(members)


def logged_class(client, o):
    """The class in the entry of the log that has this `o`; none if it has none."""
    entry = client.local["oplog.rs"].find_one({"ns": "shop.classes", "o": o})
    return entry and entry.get("class", "none")


def test_the_class_of_a_write_is_in_the_log_of_every_member(members):
    configure(members)
    said = {"high": "high", "low": "low", "normal": "none", None: "none"}
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(members.direct(member, read_preference=ReadPreference.SECONDARY_PREFERRED)) for member in range(3)]
        for n, priority in enumerate(said):
            fields = {"priority": priority} if priority else {}
            clients[0].shop.command("insert", "classes", documents=[{"_id": n}], writeConcern={"w": 3}, **fields)
        clients[0].shop.command("delete", "classes", deletes=[{"q": {"_id": 0}, "limit": 1}], priority="low", writeConcern={"w": 3})
        for client in clients:
            assert [logged_class(client, {"_id": n}) for n in range(1, 4)] == list(said.values())[1:]
            classes = [entry.get("class") for entry in client.local["oplog.rs"].find({"ns": "shop.classes", "o": {"_id": 0}}).sort("ts", 1)]
            assert classes == ["high", "low"]
        configure(members, mode="off")
        clients[0].shop.command("insert", "classes", documents=[{"_id": 9}], writeConcern={"w": 3}, priority="high")
        assert logged_class(clients[1], {"_id": 9}) == "none"
    configure(members)


def test_who_carries_urgent_entries_from_member_to_member_is_as_urgent(members):
    configure(members)
    with members.direct(0) as client:
        if status(client)["niceness"] != "all":
            # The warning of that is asserted above.
            return
        insert = {"insert": "classes", "writeConcern": {"w": 3}}
        # A first one says that others are to be expected: the second finds everybody on its way urgent.
        for n in (10, 11):
            client.shop.command({**insert, "documents": [{"_id": n}], "priority": "high"})
        follower = members.members[1]
        members.await_that(lambda: niceness_of_thread(follower, "follower") == -20, "that the follower is urgent")

        def writes_on_until_it_is_not():
            client.shop.command({**insert, "documents": [{}]})
            return niceness_of_thread(follower, "follower") == 0

        members.await_that(writes_on_until_it_is_not, "that it is as others are once nothing urgent comes")


def test_further_batches_are_of_the_class_that_the_first_was_asked_for(members):
    configure(members)
    with members.direct(0) as client:
        client.shop.command("count", "carts", priority="high")

        def batches_of(**fields):
            before = {name: of["serviceMicros"]["count"] for name, of in status(client)["classes"].items()}
            cursor = client.shop.command("find", "carts", batchSize=2, **fields)["cursor"]["id"]
            client.shop.command({"getMore": bson.Int64(cursor), "collection": "carts", "batchSize": 2})
            client.shop.command({"getMore": bson.Int64(cursor), "collection": "carts", "priority": "high"})
            return {name: of["serviceMicros"]["count"] - before[name] for name, of in status(client)["classes"].items()}

        assert batches_of(priority="low") == {"high": 1, "normal": 0, "low": 2}
        assert batches_of() == {"high": 1, "normal": 2, "low": 0}


def page_of(member):
    """The status page, a thousand ports above the member's."""
    with urllib.request.urlopen(f"http://127.0.0.1:{member.port + 1000}/", timeout=10) as page:
        return page.read().decode()


def test_the_status_page_draws_how_long_requests_of_each_class_took(members):
    configure(members)
    with members.direct(0) as client:

        def ask_and_look():
            for priority in ("high", "low"):
                assert client.shop.command("count", "carts", priority=priority)["n"] == 100
            page = page_of(members.members[0])
            return '<g class="of-high">' in page and '<g class="of-low">' in page

        members.await_that(ask_and_look, "that both are drawn")


class Clients:
    """Threads that repeat what they do until they are told to stop, and how long each time took."""

    def __init__(self, members, count, work):
        self.seconds, self.failures, self.is_over = [], [], threading.Event()
        self.threads = [threading.Thread(target=self._run, args=(members, work)) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def _run(self, members, work):
        with members.direct(0) as client:
            while not self.is_over.is_set():
                began = time.monotonic()
                try:
                    work(client.shop)
                except pymongo.errors.PyMongoError as error:
                    self.failures.append(error)
                    return
                self.seconds.append(time.monotonic() - began)

    def stop(self):
        """Gives how long each time took, from the shortest to the longest."""
        self.is_over.set()
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive()
        assert not self.failures
        return sorted(self.seconds)


def test_beside_a_flood_of_low_class_urgent_writes_are_soon_done_nobody_is_starved_and_the_set_is_calm():
    """Fault matrix 42."""
    batch = [{"pad": "x" * 1000} for _ in range(2000)]
    calm = {"electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 200, "leadership": {"mode": "off"}}
    with ReplicaSet(settings=calm, members=[{}, {"priority": 0}, {"priority": 0}]) as members:
        assert members.primary() == 0
        with members.direct(0) as direct:
            direct.shop.command("insert", "carts", documents=[{"_id": n, "pad": "y" * 500, "n": n * 7919 % 10_007} for n in range(10_000)])
            before = direct.admin.command("replSetGetStatus")
            configure(members, worstWaitMs=1000)
            sort = {"aggregate": "carts", "pipeline": [{"$sort": {"n": 1, "pad": 1}}, {"$limit": 1}], "cursor": {}, "priority": "low"}
            scans = Clients(members, 4, lambda shop: shop.command(sort))
            loads = Clients(members, 2, lambda shop: shop.command({"insert": "flood", "documents": batch, "priority": "low"}))
            small = {"update": "carts", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"hits": 1}}}]}
            usual = Clients(members, 2, lambda shop: shop.command(small))
            urgent = Clients(members, 1, lambda shop: shop.command({**small, "priority": "high", "writeConcern": {"w": "majority"}}))
            members.await_that(lambda: len(urgent.seconds) >= 200 and min(len(scans.seconds), len(loads.seconds)) >= 12, "that all go on")
            urgent, usual, scans, loads = urgent.stop(), usual.stop(), scans.stop(), loads.stop()
            low = status(direct)["classes"]["low"]
            after = direct.admin.command("replSetGetStatus")
        # An urgent write to three members is over before a sort of ten thousand on one, however many want to sort.
        assert urgent[len(urgent) * 99 // 100] < scans[len(scans) * 9 // 10], (urgent[-5:], scans)
        assert len(usual) > 20
        assert low["worstWaitMicros"] < 3_000_000, "nobody is starved"
        assert after["term"] == before["term"] and after["myState"] == 1, "nobody took the primary for gone"
        assert all(member["health"] == 1 for member in after["members"])
