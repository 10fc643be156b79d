"""A fuzzer of whole commands: many clients with valid requests from a grammar, on few names and few values, so that they
collide, against a replica set whose members are killed, paused and told to step down meanwhile.

`fuzz.py [--seconds S] [--seed N] [--clients N] [--members N] [--round-seconds S] [--no-faults] [--no-restart] [--keep-going]`

A run is rounds. Each ends with all clients gone and all members up, and is judged (judge.py says how): every reply came in time
and is one that a valid request can get, no member ended by itself or wrote of a panic, all members hold the same and all of it
is valid, what a majority acknowledged is there (ledger.py), and a SIGKILL of all members changes nothing.

At the first fault it stops, prints the seed, the fault and the commands sent last, and keeps the members' data and logs.
A seed gives the same requests in the same order for each client; how clients meet is the machine's luck.

Python, for a client costs little beside a member's work on its request, and because the grammar is to be read and added to.
"""

import argparse
import collections
import contextlib
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import pymongo

import judge
from client import Client
from draw import Draw
from faults import Faults
from ledger import Accounts
from replica_set import ReplicaSet

# A request takes milliseconds, and some seconds while the set has no primary. This is to find what never ends.
REPLY_SECONDS_MAX = 60
SETTINGS = {"electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 200}
RECENT_SHOWN = 12


class Run:
    """What clients, faults and the judge share: the set, the time, the first fault."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.began = time.monotonic()
        self.reply_seconds_max = arguments.reply_seconds_max
        self.accounts = Accounts()
        self.found = collections.Counter()
        self.lock = threading.Lock()
        # Clients finish what they are at; all stop at once.
        self.stopping, self.ended = threading.Event(), threading.Event()
        self.faults_seen = []
        self.clients = []
        self.count = 0
        self.data = pathlib.Path(tempfile.mkdtemp(prefix="baton-fuzz-commands-"))
        self.set = ReplicaSet(arguments.members, settings=SETTINGS, data=[self.data / str(n) for n in range(arguments.members)],
                              arguments=["--setParameter", "ttlMonitorSleepSecs=1"])

    @property
    def members(self):
        """The members, as processes."""
        return self.set.members

    def fault(self, kind, what, trace=False):
        """Something is wrong. The first of a kind is shown in full; without --keep-going it ends the run."""
        with self.lock:
            key = f"{kind}: {re.sub(r'[0-9]+|dup key.*', '#', what)[:160]}"
            self.found[key] += 1
            if self.found[key] == 1:
                self.faults_seen.append(f"{kind}: {what}" + (traceback.format_exc() if trace else ""))
        if not self.arguments.keep_going or kind in ("no reply", "a member ended", "no primary"):
            self.stopping.set()
            self.ended.set()

    def judge_reply(self, client, record):
        """A reply is one that its request can get."""
        for fault in judge.of_reply(record.request, record.reply):
            self.fault("a reply", f"{fault}\n  {record}")

    def judge_retry(self, client, request, first, second):
        """What a write did the first time it is said to have done the second time. What changed nothing is done anew, and of an
        update that found a document nobody says whether it did."""
        if not second["ok"] or judge.codes(first) or judge.codes(second):
            return
        # `n` of an update counts what matched, changed or not.
        fewer = any(second.get(field, 0) < first.get(field, 0) for field in ("nModified", *["n"] * ("updates" not in request.body)))
        other = request.body.get("remove") and first["lastErrorObject"]["n"] == 1 and not judge.same(first["value"], second["value"])
        if fewer or other or "documents" in request.body and first["n"] != second["n"]:
            self.fault("a retry", f"{request.body}: {judge.short(first)}, then {judge.short(second)}")

    def judge_lost(self, client, member, pid):
        """A connection ended: its member was killed, or leaves its part."""
        if self.members[member].is_running() and self.members[member].pid == pid and not self.faults.is_at(member):
            self.fault("a connection", f"member {member} closed one, and was neither killed nor stopped\n  {client.recent[-1]}")

    def no_reply(self, client, record):
        """A request went on for longer than the bound."""
        under_way = []
        try:
            with self.set.direct(record.member) as direct:
                under_way = direct.admin.command("currentOp")["inprog"]
        except pymongo.errors.PyMongoError as error:
            under_way.append(str(error))
        self.save_stacks(record.member)
        self.fault("no reply", f"for {self.reply_seconds_max} s, {client.name}\n  {record}\n  under way: " + "\n  ".join(
            str(operation)[:600] for operation in under_way))

    def save_stacks(self, member):
        """What a member's threads are at, where there is a debugger."""
        if shutil.which("gdb") and self.members[member].is_running():
            with open(self.data / f"stacks-{member}.txt", "w") as output, contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run(["gdb", "-p", str(self.members[member].pid), "-batch", "-ex", "thread apply all bt 25"],
                               stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.DEVNULL, timeout=60)

    def round(self, number):
        """Clients and faults for a while, then the judgement."""
        self.accounts.round = number
        self.stopping.clear()
        seed = f"{self.arguments.seed} {number}"
        self.faults = Faults(self, Draw(f"{seed} faults"), self.arguments.faults)
        self.clients = [Client(n, self, seed) for n in range(self.arguments.clients)]
        for thread in (*self.clients, self.faults):
            thread.start()
        self.stopping.wait(self.arguments.round_seconds)
        self.stopping.set()
        self.faults.join()
        for client in self.clients:
            client.join(3 * self.reply_seconds_max)
        self.count += sum(client.count for client in self.clients)
        if not self.ended.is_set():
            try:
                judge.of_members(self)
            except (AssertionError, pymongo.errors.PyMongoError) as error:
                self.fault("in the end", f"{type(error).__name__}: {error}", trace=isinstance(error, pymongo.errors.PyMongoError))

    def prepare(self):
        """The ledger's unique key."""
        with self.set.client() as client:
            client.ledger.get_collection("shared", write_concern=pymongo.WriteConcern("majority")).create_index("k", unique=True)

    def run(self):
        """All rounds; whether they were clean."""
        with self.set:
            self.prepare()
            number = 0
            while not self.ended.is_set() and time.monotonic() - self.began < self.arguments.seconds:
                self.round(number)
                number += 1
                print(f"fuzz-commands: seed {self.arguments.seed}: {number} rounds, {self.count} commands, "
                      f"{len(self.accounts.kept)} inserts in the ledger, {self.accounts.added} increments; "
                      f"{sum(self.found.values()) or 'no'} faults", flush=True)
            if self.found:
                self.report()
        if not self.found:
            shutil.rmtree(self.data)
        return not self.found

    def report(self):
        """Everything that helps to find out why."""
        for member in self.members:
            if member.is_running():
                member.kill()
        recent = sorted((record for client in self.clients for record in client.recent), key=lambda record: record.at)
        (self.data / "commands.txt").write_text("\n".join(str(record) for record in recent))
        for client in self.clients:
            print(f"--- {client.name}, its last commands:")
            for record in list(client.recent)[-RECENT_SHOWN:]:
                print(str(record)[:1200])
        print("--- faults:")
        for fault in self.faults_seen:
            print(fault)
        print(f"fuzz-commands: FAILED. Again: fuzz.py --seed {self.arguments.seed} --clients {self.arguments.clients} --members "
              f"{self.arguments.members}. Data, logs and the last commands: {self.data}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=10, help="how long rounds are begun")
    parser.add_argument("--round-seconds", type=float, default=30)
    parser.add_argument("--seed", default=None)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--no-faults", dest="faults", action="store_false")
    parser.add_argument("--no-restart", dest="restart", action="store_false", help="rounds end without a SIGKILL of all members")
    parser.add_argument("--keep-going", action="store_true", help="show every kind of fault, not the first alone")
    parser.add_argument("--reply-seconds-max", type=float, default=REPLY_SECONDS_MAX)
    arguments = parser.parse_args()
    if arguments.seed is None:
        arguments.seed = Draw().randrange(1 << 32)
    arguments.round_seconds = min(arguments.round_seconds, arguments.seconds)
    sys.exit(0 if Run(arguments).run() else 1)


if __name__ == "__main__":
    main()
