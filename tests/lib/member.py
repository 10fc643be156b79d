"""One Baton member as a real process, for every test that needs one.

A `Member` has a data directory and a loopback port of its own, is started with `baton serve`, and counts as up when it
answers `hello` as a writable primary. `stop` is SIGTERM and checks the exit code, `kill` is SIGKILL; both leave the data
directory, so that `start` goes on with it.

Invariant: whatever happens in a test, no process outlives the Python that started it.
What it deliberately does not do: build the binary (BATON names it), or hide a member that dies: `start` shows its log.
"""

import atexit
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import pymongo

_running = set()
_given_ports = set()
# Test runners that go at the same time, at the most, each with ports of its own; and which of them this is.
_RUNNERS = 8
_runner = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _RUNNERS


@atexit.register
def _kill_what_is_left():
    for process in list(_running):
        process.kill()
        process.wait()


def free_port():
    """A port that is free now, and whose neighbour a thousand above (the page of metrics) is too.

    Below those that the system gives to outgoing connections, and given once, by one runner alone: a member that is killed finds its
    port free when it returns.
    """
    while True:
        port = random.randrange(20_000 + _runner, 31_000, _RUNNERS)
        if _given_ports & {port - 1000, port, port + 1000}:
            continue
        with socket.socket() as probe, socket.socket() as metrics:
            try:
                probe.bind(("127.0.0.1", port))
                metrics.bind(("127.0.0.1", port + 1000))
            except OSError:
                continue
            _given_ports.add(port)
            return port


class MemberDied(AssertionError):
    """The process ended although nobody asked it to."""


class Member:
    """A member; a context manager that starts it, and in the end stops it and removes its data."""

    def __init__(self, data=None, port=None, binary=None, replica_set="rs0", parameters=None, arguments=()):
        self.binary = binary or os.environ.get("BATON")
        if not self.binary:
            raise SystemExit("BATON does not name the binary under test (tests/lib/binary.sh sets it)")
        self._owned = data is None
        self.data = pathlib.Path(data or tempfile.mkdtemp(prefix="baton-test-"))
        self.port = port or free_port()
        self.replica_set = replica_set
        self.parameters = {"enableTestCommands": 1} if parameters is None else parameters
        self.arguments = list(arguments)
        # What the process is started by, if not by this one: a command, and its arguments.
        self.under = []
        # Makes a set of itself alone, if it is in none.
        self.initiates = bool(replica_set)
        self.process = None
        self.log_path = self.data.parent / (self.data.name + ".log")

    @property
    def uri(self):
        """What a client connects with."""
        suffix = f"?replicaSet={self.replica_set}" if self.replica_set else ""
        return f"mongodb://127.0.0.1:{self.port}/{suffix}"

    @property
    def pid(self):
        """The process id of the running member."""
        return self.process.pid

    def client(self, **options):
        """A new pymongo client that gives up soon."""
        options.setdefault("serverSelectionTimeoutMS", 10_000)
        return pymongo.MongoClient(self.uri, **options)

    def log(self, lines=30, but=None):
        """The last lines that the member wrote; without those of a component, if that is named."""
        try:
            written = self.log_path.read_text(errors="replace").splitlines()
            return "\n".join([line for line in written if but is None or f'"c":"{but}"' not in line][-lines:])
        except FileNotFoundError:
            return "(no log)"

    def spawn(self, environment=None):
        """Starts the process without waiting for it to answer."""
        command = [*self.under, self.binary, "serve", "--dbpath", str(self.data), "--port", str(self.port)]
        if self.replica_set:
            command += ["--replSet", self.replica_set]
        for name, value in self.parameters.items():
            command += ["--setParameter", f"{name}={value}"]
        command += self.arguments
        self.data.mkdir(parents=True, exist_ok=True)
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})})
        _running.add(self.process)
        return self

    def start(self, environment=None, timeout_seconds=60):
        """Starts the process and returns when it takes writes."""
        self.spawn(environment)
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                _running.discard(self.process)
                raise MemberDied(f"the member ended with {self.process.returncode}:\n{self.log()}")
            if self._is_primary():
                return self
            time.sleep(0.02)
        raise MemberDied(f"the member took no writes for {timeout_seconds} s:\n{self.log()}")

    def _is_primary(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                pass
        except OSError:
            return False
        try:
            with pymongo.MongoClient("127.0.0.1", self.port, directConnection=True,
                                     serverSelectionTimeoutMS=2000) as client:
                hello = client.admin.command("hello")
                if self.initiates and hello.get("isreplicaset") and "setName" not in hello:
                    client.admin.command("replSetInitiate")
                return bool(hello["isWritablePrimary"])
        except pymongo.errors.PyMongoError:
            return False

    def stop(self, timeout_seconds=30):
        """SIGTERM; the member must end by itself, with 0."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout_seconds)
        _running.discard(self.process)
        assert code == 0, f"the member ended with {code} after SIGTERM:\n{self.log()}"

    def kill(self):
        """SIGKILL: what the operating system had not been given is lost."""
        self.process.kill()
        self.process.wait()
        _running.discard(self.process)

    def is_running(self):
        """Whether the process still lives."""
        return self.process is not None and self.process.poll() is None

    def remove(self):
        """Kills it if it runs, and removes what it kept, unless the directory was given."""
        if self.is_running():
            self.kill()
        if self._owned:
            shutil.rmtree(self.data, ignore_errors=True)
            self.log_path.unlink(missing_ok=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, *_):
        try:
            if self.is_running():
                if kind is None:
                    self.stop()
        finally:
            self.remove()
