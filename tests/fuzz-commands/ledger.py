"""What clients were promised, so that it can be asked for: writes of known effect, acknowledged by a majority, to collections
that nobody drops.

- Inserts with `_id`s of their own (`ledger.kept`): each one that was acknowledged is there in the end.
- Increments by retryable upserts on a few unique keys that all clients share (`ledger.shared`), and removals that give back
what they
  took. Each statement is sent until it is answered, so it is done once: what is left plus what was taken is what was added.

Not here: what may be lost (`w: 1`), and reads.
"""

import threading
import time

import bson

import grammar
import judge

MAJORITY = {"w": "majority", "wtimeout": grammar.WAIT_MS_MAX}
KEYS = 6


class Accounts:
    """The sums over all clients."""

    def __init__(self):
        self.lock = threading.Lock()
        self.kept = set()
        self.added = 0
        self.taken = 0

    def check(self, member, kept, shared):
        """What is wrong with a member's two collections; nothing, if they keep what was promised."""
        missing = sorted(self.kept - {each["_id"] for each in kept})
        if missing:
            yield f"member {member} lacks {len(missing)} of {len(self.kept)} inserts that a majority acknowledged: {missing[:10]}"
        left = sum(each["n"] for each in shared)
        if left + self.taken != self.added:
            yield f"member {member}: {self.added} were added by retryable writes, {self.taken} taken away, {left} are left"


class Ledger:
    """One client's part."""

    def __init__(self, client, accounts):
        self.client = client
        self.accounts = accounts
        self.number = 0
        self.transaction = 0
        self.session = {"id": bson.Binary(client.draw.randbytes(16), 4)}

    def step(self):
        """One entry."""
        self.client.draw.pick(self.insert, self.insert, self.add, self.add, self.take)()

    def insert(self):
        """Sent once. If the answer is lost nothing is known."""
        self.number += 1
        key = f"{self.accounts.round}-{self.client.number}-{self.number}"
        body = {"insert": "kept", "documents": [{"_id": key}], "writeConcern": MAJORITY}
        try:
            reply = self.client.send(self.client.primary, grammar.Request("ledger", body))
        except judge.Gone:
            self.client.look_for_primary()
            return
        if reply["ok"] and "writeConcernError" not in reply:
            with self.accounts.lock:
                self.accounts.kept.add(key)
        else:
            self.client.look_for_primary()

    def add(self):
        """One more under a key."""
        key = self.client.draw.randrange(KEYS)
        reply = self.until_answered({
            "update": "shared", "updates": [{"q": {"k": key}, "u": {"$inc": {"n": 1}}, "upsert": True}]})
        assert reply["n"] == 1, reply
        with self.accounts.lock:
            self.accounts.added += 1

    def take(self):
        """All under a key."""
        reply = self.until_answered({"findAndModify": "shared", "query": {"k": self.client.draw.randrange(KEYS)}, "remove": True})
        if reply.get("value"):
            with self.accounts.lock:
                self.accounts.taken += reply["value"]["n"]

    def until_answered(self, body):
        """Sends a retryable write until a majority has acknowledged it."""
        self.transaction += 1
        body |= {"lsid": self.session, "txnNumber": bson.Int64(self.transaction), "writeConcern": MAJORITY}
        deadline = time.monotonic() + 2 * self.client.run_.reply_seconds_max
        while time.monotonic() < deadline:
            try:
                reply = self.client.send(self.client.primary, grammar.Request("ledger", body))
                if reply["ok"] and "writeConcernError" not in reply and not reply.get("writeErrors"):
                    return reply
            except judge.Gone:
                pass
            self.client.look_for_primary()
        raise AssertionError(f"not acknowledged in {2 * self.client.run_.reply_seconds_max} s: {body}")
