"""Connections whose clients are silent: what a member keeps of them, and what comes after the silence."""

import contextlib
import json
import pathlib
import time

from member import Member
from raw import Raw

# After so many seconds a connection with a thread of its own gives it back.
SILENCE = 5


def threads(member):
    """The names of the threads that serve one connection each, and the niceness of each."""
    found = {}
    for task in pathlib.Path(f"/proc/{member.pid}/task").iterdir():
        with contextlib.suppress(OSError):
            name = (task / "comm").read_text().strip()
            if name.startswith("conn"):
                found[name] = int((task / "stat").read_text().rpartition(")")[2].split()[16])
    return found


def await_that(holds, what, seconds=SILENCE + 15):
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, f"never: {what}"
        time.sleep(0.05)


def lines(member, message):
    """The attributes of the log's lines with that message, each with its line's context."""
    written = [json.loads(line) for line in member.log_path.read_text().splitlines()]
    return [{"ctx": line["ctx"], **line["attr"]} for line in written if line["msg"] == message]


def test_a_silent_connection_has_no_thread_keeps_what_it_is_and_is_logged_in_its_own_name_to_its_end():
    with Member(replica_set=None) as member, contextlib.ExitStack() as held:
        with member.client() as client:
            # Two take a class, by which each has a thread of its own while it speaks, and one becomes a member's that copies.
            right = client.admin.command("serverStatus")["priority"]["niceness"]
            high, low, copies = (held.enter_context(Raw(member)) for _ in range(3))
            names = [f"conn{raw.command('admin', {'hello': 1})['connectionId']}" for raw in (high, low, copies)]
            for raw, priority in [(high, "high"), (low, "low")]:
                assert raw.command("admin", {"setClientPriority": 1, "priority": priority})["ok"] == 1
            assert copies.command("admin", {"batonYieldToClients": 1})["ok"] == 1
            for raw in (high, low):
                assert raw.command("admin", {"ping": 1})["ok"] == 1
            await_that(lambda: set(names) <= threads(member).keys(), "that all three have one")
            yielding = threads(member)[names[2]]

            await_that(lambda: not {names[0], names[1]} & threads(member).keys(), "that both have no thread")
            assert threads(member)[names[2]] == yielding, "its weight is its thread's"
            connections = client.admin.command("serverStatus")["connections"]
            assert connections["threaded"] <= connections["current"] - 2
            idle = client.admin.command({"currentOp": 1, "$all": True})["inprog"]
            assert set(names) <= {operation["desc"] for operation in idle}, "they are connections all the same"

            for raw in (high, low, copies):
                assert raw.command("admin", {"ping": 1})["ok"] == 1
            if right == "all":
                await_that(lambda: threads(member).get(names[0]) == -20, "that it is as urgent as its class")

            await_that(lambda: not {names[0], names[1]} & threads(member).keys(), "that they rest once more")
            held.close()
            ended = lambda: {line["ctx"] for line in lines(member, "Connection ended")}
            await_that(lambda: set(names) <= ended(), "that the log tells of the end of each in its own name")
            for line in lines(member, "Connection ended"):
                assert line["ctx"] == f"conn{line['connectionId']}"
