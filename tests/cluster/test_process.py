"""The process: stops, kills, restarts, second starts. What was acknowledged as durable is there."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time

import pytest
from pymongo import WriteConcern
from pymongo.errors import PyMongoError

from member import Member


def test_a_clean_stop_loses_nothing_and_ends_with_0(own_member):
    with own_member.client(serverSelectionTimeoutMS=500) as client:
        client.shop.carts.create_index("user")
        client.shop.carts.insert_many([{"_id": n, "user": n % 7} for n in range(1000)])
        started = time.monotonic()
        own_member.stop()
        assert time.monotonic() - started < 5, "a client that waits for news of the topology held the stop up"
    own_member.start()
    with own_member.client() as client:
        assert client.shop.carts.count_documents({}) == 1000
        assert client.shop.carts.count_documents({"user": 3}) == 143
        assert client.shop.command("validate", "carts")["valid"]


@pytest.mark.parametrize("concern", [WriteConcern(w=1, j=True), WriteConcern("majority")], ids=["journaled", "majority"])
def test_what_was_acknowledged_as_durable_survives_sigkill(own_member, concern):
    acknowledged, lock = [], threading.Lock()

    def write(worker):
        with own_member.client(retryWrites=False, serverSelectionTimeoutMS=500) as client:
            carts = client.shop.get_collection("carts", write_concern=concern)
            try:
                for n in range(100_000):
                    carts.insert_one({"_id": f"{worker}-{n}", "twice": [n, n]})
                    with lock:
                        acknowledged.append(f"{worker}-{n}")
            except PyMongoError:
                pass

    with own_member.client() as client:
        client.shop.carts.create_index("twice")
    threads = [threading.Thread(target=write, args=(w,)) for w in range(8)]
    for thread in threads:
        thread.start()
    time.sleep(1.5)
    own_member.kill()
    for thread in threads:
        thread.join()
    own_member.start()
    with own_member.client() as client:
        present = {d["_id"] for d in client.shop.carts.find({}, {"_id": 1})}
        assert len(acknowledged) > 50
        assert not set(acknowledged) - present
        report = client.shop.command("validate", "carts", full=True)
        assert report["valid"], report


def test_a_second_start_on_the_same_directory_is_refused_with_a_reason(own_member):
    second = Member(data=own_member.data)
    second.log_path = own_member.data.parent / (own_member.data.name + ".second.log")
    try:
        second.spawn()
        assert second.process.wait(20) == 100
        assert "lock" in second.log().lower() or "use" in second.log().lower(), second.log()
    finally:
        second.remove()
        second.log_path.unlink(missing_ok=True)
    with own_member.client() as client:
        client.shop.c.insert_one({})


def test_a_port_in_use_is_refused_with_a_reason(own_member):
    second = Member(port=own_member.port)
    try:
        second.spawn()
        assert second.process.wait(20) == 48
        assert str(own_member.port) in second.log()
    finally:
        second.remove()


def test_baton_up_prints_how_to_connect_and_stops_on_ctrl_c(tmp_path):
    up = Member(data=tmp_path / "data")
    process = subprocess.Popen(
        [up.binary, "up", "--port", str(up.port), "--data", str(up.data)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True)
    try:
        printed = ""
        while f"mongodb://127.0.0.1:{up.port}/?replicaSet=rs0" not in printed:
            line = process.stdout.readline()
            assert line, f"it ended without a connection string: {printed}"
            printed += line
        with up.client() as client:
            client.shop.c.insert_one({"_id": 1})
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


def test_members_of_baton_up_end_with_it_however_it_ends(tmp_path):
    """`baton up` is killed, as by Ctrl-C twice: its members stop by themselves, and cleanly. Fails if they are left running."""
    up = Member(data=tmp_path / "data")
    process = subprocess.Popen(
        [up.binary, "up", "--members", "3", "--port", str(up.port), "--data", str(up.data)], stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True)
    try:
        printed = ""
        while "?replicaSet=rs0" not in printed or printed.count("process ") < 3:
            line = process.stdout.readline()
            assert line, f"it ended without its members: {printed}"
            printed += line
        members = [int(pid) for pid in re.findall(r"process (\d+)", printed)]
        assert all(pathlib.Path(f"/proc/{pid}").exists() for pid in members)
    finally:
        process.kill()
        process.wait()

    def runs(pid):
        try:
            # Who is dead and waits for somebody to ask does not run.
            return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except FileNotFoundError:
            return False

    deadline = time.monotonic() + 60
    while any(runs(pid) for pid in members):
        assert time.monotonic() < deadline, f"of {members} some are left"
        time.sleep(0.05)


def test_a_member_of_baton_up_whose_port_is_taken_is_back_once_it_is_free(tmp_path):
    """It says that the member does not start, and where to read why. Fails if it says that it is back, which it is not."""
    up = Member(data=tmp_path / "data")
    process = subprocess.Popen(
        [up.binary, "up", "--members", "3", "--port", str(up.port), "--data", str(up.data)], stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True)

    def printed_until(text):
        printed = ""
        while text not in printed:
            line = process.stdout.readline()
            assert line, f"it ended: {printed}"
            printed += line
        return printed

    try:
        last = re.search(rf"127.0.0.1:{up.port + 2}  process (\d+)", printed_until(f"{up.port + 2}  process "))
        os.kill(int(last.group(1)), signal.SIGKILL)
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            printed = printed_until(f"{up.port + 2} ended")
            other.bind(("127.0.0.1", up.port + 2))
            other.listen()
            printed += printed_until("does not start")
            assert "is back" not in printed
            assert str(up.data / "member2" / "baton.log") in printed
        printed_until(f"127.0.0.1:{up.port + 2} is back")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def test_a_standalone_serves_without_a_replica_set_name(tmp_path):
    with Member(data=tmp_path / "data", replica_set=None) as member, member.client() as client:
        assert "setName" not in client.admin.command("hello")
        client.shop.c.insert_one({"_id": 1})
        assert client.shop.c.find_one() == {"_id": 1}
