"""One client: draws requests, sends them, waits for each reply no longer than the bound, and has it judged.

It follows the set as drivers do, so that a member's death or step-down costs it one request. Some clients leave in the middle
of a request, send a retryable write twice, or end another's operation.

Invariant: every command is recorded before it is sent.
"""

import collections
import dataclasses
import threading
import time

import bson

import grammar
import judge
import values
from draw import Draw
from ledger import Ledger
from raw import Raw

RECENT_MAX = 400


@dataclasses.dataclass
class Sent:
    """A command that was sent, and what came back."""

    at: float
    member: int
    request: grammar.Request
    reply: dict = None
    took: float = None

    def __str__(self):
        body = {name: value for name, value in self.request.body.items() if name not in ("lsid", "$clusterTime")}
        answer = "no reply" if self.reply is None else judge.short(self.reply)
        return f"{self.at:9.3f} s, member {self.member}: {self.request.database}: {body}\n            -> {answer}"


class Client(threading.Thread):
    """A thread that is a client until `run.stopping` is set."""

    def __init__(self, number, run, seed):
        super().__init__(name=f"client {number}", daemon=True)
        self.number = number
        self.run_ = run
        self.draw = Draw(f"{seed} {number}")
        self.recent = collections.deque(maxlen=RECENT_MAX)
        self.connections = {}
        self.primary = 0
        self.count = 0
        self.mood = self.draw.pick(*grammar.MOODS)
        # The same for all.
        self.favourite = Draw(seed).pick(*values.NAMES)
        self.ledger = Ledger(self, run.accounts)

    def run(self):
        """Until told to stop. What it did not expect of itself is a fault of the run, not the end of a thread."""
        try:
            while not self.run_.stopping.is_set():
                self.step()
        except judge.Ended:
            pass
        except Exception as error:  # noqa: BLE001: whatever it is, the run must hear of it.
            self.run_.fault("the fuzzer itself", f"{self.name}: {type(error).__name__}: {error}", trace=True)
        finally:
            for connection in self.connections.values():
                connection.socket.close()

    def step(self):
        """One thing that a client does."""
        if self.draw.chance(0.06):
            self.ledger.step()
            return
        request = grammar.request(self.draw, self.mood, self.favourite)
        member = self.draw.randrange(len(self.run_.members)) if request.anywhere else self.primary
        try:
            if self.draw.chance(0.005):
                self.leave(member, request)
                return
            if self.draw.chance(0.005):
                self.end_an_operation(member)
            reply = self.send(member, request)
            if request.retryable and reply["ok"] and self.draw.chance(0.3):
                self.run_.judge_retry(self, request, reply, self.send(member, request))
            self.follow(member, request, reply)
        except judge.Gone:
            self.look_for_primary()
            return
        if judge.is_of_failover(reply) and not request.anywhere:
            self.look_for_primary()

    def send(self, member, request):
        """The reply to a request, judged.

        Raises `judge.Gone` if the connection is lost.
        """
        record = self.record(member, request)
        connection = self.connection(member)
        began = time.monotonic()
        try:
            connection.message(bson.encode({**request.body, "$db": request.database}))
            reply = connection.reply()
        except TimeoutError:
            self.run_.no_reply(self, record)
            raise judge.Ended() from None
        record.took = time.monotonic() - began
        if reply is None:
            self.lose(member)
            raise judge.Gone
        record.reply = reply
        self.count += 1
        self.run_.judge_reply(self, record)
        return reply

    def record(self, member, request):
        """Writes down what is about to be sent."""
        record = Sent(time.monotonic() - self.run_.began, member, request)
        self.recent.append(record)
        return record

    def connection(self, member):
        """The connection to a member, made if there is none."""
        if member not in self.connections:
            try:
                connection = Raw(self.run_.members[member])
            except OSError:
                raise judge.Gone from None
            connection.socket.settimeout(self.run_.reply_seconds_max)
            connection.pid = self.run_.members[member].pid
            self.connections[member] = connection
        return self.connections[member]

    def lose(self, member):
        """A connection ended. Only a member that was killed, or that leaves its part, ends one."""
        connection = self.connections.pop(member)
        connection.socket.close()
        self.run_.judge_lost(self, member, connection.pid)

    def follow(self, member, request, reply):
        """Goes on with a cursor, ends it, or forgets it."""
        more = 0
        while (cursor := reply.get("cursor", {})).get("id"):
            database, name = cursor["ns"].split(".", 1)
            more += 1
            if self.draw.chance(0.05) or self.run_.stopping.is_set():
                return
            if more > 3 or self.draw.chance(0.2):
                self.send(member, grammar.Request(database, {"killCursors": name, "cursors": [cursor["id"]]}, anywhere=True))
                return
            limit = {"maxTimeMS": self.draw.randint(1, 100)} if request.body.get("awaitData") else {}
            body = {"getMore": bson.Int64(cursor["id"]), "collection": name, "batchSize": self.draw.randint(1, 5), **limit}
            reply = self.send(member, grammar.Request(database, body, anywhere=True))

    def leave(self, member, request):
        """Sends, and is gone before the answer."""
        self.record(member, request)
        connection = self.connection(member)
        connection.message(bson.encode({**request.body, "$db": request.database}))
        self.connections.pop(member).socket.close()

    def end_an_operation(self, member):
        """Ends what another client has under way, if there is anything."""
        look = grammar.Request("admin", {"currentOp": 1, "active": True, "ns": {"$regex": "^(fuzz|other)"}}, anywhere=True)
        # What belongs to the member itself has no number.
        under_way = [operation["opid"] for operation in self.send(member, look).get("inprog", []) if "opid" in operation]
        if under_way:
            self.send(member, grammar.Request("admin", {"killOp": 1, "op": self.draw.choice(under_way)}, anywhere=True))

    def look_for_primary(self):
        """Asks the members, in turn, until one takes writes; gives up when the run does."""
        deadline = time.monotonic() + self.run_.reply_seconds_max
        while not self.run_.ended.is_set():
            for member in range(len(self.run_.members)):
                try:
                    if self.send(member, grammar.Request("admin", {"hello": 1}, anywhere=True)).get("isWritablePrimary"):
                        self.primary = member
                        return
                except judge.Gone:
                    pass
            if time.monotonic() > deadline:
                self.run_.fault("no primary", f"none for {self.run_.reply_seconds_max} s")
                break
            time.sleep(0.02)
        raise judge.Ended()
