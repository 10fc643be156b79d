"""Writes that nobody's thread waits for: whatever ends the wait, each is answered once, in its turn, and others go on."""

import struct
import threading
import time
import uuid

import bson
import pymongo
import pytest
from bson.binary import Binary, UuidRepresentation
from pymongo import ReadPreference

from raw import Raw, room_for
from replica_set import ReplicaSet
from test_member_kinds import eventually
from test_members import Stopped

# Nobody stands for election, nor steps down, while a test holds members still.
STILL = {"electionTimeoutMillis": 60_000, "heartbeatIntervalMillis": 200}
WRITERS = 64


@pytest.fixture(scope="module")
def members():
    """Three members, of which the first is primary."""
    with ReplicaSet(settings=STILL, members=[{}, {"priority": 0}, {"priority": 0}]) as members:
        assert members.primary() == 0
        with members.direct(0) as direct:
            direct.shop.command("insert", "carts", documents=[{"_id": "first"}], writeConcern={"w": 3})
        yield members


class Writers:
    """Threads that write a document each, and what each was told."""

    def __init__(self, members, commands):
        self.client = pymongo.MongoClient(
            "127.0.0.1", members.members[0].port, directConnection=True, maxPoolSize=WRITERS + 4, retryWrites=False)
        self.told = {}
        self.threads = [threading.Thread(target=self._write, args=item) for item in commands.items()]
        for thread in self.threads:
            thread.start()

    def _write(self, name, command):
        try:
            reply = self.client.shop.command({**command, "comment": name})
        except pymongo.errors.OperationFailure as error:
            reply = error.details
        except pymongo.errors.PyMongoError as error:
            reply = {"broken": repr(error)}
        self.told[name] = reply

    def waiting(self):
        """The operations that are shown to wait, by comment."""
        shown = self.client.admin.command("currentOp")["inprog"]
        return {op["command"]["comment"]: op["opid"] for op in shown
                if "comment" in op.get("command", {}) and op.get("msg") == "waiting for a majority to have what was written"}

    def await_waiting(self, count):
        """Until so many wait."""
        deadline = time.monotonic() + 20
        while len(self.waiting()) != count:
            assert time.monotonic() < deadline, (len(self.waiting()), self.told)
            time.sleep(0.02)

    def join(self, seconds=20):
        """All are answered."""
        deadline = time.monotonic() + seconds
        for thread in self.threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self.client.close()
        assert not any(thread.is_alive() for thread in self.threads)


def insert(name, **rest):
    """An insert that a majority must have."""
    return {"insert": "carts", "documents": [{"_id": name}], "writeConcern": {"w": "majority"}, **rest}


