"""What a writer did, and what may therefore be found after a crash.

Every document belongs to one writer, which bumps its version `v` with each write; a deletion is a version, too. All
else in a document follows from its id and its version (`content`), so a document made of parts of two versions, or of
half a version, cannot pass for a whole one.

Invariants: a document's permitted states are those from the newest version that must have survived to the newest that
was ever sent. An acknowledged write must survive the death of the process; one acknowledged as durable must survive the
loss of power, and with it all that its writer had acknowledged before, because the log is one sequence.
"""

LIVE, GONE = "live", "gone"
TAGS = 7


def content(identity, writer, version):
    """The fields that version has, but `hist`, which is what the writes before left in it."""
    document = {
        "_id": identity,
        "w": writer,
        "v": version,
        "u": f"{identity}#{version}",
        "tags": [version % TAGS, (version + int(identity.split("-")[1])) % 5, "x"],
        "sub": {"n": version, "parity": version % 2 == 0},
        "pad": "p" * (20 + version % 200),
    }
    if version % 3 == 0:
        document["s"] = version
    return document


def fault_of(document, writer):
    """What is wrong with a document in itself, or None."""
    found = {name: value for name, value in document.items() if name != "hist"}
    expected = content(document["_id"], writer, document["v"])
    if found != expected:
        return f"holds parts of several versions: {document}"
    history = document.get("hist", [])
    if not history or history[-1] != document["v"] or sorted(set(history)) != history or len(history) > 3:
        return f"has a history that no sequence of writes gives: {document}"
    return None


class Model:
    """The documents of one writer."""

    def __init__(self, writer):
        self.writer = writer
        self.history = {}  # id -> [(version, LIVE or GONE)], what may be found
        self.process = {}  # id -> version that must survive SIGKILL
        self.power = {}  # id -> version that must survive the loss of power
        self._acknowledged = set()

    def state(self, identity):
        """Version and state as the writer last left them."""
        return self.history.get(identity, [(0, GONE)])[-1]

    def send(self, identity, state):
        """A write of the next version is about to be sent; gives the version."""
        version = self.state(identity)[0] + 1
        self.history.setdefault(identity, [(0, GONE)]).append((version, state))
        return version

    def acknowledge(self, identities, durable):
        """The last write to each of them was acknowledged."""
        for identity in identities:
            self.process[identity] = self.state(identity)[0]
            self._acknowledged.add(identity)
        if durable:
            for identity in self._acknowledged:
                self.power[identity] = self.process[identity]
            self._acknowledged.clear()

    def settle(self, found, lost_power):
        """Compares with what was found after a crash (id -> document), and goes on from there; gives the faults."""
        faults = []
        must = self.power if lost_power else self.process
        for identity in found.keys() - self.history.keys():
            faults.append(f"{identity}: there, although nobody wrote it")
        for identity, history in self.history.items():
            document = found.get(identity)
            least = must.get(identity, 0)
            if document is None:
                actual = next(((v, s) for v, s in reversed(history) if s == GONE and v >= least), None)
            else:
                fault = fault_of(document, self.writer)
                if fault:
                    faults.append(f"{identity}: {fault}")
                actual = (document["v"], LIVE)
                if actual not in history or actual[0] < least:
                    actual = None
            if actual is None:
                seen = "absent" if document is None else f"at version {document['v']}"
                faults.append(f"{identity}: {seen}, but version {least} was acknowledged; sent were {history[-4:]}")
                actual = history[-1]
            history[:] = [actual]
            self.process[identity] = self.power[identity] = actual[0]
        self._acknowledged.clear()
        return faults
