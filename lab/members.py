"""A replica set with a member on each of some machines, and the load on it.

Invariant: it knows members by their machine; data and logs lie in a folder that the experiment owns.
"""

import json
import os
import pathlib
import subprocess
import sys
import time

import pymongo

PORT = 27017
# How long members may take to find each other near: a few dozen heartbeats.
SETTLE_SECONDS = 90
ROOT = pathlib.Path(__file__).resolve().parent.parent


class Members:
    """Members, one on each machine; the first is where the set is made, and becomes its primary."""

    def __init__(self, machines, folder, cache_gb=1, pins=None):
        """`pins`: the processors of each member, as taskset takes them."""
        self.machines, self.folder, self.cache_gb, self.pins = machines, pathlib.Path(folder), cache_gb, pins
        self.binary = os.environ["BATON"]
        self.processes = [None] * len(machines)
        self._clients = {}

    def hosts(self):
        """Their addresses, in the order of the configuration."""
        return [f"{machine.address}:{PORT}" for machine in self.machines]

    def spawn(self, index):
        """Starts a member's process."""
        machine = self.machines[index]
        data = self.folder / machine.name
        data.mkdir(parents=True, exist_ok=True)
        pin = ["taskset", "--cpu-list", self.pins[index]] if self.pins else []
        self.processes[index] = machine.start(
            [*pin, self.binary, "serve", "--replSet", "lab", "--dbpath", data, "--port", PORT, "--bind_ip", machine.address,
             "--unixSocket", "false", "--cacheSizeGB", self.cache_gb, "--oplogSize", 990,
             # The log is no part of what is measured: it would name every write that waits for the link.
             "--slowms", 60_000],
            log=self.folder / f"{machine.name}.log")

    def start(self, settings=None):
        """Starts all and makes them a set; returns when the first is primary and every other one has its data."""
        for index in range(len(self.machines)):
            self.spawn(index)
        for index in range(len(self.machines)):
            self.await_that(lambda i=index: self.command(i, "ping"), f"an answer of member {index}")
        members = [{"_id": index, "host": host} for index, host in enumerate(self.hosts())]
        config = {"_id": "lab", "version": 1, "members": members, "settings": settings or {}}
        self.command(0, "replSetInitiate", config)
        self.await_that(self._is_ready, "the first as primary, the others as secondaries")
        return self

    def _is_ready(self):
        states = self.states()
        if states == ["PRIMARY"] + ["SECONDARY"] * (len(states) - 1):
            return True
        if sorted(states) == ["PRIMARY"] + ["SECONDARY"] * (len(states) - 1):
            self.command(0, "replSetStepUp")
        return False

    def client(self, index):
        """A client of one member, whatever it is."""
        if index not in self._clients:
            self._clients[index] = pymongo.MongoClient(
                self.machines[index].address, PORT, directConnection=True, serverSelectionTimeoutMS=3000,
                socketTimeoutMS=20_000, readPreference="primaryPreferred")
        return self._clients[index]

    def command(self, index, name, value=1, **fields):
        """A command to one member."""
        return self.client(index).admin.command(name, value, **fields)

    def status(self, index):
        """replSetGetStatus of one member."""
        return self.command(index, "replSetGetStatus")

    def states(self):
        """What each member is, by its own words."""
        states = []
        for index in range(len(self.machines)):
            try:
                status = self.status(index)
                states.append(next(m["stateStr"] for m in status["members"] if m.get("self")))
            except (pymongo.errors.PyMongoError, StopIteration):
                states.append("DOWN")
        return states

    def primary(self):
        """The index of the member that takes writes, or none."""
        states = self.states()
        return states.index("PRIMARY") if "PRIMARY" in states else None

    def sources(self):
        """From whom each member fetches, as an index; none for the primary."""
        hosts = self.hosts()
        names = [self.status(index).get("syncSourceHost", "") for index in range(len(hosts))]
        return [hosts.index(name) if name in hosts else None for name in names]

    def updates(self, index):
        """How many updates a member has taken from clients."""
        return self.command(index, "serverStatus")["opcounters"]["update"]

    def set_chaining(self, allowed):
        """Changes `settings.chainingAllowed`."""
        config = self.command(0, "replSetGetConfig")["config"]
        config["version"] += 1
        config.setdefault("settings", {})["chainingAllowed"] = allowed
        self.command(0, "replSetReconfig", config)

    def fill(self, records, value_bytes):
        """Loads the records that are updated."""
        collection = self.client(0).lab.get_collection("records", write_concern=pymongo.WriteConcern("majority"))
        batch = max(1, min(1000, (4 << 20) // value_bytes))
        for first in range(0, records, batch):
            collection.insert_many([{"_id": i, "value": os.urandom(value_bytes)}
                                    for i in range(first, min(records, first + batch))], ordered=False)

    def kill(self, index):
        """SIGKILL."""
        self.processes[index].kill()
        self.processes[index].wait()
        self.forget_clients()

    def await_secondary(self, index, timeout_seconds):
        """Waits until a member is a secondary; returns when that was."""
        self.await_that(lambda: self.states()[index] == "SECONDARY", f"member {index} as a secondary", timeout_seconds)
        return time.monotonic()

    def check_limits(self, cores, disk_mbyte_per_second):
        """Sees to it that every member knows what its machine gives it: who decides by that must not take the host for its own."""
        def of(index):
            own = next(m for m in self.status(index)["members"] if m.get("self"))
            return own["processors"], own["diskBytesPerSec"] / 1e6

        for index in range(len(self.machines)):
            given, taken = (cores, disk_mbyte_per_second), of(index)
            if any(abs(a - b) > 0.02 * b for a, b in zip(taken, given)):
                raise RuntimeError(f"lab: member {index} has (processors, MB/s) {given}, and believes that it has {taken}")

    def await_level(self, timeout_seconds):
        """Waits until every member has what the primary has."""
        def is_level():
            return len({self.status(index)["optimes"]["appliedOpTime"]["ts"] for index in range(len(self.machines))}) == 1

        self.await_that(is_level, "all members level", timeout_seconds, interval_seconds=0.02)

    def forget_clients(self):
        """Closes all connections from here to the members."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def await_that(self, holds, what, timeout_seconds=60, interval_seconds=0.1):
        """Waits until `holds()`."""
        deadline = time.monotonic() + timeout_seconds
        last = None
        while time.monotonic() < deadline:
            try:
                if holds():
                    return
            except pymongo.errors.PyMongoError as error:
                last = error
            time.sleep(interval_seconds)
        raise RuntimeError(f"lab: not in {timeout_seconds} s: {what}: {self.states()}, {last}; logs: {self.folder}")


def settle(members, clients, load, holds):
    """Loads the set until `holds` of its sources; returns them. Members look whom to fetch from with their heartbeats."""
    running = Load(clients, members.hosts(), warmup=0, seconds=SETTLE_SECONDS + 10, **load)
    try:
        members.await_that(lambda: holds(members.sources()), "other sources", SETTLE_SECONDS)
    finally:
        running.stop()
    return members.sources()


class Load:
    """Clients in a closed loop, as a process on a machine; `result` waits for its end."""

    def __init__(self, machine, hosts, switches=(), pin=None, held=False, **options):
        """`pin`: the processors that it runs on, as taskset takes them. `held`: it is there, and asks for nothing before `begin`."""
        arguments = [f"--{name}" for name in (*switches, *(["held"] if held else []))]
        arguments += [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)]
        prefix = ["taskset", "--cpu-list", pin] if pin else []
        self._process = machine.start([*prefix, sys.executable, "-m", "lab.load", "--hosts", ",".join(hosts), *arguments],
                                      stdin=subprocess.PIPE if held else None, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        if held and self._process.stdout.readline() != "ready\n":
            raise RuntimeError("lab: the load did not start")

    def begin(self):
        """Has the clients ask, if they were held."""
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def stop(self):
        """Ends it before its time."""
        self._process.kill()
        self._process.wait()

    def result(self):
        """What load.py prints."""
        output, _ = self._process.communicate()
        if self._process.returncode:
            raise RuntimeError(f"lab: the load ended with {self._process.returncode}")
        return json.loads(output)