def test_sixty_four_writes_that_wait_end_each_by_what_ends_it(members):
    """wtimeout, maxTimeMS and killOp end their own waits; the others are told when a majority has what they wrote."""
    commands = {}
    for n in range(WRITERS // 4):
        commands[f"late-{n}"] = insert(f"late-{n}", writeConcern={"w": "majority", "wtimeout": 300})
        commands[f"short-{n}"] = insert(f"short-{n}", maxTimeMS=400)
        commands[f"killed-{n}"] = insert(f"killed-{n}")
        commands[f"patient-{n}"] = insert(f"patient-{n}")
    with Stopped(members, 1), Stopped(members, 2):
        writers = Writers(members, commands)
        writers.await_waiting(WRITERS // 2)
        for name, number in writers.waiting().items():
            if name.startswith("killed"):
                writers.client.admin.command("killOp", op=number)
        writers.await_waiting(WRITERS // 4)
        # Who writes with less waits for none of them.
        with members.direct(0) as direct:
            direct.shop.command("insert", "carts", documents=[{"_id": "beside"}], writeConcern={"w": 1})
        assert {name.split("-")[0] for name in writers.told} == {"late", "short", "killed"}
    writers.join()
    expected = {"late": 64, "short": 50, "killed": 11601, "patient": None}
    for name, reply in writers.told.items():
        assert reply["n"] == 1, (name, reply)
        assert reply.get("writeConcernError", {}).get("code") == expected[name.split("-")[0]], (name, reply)
    with members.direct(0) as direct:
        assert direct.shop.carts.count_documents({"_id": {"$in": list(commands)}}) == WRITERS


def test_sixty_four_writes_that_wait_are_told_of_a_step_down_at_once(members):
    """Each has what it wrote, and why nobody knows whether it stays."""
    commands = {f"deposed-{n}": insert(f"deposed-{n}") for n in range(WRITERS)}
    with Stopped(members, 1), Stopped(members, 2):
        writers = Writers(members, commands)
        writers.await_waiting(WRITERS)
        with members.direct(0) as direct:
            began = time.monotonic()
            direct.admin.command("replSetStepDown", 60, force=True)
            writers.join(5)
            assert time.monotonic() - began < 5
    for name, reply in writers.told.items():
        assert reply.get("n") == 1, (name, reply)
        assert reply["writeConcernError"]["code"] in (189, 11602), (name, reply)
    with members.direct(0) as direct:
        direct.admin.command("replSetFreeze", 0)
    deadline = time.monotonic() + 90
    while members.primary() is None:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_sixty_four_writes_that_wait_are_told_of_a_shutdown_and_hold_it_up_no_longer_than_it_is_patient():
    """Nobody can take over: each is told that nobody knows whether what it wrote stays, and the member ends."""
    with ReplicaSet(settings=STILL, members=[{}, {"priority": 0}, {"priority": 0}]) as members:
        with members.direct(0) as direct:
            direct.admin.command("setParameter", 1, shutdownTimeoutMillisForSignaledShutdown=2000)
        with Stopped(members, 1), Stopped(members, 2):
            writers = Writers(members, {f"left-{n}": insert(f"left-{n}") for n in range(WRITERS)})
            writers.await_waiting(WRITERS)
            members.members[0].stop(20)
            writers.join(5)
        for name, reply in writers.told.items():
            assert reply.get("n") == 1, (name, reply)
            assert reply["writeConcernError"]["code"] in (91, 189, 11600, 11602), (name, reply)


def request(number, command):
    """A message with that number."""
    body = struct.pack("<I", 0) + b"\x00" + bson.encode({**command, "$db": "shop"})
    return struct.pack("<iiii", 16 + len(body), number, 0, 2013) + body


def test_who_sends_fifty_requests_before_it_reads_gets_fifty_replies_in_order(members):
    """Writes that wait, writes that do not, and reads, on one connection."""
    with Raw(members.members[0]) as raw:
        for number in range(50):
            concern = {"w": "majority"} if number % 3 else {"w": 1}
            command = {"find": "carts", "limit": 1} if number % 5 == 4 else {
                "insert": "carts", "documents": [{"_id": f"piped-{number}"}], "writeConcern": concern}
            raw.send(request(number, command))
        for number in range(50):
            header = raw.read(16)
            length, _, answered, _ = struct.unpack("<iiii", header)
            reply = bson.decode(raw.read(length - 16)[5:])
            assert (answered, reply["ok"]) == (number, 1.0)


def test_ten_thousand_clients_that_never_read_hold_up_nobody(members):
    """Each has written, and of some the replies fit into no buffer: others are served, and all that was sent is carried out."""
    clients, with_large_replies, large = 10_000, 20, "x" * (1 << 20)
    room_for(members.members[0], clients)
    deaf = []
    with members.direct(0) as direct:
        carts = direct.shop.get_collection("carts", read_preference=ReadPreference.PRIMARY)
        carts.insert_many([{"_id": f"large-{number}", "payload": large} for number in range(with_large_replies)])
        before = direct.admin.command("serverStatus")["connections"]["current"]
        try:
            for number in range(clients):
                raw = Raw(members.members[0])
                deaf.append(raw)
                raw.send(request(0, {"insert": "carts", "documents": [{"_id": f"deaf-{number}"}], "writeConcern": {"w": "majority"}}))
                if number < with_large_replies:
                    # Four megabytes are more than what the system keeps for one connection.
                    for turn in range(1, 5):
                        raw.send(request(turn, {"findAndModify": "carts", "query": {"_id": f"large-{number}"}, "update": {"$inc": {"n": 1}},
                                                "new": True, "writeConcern": {"w": "majority"}}))
                if number % 200 == 0:
                    told = direct.shop.command("insert", "carts", documents=[{"_id": f"heard-{number}"}],
                                               writeConcern={"w": "majority", "wtimeout": 20_000})
                    assert told["n"] == 1 and "writeConcernError" not in told, told
            eventually(lambda: carts.count_documents({"_id": {"$regex": "^deaf-"}}) == clients, "all that was sent is carried out", 60)
            # What stands behind a reply that nobody takes is not begun; what stands before it is done.
            assert all(cart.get("n", 0) >= 1 for cart in carts.find({"_id": {"$regex": "^large-"}}, {"n": 1}))
        finally:
            for raw in deaf:
                raw.socket.close()
        eventually(lambda: direct.admin.command("serverStatus")["connections"]["current"] < before + 100, "they are gone", 60)


def test_a_connection_that_is_cut_before_its_reply_is_answered_by_the_retry_and_written_once(members):
    """The write goes on without its client; its retry finds it done, and waits for what it waits for."""
    lsid = {"id": Binary.from_uuid(uuid.uuid4(), UuidRepresentation.STANDARD)}
    for number in range(1, 21):
        command = {"update": "carts", "updates": [{"q": {"_id": "counter"}, "u": {"$inc": {"n": 1}}, "upsert": True}],
                   "writeConcern": {"w": "majority"}, "lsid": lsid, "txnNumber": bson.Int64(number), "$db": "shop"}
        with Raw(members.members[0]) as raw:
            raw.message(bson.encode(command))
            if number % 2:
                time.sleep(0.002)
        with Raw(members.members[0]) as raw:
            raw.message(bson.encode(command))
            reply = raw.reply()
            assert (reply["ok"], reply["n"]) == (1.0, 1) and "writeConcernError" not in reply
    with members.direct(0) as direct:
        counter = direct.shop.get_collection("carts", read_preference=ReadPreference.PRIMARY).find_one({"_id": "counter"})
        assert counter["n"] == 20
