"""A replica set of real processes, each member a `Member`."""

import json
import os
import pathlib
import signal
import time

import pymongo

from member import Member, free_port
from network import Network


def state_of(task):
    """The state of a thread, one letter of proc(5); `T` if it has ended meanwhile."""
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "T"


class ReplicaSet:
    """Members that are one set. As a context it stops them all and removes their data.

    With `network`, members and clients of the set reach each other through a `Network` that can be cut; `direct` goes past it.
    `environments` and `data` are what each member is started with, and where its data is; `arguments` are for all.
    With BATON_KEEP_FAILED in the environment the data is left where a test has failed.
    """

    def __init__(self, count=3, name="rs0", settings=None, members=None, network=False, environments=None, data=None,
                 arguments=()):
        self.name = name
        self.settings = settings or {}
        self.options = members or [{} for _ in range(count)]
        self.members = []
        for _ in self.options:
            index = len(self.members)
            member = Member(replica_set=name, port=free_port(), data=data[index] if data else None,
                            arguments=arguments)
            member.initiates = False
            self.members.append(member)
        self.environments = environments or [{} for _ in self.options]
        self.network = None
        if network:
            self.network = Network([member.port for member in self.members], self._pid_of)
            for member, port in zip(self.members, self.network.ports):
                member.arguments += ["--advertisedHost", f"127.0.0.1:{port}"]

    def _pid_of(self, index):
        member = self.members[index]
        return member.pid if member.is_running() else None

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, *_):
        keeps = kind is not None and os.environ.get("BATON_KEEP_FAILED")
        for member in self.members:
            if member.is_running():
                member.kill()
            if keeps:
                print(f"kept: {member.data}, {member.log_path}")
            else:
                member.remove()
        if self.network:
            self.network.close()

    @property
    def hosts(self):
        """Their addresses, in the order of the configuration."""
        ports = self.network.ports if self.network else [member.port for member in self.members]
        return [f"127.0.0.1:{port}" for port in ports]

    @property
    def uri(self):
        """What a client connects with."""
        return f"mongodb://{','.join(self.hosts)}/?replicaSet={self.name}"

    def client(self, **options):
        """A client that follows the set."""
        options.setdefault("serverSelectionTimeoutMS", 20_000)
        return pymongo.MongoClient(self.uri, **options)

    def direct(self, index, **options):
        """A client of one member, whatever it is."""
        options.setdefault("serverSelectionTimeoutMS", 5_000)
        return pymongo.MongoClient("127.0.0.1", self.members[index].port, directConnection=True, **options)

    def start(self, timeout_seconds=60):
        """Starts the processes, initiates the set, and returns when it has a primary and every member its data."""
        for index in range(len(self.members)):
            self.spawn(index)
        deadline = time.monotonic() + timeout_seconds
        for index in range(len(self.members)):
            self._await_answer(index, deadline)
        members = [{"_id": i, "host": host, **options}
                   for i, (host, options) in enumerate(zip(self.hosts, self.options))]
        config = {"_id": self.name, "version": 1, "members": members, "settings": self.settings}
        with self.direct(0) as client:
            client.admin.command("replSetInitiate", config)
        self.await_states(deadline=deadline)
        return self

    def spawn_spare(self, parameters=None):
        """Starts a member that belongs to the set's name but is in no configuration; returns its index."""
        member = Member(replica_set=self.name, port=free_port(), parameters={"enableTestCommands": 1, **(parameters or {})})
        member.initiates = False
        self.members.append(member.spawn())
        self._await_answer(len(self.members) - 1, time.monotonic() + 60)
        return len(self.members) - 1

    def add(self, index, **options):
        """Adds a spare to the configuration."""
        host = f"127.0.0.1:{self.members[index].port}"
        with self.direct(self.primary()) as client:
            config = client.admin.command("replSetGetConfig")["config"]
            config["version"] += 1
            config["members"].append({"_id": max(m["_id"] for m in config["members"]) + 1, "host": host, **options})
            client.admin.command("replSetReconfig", config)

    def spawn(self, index, environment=None):
        """Starts a member's process, as it was started first."""
        self.members[index].spawn({**self.environments[index], **(environment or {})})

    def kill(self, *indexes):
        """SIGKILL."""
        for index in indexes:
            self.members[index].kill()

    def pause(self, *indexes):
        """SIGSTOP: when it returns the process does nothing any more, and its connections stay open."""
        for index in indexes:
            self.members[index].process.send_signal(signal.SIGSTOP)
        for index in indexes:
            # The signal stops the other threads only once one of them has been scheduled and taken it.
            tasks = pathlib.Path(f"/proc/{self.members[index].process.pid}/task")
            self.await_that(lambda: all(state_of(task) in "Tt" for task in tasks.iterdir()), "that it stops")

    def resume(self, *indexes):
        """SIGCONT."""
        for index in indexes:
            self.members[index].process.send_signal(signal.SIGCONT)

    def others(self, index):
        """The other members' indexes."""
        return [other for other in range(len(self.members)) if other != index]

    def stand(self, index):
        """Makes a member primary, unless it is."""
        def is_primary():
            if self.hello(index).get("isWritablePrimary"):
                return True
            with self.direct(index) as client:
                client.admin.command("replSetStepUp", 1, check=False)
            return False

        self.await_that(is_primary, f"member {index} as primary")

    def await_primary_among(self, indexes, timeout_seconds=60):
        """Waits until one of these takes writes; returns which. What others believe does not count."""
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            for index in indexes:
                if self.hello(index).get("isWritablePrimary"):
                    return index
            time.sleep(0.02)
        raise AssertionError(f"none of {indexes} became primary:\n" + self.logs())

    def write_on_primary_among(self, indexes, act, timeout_seconds=60):
        """`act(client)` on whichever of these takes writes, again if that one steps down; returns what it returns, and who."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            index = self.await_primary_among(indexes, timeout_seconds)
            try:
                with self.direct(index, retryWrites=False) as client:
                    return act(client), index
            except (pymongo.errors.AutoReconnect, pymongo.errors.WriteConcernError):
                assert time.monotonic() < deadline, self.logs()

    def await_that(self, holds, what, timeout_seconds=60):
        """Waits until `holds()`; its value is returned."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            value = holds()
            if value:
                return value
            assert time.monotonic() < deadline, f"not in time: {what}\n{self.logs()}"
            time.sleep(0.02)

    def logs(self, lines=60):
        """The last lines of all members' logs, but for the network's."""
        return "\n".join(f"--- member {i}\n" + member.log(lines, but="NETWORK") for i, member in enumerate(self.members))

    def check_terms(self):
        """Checks by the members' logs that no term had two primaries; returns the terms that had one."""
        primaries = {}
        for index, member in enumerate(self.members):
            for line in member.log_path.read_text(errors="replace").splitlines():
                if "Transition to primary complete" in line:
                    term = json.loads(line)["attr"]["term"]
                    assert primaries.setdefault(term, index) == index, f"term {term} had two primaries"
        return primaries

    def await_healthy(self, timeout_seconds=60):
        """Waits until every member runs as primary or secondary and all have the same; checks every collection and the terms."""
        self.await_states(time.monotonic() + timeout_seconds)
        digest = self.await_equal(timeout_seconds)
        deadline = time.monotonic() + timeout_seconds
        for index in range(len(self.members)):
            while not self.hello(index).get("arbiterOnly"):
                try:
                    self.validate(index)
                    break
                except pymongo.errors.AutoReconnect:
                    # It rolls an entry back that changed no document, or changes its part otherwise.
                    assert time.monotonic() < deadline, f"member {index} is not read from:\n{self.logs()}"
        assert self.check_terms(), "no term had a primary"
        return digest

    def validate(self, index):
        """Has a member check all its collections."""
        with self.direct(index, read_preference=pymongo.ReadPreference.SECONDARY_PREFERRED) as client:
            for database in client.list_database_names():
                for name in client[database].list_collection_names(filter={"type": "collection"}):
                    report = client[database].command("validate", name, full=True)
                    assert report["valid"], f"member {index}: {database}.{name}: {report}"

    def _await_answer(self, index, deadline):
        while True:
            try:
                with self.direct(index) as client:
                    client.admin.command("ping")
                    return
            except pymongo.errors.PyMongoError:
                assert time.monotonic() < deadline, f"member {index} does not answer:\n{self.members[index].log()}"

    def hello(self, index):
        """What a member says of itself; nothing if it does not answer."""
        try:
            with self.direct(index, serverSelectionTimeoutMS=1000) as client:
                return client.admin.command("hello")
        except pymongo.errors.PyMongoError:
            return {}

    def primary(self, timeout_seconds=30):
        """The index of the member that takes writes; waits for one."""
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            for index, member in enumerate(self.members):
                if member.is_running() and self.hello(index).get("isWritablePrimary"):
                    return index
            time.sleep(0.01)
        raise AssertionError("there is no primary:\n" + "\n".join(member.log(400, but="NETWORK") for member in self.members))

    def await_states(self, deadline=None):
        """Waits until one member is primary and every other that runs is secondary, or an arbiter."""
        deadline = deadline or time.monotonic() + 60
        while True:
            hellos = [self.hello(i) for i, member in enumerate(self.members) if member.is_running()]
            primaries = sum(bool(hello.get("isWritablePrimary")) for hello in hellos)
            others = sum(bool(hello.get("secondary") or hello.get("arbiterOnly")) for hello in hellos)
            if primaries == 1 and primaries + others == len(hellos):
                return
            logs = "\n".join(member.log(400, but="NETWORK") for member in self.members)
            assert time.monotonic() < deadline, f"the set does not settle: {hellos}\n{logs}"
            time.sleep(0.02)

    def await_equal(self, timeout_seconds=30):
        """Waits until all running members with data have the same documents; returns their hash."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            hashes = set()
            for index, member in enumerate(self.members):
                if member.is_running() and not self.hello(index).get("arbiterOnly"):
                    try:
                        hashes.add(self.hash(index))
                    except pymongo.errors.AutoReconnect as error:
                        # It rolls back, or changes its part otherwise.
                        hashes |= {index, str(error)}
            if len(hashes) == 1:
                return hashes.pop()
            assert time.monotonic() < deadline, f"the members' documents differ: {hashes}\n{self.logs()}"
            time.sleep(0.05)

    def hash(self, index):
        """A digest of every document of a member (`dbHash`), and of its collections, views and indexes with all their options."""
        import hashlib
        import bson
        digest = hashlib.sha256()
        with self.direct(index, read_preference=pymongo.ReadPreference.SECONDARY_PREFERRED) as client:
            for database in sorted(client.list_database_names()):
                if database == "local":
                    continue
                entries = {entry["name"]: entry for entry in client[database].list_collections()}
                for name in sorted(entries.keys() - {"system.views", "system.profile"}):
                    entry = entries[name]
                    if entry["type"] == "view":
                        # A view has no UUID that lasts.
                        digest.update(bson.encode(entry))
                        continue
                    digest.update(bson.encode({key: entry[key] for key in ("name", "info", "options")}))
                    indexes = [index.to_dict() for index in client[database][name].list_indexes()]
                    for index in sorted(indexes, key=lambda index: index["name"]):
                        digest.update(bson.encode(index))
                hashes = client[database].command("dbHash")
                # Each member has profiles of its own, and perhaps no other collection beside one.
                if hashes["collections"]:
                    digest.update(bson.encode({key: hashes[key] for key in ("collections", "uuids", "capped")}))
        return digest.hexdigest()
