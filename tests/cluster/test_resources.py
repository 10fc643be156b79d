"""What a member is given, and what it does when there is not enough: file descriptors, memory, a directory of its own, HTTP."""

import resource
import socket
import struct
import subprocess
import threading
import time
import urllib.request

import bson
import pytest

from member import Member, free_port
from raw import Raw


class FewDescriptors(Member):
    """A member whose process may open so many files, hard limit."""

    def __init__(self, limit, **options):
        super().__init__(**options)
        self._binary, self._limit = self.binary, limit

    def spawn(self, environment=None):
        script = f'ulimit -Sn {self._limit // 2}; ulimit -Hn {self._limit}; exec "$0" "$@"'
        wrapper = self.data.parent / (self.data.name + ".sh")
        wrapper.write_text(f"#!/bin/sh\nset -- '{self._binary}' \"$@\"\nexec sh -c '{script}' \"$@\"\n")
        wrapper.chmod(0o755)
        self.binary = str(wrapper)
        return super().spawn(environment)

    def remove(self):
        super().remove()
        (self.data.parent / (self.data.name + ".sh")).unlink(missing_ok=True)


def hold_connections(port, count):
    """That many idle connections, or as many of them as the member keeps."""
    held = []
    for _ in range(count):
        try:
            held.append(socket.create_connection(("127.0.0.1", port), timeout=5))
        except OSError:
            break
    return held


def is_open(connection):
    """Whether the other side has not closed it."""
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def raise_own_limit():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 4096:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))


# ---- file descriptors ----


def test_a_storm_of_connections_costs_those_connections_and_not_the_member():
    """`ulimit -n 1024`, more idle connections than that, and inserts that make storage open files. Fails if the member aborts
    ("Too many open files"), or if the storm takes more than four fifths."""
    raise_own_limit()
    with FewDescriptors(1024, parameters={"enableTestCommands": 1}) as member, member.client(maxPoolSize=4) as client:
        limits = open(f"/proc/{member.pid}/limits", encoding="ascii").read()
        assert "Max open files            1024                 1024" in limits, limits
        things = client.shop.things
        things.insert_one({"_id": -1})
        before = client.admin.command("serverStatus")["connections"]
        assert before["current"] + before["available"] == 1024 // 5 * 4
        held = hold_connections(member.port, 1200)
        try:
            deadline = time.monotonic() + 20
            while client.admin.command("serverStatus")["connections"]["rejected"] < 300:
                assert time.monotonic() < deadline, client.admin.command("serverStatus")["connections"]
                time.sleep(0.05)
            for n in range(20):
                things.insert_many([{"_id": n * 1000 + i, "text": "x" * 500} for i in range(300)])
                if n % 5 == 0:
                    client.admin.command("fsync")
            assert things.count_documents({}) == 6001
            status = client.admin.command("serverStatus")["connections"]
            assert status["current"] <= 816 and status["available"] <= 30, status
            assert sum(is_open(connection) for connection in held) <= 816
        finally:
            for connection in held:
                connection.close()
        warnings = client.admin.command("getLog", "startupWarnings")["log"]
        assert any("open file descriptors" in line and "1024" in line for line in warnings), warnings
        assert member.is_running()


def test_with_too_few_descriptors_a_member_says_how_many_it_needs():
    member = FewDescriptors(128)
    try:
        member.spawn()
        assert member.process.wait(20) == 100
        assert "may open 128 files" in member.log()
    finally:
        member.remove()


# ---- data that is not its own ----


def refusal(*arguments):
    """What `baton` says when it does not start; it must end by itself, and soon."""
    binary = Member(data="/nonexistent").binary
    done = subprocess.run([binary, *map(str, arguments)], capture_output=True, text=True, timeout=40, check=False)
    assert done.returncode == 100, f"it ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


@pytest.mark.parametrize("file", ["WiredTiger", "storage.bson", "thesis.tex"])
@pytest.mark.parametrize("command", ["serve", "up"])
def test_data_that_is_not_its_own_is_refused_and_left_alone(tmp_path, command, file):
    (tmp_path / file).write_text("what was there")
    where = ["--dbpath" if command == "serve" else "--data", tmp_path]
    said = refusal(command, "--port", free_port(), *where)
    assert str(tmp_path) in said
    assert ("mongorestore" if file != "thesis.tex" else "thesis.tex") in said, said
    assert [entry.name for entry in tmp_path.iterdir()] == [file], "something was left in it"


