"""Clients that each update or read a whole document chosen at random, and send the next request when they have the answer; or, with
`--pace`, requests that come when they come.

    python -m lab.load --hosts A:27017,B:27017 --clients 64 --bytes 1000 --records 10000 --w majority --warmup 2 --seconds 5

`--flood` is the work of who has no regard for others: each request looks through all documents, or sorts them without an index, or writes
sixteen documents of a megabyte; `--report` looks through all documents, sorts them without an index, or keeps a summary of each of ten
thousand groups of them (`$merge`); `--scan N` looks through the first N documents. `--reads 0.9 --zipfian` is the mix and the choice of
YCSB: nine of ten requests read, and few documents are most of what is asked
for. `--pace N` has N requests a second come, at random moments, whether or not those before them are answered: each takes a client that
is free, or waits for one, and its time runs from when it came. `--deadlines A-B` gives each request so many milliseconds (`maxTimeMS`) and prints
of each when it was sent, what it was given, and how long it took from then on: nothing if it was refused. `--each` prints every request, too: when it was answered and how long it took. `--held` says "ready" when it has started, and begins when it
is sent a line. One thread serves all connections, so that sixty-four clients cost little more than one. Whoever loses its connection, or is told
that the member takes no writes, goes to whichever member says that it does. Prints one line of JSON: times are seconds of
CLOCK_MONOTONIC, which all processes of the host share; latencies are in milliseconds, of requests that were sent after the warm-up.

A latency ends when the kernel has the reply (SO_TIMESTAMPNS), not when this process comes to read it: beside members that want all processors
it may come late, and nobody's own clients share theirs.

Invariant: a request counts when its write concern was met, never otherwise.
"""

import argparse
import collections
import json
import math
import os
import random
import select
import selectors
import socket
import struct
import sys
import threading
import time

import bson

from lab.zipf import Zipfian

POOL_BYTES = 1 << 20
# What a flood writes at once: as much as a message can hold, nearly.
FLOOD_DOCUMENTS, FLOOD_BYTES = 16, 1_000_000
# Of how many groups a report keeps a summary.
REPORT_GROUPS = 10_000
# The code of who was not in time.
MAX_TIME_MS_EXPIRED = 50
# `SO_TIMESTAMPNS` of socket(7): a message is read with the time (CLOCK_REALTIME) at which the kernel had it, as two numbers of 64 bits.
SO_TIMESTAMPNS = 35
STAMP = struct.Struct("qq")
# Counts over time are of intervals this long.
INTERVAL_SECONDS = 0.1


def quantile(values, share):
    """The smallest of the sorted values that `share` of them do not exceed."""
    return values[max(0, math.ceil(share * len(values)) - 1)]


def message(number, document):
    """An OP_MSG."""
    body = bson.encode(document)
    return struct.pack("<iiiiIB", 21 + len(body), number, 0, 2013, 0, 0) + body


def received_at(control):
    """When the kernel had what was read with that; now, if it does not say."""
    now = time.monotonic()
    for level, kind, data in control:
        if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS:
            seconds, nanos = STAMP.unpack(data)
            return now - max(0.0, time.time() - (seconds + nanos * 1e-9))
    return now


def is_done(reply):
    """Whether the one document was found, or all that were meant were updated and the write concern met."""
    if "cursor" in reply:
        return reply.get("ok") == 1 and len(reply["cursor"]["firstBatch"]) == 1
    return reply.get("ok") == 1 and reply.get("n") in (1, FLOOD_DOCUMENTS) and "writeErrors" not in reply and "writeConcernError" not in reply


