"""A member in a container, from its start to its stop. See run.sh."""
import os
import shlex
import subprocess
import time

import pymongo

CONTAINERS = shlex.split(os.environ["CONTAINERS"])
IMAGE = os.environ["IMAGE"]
# Podman gives what is added to any user, docker to root alone: there it is a limit.
MAY_SET_NICENESS = ["--cap-add", "SYS_NICE"] if "podman" in CONTAINERS[0] else ["--ulimit", "nice=40:40"]
PORT = 29517
SECONDS_MAX = 30


def containers(*arguments):
    return subprocess.run([*CONTAINERS, *arguments], check=True, text=True, capture_output=True).stdout.strip()


class Member:
    """One container and its volume, gone at the end."""

    def __init__(self, port, *flags):
        self.port = port
        self.volume = f"baton-image-test-{port}"
        command = ["serve", "--replSet", "rs0", "--dbpath", "/var/lib/baton", "--port", str(port)]
        self.name = containers("run", "--detach", "--network", "host", "--volume", f"{self.volume}:/var/lib/baton", *flags, IMAGE, *command)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        containers("rm", "--force", self.name)
        containers("volume", "rm", self.volume)

    def client(self):
        client = pymongo.MongoClient("127.0.0.1", self.port, directConnection=True, serverSelectionTimeoutMS=SECONDS_MAX * 1000)
        client.admin.command("ping")
        return client

    def niceness(self):
        client = self.client()
        warnings = "".join(client.admin.command({"getLog": "startupWarnings"})["log"])
        return client.admin.command("serverStatus")["priority"]["niceness"], "niceness" in warnings


def writable(client):
    deadline = time.monotonic() + SECONDS_MAX
    while not client.admin.command("hello")["isWritablePrimary"]:
        assert time.monotonic() < deadline, "no primary"
        time.sleep(0.05)


def is_kept_when_killed():
    with Member(PORT) as member:
        client = member.client()
        host = f"127.0.0.1:{PORT}"
        client.admin.command({"replSetInitiate": {"_id": "rs0", "members": [{"_id": 0, "host": host}]}})
        writable(client)
        client.shop.orders.with_options(write_concern=pymongo.WriteConcern(w="majority")).insert_one({"_id": 1})
        containers("kill", member.name)
        containers("start", member.name)
        client = member.client()
        assert client.shop.orders.count_documents({}) == 1, "what was acknowledged is gone"
        containers("stop", "--time", str(SECONDS_MAX), member.name)
        code = containers("inspect", "--format", "{{.State.ExitCode}}", member.name)
        assert code == "0", f"it ended with {code}"


def says_whether_it_may_set_niceness():
    with Member(PORT) as member:
        assert member.niceness() == ("none", True), member.niceness()
    with Member(PORT, *MAY_SET_NICENESS) as member:
        assert member.niceness() == ("all", False), member.niceness()


for story in [is_kept_when_killed, says_whether_it_may_set_niceness]:
    story()
    print(f"{story.__name__}: passed", flush=True)