class Up:
    """`baton up`, until it has said that it is up; a context manager that ends it as Ctrl-C does."""

    def __init__(self, members, port, data):
        self.process = subprocess.Popen(
            [Member(data=data).binary, "up", "--members", str(members), "--port", str(port), "--data", str(data)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def __enter__(self):
        while "Ctrl-C" not in (line := self.process.stdout.readline()):
            assert line, "it ended before it was up"
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)


def test_a_folder_of_three_members_is_not_taken_for_one_of_one_nor_for_another_ports(tmp_path):
    """Each was an empty set, or hung without a word."""
    port, data = free_port(), tmp_path / "set"
    with Up(3, port, data):
        pass
    said = refusal("up", "--members", 1, "--port", port, "--data", data)
    assert "--members 3" in said and str(data) in said
    said = refusal("up", "--members", 2, "--port", port, "--data", data)
    assert "--members 3" in said
    said = refusal("up", "--members", 3, "--port", port + 5, "--data", data)
    assert f"--port {port}" in said and f"127.0.0.1:{port + 5}" in said
    said = refusal("up", "--port", port, "--data", data / "member0")
    assert f"127.0.0.1:{port + 1}" in said and "serve" in said
    with Up(3, port, data):
        pass


def test_a_folder_of_one_member_is_not_taken_for_one_of_three_nor_for_another_ports(tmp_path):
    port, data = free_port(), tmp_path / "alone"
    with Up(1, port, data):
        pass
    said = refusal("up", "--members", 3, "--port", port, "--data", data)
    assert "--members 1" in said and not (data / "member0").exists()
    said = refusal("up", "--port", port + 5, "--data", data)
    assert f"--port {port}" in said and f"127.0.0.1:{port + 5}" in said
    with Up(1, port, data):
        pass


# ---- HTTP ----


def test_a_page_is_shown_under_the_members_names_alone(shared_member):
    def ask(host):
        request = urllib.request.Request(f"http://127.0.0.1:{shared_member.port + 1000}/healthz", headers={"Host": host})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    for host in ["evil.example", f"evil.example:{shared_member.port + 1000}", "127.0.0.1.evil.example"]:
        assert ask(host) == 421, host
    for host in ["127.0.0.1", f"localhost:{shared_member.port + 1000}", socket.gethostname(), "[::1]"]:
        assert ask(host) == 200, host


def test_half_sent_requests_over_http_do_not_make_the_member_unwell(shared_member):
    """600 of them, and `/healthz` from time to time. Fails if whoever asks it is turned away."""
    raise_own_limit()
    address = ("127.0.0.1", shared_member.port + 1000)
    held = []
    try:
        for n in range(600):
            connection = socket.create_connection(address, timeout=5)
            try:
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: local")
            except OSError:
                pass
            held.append(connection)
            if n % 100 == 99:
                with urllib.request.urlopen(f"http://127.0.0.1:{address[1]}/healthz", timeout=10) as answer:
                    assert answer.read() == b"ok\n"
    finally:
        for connection in held:
            connection.close()


# ---- hashes ----


def test_hashed_values_are_mongodbs(db, client):
    """The published values (docs/keys.md), by each way to ask for them."""
    assert client.admin.command("_hashBSONElement", 42, seed=0)["out"] == -944302157085130861
    assert client.admin.command("_hashBSONElement", "hashthis", seed=1)["out"] == 6271151123721111923
    db.c.insert_one({"_id": 1, "val": "string to hash"})
    found = db.c.aggregate([{"$project": {"h": {"$toHashedIndexKey": "$val"}, "none": {"$toHashedIndexKey": "$x"}}}]).next()
    assert found["h"] == 763543691661428748
    assert found["none"] == client.admin.command("_hashBSONElement", None)["out"]
    # As mongosh's convertShardKeyToHashed asks.
    project = {"$project": {"_id": {"$toHashedIndexKey": {"$literal": bson.ObjectId("000000000000000000000000")}}}}
    asked = client["_fakeDbForMongosh"].aggregate([{"$documents": [{}]}, {"$limit": 1}, project]).next()
    assert asked["_id"] == -4293118519463489418


def test_a_query_finds_a_double_and_a_decimal_that_are_equal_by_a_hashed_index(db):
    """They may have two hashes, one cut off and one rounded."""
    values = [1.5, bson.Decimal128("1.5"), 2, bson.Int64(2), bson.Decimal128("2.0"), -2.5, bson.Decimal128("-2.5"), {"a": 0.5}]
    db.c.insert_many([{"_id": n, "v": value} for n, value in enumerate(values)])
    db.c.create_index([("v", "hashed")])
    for value in values:
        plain = {d["_id"] for d in db.c.find({"v": value}).hint({"$natural": 1})}
        assert {d["_id"] for d in db.c.find({"v": value}).hint([("v", "hashed")])} == plain
        assert {d["_id"] for d in db.c.find({"v": {"$in": [value, "x"]}}).hint([("v", "hashed")])} == plain


# ---- memory ----

CACHE_MB = 256
MIB = 1 << 20


@pytest.fixture
def small_member(tmp_path):
    """A member with little cache, whose memory is to stay below cache plus 256 MB."""
    with Member(data=tmp_path / "data", arguments=["--cacheSizeGB", str(CACHE_MB / 1024), "--oplogSize", "1000"]) as member:
        yield member


def resident_mb(member, field="VmRSS"):
    """What the process holds, or (VmHWM) held at its worst."""
    for line in open(f"/proc/{member.pid}/status", encoding="ascii"):
        if line.startswith(field):
            return int(line.split()[1]) // 1024
    raise AssertionError(field)


def at_once(count, work):
    """`work(n)` in as many threads; what any of them raised is raised."""
    failures = []

    def run(number):
        try:
            work(number)
        except Exception as error:  # pylint: disable=broad-except
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


def test_messages_that_are_announced_and_never_finished_do_not_fill_the_memory(small_member):
    """300 connections announce 47 MB each, send some more than four, and stall. Fails if the member holds them all."""
    raise_own_limit()
    start = struct.pack("<iiii", 47_000_000, 1, 0, 2013) + bytes(5)
    part = memoryview(bytes(4 * MIB + 4096))
    left, connections = {}, []
    for _ in range(300):
        connection = socket.create_connection(("127.0.0.1", small_member.port))
        connection.sendall(start)
        connection.setblocking(False)
        connections.append(connection)
        left[connection] = len(part)
    deadline = time.monotonic() + 6
    while left and time.monotonic() < deadline:
        for connection in list(left):
            try:
                left[connection] -= connection.send(part[:left[connection]])
            except BlockingIOError:
                continue
            except OSError:
                # Given up, for it was in the way of others.
                left[connection] = 0
            if left[connection] <= 0:
                del left[connection]
        time.sleep(0.01)
    with small_member.client() as client:
        client.shop.things.insert_one({"text": "x" * MIB})
    peak = resident_mb(small_member, "VmHWM")
    for connection in connections:
        connection.close()
    assert peak <= CACHE_MB + 256, f"{peak} MB at the worst"


def test_large_batches_of_many_clients_wait_for_each_other(small_member):
    """16 clients with batches of 45 MB. Fails if the member holds all of them at once."""
    text = "x" * MIB

    def insert(number):
        with small_member.client() as client:
            client.shop[f"c{number}"].insert_many([{"_id": n, "text": text} for n in range(44)])

    at_once(16, insert)
    with small_member.client() as client:
        assert sum(client.shop[f"c{number}"].estimated_document_count() for number in range(16)) == 16 * 44
    peak = resident_mb(small_member, "VmHWM")
    assert peak <= CACHE_MB + 256, f"{peak} MB at the worst"


def test_large_filters_of_many_clients_wait_for_each_other_and_are_given_back(small_member):
    """8 clients with an `$in` of 600,000 values. Fails if the member holds all of them parsed at once, or long afterwards."""
    with small_member.client() as client:
        client.shop.things.insert_many([{"_id": n, "x": n} for n in range(10)])
    before = resident_mb(small_member)
    values = list(range(5, 600_005))
    command = bson.encode({"find": "things", "filter": {"_id": 7, "x": {"$in": values}}, "$db": "shop"})

    def find(_):
        with Raw(small_member) as connection:
            connection.socket.settimeout(120)
            connection.message(command)
            assert connection.reply()["cursor"]["firstBatch"] == [{"_id": 7, "x": 7}]

    at_once(8, find)
    peak = resident_mb(small_member, "VmHWM")
    assert peak <= CACHE_MB + 256, f"{peak} MB at the worst"
    deadline = time.monotonic() + 15
    while resident_mb(small_member) > before + 100:
        assert time.monotonic() < deadline, f"{resident_mb(small_member)} MB are kept, it was {before}"
        time.sleep(0.2)


def test_open_cursors_of_large_filters_are_few_and_what_is_beyond_is_given_whole_or_refused(small_member):
    """6 clients leave a cursor open whose `$in` has 600,000 values. Fails if the member keeps the filters of them all, or has anybody
    wait for who left one."""
    with small_member.client() as client:
        things = client.shop.things
        things.insert_many([{"_id": n, "x": n, "text": "x" * 2_000} for n in range(300)])
        before = resident_mb(small_member)
        values = list(range(600_000))

        def ask(command):
            with Raw(small_member) as connection:
                connection.socket.settimeout(120)
                connection.message(bson.encode({**command, "$db": "shop"}))
                return connection.reply()

        def find(collection):
            return ask({"find": collection, "filter": {"x": {"$in": values}}, "batchSize": 2})

        first = find("things")["cursor"]
        assert first["id"] != 0 and len(first["firstBatch"]) == 2
        for _ in range(5):
            whole = find("things")["cursor"]
            assert whole["id"] == 0 and len(whole["firstBatch"]) == 300, (whole["id"], len(whole["firstBatch"]))
        # More than a batch has room for.
        client.shop.larger.insert_many([{"_id": n, "x": n, "text": "x" * 100_000} for n in range(200)])
        refused = find("larger")
        assert refused["code"] == 146 and refused["codeName"] == "ExceededMemoryLimit", refused
        assert resident_mb(small_member) <= before + CACHE_MB + 256
        # A small filter's cursor is kept whatever there is.
        assert len(list(things.find({"x": {"$gte": 0}}, batch_size=2))) == 300
        rest = ask({"getMore": first["id"], "collection": "things"})["cursor"]
        assert rest["id"] == 0 and len(rest["nextBatch"]) == 298
        again = find("larger")["cursor"]
        assert again["id"] != 0
        assert ask({"killCursors": "larger", "cursors": [again["id"]]})["cursorsKilled"] == [again["id"]]
        assert find("larger")["cursor"]["id"] != 0
