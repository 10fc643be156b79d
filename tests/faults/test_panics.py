"""Members that meet a broken invariant: a panic at a named point, which `BATON_PANIC_AT` of a binary with crash points brings about.

What the panic leaves half done decides what it costs: the process, where others would go on with it; else the one request.
"""

import json
import time
import urllib.request

import pymongo
import pytest
from pymongo import WriteConcern

import step_files
from member import Member
from replica_set import ReplicaSet

SOON = {"electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 200}
MAJORITY = WriteConcern("majority", wtimeout=30_000)
SIGABRT = 6


def carts_of(client, write_concern=MAJORITY):
    """The collection that these tests write to."""
    return client.get_database("shop", write_concern=write_concern).carts


class Triggers:
    """Files that let the members' panics come, one each."""

    def __init__(self, directory, point, count=3):
        self.paths = [directory / f"panic-{number}" for number in range(count)]
        self.environments = [{"BATON_PANIC_AT": f"{point}:1", "BATON_PANIC_FROM": str(path)} for path in self.paths]

    def pull(self, index):
        """From now on that member panics at the point."""
        self.paths[index].touch()

    def rest(self, index):
        """No more."""
        self.paths[index].unlink(missing_ok=True)


def await_abort(members, index):
    """Waits until the member has ended itself, and returns what it said."""
    member = members.members[index]
    members.await_that(lambda: not member.is_running(), "the end of a member with a broken invariant", timeout_seconds=30)
    assert member.process.returncode == -SIGABRT
    return last_words(member)


def last_words(member):
    """The fatal line of a member's log."""
    for line in member.log_path.read_text(errors="replace").splitlines():
        if '"s":"F"' in line and "A broken invariant" in line:
            return json.loads(line)["attr"]
    raise AssertionError("it went without a word:\n" + member.log())


@pytest.mark.parametrize("point, section", [
    ("commit-before-write", "the commit queue"),
    ("commit-before-sync", "the commit queue"),
    ("consensus-step", "a step of replication"),
    ("index-build-before-ready", "a change of a collection"),
    ("index-build-drained", "an index build"),
])
def test_a_panic_that_would_leave_the_primary_half_done_ends_it_and_the_set_fails_over(tmp_path, point, section):
    """Fails if the member goes on (every later write would wait for ever), if it does not say what broke and where, if consensus
    or the thread of an index build does not write down what the machines did before, if the set does not fail over, or if what
    was acknowledged is lost."""
    triggers = Triggers(tmp_path, point)
    with ReplicaSet(settings=SOON, environments=triggers.environments) as members, \
            members.client(timeoutMS=60_000) as client:
        carts_of(client).insert_many([{"_id": i, "n": i} for i in range(10)])
        old = members.primary()
        triggers.pull(old)
        if point.startswith("index"):
            with pytest.raises(pymongo.errors.AutoReconnect), members.direct(old, retryWrites=False) as direct:
                direct.shop.carts.create_index("n")
        carts_of(client).insert_one({"_id": 10})
        words = await_abort(members, old)
        assert words["section"] == section and words["reason"] == "a test wants this"
        assert "crash_points.rs" in words["place"] and "baton" in words["backtrace"]
        if point in ("consensus-step", "index-build-drained"):
            [written] = step_files.files_of(members.members[old])
            told, _ = step_files.replay(written, "--verbose")
            assert ("index_build " in told) == point.startswith("index"), told
        members.await_primary_among(members.others(old))
        triggers.rest(old)
        members.spawn(old)
        members.await_healthy()
        assert carts_of(client).count_documents({}) == 11


def test_a_panic_while_applying_ends_the_secondary_and_the_others_go_on(tmp_path):
    """Fails if it goes on with a part of a batch, or if the set waits for it."""
    triggers = Triggers(tmp_path, "apply-before-commit")
    with ReplicaSet(settings=SOON, environments=triggers.environments) as members, \
            members.client(timeoutMS=60_000) as client:
        carts_of(client).insert_one({"_id": 0})
        secondary = members.others(members.primary())[0]
        triggers.pull(secondary)
        carts_of(client).insert_one({"_id": 1})
        words = await_abort(members, secondary)
        assert words["section"] in ("a change of the catalog", "what follows another's log")
        carts_of(client).insert_one({"_id": 2})
        triggers.rest(secondary)
        members.spawn(secondary)
        members.await_healthy()


def test_a_panic_in_a_rollback_ends_the_member_and_the_next_start_rolls_back(tmp_path):
    """Fails if it goes on half rolled back."""
    triggers = Triggers(tmp_path, "rollback-before-commit")
    with ReplicaSet(settings=SOON, network=True, environments=triggers.environments) as members, \
            members.client(timeoutMS=60_000) as client:
        carts_of(client).insert_one({"_id": 0})
        members.await_equal()
        old = members.primary()
        members.network.isolate(old)
        with members.direct(old) as direct:
            carts_of(direct, WriteConcern(1)).insert_one({"_id": "lost"})
        members.await_primary_among(members.others(old))
        carts_of(client).insert_one({"_id": 1})
        triggers.pull(old)
        members.network.heal()
        await_abort(members, old)
        triggers.rest(old)
        members.spawn(old)
        members.await_healthy()
        assert carts_of(client).count_documents({}) == 2


@pytest.mark.parametrize("point", ["request-query", "write-under-lock"])
def test_a_panic_in_one_requests_own_evaluation_costs_that_request_and_its_connection(tmp_path, point):
    """Fails if the member ends, if the request is not answered with 8, if anybody else notices (a lock that is kept would have them
    wait for ever), or if it is not counted."""
    triggers = Triggers(tmp_path, point, count=1)
    with Member() as member:
        member.stop()
        member.start(environment=triggers.environments[0])
        with member.client(retryReads=False, retryWrites=False) as client, member.client() as other:
            client.shop.carts.insert_one({"_id": 1, "n": 0})
            triggers.pull(0)
            with pytest.raises(pymongo.errors.OperationFailure) as failed:
                if point == "request-query":
                    client.shop.carts.find_one({"n": 0})
                else:
                    client.shop.carts.update_one({"_id": 1}, {"$inc": {"n": 1}})
            assert failed.value.code == 8 and failed.value.details["codeName"] == "UnknownError"
            began = time.monotonic()
            assert other.shop.carts.find_one({"_id": 1}) == {"_id": 1, "n": 0}
            other.shop.carts.update_one({"_id": 1}, {"$inc": {"n": 1}})
            assert other.shop.carts.find_one({"_id": 1})["n"] == 1
            assert time.monotonic() - began < 5
            assert other.admin.command("serverStatus")["metrics"]["operation"]["panicked"] == 1
        with urllib.request.urlopen(f"http://127.0.0.1:{member.port + 1000}/metrics") as page:
            assert b"baton_requests_panicked_total 1\n" in page.read()
        assert member.is_running()
