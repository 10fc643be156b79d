"""Whether the fuzzer can fail: members that lie, hang or differ, and it must say so.

The members here are threads that answer what a test wants. What it takes to find a fault that is built into real members:
`run.sh --mutants`.
"""

import argparse
import contextlib
import socket
import struct
import threading

import bson
import pytest

import judge
from client import Client
from fuzz import Run
from grammar import Request


class Liar:
    """A member that answers every command with what `answer(command)` gives, or not at all if that is None."""

    def __init__(self, folder, answer, port=0):
        self.answer = answer
        self.listener = socket.create_server(("127.0.0.1", port))
        self.port = self.listener.getsockname()[1]
        self.pid = 1
        self.log_path = folder / f"{self.port}.log"
        self.log_path.write_text("")
        threading.Thread(target=self._listen, daemon=True).start()

    def is_running(self):
        return True

    def _listen(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self.listener.accept()[0],), daemon=True).start()

    def _serve(self, connection):
        with connection, contextlib.suppress(OSError, struct.error):
            while True:
                header = connection.recv(16, socket.MSG_WAITALL)
                length, request, _, _ = struct.unpack("<iiii", header)
                command = bson.decode(connection.recv(length - 16, socket.MSG_WAITALL)[5:])
                reply = self.answer(command)
                if reply == "hang up":
                    return
                if reply is not None:
                    body = b"\0\0\0\0\0" + bson.encode(reply)
                    connection.sendall(struct.pack("<iiii", 16 + len(body), 1, request, 2013) + body)


class NoFaults:
    """Nobody disturbs the members."""

    def is_at(self, _):
        return False


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run that has no set yet; `lie` gives it members."""
    monkeypatch.setenv("BATON", "none")
    arguments = argparse.Namespace(reply_seconds_max=0.2, members=1, seed=1, clients=1, keep_going=False, faults=False, restart=False)
    run = Run(arguments)
    run.faults = NoFaults()
    run.accounts.round = 0

    def lie(answer, count=1):
        run.set.members = [Liar(tmp_path, answer) for _ in range(count)]
        client = Client(0, run, "seed")
        client.run()
        return run.faults_seen

    run.lie = lie
    return run


def primary(answer):
    """A member that says it is primary, and otherwise what the test wants."""
    return lambda command: {"ok": 1.0, "isWritablePrimary": True} if "hello" in command else answer(command)


def test_an_answer_that_never_comes_is_a_fault(run):
    assert "no reply" in run.lie(primary(lambda _: None))[0]


@pytest.mark.parametrize("code", [1, 8, 59, 238, 9])
def test_an_internal_error_and_a_refusal_of_what_is_valid_are_faults(run, code):
    assert f"with {code}: " in run.lie(primary(lambda _: {"ok": 0.0, "code": code, "errmsg": "a lie"}))[0]


@pytest.mark.parametrize("part", ["writeErrors", "writeConcernError"])
def test_an_internal_error_within_a_reply_is_a_fault(run, part):
    error = {"code": 8, "errmsg": "a lie"}
    wrapped = [error] if part == "writeErrors" else error
    assert "with 8: a lie" in run.lie(primary(lambda _: {"ok": 1.0, "n": 1, part: wrapped}))[0]


def test_a_connection_that_a_healthy_member_closes_is_a_fault(run):
    assert "a connection" in run.lie(primary(lambda _: "hang up"))[0]


def test_a_set_without_a_primary_is_a_fault(run):
    assert "no primary" in run.lie(lambda _: {"ok": 0.0, "code": 10107, "errmsg": "not primary"})[0]


def test_a_retry_that_is_done_again_is_a_fault(run):
    insert = Request("fuzz", {"insert": "red", "documents": [{}]})
    run.judge_retry(None, insert, {"ok": 1.0, "n": 1}, {"ok": 1.0, "n": 1})
    assert not run.faults_seen
    run.judge_retry(None, insert, {"ok": 1.0, "n": 1}, {"ok": 1.0, "n": 2})
    assert "a retry" in run.faults_seen[0]


def test_an_acknowledged_insert_that_is_gone_is_a_fault(run):
    run.accounts.kept = {"0-0-1", "0-0-2"}
    assert not list(run.accounts.check(0, [{"_id": "0-0-1"}, {"_id": "0-0-2"}, {"_id": "unknown"}], []))
    assert "lacks 1 of 2" in next(run.accounts.check(0, [{"_id": "0-0-1"}], []))


def test_an_increment_that_is_lost_or_done_twice_is_a_fault(run):
    run.accounts.added, run.accounts.taken = 5, 2
    assert not list(run.accounts.check(0, [], [{"n": 1}, {"n": 2}]))
    assert list(run.accounts.check(0, [], [{"n": 1}, {"n": 1}]))
    assert list(run.accounts.check(0, [], [{"n": 1}, {"n": 3}]))


def test_members_that_differ_are_a_fault(run, monkeypatch):
    run.set.members = [None, None]
    held = [{"fuzz.red": {"count": 2, "indexes": [b"a"]}}, {"fuzz.red": {"count": 2, "indexes": [b"b"]}}]
    monkeypatch.setattr(judge, "content", lambda run, index: held[index])
    with pytest.raises(AssertionError, match="fuzz.red: indexes of member 0"):
        judge._are_equal(run)
    held[1] = {}
    with pytest.raises(AssertionError, match="fuzz.red is on member 0 alone"):
        judge._are_equal(run)
    held[1] = held[0]
    assert judge._are_equal(run) == held[0]


def test_a_panic_in_a_log_is_a_fault(run, tmp_path):
    run.set.members = [Liar(tmp_path, lambda _: None)]
    judge._logs_are_clean(run)
    assert not run.faults_seen
    run.members[0].log_path.write_text('{"s":"E","msg":"A thread panicked"}\n')
    judge._logs_are_clean(run)
    assert "a log" in run.faults_seen[0]