class Finder(threading.Thread):
    """Knows who takes writes; looks for it while somebody has asked."""

    def __init__(self, hosts):
        super().__init__(daemon=True)
        self._hosts = hosts
        self._asked = threading.Event()
        self.primary = None
        self.start()

    def ask(self):
        """The member that took writes a moment ago is in doubt."""
        self.primary = None
        self._asked.set()

    def run(self):
        while True:
            self._asked.wait()
            for host in self._hosts:
                if self._takes_writes(host):
                    self._asked.clear()
                    self.primary = host
                    break
            else:
                time.sleep(0.02)

    @staticmethod
    def _takes_writes(host):
        name, port = host.rsplit(":", 1)
        try:
            with socket.create_connection((name, int(port)), timeout=0.5) as connection:
                connection.sendall(message(1, {"hello": 1, "$db": "admin"}))
                stream = connection.makefile("rb")
                size = struct.unpack("<i", stream.read(16)[:4])[0]
                return bson.decode(stream.read(size - 16)[5:])["isWritablePrimary"]
        except (OSError, struct.error, bson.errors.BSONError, KeyError):
            return False


class Client:
    """One connection with one request at a time."""

    def __init__(self, loop):
        self.loop = loop
        self.socket = None
        self.to_send = b""
        self.received = bytearray()
        # When the request came, and when it was sent: the deadline runs from then.
        self.sent_at = 0.0
        self.asked_at = 0.0
        self.deadline_ms = None

    def connect(self, host):
        """Goes to a member and sends its first request there."""
        name, port = host.rsplit(":", 1)
        try:
            self.socket = socket.create_connection((name, int(port)), timeout=0.5)
        except OSError:
            self.lose()
            return
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.loop.arguments.priority:
            self.state_priority()
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.loop.selector.register(self.socket, selectors.EVENT_READ, self)
        self.loop.next_of(self)

    def state_priority(self):
        """Says of which class its requests are."""
        self.socket.sendall(message(1, {"setClientPriority": 1, "priority": self.loop.arguments.priority, "$db": "admin"}))
        stream = self.socket.makefile("rb")
        size = struct.unpack("<i", stream.read(16)[:4])[0]
        reply = bson.decode(stream.read(size - 16)[5:])
        if reply["ok"] != 1:
            raise RuntimeError(f"no priority: {reply}")

    def begin(self, came_at=None):
        """Sends a request that came then, or comes now."""
        self.received.clear()
        self.deadline_ms = self.loop.deadline_ms()
        self.to_send = memoryview(self.loop.request(self.deadline_ms))
        self.asked_at = time.monotonic()
        self.sent_at = self.asked_at if came_at is None else came_at
        self.send()

    def send(self):
        """Sends what the connection takes."""
        try:
            self.to_send = self.to_send[self.socket.send(self.to_send):]
        except BlockingIOError:
            pass
        except OSError:
            self.lose()
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.to_send else 0)
        if self.loop.selector.get_key(self.socket).events != wanted:
            self.loop.selector.modify(self.socket, wanted, self)

    def receive(self):
        """Takes what has come; at the end of a reply, counts it and goes on."""
        try:
            data, control, _, _ = self.socket.recvmsg(1 << 16, socket.CMSG_SPACE(STAMP.size))
        except BlockingIOError:
            return
        except OSError:
            data, control = b"", ()
        if not data:
            self.lose()
            return
        self.received += data
        if len(self.received) < 16 or len(self.received) < struct.unpack_from("<i", self.received)[0]:
            return
        reply = bson.decode(bytes(self.received[21:]))
        if is_done(reply):
            self.loop.count(self, received_at(control))
            self.loop.next_of(self)
        elif self.deadline_ms is not None and reply.get("code") == MAX_TIME_MS_EXPIRED:
            self.loop.note_asked(self, None)
            self.loop.next_of(self)
        else:
            self.loop.failures += 1
            self.loop.last_failure = str(reply)
            self.lose()

    def lose(self):
        """Gives the connection up and waits for a primary."""
        if self in self.loop.idle:
            self.loop.idle.remove(self)
        if self.socket is not None:
            if self.socket in self.loop.selector.get_map():
                self.loop.selector.unregister(self.socket)
            self.socket.close()
            self.socket = None
        if not self.loop.lost:
            self.loop.finder.ask()
        self.loop.lost.append(self)


