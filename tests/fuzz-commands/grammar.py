"""What a client does next: one request, with the concerns and limits that clients add to it.

The tables that say what can be drawn, and how often, are in crud.py and ddl.py. Everything here is valid: what comes back as an
error must be an answer to what the data is, or to what another client did (judge.py has the list).
"""

import dataclasses

import crud
import ddl
import values

# What a client is up to for a round: how often it does what.
MOODS = (
    {"write": 10, "read": 8, "change": 4, "look": 2}, {"write": 10, "read": 2, "change": 1, "look": 1},
    {"write": 2, "read": 1, "change": 10, "look": 1}, {"write": 4, "read": 10, "change": 1, "look": 2})
TABLES = {"write": crud.WRITES, "read": crud.READS, "change": ddl.CHANGES, "look": ddl.LOOKS}
# Longer than a fail-over, shorter than the bound on replies.
WAIT_MS_MAX = 20_000


@dataclasses.dataclass
class Request:
    """A command as it is sent."""

    database: str
    body: dict
    # Whether any member may be asked.
    anywhere: bool = False
    # Whether it carries a transaction number, and may be sent again.
    retryable: bool = False

    @property
    def name(self):
        """The command's name."""
        return next(iter(self.body))


def request(draw, mood, favourite):
    """The next request of a client, on its favourite name more often than not."""
    kind = draw.one_of(mood)
    command = draw.one_of(TABLES[kind])
    database = "fuzz" if draw.chance(0.9) else draw.pick(*values.DATABASES)
    body = command(draw, favourite if draw.chance(0.5) else draw.pick(*values.NAMES))
    if command is ddl.rename:
        body["renameCollection"] = f"{database}.{body['renameCollection']}"
        body["to"] = f"{database if draw.chance(0.8) else draw.pick(*values.DATABASES)}.{body['to']}"
        database = "admin"
    made = Request(database, body)
    if kind in ("write", "change"):
        _add_write_concern(draw, body)
        if kind == "write" and draw.chance(0.3):
            made.retryable = crud.retryable(draw, body)
    elif kind == "read" and command is not crud.explain:
        _add_read_concern(draw, body)
    if kind in ("read", "look") and draw.chance(0.3):
        made.anywhere = True
        body["$readPreference"] = {"mode": "secondaryPreferred"}
    if draw.chance(0.03):
        body["maxTimeMS"] = draw.pick(1, 5, 20)
    return made


def _add_write_concern(draw, body):
    concern = draw.one_of({None: 5, "one": 2, "majority": 3})
    if concern:
        body["writeConcern"] = {"w": 1 if concern == "one" else "majority", "wtimeout": WAIT_MS_MAX, **draw.maybe(0.1, j=True)}


def _add_read_concern(draw, body):
    if body.get("tailable") or not draw.chance(0.3):
        return
    levels = ["local", "available", "majority"] + (["snapshot"] if draw.chance(0.3) and next(iter(body)) != "count" else [])
    level = draw.pick(*levels)
    body["readConcern"] = {"level": level}