class Loop:
    """All clients."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.selector = selectors.DefaultSelector()
        self.finder = Finder(arguments.hosts.split(","))
        self.lost = []
        self.failures = 0
        self.last_failure = None
        self.latencies = []
        self.each = []
        self.asked = []
        self.finished_at = []
        self.idle = []
        self.backlog = collections.deque()
        self.comes_at = 0.0
        self._pool = os.urandom(POOL_BYTES + arguments.bytes)
        self._concern = {"w": arguments.w if arguments.w == "majority" else int(arguments.w), "j": arguments.j}
        self._random = random.Random(arguments.seed)
        self._zipfian = Zipfian(arguments.records, self._random) if arguments.zipfian else None
        self._number = 0
        self._measure_from = 0.0

    def whole(self):
        """The next of those who ask for all that there is, each in another way."""
        kind = self._number % 3
        if kind == 0:
            pipeline = [{"$match": {"value": {"$ne": self._number}}}, {"$count": "n"}]
        elif kind == 1:
            pipeline = [{"$sort": {"value": 1}}, {"$limit": 1}, {"$project": {"_id": 1}}]
        elif self.arguments.report:
            group = {"_id": {"$mod": ["$_id", REPORT_GROUPS]}, "count": {"$sum": 1}, "last": {"$max": "$value"}}
            pipeline = [{"$group": group}, {"$merge": {"into": "report"}}]
        else:
            at = self._random.randrange(POOL_BYTES)
            value = self._pool[at:at + self.arguments.bytes] * (FLOOD_BYTES // self.arguments.bytes)
            updates = [{"q": {"_id": self._random.randrange(64)}, "u": {"value": value}, "upsert": True} for _ in range(FLOOD_DOCUMENTS)]
            return message(self._number, {"update": "flood", "updates": updates, "writeConcern": self._concern, "$db": "lab"})
        return message(self._number, {"aggregate": "records", "pipeline": pipeline, "cursor": {}, "$db": "lab"})

    def scan(self):
        """One that looks through some documents; none of them is what it looks for."""
        match = {"_id": {"$lt": self.arguments.scan}, "value": {"$ne": self._number}}
        return {"aggregate": "records", "pipeline": [{"$match": match}, {"$count": "n"}], "cursor": {}, "$db": "lab"}

    def deadline_ms(self):
        """What the next request is given."""
        return self._random.randint(*self.arguments.deadlines) if self.arguments.deadlines else None

    def request(self, deadline_ms=None):
        """The next request."""
        self._number = self._number % (1 << 30) + 1
        if self.arguments.flood or self.arguments.report:
            return self.whole()
        if self.arguments.scan:
            return message(self._number, {**self.scan(), **({"maxTimeMS": deadline_ms} if deadline_ms else {})})
        record = self._zipfian.next() if self._zipfian else self._random.randrange(self.arguments.records)
        if self._random.random() < self.arguments.reads:
            return message(self._number, {"find": "records", "filter": {"_id": record}, "limit": 1, "singleBatch": True, "$db": "lab"})
        at = self._random.randrange(POOL_BYTES)
        update = {"q": {"_id": record},
                  "u": {"$set": {"value": self._pool[at:at + self.arguments.bytes]}}}
        return message(self._number, {"update": "records", "updates": [update], "writeConcern": self._concern, "$db": "lab"})

    def next_of(self, client):
        """Has a client that is free send a request, or wait for one to come."""
        if not self.arguments.pace:
            client.begin()
        elif self.backlog:
            client.begin(self.backlog.popleft())
        else:
            self.idle.append(client)

    def come(self, now):
        """Has those requests come whose time it is."""
        while self.comes_at <= now:
            self.backlog.append(self.comes_at)
            self.comes_at += self._random.expovariate(self.arguments.pace)
        while self.backlog and self.idle:
            self.idle.pop().begin(self.backlog.popleft())

    def note_asked(self, client, took_ms):
        """A request with a deadline was answered, or (none) refused or ended for it."""
        if client.asked_at >= self._measure_from:
            self.asked.append((client.asked_at - self._measure_from, client.deadline_ms, took_ms))

    def count(self, client, now):
        """A request was answered just now."""
        sent_at = client.sent_at
        if client.deadline_ms is not None:
            self.note_asked(client, (now - client.asked_at) * 1000)
        self.finished_at.append(now)
        if sent_at >= self._measure_from:
            self.latencies.append((now - sent_at) * 1000)
            if self.arguments.each:
                self.each.append((round(now, 4), round((now - sent_at) * 1000, 3)))

    def run(self):
        """Runs to the end; returns what is printed."""
        begun = time.monotonic()
        self._measure_from = begun + self.arguments.warmup
        until = self._measure_from + self.arguments.seconds
        self.comes_at = begun
        for _ in range(self.arguments.clients):
            Client(self).lose()
        while (now := time.monotonic()) < until:
            if self.lost and self.finder.primary:
                lost, self.lost = self.lost, []
                host = self.finder.primary
                for client in lost:
                    client.connect(host)
            wait = min(0.1, until - now)
            if self.arguments.pace:
                self.come(now)
                wait = max(0.0, min(wait, self.comes_at - time.monotonic()))
            # The finder's answer is looked for every few milliseconds while somebody waits for it. The selector itself would wait for whole
            # milliseconds, and requests would come late.
            select.select([self.selector], [], [], min(wait, 0.005) if self.lost else wait)
            for key, events in self.selector.select(0):
                if events & selectors.EVENT_WRITE and key.data.socket is not None:
                    key.data.send()
                if events & selectors.EVENT_READ and key.data.socket is not None:
                    key.data.receive()
        return self.report(begun, until)

    def report(self, begun, until):
        """See the file's header."""
        measured = sorted(self.latencies)
        counts = [0] * (int((until - begun) / INTERVAL_SECONDS) + 1)
        for at in self.finished_at:
            counts[min(len(counts) - 1, int((at - begun) / INTERVAL_SECONDS))] += 1
        finished = sorted(self.finished_at)
        gaps = [(b - a) for a, b in zip(finished, finished[1:])]
        return {
            "answered": len(measured),
            "seconds": self.arguments.seconds,
            "perSecond": sum(at >= self._measure_from for at in self.finished_at) / self.arguments.seconds,
            "latencyMs": {name: quantile(measured, share) if measured else None
                          for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1))},
            "begun": begun,
            "intervalSeconds": INTERVAL_SECONDS,
            "counts": counts,
            "longestGapSeconds": max(gaps, default=None),
            "failures": self.failures,
            "lastFailure": self.last_failure,
            **({"each": self.each} if self.arguments.each else {}),
            **({"asked": sorted(self.asked)} if self.arguments.deadlines else {}),
        }


def main():
    parser = argparse.ArgumentParser(description="Updates and reads in a closed loop")
    parser.add_argument("--hosts", required=True)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--bytes", type=int, default=1000)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--w", default="majority")
    parser.add_argument("--j", type=lambda text: text == "true", default=True)
    parser.add_argument("--warmup", type=float, default=2)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--reads", type=float, default=0)
    parser.add_argument("--zipfian", action="store_true")
    parser.add_argument("--flood", action="store_true")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--scan", type=int)
    parser.add_argument("--pace", type=float)
    parser.add_argument("--deadlines", type=lambda text: tuple(map(int, text.split("-"))))
    parser.add_argument("--priority", choices=("high", "normal", "low"), help="the class of all requests, said for each connection")
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--held", action="store_true", help="say that all is ready, and begin when a line comes")
    parser.add_argument("--seed", type=int, default=1)
    loop = Loop(parser.parse_args())
    if loop.arguments.held:
        print("ready", flush=True)
        sys.stdin.readline()
    print(json.dumps(loop.run()))


if __name__ == "__main__":
    main()
